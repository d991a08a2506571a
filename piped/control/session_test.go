package control_test

import (
	"crypto/rand"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/c785c783/piped/piped/access"
	"github.com/c785c783/piped/piped/control"
	"github.com/c785c783/piped/piped/control/controltest"
	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/proto/pipecd/apiservice"
	controlv1 "github.com/c785c783/piped/proto/piped/control/v1"
)

// TestSessionsOfUsers: the holder of a session has the roles of the user; the session ends by its
// limits, when it is ended, when the user or the key that opened it is disabled, and with it
// its streams.
func TestSessionsOfUsers(t *testing.T) {
	var idle atomic.Int64
	idle.Store(int64(time.Hour))
	agent := controltest.Start(t, t.TempDir(), func(c *control.Config) {
		c.SessionIdle = func() time.Duration { return time.Duration(idle.Load()) }
		c.Policy = access.NewPolicy([]access.Role{{Name: "viewer", Groups: []string{"payments"}, Applications: deploy.Selector{Names: []string{"web"}}}})
	})
	agent.Application("web", nil)
	agent.Application("search", nil)
	conn := dial(t, agent.Server.Addr())
	client := apiservice.NewAPIServiceClient(conn)
	sessions := access.Sessions{Store: agent.Store, MaxAge: func() time.Duration { return 3 * time.Hour }, Now: agent.Now, Rand: rand.Reader}
	ben := deploy.User{Issuer: "corp", Subject: "ben", Groups: []string{"payments"}}
	open := func(s deploy.Session) string {
		t.Helper()
		token, _, err := sessions.Open(t.Context(), s)
		if err != nil {
			t.Fatal(err)
		}
		return token
	}
	call := func(token string) (names []string, code codes.Code) {
		t.Helper()
		ctx := metadata.AppendToOutgoingContext(t.Context(), "authorization", "SESSION "+token)
		list, err := client.ListApplications(ctx, &apiservice.ListApplicationsRequest{})
		for _, a := range list.GetApplications() {
			names = append(names, a.Name)
		}
		return names, status.Code(err)
	}
	want := func(what, token string, code codes.Code) {
		t.Helper()
		if names, got := call(token); got != code || got == codes.OK && (len(names) != 1 || names[0] != "web") {
			t.Errorf("%s: %v %s, want %s", what, names, got, code)
		}
	}

	first := open(deploy.Session{User: ben})
	want("a new session", first, codes.OK)
	want("another secret", first[:len(first)-1]+"!", codes.Unauthenticated)
	agent.Tick(59 * time.Minute)
	want("used within the idle limit", first, codes.OK)
	agent.Tick(59 * time.Minute)
	want("used within the idle limit again", first, codes.OK)
	agent.Tick(59 * time.Minute)
	want("near the absolute limit", first, codes.OK)
	agent.Tick(4 * time.Minute)
	want("after the absolute limit", first, codes.Unauthenticated)

	second := open(deploy.Session{User: ben})
	want("another session", second, codes.OK)
	agent.Tick(time.Hour)
	want("after the idle limit", second, codes.Unauthenticated)

	third := open(deploy.Session{User: ben})
	ctx := metadata.AppendToOutgoingContext(t.Context(), "authorization", "SESSION "+third)
	stream, err := controlv1.NewControlServiceClient(conn).WatchDeployments(ctx, &controlv1.WatchDeploymentsRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if m, err := stream.Recv(); err != nil || !m.CaughtUp {
		t.Fatalf("first message %v, %v", m, err)
	}
	if err := agent.Store.DisableUser(t.Context(), "corp", "ben", "ana"); err != nil {
		t.Fatal(err)
	}
	if _, err := stream.Recv(); status.Code(err) != codes.Unauthenticated {
		t.Errorf("the stream of a disabled user ends with %v", err)
	}
	want("a disabled user", third, codes.Unauthenticated)
	if _, _, err := sessions.Open(t.Context(), deploy.Session{User: ben}); !deploy.IsKind(err, deploy.Denied) {
		t.Errorf("a disabled user signs in: %v", err)
	}

	key := agent.LimitedKey("viewer", &deploy.Selector{Names: []string{"web"}})
	id, _ := access.IDOf(key)
	fourth, fifth := open(deploy.Session{KeyID: id}), open(deploy.Session{KeyID: id})
	want("a session of a key", fourth, codes.OK)
	if _, err := sessions.End(t.Context(), fourth[:len(fourth)-1]+"!"); !deploy.IsKind(err, deploy.NotFound) {
		t.Errorf("a session is ended with another secret: %v", err)
	}
	want("not ended with another secret", fourth, codes.OK)
	if _, err := sessions.End(t.Context(), fourth); err != nil {
		t.Fatal(err)
	}
	want("an ended session", fourth, codes.Unauthenticated)
	want("the other session of the key", fifth, codes.OK)
	if err := agent.Store.DisableAPIKey(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	want("a session of a disabled key", fifth, codes.Unauthenticated)
}

// TestRolesAreReplaced: calls see new roles at once, and streams end.
func TestRolesAreReplaced(t *testing.T) {
	agent := controltest.Start(t, t.TempDir(), func(c *control.Config) {
		c.Policy = access.NewPolicy([]access.Role{{Name: "team", Permissions: []deploy.Permission{deploy.PermView}}})
	})
	conn := dial(t, agent.Server.Addr())
	ctx := as(t, agent.LimitedKey("team", nil))
	stream, err := controlv1.NewControlServiceClient(conn).WatchDeployments(ctx, &controlv1.WatchDeploymentsRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if m, err := stream.Recv(); err != nil || !m.CaughtUp {
		t.Fatalf("first message %v, %v", m, err)
	}
	agent.Server.SetPolicy(access.NewPolicy(nil))
	if _, err := stream.Recv(); status.Code(err) != codes.Unavailable {
		t.Errorf("the stream ends with %v, want Unavailable", err)
	}
	_, err = apiservice.NewAPIServiceClient(conn).ListApplications(ctx, &apiservice.ListApplicationsRequest{})
	if status.Code(err) != codes.PermissionDenied || status.Convert(err).Message() != "Invalid role" {
		t.Errorf("a key whose role is gone: %v", err)
	}
}

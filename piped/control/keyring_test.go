package control_test

import (
	"context"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/c785c783/piped/piped/control"
	"github.com/c785c783/piped/piped/control/controltest"
	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/store"
	"github.com/c785c783/piped/proto/pipecd/apiservice"
	controlv1 "github.com/c785c783/piped/proto/piped/control/v1"
)

// counting is a real store that counts reads of keys.
type counting struct {
	control.Store
	reads *atomic.Int32
}

func (c counting) APIKey(ctx context.Context, id string) (deploy.APIKey, error) {
	c.reads.Add(1)
	return c.Store.APIKey(ctx, id)
}

// TestAKeyIsReadOnce: calls read no key from the store until the cached one expires.
func TestAKeyIsReadOnce(t *testing.T) {
	var reads atomic.Int32
	agent := controltest.Start(t, t.TempDir(), func(c *control.Config) { c.Store = counting{c.Store, &reads} })
	client := apiservice.NewAPIServiceClient(dial(t, agent.Server.Addr()))
	call := func(key string, want codes.Code, read int32) {
		t.Helper()
		before := reads.Load()
		_, err := client.ListApplications(as(t, key), &apiservice.ListApplicationsRequest{})
		if got := reads.Load() - before; status.Code(err) != want || got != read {
			t.Errorf("%v after %d reads, want %s after %d", err, got, want, read)
		}
	}
	id, secret, _ := strings.Cut(agent.ReadOnly, ".")
	call(agent.ReadOnly, codes.OK, 1)
	call(agent.ReadOnly, codes.OK, 0)
	call(agent.ReadWrite, codes.OK, 1)
	call(id+"."+strings.Repeat("a", 32), codes.Unauthenticated, 1)
	call("nobody."+secret, codes.Unauthenticated, 1)
	call(id, codes.Unauthenticated, 0)
	call(agent.ReadOnly, codes.OK, 0)
	agent.Tick(29 * time.Second)
	call(agent.ReadOnly, codes.OK, 0)
	agent.Tick(2 * time.Second)
	call(agent.ReadOnly, codes.OK, 1)
	call(agent.ReadOnly, codes.OK, 0)
	if err := agent.Store.DisableAPIKey(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	call(agent.ReadOnly, codes.Unauthenticated, 1)
	call(agent.ReadWrite, codes.OK, 1)
}

// TestAKeyThatAnotherProcessDisables is valid until the cached one expires, since changes by
// another process to a SQLite file are not announced.
func TestAKeyThatAnotherProcessDisables(t *testing.T) {
	dir := t.TempDir()
	agent := controltest.Start(t, dir)
	client := apiservice.NewAPIServiceClient(dial(t, agent.Server.Addr()))
	ctx := as(t, agent.ReadOnly)
	if _, err := client.ListApplications(ctx, &apiservice.ListApplicationsRequest{}); err != nil {
		t.Fatal(err)
	}
	other, err := store.Open(t.Context(), "sqlite://"+filepath.Join(dir, "piped.db"), store.Options{Existing: true})
	if err != nil {
		t.Fatal(err)
	}
	id, _, _ := strings.Cut(agent.ReadOnly, ".")
	if err := other.DisableAPIKey(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	if err := other.Close(); err != nil {
		t.Fatal(err)
	}
	agent.Tick(time.Minute)
	if _, err := client.ListApplications(ctx, &apiservice.ListApplicationsRequest{}); status.Code(err) != codes.Unauthenticated {
		t.Errorf("a minute later: %v", err)
	}
}

// TestStreamsEndWithTheirKey: not with another key, nor after a call with a wrong secret.
func TestStreamsEndWithTheirKey(t *testing.T) {
	agent := controltest.Start(t, t.TempDir())
	client := controlv1.NewControlServiceClient(dial(t, agent.Server.Addr()))
	watch := func(key string) controlv1.ControlService_WatchDeploymentsClient {
		t.Helper()
		stream, err := client.WatchDeployments(as(t, key), &controlv1.WatchDeploymentsRequest{})
		if err != nil {
			t.Fatal(err)
		}
		if first, err := stream.Recv(); err != nil || !first.CaughtUp {
			t.Fatalf("first message %v, %v", first, err)
		}
		return stream
	}
	leaving := agent.Key("leaver", deploy.ReadOnly)
	goes, stays := watch(leaving), watch(agent.ReadOnly)
	id, _, _ := strings.Cut(leaving, ".")
	for _, wrong := range []string{strings.ToUpper(leaving), id + "." + strings.Repeat("a", 32)} {
		if _, err := client.GetStatus(as(t, wrong), &controlv1.GetStatusRequest{}); status.Code(err) != codes.Unauthenticated {
			t.Fatal(err)
		}
	}
	app := agent.Application("web", nil)
	agent.Deployment("d1", app, "")
	if msg, err := goes.Recv(); err != nil || msg.Deployment.GetId() != "d1" {
		t.Fatalf("before it is disabled: %v, %v", msg, err)
	}
	if _, err := client.DisableAPIKey(as(t, agent.ReadWrite), &controlv1.DisableAPIKeyRequest{Id: id}); err != nil {
		t.Fatal(err)
	}
	if _, err := goes.Recv(); status.Code(err) != codes.Unauthenticated {
		t.Errorf("the stream of the disabled key ends with %v, want Unauthenticated", err)
	}
	agent.Deployment("d2", agent.Application("api", nil), "")
	for _, want := range []string{"d1", "d2"} {
		if msg, err := stays.Recv(); err != nil || msg.Deployment.GetId() != want {
			t.Errorf("the other stream has %v, %v, want %s", msg, err, want)
		}
	}
}

// TestTheLastUseOfAKeyIsStored: with a precision of a minute, at the latest at shutdown.
func TestTheLastUseOfAKeyIsStored(t *testing.T) {
	agent := controltest.Start(t, t.TempDir())
	client := apiservice.NewAPIServiceClient(dial(t, agent.Server.Addr()))
	agent.Tick(90 * time.Second)
	if _, err := client.ListApplications(as(t, agent.ReadOnly), &apiservice.ListApplicationsRequest{}); err != nil {
		t.Fatal(err)
	}
	used := func(key string) time.Time {
		t.Helper()
		id, _, _ := strings.Cut(key, ".")
		k, err := agent.Store.APIKey(t.Context(), id)
		if err != nil {
			t.Fatal(err)
		}
		return k.LastUsedAt
	}
	if at := used(agent.ReadOnly); !at.IsZero() {
		t.Errorf("a call wrote to the store: %s", at)
	}
	agent.Restart()
	if at, want := used(agent.ReadOnly), controltest.Epoch.Add(90*time.Second).Truncate(time.Minute); !at.Equal(want) {
		t.Errorf("last use %s, want %s", at, want)
	}
	if at := used(agent.ReadWrite); !at.IsZero() {
		t.Errorf("last use %s of a key that was not used", at)
	}
}

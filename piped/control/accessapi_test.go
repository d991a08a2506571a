package control_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/c785c783/piped/piped/access"
	"github.com/c785c783/piped/piped/control"
	"github.com/c785c783/piped/piped/control/controltest"
	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/proto/pipecd/apiservice"
	controlv1 "github.com/c785c783/piped/proto/piped/control/v1"
	modelv1 "github.com/c785c783/piped/proto/piped/model/v1"
)

// withSession returns a context with the token of a session.
func withSession(t testing.TB, token string) context.Context {
	return metadata.AppendToOutgoingContext(t.Context(), "authorization", "SESSION "+token)
}

func idOf(token string) string {
	id, _, _ := strings.Cut(token, ".")
	return id
}

var (
	teamPayments = deploy.Selector{Labels: map[string]string{"team": "payments"}}
	ana          = deploy.User{Issuer: "corp", Subject: "ana@example.com", Name: "Ana", Groups: []string{"payments"}}
	ben          = deploy.User{Issuer: "corp", Subject: "ben@example.com", Name: "Ben", Groups: []string{"platform"}}
	eve          = deploy.User{Issuer: "corp", Subject: "eve@example.com"} // has no role
)

// people starts an agent whose team payments deploys its applications, and whose group platform
// administers the agent.
func people(t testing.TB) (*controltest.Agent, controlv1.ControlServiceClient) {
	t.Helper()
	agent := controltest.Start(t, t.TempDir(), func(c *control.Config) {
		c.Policy = access.NewPolicy([]access.Role{
			{Name: "payments", Groups: []string{"payments"}, Applications: teamPayments, Permissions: []deploy.Permission{deploy.PermView, deploy.PermSync}},
			{Name: "platform", Groups: []string{"platform"}, Permissions: deploy.Permissions()},
		})
	})
	agent.Application("pay", teamPayments.Labels)
	agent.Application("find", map[string]string{"team": "search"})
	return agent, controlv1.NewControlServiceClient(dial(t, agent.Server.Addr()))
}

// extents returns the permissions that a caller has somewhere, such as "view SOME".
func extents(m *controlv1.GetCallerResponse) (has []string) {
	for _, p := range m.Permissions {
		if word := strings.TrimPrefix(p.Extent.String(), "PERMISSION_EXTENT_"); word != "NOWHERE" {
			has = append(has, p.Permission+" "+word)
		}
	}
	return has
}

func TestGetCaller(t *testing.T) {
	agent, client := people(t)
	limited := agent.LimitedKey("deployer", &teamPayments)
	opened := agent.SignInWithKey(limited)
	session := agent.SignIn(ana)
	tests := map[string]struct {
		ctx  context.Context
		want *controlv1.GetCallerResponse
		has  []string
	}{
		"a user": {withSession(t, session), &controlv1.GetCallerResponse{
			Kind: controlv1.CallerKind_CALLER_KIND_USER, Id: idOf(session), Subject: "ana@example.com", Issuer: "corp", Name: "Ana", Groups: []string{"payments"},
			Roles: []string{"payments"},
		}, []string{"view SOME", "sync SOME"}},
		"a user without role": {withSession(t, agent.SignIn(eve)), &controlv1.GetCallerResponse{
			Kind: controlv1.CallerKind_CALLER_KIND_USER, Subject: "eve@example.com", Issuer: "corp",
		}, nil},
		"a limited key": {as(t, limited), &controlv1.GetCallerResponse{
			Kind: controlv1.CallerKind_CALLER_KIND_API_KEY, Id: idOf(limited), Subject: "deployer",
			Roles: []string{"deployer"}, Applications: &modelv1.ApplicationSelector{Labels: teamPayments.Labels},
		}, []string{"view SOME", "view-logs SOME", "sync SOME", "cancel SOME", "rollback SOME", "enable SOME", "encrypt EVERYWHERE"}},
		"its session": {withSession(t, opened), &controlv1.GetCallerResponse{
			Kind: controlv1.CallerKind_CALLER_KIND_API_KEY_SESSION, Id: idOf(opened), Subject: "deployer",
			Roles: []string{"deployer"}, Applications: &modelv1.ApplicationSelector{Labels: teamPayments.Labels},
		}, []string{"view SOME", "view-logs SOME", "sync SOME", "cancel SOME", "rollback SOME", "enable SOME", "encrypt EVERYWHERE"}},
		"READ_ONLY": {as(t, agent.ReadOnly), &controlv1.GetCallerResponse{
			Kind: controlv1.CallerKind_CALLER_KIND_API_KEY, Id: idOf(agent.ReadOnly), Subject: "watcher", Name: "watcher's key", Roles: []string{"READ_ONLY"},
		}, []string{"view EVERYWHERE", "view-logs EVERYWHERE", "encrypt EVERYWHERE"}},
		"a key without role": {as(t, agent.Key("odd", "gone")), &controlv1.GetCallerResponse{
			Kind: controlv1.CallerKind_CALLER_KIND_API_KEY, Subject: "odd", Name: "odd's key",
		}, nil},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := client.GetCaller(tc.ctx, &controlv1.GetCallerRequest{})
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.has, extents(got)); diff != "" || len(got.Permissions) != len(deploy.Permissions()) {
				t.Errorf("%d permissions (-want +got):\n%s", len(got.Permissions), diff)
			}
			if open := got.ExpiresAtMs > 0; open == (got.Kind == controlv1.CallerKind_CALLER_KIND_API_KEY) {
				t.Errorf("expires at %d", got.ExpiresAtMs)
			}
			got.Permissions, got.ExpiresAtMs = nil, 0
			if tc.want.Id == "" {
				got.Id = ""
			}
			if tc.want.Name == "" { // of a key with a random name
				got.Name = ""
			}
			if diff := cmp.Diff(tc.want, got, protocmp.Transform()); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

func TestCheckAccess(t *testing.T) {
	agent, client := people(t)
	agent.SignIn(deploy.User{Issuer: "corp", Subject: ana.Subject, Groups: []string{"platform"}}) // an earlier sign-in with other groups
	own := agent.SignIn(ana)
	admin := withSession(t, agent.SignIn(ben))
	key := agent.LimitedKey("deployer", &teamPayments)
	record, err := agent.Store.APIKey(t.Context(), idOf(key))
	if err != nil {
		t.Fatal(err)
	}
	if err := agent.Store.DisableUser(t.Context(), "corp", "gone@example.com", "ben"); err != nil {
		t.Fatal(err)
	}
	about := func(subject, permission, app string) *controlv1.CheckAccessRequest {
		return &controlv1.CheckAccessRequest{Subject: subject, Permission: permission, ApplicationId: app}
	}
	hypothetical := about("new@example.com", "sync", "app-find")
	hypothetical.Groups = []string{"payments"}
	leaver := about("gone@example.com", "sync", "app-pay")
	leaver.Groups = []string{"platform"}
	tests := map[string]struct {
		ctx  context.Context
		req  *controlv1.CheckAccessRequest
		role string // that grants it; "" for denied
		want string // reason or error
		code codes.Code
	}{
		"a user by the groups of the newest session": {admin, about(ana.Subject, "sync", "app-pay"), "payments", "role payments grants sync", codes.OK},
		"in another application":                     {admin, about(ana.Subject, "sync", "app-find"), "", "role payments grants sync, but not in this application", codes.OK},
		"a permission about the agent":               {admin, about(ana.Subject, "keys", ""), "", "role payments does not grant keys", codes.OK},
		"a user who never signed in":                 {admin, about("new@example.com", "view", "app-pay"), "", "new@example.com has no role: no role names this subject, and the issuer reports no groups", codes.OK},
		"with groups":                                {admin, hypothetical, "", "role payments grants sync, but not in this application", codes.OK},
		"a disabled user":                            {admin, leaver, "", "user gone@example.com is disabled", codes.OK},
		"a key":                                      {admin, about(record.Name, "sync", "app-pay"), "deployer", "role deployer grants sync", codes.OK},
		"a key outside of its limit":                 {admin, about(record.Name, "sync", "app-find"), "", "API key deployer is limited to other applications", codes.OK},
		"oneself":                                    {withSession(t, own), about("", "sync", "app-pay"), "payments", "role payments grants sync", codes.OK},
		"oneself by name":                            {withSession(t, own), about(ana.Subject, "sync", "app-pay"), "payments", "role payments grants sync", codes.OK},
		"oneself as a key":                           {as(t, key), about(record.Name, "delete", "app-pay"), "", "role deployer does not grant delete", codes.OK},
		"oneself without any role":                   {withSession(t, agent.SignIn(eve)), about("", "keys", ""), "", "eve@example.com has no role: no role names this subject, and the issuer reports no groups", codes.OK},
		"others without administer":                  {withSession(t, own), about(ben.Subject, "sync", "app-pay"), "", `Permission denied: to ask about others needs the permission "administer"`, codes.PermissionDenied},
		"a hidden application":                       {withSession(t, own), about("", "sync", "app-find"), "", "there is no application app-find", codes.NotFound},
		"an unknown application":                     {withSession(t, own), about("", "sync", "app-none"), "", "there is no application app-none", codes.NotFound},
		"no application":                             {admin, about("", "sync", ""), "", "invalid request: invalid CheckAccessRequest.ApplicationId: value length must be at least 1 runes", codes.InvalidArgument},
		"no permission":                              {admin, about("", "", ""), "", "invalid request: invalid CheckAccessRequest.Permission: value length must be at least 1 runes", codes.InvalidArgument},
		"an unknown permission": {admin, about("", "fly", ""), "",
			`there is no permission "fly": the permissions are view, view-logs, sync, approve, cancel, rollback, enable, delete, encrypt, keys, administer`, codes.InvalidArgument},
		"groups of nobody": {admin, &controlv1.CheckAccessRequest{Permission: "keys", Groups: []string{"g"}}, "", "issuer and groups belong to a subject: give one", codes.InvalidArgument},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := client.CheckAccess(tc.ctx, tc.req)
			reason := got.GetReason()
			if err != nil {
				reason = status.Convert(err).Message()
			}
			if status.Code(err) != tc.code || reason != tc.want || got.GetRole() != tc.role || got.GetAllowed() != (tc.role != "") {
				t.Errorf("got %v, %v; want role %q: %s", got, err, tc.role, tc.want)
			}
		})
	}
}

// sessionsOf returns the subjects of a list of sessions, by pages.
func sessionsOf(ctx context.Context, t *testing.T, client controlv1.ControlServiceClient, req *controlv1.ListSessionsRequest) (subjects []string) {
	t.Helper()
	for {
		page, err := client.ListSessions(ctx, req)
		if err != nil {
			t.Fatal(err)
		}
		for _, v := range page.Sessions {
			word := v.Subject
			if v.Current {
				word += " (this)"
			}
			subjects = append(subjects, word)
		}
		if req.Cursor = page.Cursor; req.Cursor == "" {
			return subjects
		}
	}
}

func TestSessions(t *testing.T) {
	agent, client := people(t)
	first, second := agent.SignIn(ana), agent.SignIn(ana)
	admin := agent.SignIn(ben)
	key := agent.LimitedKey("viewer", nil)
	ofKey := agent.SignInWithKey(key)
	asAna, asAdmin := withSession(t, second), withSession(t, admin)
	list := func(ctx context.Context, req *controlv1.ListSessionsRequest, want ...string) {
		t.Helper()
		req.Limit = 2
		if diff := cmp.Diff(want, sessionsOf(ctx, t, client, req)); diff != "" {
			t.Errorf("sessions (-want +got):\n%s", diff)
		}
	}
	end := func(ctx context.Context, id string, want codes.Code) {
		t.Helper()
		if _, err := client.EndSession(ctx, &controlv1.EndSessionRequest{Id: id}); status.Code(err) != want {
			t.Errorf("end %s: %v, want %s", id, err, want)
		}
	}
	list(asAdmin, &controlv1.ListSessionsRequest{}, "viewer", "ben@example.com (this)", "ana@example.com", "ana@example.com")
	list(asAdmin, &controlv1.ListSessionsRequest{Own: true}, "ben@example.com (this)")
	list(asAdmin, &controlv1.ListSessionsRequest{Subject: ana.Subject}, "ana@example.com", "ana@example.com")
	list(asAna, &controlv1.ListSessionsRequest{}, "ana@example.com (this)", "ana@example.com")
	list(asAna, &controlv1.ListSessionsRequest{Subject: ben.Subject})
	list(asAna, &controlv1.ListSessionsRequest{Issuer: "other"})
	list(as(t, key), &controlv1.ListSessionsRequest{}, "viewer")
	list(withSession(t, ofKey), &controlv1.ListSessionsRequest{}, "viewer (this)")

	end(asAna, idOf(admin), codes.NotFound)
	end(asAna, idOf(ofKey), codes.NotFound)
	end(asAna, "unknown", codes.NotFound)
	end(asAna, first, codes.InvalidArgument) // a whole token
	end(as(t, key), "", codes.FailedPrecondition)
	end(asAna, idOf(first), codes.OK)
	end(withSession(t, first), idOf(second), codes.Unauthenticated)
	list(asAna, &controlv1.ListSessionsRequest{}, "ana@example.com (this)")
	list(asAna, &controlv1.ListSessionsRequest{IncludeEnded: true}, "ana@example.com (this)", "ana@example.com")
	end(asAna, "", codes.OK)
	end(asAna, "", codes.Unauthenticated)
	end(as(t, key), idOf(ofKey), codes.OK)
	end(asAdmin, "unknown", codes.NotFound)
	list(asAdmin, &controlv1.ListSessionsRequest{}, "ben@example.com (this)")
}

// TestEqualSubjects: an API key and a user of the same name do not share sessions.
func TestEqualSubjects(t *testing.T) {
	agent, client := people(t)
	key := agent.Key(ana.Subject, deploy.ReadOnly)
	user, opened := agent.SignIn(ana), agent.SignInWithKey(key)
	for _, ctx := range []context.Context{withSession(t, user), withSession(t, opened)} {
		if got := sessionsOf(ctx, t, client, &controlv1.ListSessionsRequest{}); len(got) != 1 || got[0] != ana.Subject+" (this)" {
			t.Errorf("sessions: %q", got)
		}
	}
	if _, err := client.EndSession(as(t, key), &controlv1.EndSessionRequest{Id: idOf(user)}); status.Code(err) != codes.NotFound {
		t.Errorf("the key ends a session of the user: %v", err)
	}
}

func TestDisableUser(t *testing.T) {
	agent, client := people(t)
	user, admin := withSession(t, agent.SignIn(ana)), withSession(t, agent.SignIn(ben))
	stream, err := client.WatchDeployments(user, &controlv1.WatchDeploymentsRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := stream.Recv(); err != nil {
		t.Fatal(err)
	}
	req := &controlv1.DisableUserRequest{Issuer: "corp", Subject: ana.Subject}
	for range 2 {
		if _, err := client.DisableUser(admin, req); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := client.GetCaller(user, &controlv1.GetCallerRequest{}); status.Code(err) != codes.Unauthenticated {
		t.Errorf("a call with the ended session: %v", err)
	}
	for err == nil {
		_, err = stream.Recv()
	}
	if status.Code(err) != codes.Unauthenticated {
		t.Errorf("the stream ended with %v", err)
	}
	list, err := client.ListDisabledUsers(admin, &controlv1.ListDisabledUsersRequest{})
	if err != nil || len(list.Users) != 1 || list.Users[0].Subject != ana.Subject || list.Users[0].DisabledBy != ben.Subject {
		t.Errorf("disabled: %v, %v", list, err)
	}
	if _, err := client.EnableUser(admin, &controlv1.EnableUserRequest{Issuer: "corp", Subject: ana.Subject}); err != nil {
		t.Fatal(err)
	}
	if list, err = client.ListDisabledUsers(admin, &controlv1.ListDisabledUsersRequest{}); err != nil || len(list.Users) != 0 {
		t.Errorf("disabled after all are enabled: %v, %v", list, err)
	}
	again := withSession(t, agent.SignIn(ana))
	for _, incomplete := range []*controlv1.DisableUserRequest{{Subject: "x"}, {Issuer: "x"}} {
		if _, err := client.DisableUser(admin, incomplete); status.Code(err) != codes.InvalidArgument {
			t.Errorf("disable %v: %v", incomplete, err)
		}
	}
	if _, err := client.DisableUser(again, req); status.Code(err) != codes.PermissionDenied {
		t.Errorf("disabled without the permission: %v", err)
	}
}

// TestListAudit: records of hidden applications and of none do not exist for who does not
// administer the agent.
func TestListAudit(t *testing.T) {
	agent, client := people(t)
	apis := apiservice.NewAPIServiceClient(dial(t, agent.Server.Addr()))
	user, admin := withSession(t, agent.SignIn(ana)), withSession(t, agent.SignIn(ben))
	call := func(err error, want codes.Code) {
		t.Helper()
		if agent.Tick(time.Second); status.Code(err) != want {
			t.Fatalf("%v, want %s", err, want)
		}
	}
	for _, app := range []string{"app-pay", "app-find"} {
		_, err := apis.SyncApplication(admin, &apiservice.SyncApplicationRequest{ApplicationId: app})
		call(err, codes.OK)
	}
	_, err := client.DeleteApplication(user, &controlv1.DeleteApplicationRequest{ApplicationId: "app-pay"})
	call(err, codes.PermissionDenied)
	_, err = client.DisableUser(admin, &controlv1.DisableUserRequest{Issuer: "corp", Subject: "gone@example.com"})
	call(err, codes.OK)

	const sync, remove, disable = "SyncApplication app-%s OK", "DeleteApplication app-pay PermissionDenied", "DisableUser  OK"
	ofPay, ofFind := fmt.Sprintf(sync, "pay"), fmt.Sprintf(sync, "find")
	viewer, watcher := as(t, agent.LimitedKey("viewer", &teamPayments)), as(t, agent.ReadOnly)
	tests := map[string]struct {
		ctx  context.Context
		req  *controlv1.ListAuditRequest
		want []string
	}{
		"administer":           {admin, &controlv1.ListAuditRequest{}, []string{disable, remove, ofFind, ofPay}},
		"view in some":         {user, &controlv1.ListAuditRequest{}, []string{remove, ofPay}},
		"a limited key":        {viewer, &controlv1.ListAuditRequest{}, []string{remove, ofPay}},
		"view everywhere":      {watcher, &controlv1.ListAuditRequest{}, []string{remove, ofFind, ofPay}},
		"a hidden application": {user, &controlv1.ListAuditRequest{ApplicationId: "app-find"}, nil},
		"by application":       {admin, &controlv1.ListAuditRequest{ApplicationId: "app-find"}, []string{ofFind}},
		"by subject":           {admin, &controlv1.ListAuditRequest{Subject: ana.Subject}, []string{remove}},
		"by code":              {admin, &controlv1.ListAuditRequest{Code: "PermissionDenied"}, []string{remove}},
		"by method":            {user, &controlv1.ListAuditRequest{Method: "grpc.service.apiservice.APIService/SyncApplication"}, []string{ofPay}},
		"from":                 {admin, &controlv1.ListAuditRequest{FromMs: controltest.Epoch.Add(time.Hour).UnixMilli()}, nil},
		"to":                   {admin, &controlv1.ListAuditRequest{ToMs: controltest.Epoch.UnixMilli()}, nil},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			for _, limit := range []int32{0, 1} {
				tc.req.Limit, tc.req.Cursor = limit, ""
				if diff := cmp.Diff(tc.want, auditLines(tc.ctx, t, client, tc.req)); diff != "" {
					t.Errorf("pages of %d (-want +got):\n%s", limit, diff)
				}
			}
		})
	}
	for name, ctx := range map[string]context.Context{"a user": withSession(t, agent.SignIn(eve)), "a key": as(t, agent.Key("odd", "gone"))} {
		if _, err := client.ListAudit(ctx, &controlv1.ListAuditRequest{}); status.Code(err) != codes.PermissionDenied {
			t.Errorf("%s without role: %v", name, err)
		}
	}
	for _, req := range []*controlv1.ListAuditRequest{{Limit: -1}, {FromMs: -1}, {ToMs: -1}, {Cursor: "x"}} {
		if _, err := client.ListAudit(admin, req); status.Code(err) != codes.InvalidArgument {
			t.Errorf("%v: %v", req, err)
		}
	}
}

// auditLines returns method, application and code of each record, by pages.
func auditLines(ctx context.Context, t *testing.T, client controlv1.ControlServiceClient, req *controlv1.ListAuditRequest) (lines []string) {
	t.Helper()
	for {
		page, err := client.ListAudit(ctx, req)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range page.Records {
			_, method, _ := strings.Cut(r.Method, "/")
			lines = append(lines, fmt.Sprintf("%s %s %s", method, r.ApplicationId, r.Code))
		}
		if req.Cursor = page.Cursor; req.Cursor == "" {
			return lines
		}
	}
}

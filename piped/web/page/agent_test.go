package page

import (
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"

	controlv1 "github.com/c785c783/piped/proto/piped/control/v1"
	modelv1 "github.com/c785c783/piped/proto/piped/model/v1"
)

// troubled returns the API of an agent of which a part of everything does not work.
func troubled(t *testing.T, permissions ...string) *fakeAPI {
	return calm(t, permissions...).on("GetStatus", &controlv1.GetStatusResponse{
		Agent: &controlv1.AgentStatus{PipedId: "piped-1", Name: "prod", Version: "v0.9.0", BuildCommit: "c0ffee0000000000000000000000000000000000", GoVersion: "go1.26", StartedAtMs: minutesAgo(90), ConfigLoadedAtMs: minutesAgo(30)},
		Clusters: []*controlv1.ClusterStatus{
			{Name: "eu-1", Version: "v1.34.1", Reachable: true, WatchedKinds: 12, WatchedObjects: 3400},
			{Name: "eu-2", Error: "dial tcp: connection refused", FailingSinceMs: minutesAgo(30)},
			{Name: "eu-3", Reachable: true, WatchProblems: []*controlv1.WatchProblem{{Kind: "Secret", Error: "forbidden", FailingSinceMs: minutesAgo(5)}}},
		},
		Repositories: []*controlv1.RepositoryStatus{{Id: "apps", Remote: "https://git.example.com/apps.git", Branch: "main", Head: "1f2ac83000000000000000000000000000000000", CheckedAtMs: minutesAgo(1), Applications: 34}},
		Queues:       []*controlv1.QueueStatus{{Name: "planner", Waiting: 3, Active: 4, Limit: 4, OldestWaitingSinceMs: minutesAgo(2)}, {Name: "commands"}},
		Store: &controlv1.StoreStatus{Engine: "postgres", SchemaVersion: 31, SizeBytes: 5 << 20, Standbys: []string{"node-b pid 7", "node-c pid 1"}, Handovers: 1064, Fenced: 2, Replicas: []*controlv1.ReplicaStatus{
			{Host: "node-a pid 3", Version: "v0.9.0", StartedAtMs: minutesAgo(90), Active: true, Partitions: 33, LastHandoverAtMs: minutesAgo(40)},
			{Host: "node-b pid 7", Version: "v0.8.4", StartedAtMs: minutesAgo(80), Partitions: 31, LastHandoverAtMs: minutesAgo(20)},
		}},
		Scripts:    &controlv1.ScriptsStatus{Isolation: "namespaces", EndedBy: "cgroup", Holds: "Scripts see none of the agent's files."},
		SyncStates: []*controlv1.SyncStateCount{{Status: modelv1.ApplicationSyncStatus_SYNCED, Applications: 29}, {Status: modelv1.ApplicationSyncStatus_OUT_OF_SYNC, Applications: 2}},
		Receivers: []*controlv1.ReceiverStatus{
			{Name: "slack", Pending: 2, OldestPendingSinceMs: minutesAgo(3), DeadLetterCount: 1, Error: "503 of the host", DeadLetters: []*controlv1.DeadLetter{{Key: "k", Event: "DEPLOYMENT_SUCCEEDED", DeploymentId: "d-web", Attempts: 12, Error: "410 gone", GivenUpAtMs: minutesAgo(8)}}},
			{Name: "mail"},
		},
	})
}

// TestAgent: the tab Status begins with what is wrong, and shows every part with its state.
func TestAgent(t *testing.T) {
	body := golden(t, "agent", troubled(t).get("/agent"))
	for _, want := range []string{
		"Cluster eu-2 away since 11:30, 1 notification to slack lost.", "dial tcp: connection refused", "Partly watched", "cannot be watched: forbidden", "At its limit", "4 of 4", "node-a pid 3", "v0.8.4", "Partitions changed hands 1,064 times. 2 late writes",
		"v0.9.0", "5.0 MiB", `href="/applications?enabled=true&amp;sync=OUT_OF_SYNC"`, `href="/applications?provider=eu-1"`, `href="/trace?commit=1f2ac83`, `hx-sse:connect="/agent/live?`,
	} {
		if !strings.Contains(body, want) {
			t.Errorf("the page lacks %q", want)
		}
	}
	if strings.Contains(body, "API keys") {
		t.Error("a caller who may not manage keys is offered them")
	}
	well := bodyOf(t, calm(t).on("GetStatus", &controlv1.GetStatusResponse{Clusters: []*controlv1.ClusterStatus{{Name: "eu", Reachable: true}}}).get("/agent"))
	if strings.Contains(well, "Replicas") {
		t.Error("an agent alone is shown with replicas")
	}
	if !strings.Contains(well, "All is well with the agent: 1 cluster and 0 repositories answer, and no work waits.") || !strings.Contains(well, "No repository is watched") {
		t.Error("of an agent that is well:", well)
	}
}

// TestReceivers: what a receiver did not get is shown with the reason.
func TestReceivers(t *testing.T) {
	body := golden(t, "receivers", troubled(t, "administer").get("/agent?tab=receivers"))
	for _, want := range []string{"1 notification was given up, 2 wait for delivery.", "503 of the host", "410 gone", "DEPLOYMENT_SUCCEEDED", `href="/deployments/d-web"`, "Lost some", "Delivered", "/actions/replay-dead-letters?receiver=slack", "/actions/drop-dead-letters?receiver=slack"} {
		if !strings.Contains(body, want) {
			t.Errorf("the page lacks %q", want)
		}
	}
	if strings.Count(body, "/actions/drop-dead-letters") != strings.Count(body, "/actions/drop-dead-letters?receiver=slack") {
		t.Error("a receiver that got everything offers to drop something")
	}
	if body := bodyOf(t, troubled(t).get("/agent?tab=receivers")); strings.Contains(body, "dead-letters") {
		t.Error("a viewer is offered to replay or drop:", body)
	}
	if resp := troubled(t).get("/actions/drop-dead-letters?receiver=slack"); resp.StatusCode != http.StatusForbidden {
		t.Errorf("the dialog for a viewer: %s", resp.Status)
	}
	if body := bodyOf(t, calm(t).get("/agent?tab=receivers")); !strings.Contains(body, "notifications.receivers") {
		t.Error("without receivers nothing says how to name one:", body)
	}
}

// TestAgentOfFewPermissions: a caller who may not see the agent opens the tab of their sessions
// first; others are refused by the API.
func TestAgentOfFewPermissions(t *testing.T) {
	f := calm(t).on("GetCaller", &controlv1.GetCallerResponse{Subject: "ben", Permissions: []*controlv1.CallerPermission{{Permission: "view", Extent: controlv1.PermissionExtent_PERMISSION_EXTENT_SOME}}}).
		fails("GetStatus", codes.PermissionDenied, "view everything").fails("ListAPIKeys", codes.PermissionDenied, "this needs keys")
	var asked *controlv1.ListSessionsRequest
	f.answers["ListSessions"] = func(m proto.Message) (proto.Message, error) {
		asked = m.(*controlv1.ListSessionsRequest)
		return &controlv1.ListSessionsResponse{Sessions: []*controlv1.Session{{Id: "s1", Subject: "ben", Client: "page", Remote: "192.0.2.1", CreatedAtMs: minutesAgo(9), ExpiresAtMs: minutesAgo(-60), Current: true}}}, nil
	}
	body := bodyOf(t, f.get("/agent"))
	if !asked.GetOwn() || !strings.Contains(body, "You are signed in 1 time.") || !strings.Contains(body, "/actions/end-session?session=s1") || strings.Contains(body, "Disable user") || strings.Contains(body, "tab=keys") {
		t.Errorf("asked %v: %s", asked, body)
	}
	if resp := f.get("/agent?tab=keys"); resp.StatusCode != http.StatusForbidden {
		t.Errorf("the tab of the keys: %s", resp.Status)
	}
	if resp := f.get("/agent?tab=nothing"); resp.StatusCode != http.StatusNotFound {
		t.Errorf("a tab that does not exist: %s", resp.Status)
	}
}

// TestKeys: keys are listed with what they permit; those that are disabled offer nothing.
func TestKeys(t *testing.T) {
	f := calm(t, "keys").on("ListAPIKeys", &controlv1.ListAPIKeysResponse{ApiKeys: []*modelv1.APIKey{
		{Id: "k1", Name: "ci", Subject: "ci-bot", RoleName: "deployer", Creator: "ana", CreatedAt: minutesAgo(600) / 1000, LastUsedAt: minutesAgo(2) / 1000,
			Applications: &modelv1.ApplicationSelector{Labels: map[string]string{"team": "payments", "env": "prod"}, Names: []string{"web", "pay-*"}}},
		{Id: "k2", Name: "old", Subject: "old", Role: modelv1.APIKey_READ_WRITE, Disabled: true, CreatedAt: minutesAgo(9000) / 1000},
	}})
	body := golden(t, "keys", f.get("/agent?tab=keys&disabled=shown"))
	for _, want := range []string{"1 API key is accepted.", "stands for ci-bot", "env=prod, team=payments, named web or pay-*", "READ_WRITE", "Never", "/actions/disable-key?key=k1", "/actions/create-key", "all applications"} {
		if !strings.Contains(body, want) {
			t.Errorf("the page lacks %q", want)
		}
	}
	if strings.Contains(body, "disable-key?key=k2") {
		t.Error("a disabled key can be disabled")
	}
}

// TestCreateKey: the form becomes a request with its restrictions, and the secret is shown.
func TestCreateKey(t *testing.T) {
	f := calm(t, "keys")
	var asked *controlv1.CreateAPIKeyRequest
	f.answers["CreateAPIKey"] = func(m proto.Message) (proto.Message, error) {
		asked = proto.CloneOf(m.(*controlv1.CreateAPIKeyRequest))
		return &controlv1.CreateAPIKeyResponse{Key: "k9.secret", ApiKey: &modelv1.APIKey{Id: "k9", Name: "ci"}}, nil
	}
	form := url.Values{"name": {" ci "}, "role": {"viewer"}, "other-role": {"auditor"}, "labels": {"team=payments, env=prod"}, "names": {"web, pay-*"}, "repositories": {""}}
	resp := answerOf(f.page(), request(http.MethodPost, "/actions/create-key", form.Encode()))
	body := bodyOf(t, resp)
	want := &controlv1.CreateAPIKeyRequest{Name: "ci", RoleName: "auditor", Applications: &modelv1.ApplicationSelector{Labels: map[string]string{"team": "payments", "env": "prod"}, Names: []string{"web", "pay-*"}}}
	if diff := cmp.Diff(want, asked, protocmp.Transform()); diff != "" {
		t.Error("the request differs (-want +got):\n" + diff)
	}
	if !strings.Contains(body, ">k9.secret<") || resp.Header.Get("Cache-Control") != "no-store" {
		t.Errorf("%v: %s", resp.Header, body)
	}
	asked = nil
	resp = answerOf(f.page(), request(http.MethodPost, "/actions/create-key", url.Values{"name": {"ci"}, "labels": {"team"}}.Encode()))
	if resp.StatusCode != http.StatusBadRequest || asked != nil {
		t.Errorf("a label without a value: %s, asked %v", resp.Status, asked)
	}
	resp = answerOf(calm(t).page(), request(http.MethodPost, "/actions/create-key", form.Encode()))
	if resp.StatusCode != http.StatusForbidden {
		t.Errorf("without the permission: %s", resp.Status)
	}
}

// TestDisableKey: a key is disabled when its name is typed.
func TestDisableKey(t *testing.T) {
	f := calm(t, "keys").on("ListAPIKeys", &controlv1.ListAPIKeysResponse{ApiKeys: []*modelv1.APIKey{{Id: "k1", Name: "ci"}}}).on("DisableAPIKey", &controlv1.DisableAPIKeyResponse{})
	done := func() bool { return strings.Contains(strings.Join(f.calls, " "), "DisableAPIKey") }
	resp := answerOf(f.page(), request(http.MethodPost, "/actions/disable-key", "key=k1&confirm=wrong"))
	if resp.StatusCode != http.StatusUnprocessableEntity || done() {
		t.Errorf("with a wrong name: %s after %v", resp.Status, f.calls)
	}
	resp = answerOf(f.page(), request(http.MethodPost, "/actions/disable-key", "key=k1&confirm=ci"))
	if resp.StatusCode != http.StatusOK || !done() {
		t.Errorf("%s after %v", resp.Status, f.calls)
	}
}

// TestSessions: who may manage keys sees the sessions of all, and can end them and disable users.
func TestSessions(t *testing.T) {
	f := calm(t, "keys").on("ListSessions", &controlv1.ListSessionsResponse{Cursor: "more", Sessions: []*controlv1.Session{
		{Id: "s1", Issuer: "corp", Subject: "ben@example.com", Name: "Ben", Client: "page", Remote: "192.0.2.7", CreatedAtMs: minutesAgo(20), LastUsedAtMs: minutesAgo(1), ExpiresAtMs: minutesAgo(-60)},
		{Id: "s2", Subject: "ci", KeyId: "k1", Client: "pipectl", Remote: "192.0.2.8", CreatedAtMs: minutesAgo(500), ExpiresAtMs: minutesAgo(3)},
	}})
	body := golden(t, "sessions", f.get("/agent?tab=sessions&ended=shown"))
	for _, want := range []string{"1 session is open on this page.", "/actions/end-session?session=s1", "/actions/disable-user?issuer=corp&amp;subject=ben%40example.com", "Expired", "cursor=more", "Hide ended ones"} {
		if !strings.Contains(body, want) {
			t.Errorf("the page lacks %q", want)
		}
	}
	if strings.Contains(body, "session=s2") {
		t.Error("an expired session can be ended")
	}
}

// TestUsers: a disabled user can be enabled, and a user is disabled by name; the command that is
// offered for copying is one word per value.
func TestUsers(t *testing.T) {
	f := calm(t, "keys").on("ListDisabledUsers", &controlv1.ListDisabledUsersResponse{Users: []*controlv1.DisabledUser{{Issuer: "corp", Subject: "eve", DisabledBy: "ana", DisabledAtMs: minutesAgo(5)}}}).
		on("ListSessions", &controlv1.ListSessionsResponse{Sessions: []*controlv1.Session{{Id: "s1"}, {Id: "s2"}}})
	body := bodyOf(t, f.get("/agent?tab=users"))
	if !strings.Contains(body, "1 user cannot sign in.") || !strings.Contains(body, "/actions/enable-user?issuer=corp&amp;subject=eve") {
		t.Error(body)
	}
	body = bodyOf(t, f.get("/actions/disable-user?issuer=corp&subject=x%27%3B+rm+-rf+~"))
	if !strings.Contains(body, "2 sessions end") || !strings.Contains(body, `--issuer corp --subject &#39;x&#39;\&#39;&#39;; rm -rf ~&#39;`) {
		t.Error(body)
	}
	if body := bodyOf(t, calm(t, "keys").on("ListDisabledUsers", &controlv1.ListDisabledUsersResponse{}).get("/agent?tab=users")); !strings.Contains(body, "Every user of the configured issuers can sign in.") {
		t.Error("nobody is disabled:", body)
	}
}

// TestAudit: the filters of the address reach the API, and each record says who did what.
func TestAudit(t *testing.T) {
	f := calm(t, "administer").on("Resolve", &controlv1.ResolveResponse{Matches: []*controlv1.ResolvedReference{{Id: "app-web", ApplicationName: "web"}}})
	var asked *controlv1.ListAuditRequest
	f.answers["ListAudit"] = func(m proto.Message) (proto.Message, error) {
		asked = proto.CloneOf(m.(*controlv1.ListAuditRequest))
		return &controlv1.ListAuditResponse{Cursor: "more", Records: []*controlv1.AuditRecord{
			{Id: 2, AtMs: minutesAgo(1), Subject: "ben", Issuer: "corp", CallerId: "s1", Session: true, Remote: "192.0.2.7", Method: controlMethods + "SyncApplication", Permission: "sync", ApplicationId: "app-web", Code: "PermissionDenied", Reason: "no role of ben grants it", DurationMs: 3, Target: map[string]string{"commit": "1f2ac83", "application_id": "app-web"}},
			{Id: 1, AtMs: minutesAgo(2), Subject: "ana", CallerId: "k1", Method: controlMethods + "ApproveStage", DeploymentId: "d-web", Code: "OK"},
		}}, nil
	}
	body := golden(t, "audit", f.get("/agent?tab=audit&subject=ben&method=SyncApplication&application=web&code=PermissionDenied&from=2026-03-01&to=2026-03-04"))
	want := &controlv1.ListAuditRequest{Subject: "ben", Method: controlMethods + "SyncApplication", ApplicationId: "app-web", Code: "PermissionDenied", FromMs: noon.AddDate(0, 0, -3).UnixMilli() - 12*3600_000, ToMs: noon.UnixMilli() + 12*3600_000, Limit: 100}
	if diff := cmp.Diff(want, asked, protocmp.Transform()); diff != "" {
		t.Error("the request differs (-want +got):\n" + diff)
	}
	for _, want := range []string{"The first 2 records; 1 call was denied.", "No role of ben grants it.", "Denied", "application_id: app-web · commit: 1f2ac83", `href="/deployments/d-web"`, "cursor=more", "Show all"} {
		if !strings.Contains(body, want) {
			t.Errorf("the page lacks %q", want)
		}
	}
	if strings.Contains(body, "You see the records of the applications") {
		t.Error("an administrator sees every record")
	}
	if resp := f.get("/agent?tab=audit&from=yesterday"); resp.StatusCode != http.StatusBadRequest {
		t.Errorf("a day that is none: %s", resp.Status)
	}
	f.on("Resolve", &controlv1.ResolveResponse{Matches: []*controlv1.ResolvedReference{{Id: "a"}, {Id: "b"}}})
	if resp := f.get("/agent?tab=audit&application=web"); resp.StatusCode != http.StatusBadRequest {
		t.Errorf("an ambiguous name: %s", resp.Status)
	}
}

// TestAgentConfig: the tab shows the configuration as text, and why a newer one was refused.
func TestAgentConfig(t *testing.T) {
	f := newFake(t, "view", "administer").on("GetAgentConfig", &controlv1.GetAgentConfigResponse{
		Yaml: "kind: Piped\nspec:\n  name: <b>agent</b>\n", LoadedAtMs: minutesAgo(5), Refused: "piped.yaml:3: unknown key",
	})
	body := bodyOf(t, f.get("/agent?tab=config"))
	for _, want := range []string{" &lt;b&gt;agent&lt;/b&gt;", "A newer one was refused: piped.yaml:3: unknown key", "Secrets are redacted"} {
		if !strings.Contains(body, want) {
			t.Errorf("the view lacks %q: %s", want, body)
		}
	}
	if body := bodyOf(t, newFake(t, "view").get("/agent?tab=sessions")); strings.Contains(body, "tab=config") {
		t.Error("the tab is offered without the permission")
	}
}

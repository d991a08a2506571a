package storetest

import (
	"database/sql"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/store"
)

// Fill writes rows into each table of a store, as an agent does.
func Fill(t testing.TB, s *store.Store) {
	t.Helper()
	e := &env{store: s, clock: &clock{}}
	web := e.putApp(t, "web")
	e.beginChain(t, "d1", web, []deploy.Application{e.putApp(t, "next")})
	e.run(t, "d1")
	e.fillDeployment(t, web)
	e.fillApplication(t, web)
	e.fillRequests(t)
	e.registerReceivers(t, "chat")
	e.announce(t, "sent", "waits")
	e.route(t, "thread", "chat")
	must(t, s.PutReceiverNote(t.Context(), "chat", "thread", "ts-1 \U0001F600 <b>&amp;</b>\u2028"))
	e.announce(t, "not routed")
	must(t, s.PutPullPreview(t.Context(), deploy.PullPreview{RepoID: "apps", Number: 12, Head: "c1", Phase: deploy.PreviewReady, Since: e.clock.now()}))
	must(t, s.ExtendPullPreview(t.Context(), "apps", 12, "c1", e.clock.now()))
	must(t, s.WatchCluster(t.Context(), store.WatchedCluster{Cluster: "local", Namespaces: "*", Since: e.clock.now()}, []deploy.WorkloadRevision{
		{Cluster: "local", Workload: "apps/Deployment/shop/web", UID: "u1", Revision: 3, Images: "web:v3 proxy:v1"},
	}))
}

// fillDeployment writes the rows of a running deployment.
func (e *env) fillDeployment(t testing.TB, a deploy.Application) {
	ctx, s := t.Context(), e.store
	var logs []deploy.LogBlock
	for i := range 120 {
		logs = append(logs, deploy.LogBlock{DeploymentID: "d1", StageID: "sync", Index: int64(i), Severity: deploy.SeverityInfo,
			Log: fmt.Sprintf("line %d: \"ünï\"\n\t\x1b[1m%s", i, strings.Repeat("x", i)), At: e.clock.now()})
	}
	must(t, s.AppendStageLogs(ctx, logs))
	must(t, s.SaveAppliedSet(ctx, deploy.AppliedSet{ApplicationID: a.ID, DeploymentID: "d1", Commit: "c", Objects: []byte(`[{"kind":"Secret"}]`)}))
	own := deploy.Rollout{ID: "r1", ApplicationID: a.ID, DeploymentID: "d1", StageID: "sync", Cluster: "c", Workload: workload, Phase: deploy.RolloutApplied}
	external := own
	external.ID, external.DeploymentID, external.StageID = "r2", "", "" // it refers to no deployment
	for _, r := range []deploy.Rollout{own, external} {
		_, err := s.SaveRollout(ctx, r)
		must(t, err)
	}
	must(t, s.AppendAnalysisSample(ctx, deploy.AnalysisSample{ApplicationID: a.ID, DeploymentID: "d1", StageID: "analysis", Check: "metrics[0]",
		Name: "errors", Position: 1, At: e.clock.now(), Verdict: deploy.AnalysisOK, Counted: true, Values: []float64{0.25}}))
	must(t, s.SaveAnalysisChecks(ctx, []deploy.AnalysisCheck{{DeploymentID: "d1", StageID: "analysis", ID: "metrics[0]", Name: "errors", Kind: deploy.AnalysisMetrics, Max: new(0.5)}}))
	must(t, s.SaveAnalysisPassed(ctx, deploy.AnalysisPassed{ApplicationID: a.ID, Analysis: "analysis", DeploymentID: "d1", StartedAt: e.clock.now()}))
}

var workload = deploy.ObjectRef{Group: "apps", Version: "v1", Kind: "Deployment", Namespace: "shop", Name: "web"}

// fillApplication writes the rows of applications, their cluster and their repository.
func (e *env) fillApplication(t testing.TB, a deploy.Application) {
	ctx, s := t.Context(), e.store
	other := e.putApp(t, "other")
	must(t, s.PutInventory(ctx, deploy.InventoryItem{ApplicationID: a.ID, Cluster: "c", Object: workload, UID: "u", DeploymentID: "d1"}))
	_, err := s.ClaimObjects(ctx, store.Claim{ApplicationID: a.ID, Cluster: "uid", Provider: "c", DeploymentID: "d1"}, workload)
	must(t, err)
	_, err = s.SavePropagation(ctx, deploy.Propagation{ApplicationID: a.ID, Cluster: "c", Workload: workload, Named: map[string]string{"/Secret/shop/tls": "1"},
		NextAt: e.clock.now()})
	must(t, err)
	_, err = s.Identity(ctx)
	must(t, err)
	_, err = s.SetAdoption(ctx, deploy.Adoption{ApplicationID: other.ID, Token: "t", RunningCommit: "c", Objects: []deploy.AdoptedObject{{Object: workload}}})
	must(t, err)
	_, err = s.ReportDrift(ctx, other, deploy.SyncState{Status: deploy.OutOfSync, At: e.clock.now()}, &deploy.DriftReport{
		ID: "drift", ApplicationID: other.ID, Cluster: "c", Commit: "c", Status: deploy.OutOfSync, CheckedAt: e.clock.now(), BeganAt: e.clock.now()})
	must(t, err)
	_, err = s.SetDegraded(ctx, other.ID, true, "because", deploy.Event{Key: "degraded", Type: deploy.EventDegraded, ApplicationID: other.ID, At: e.clock.now()})
	must(t, err)
	_, err = s.SetCandidates(ctx, "repo", []deploy.Candidate{{Git: a.Git, State: deploy.CandidateUnregistered}})
	must(t, err)
	must(t, s.SaveCapabilities(ctx, "cluster", deploy.Capabilities{KubeVersion: "v1.36.1", APIVersions: []string{"v1"}}))
}

// fillRequests writes the rows for requests of users and programs.
func (e *env) fillRequests(t testing.TB) {
	ctx, s := t.Context(), e.store
	must(t, s.CreateAPIKey(ctx, deploy.APIKey{ID: "k1", Name: "owner", Role: deploy.ReadWrite, Hash: []byte{0, 1, 0xff, '"'}}))
	must(t, s.CreateAPIKey(ctx, deploy.APIKey{ID: "k2", Name: "ci", Role: deploy.ReadOnly, Hash: []byte{}, Disabled: true, Limit: &deploy.Selector{Names: []string{"web*"}}}))
	for _, id := range []string{"open", "ended"} {
		must(t, s.CreateSession(ctx, deploy.Session{ID: id, Hash: []byte(id), User: deploy.User{Issuer: "corp", Subject: "jane"}, Refresh: []byte("refresh"),
			ExpiresAt: farFuture}))
	}
	must(t, s.EndSession(ctx, "ended"))
	must(t, s.DisableUser(ctx, "corp", "joe", "jane"))
	must(t, s.PutSignInState(ctx, []byte("state"), []byte("{}"), farFuture))
	must(t, s.AppendAudit(ctx, deploy.AuditRecord{Subject: "jane", Method: "Sync", ApplicationID: "app-web", Code: "OK", Target: map[string]string{"name": "web \u2028"}}))
	_, err := s.UpdateAgent(ctx, func(a *deploy.AgentRecord) { a.Name = "prod" })
	must(t, err)
	_, err = s.CreateCommand(ctx, deploy.Command{ID: "preview", Type: deploy.CommandBuildPlanPreview, PlanPreview: &deploy.PlanPreviewRequest{RepoID: "repo", Timeout: time.Minute}})
	must(t, err)
	must(t, s.AnswerPlanPreview(ctx, deploy.PlanPreview{CommandID: "preview", At: e.clock.now()}, deploy.CommandSucceeded))
	_, err = s.RegisterEvent(ctx, deploy.RegisteredEvent{ID: "event", Name: "image", Data: "v2", Labels: map[string]string{"app": "web"}})
	must(t, err)
	must(t, s.SaveEventHandling(ctx, "event", deploy.EventHandling{RepoID: "repo", PullRequest: true, Status: deploy.EventHandled, Commit: "c0ffee", PullRequestURL: "https://github.com/shop/apps/pull/7"}))
}

// farFuture is later than any test.
var farFuture = time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC)

// Rows returns all rows of all tables of a database as sorted texts, by table. It omits the
// tables of schema versions, of the owner, and of sessions and sign-ins, which are not backed
// up.
func Rows(t testing.TB, dsn string) map[string][]string {
	t.Helper()
	db, list := Raw(t, dsn), "SELECT tablename FROM pg_tables WHERE schemaname = 'public'"
	if strings.HasPrefix(dsn, "sqlite://") {
		list = "SELECT name FROM sqlite_master WHERE type = 'table' AND name <> 'sqlite_sequence'"
	}
	out := map[string][]string{}
	for _, table := range records(t, db, list) {
		name := table[0].(string)
		if slices.Contains([]string{"goose_db_version", "store_owner", "replicas", "partitions", "sessions", "sign_in_states"}, name) { // they hold nothing that is backed up
			continue
		}
		out[name] = nil
		for _, row := range records(t, db, "SELECT * FROM "+name) {
			values := make([]string, len(row))
			for i, v := range row {
				values[i] = text(v)
			}
			out[name] = append(out[name], strings.Join(values, ", "))
		}
		slices.Sort(out[name])
	}
	return out
}

// text formats a value like an SQL literal, identically for both engines.
func text(v any) string {
	switch v := v.(type) {
	case nil:
		return "NULL"
	case string:
		return fmt.Sprintf("%q", v)
	case []byte:
		return fmt.Sprintf("x'%x'", v)
	case bool: // SQLite has numbers instead
		if v {
			return "1"
		}
		return "0"
	}
	return fmt.Sprint(v)
}

// records returns all rows of a query.
func records(t testing.TB, db *sql.DB, query string) (out [][]any) {
	t.Helper()
	rows, err := db.QueryContext(t.Context(), query)
	must(t, err)
	defer rows.Close() //nolint:errcheck // rows.Err reports what matters
	columns, err := rows.Columns()
	must(t, err)
	for rows.Next() {
		row, into := make([]any, len(columns)), make([]any, len(columns))
		for i := range row {
			into[i] = &row[i]
		}
		must(t, rows.Scan(into...))
		out = append(out, row)
	}
	must(t, rows.Err())
	return out
}

package store

import (
	"context"
	"path/filepath"
	"strings"
	"testing"

	"github.com/c785c783/piped/piped/deploy"
)

// TestListsUseIndices asks SQLite how it would run the queries that are run
// often or over everything: none may read a whole table or sort one.
func TestListsUseIndices(t *testing.T) {
	s, err := Open(t.Context(), "sqlite://"+filepath.Join(t.TempDir(), "piped.db"), Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	const byUpdate = " ORDER BY updated_at DESC, id LIMIT 10"
	oldest := OldDeployments{}.filter()
	for name, query := range map[string]string{
		"page of applications":                 selectApplication + " WHERE disabled = FALSE AND deleted = FALSE" + byUpdate,
		"next page":                            selectApplication + " WHERE updated_at <= 5 AND (updated_at < 5 OR id > 'x')" + byUpdate,
		"application":                          selectApplication + " WHERE id = 'x'",
		"page of deployments":                  selectDeployment + byUpdate,
		"of an application":                    selectDeployment + " WHERE application_id IN ('x')" + byUpdate,
		"of an application's name":             selectDeployment + " WHERE application_name = 'x'" + byUpdate,
		"of a commit":                          selectDeployment + " WHERE commit_hash = 'x'" + byUpdate,
		"with a label":                         selectDeployment + " WHERE (SELECT l.value FROM deployment_labels l WHERE l.deployment_id = deployments.id AND l.name = 'n') = 'v'" + byUpdate,
		"newest of a status":                   selectDeployment + " WHERE status = 'SUCCESS'" + byUpdate,
		"newest of an application in statuses": selectDeployment + " WHERE application_id IN ('x') AND status IN ('SUCCESS', 'FAILURE')" + byUpdate,
		"newest of a kind with a label": selectDeployment + " WHERE (SELECT a.kind FROM applications a WHERE a.id = deployments.application_id) IN ('k')" +
			" AND (SELECT l.value FROM deployment_labels l WHERE l.deployment_id = deployments.id AND l.name = 'n') = 'v'" + byUpdate,
		"how many have a label":  "SELECT 1 FROM deployment_labels WHERE name = 'n' AND value = 'v' LIMIT 5",
		"next blocks of a log":   "SELECT deployment_id, stage_id, position, severity, log, at FROM stage_logs WHERE deployment_id = 'd' AND stage_id = 's' AND position > 5 ORDER BY position LIMIT 5",
		"last blocks of a log":   "SELECT deployment_id, stage_id, position, severity, log, at FROM stage_logs WHERE deployment_id = 'd' AND stage_id = 's' AND position < 5 ORDER BY position DESC LIMIT 5",
		"in a status":            selectDeployment + " WHERE status IN ('PENDING') ORDER BY triggered_at, id",
		"at a stage":             selectDeployment + strings.ReplaceAll(atStage, "?", "'x'"),
		"open commands":          selectCommand + " WHERE status = 'NOT_HANDLED_YET' ORDER BY created_at, id",
		"held applications":      selectApplication + " WHERE hold <> '' AND deleted = FALSE ORDER BY id",
		"drifted applications":   selectApplication + " WHERE " + drifted + " AND deleted = FALSE ORDER BY id",
		"deployments of a chain": selectDeployment + " WHERE chain_id = 'c' AND chain_id <> ''",
		"triggered deployments":  "SELECT COUNT(*) FROM deployments WHERE application_id = 'x' AND updated_at >= 5 AND triggered_at >= 5 AND trigger_kind = 'k'",
		"outbox":                 "SELECT seq FROM outbox WHERE delivered_at = 0 AND seq > 5 ORDER BY seq",
		"owner of an object":     "SELECT application_id FROM inventory i WHERE i.cluster = 'c' AND i.api_group = 'g' AND i.kind = 'k' AND i.namespace = 'n' AND i.name = 'x'",
		"rollouts of a stage":    "SELECT id FROM rollouts WHERE deployment_id = 'd' AND stage_id = 's'",
		"rollouts of a workload": selectRollout + " WHERE kind = 'k' AND cluster = 'c' AND workload = 'w' ORDER BY created_at DESC, id LIMIT 20",
		"page of rollouts":       selectListedRollout + " WHERE phase IN ('Complete') ORDER BY started_at DESC, id LIMIT 10",
		"next page of rollouts":  selectListedRollout + " WHERE started_at <= 5 AND (started_at < 5 OR id > 'x') ORDER BY started_at DESC, id LIMIT 10",
		"page of scalings":       selectListedRollout + " WHERE kind = 'SCALING' ORDER BY started_at DESC, id LIMIT 10",
		"an app's rollouts":      selectListedRollout + " WHERE application_id IN ('x') AND started_at >= 1 AND started_at < 5 ORDER BY started_at DESC, id LIMIT 10",
		"what ended in a range":  selectOutcome + " WHERE completed_at > 0 AND completed_at >= 5 AND completed_at < 9",
		"what ended, of an app":  selectOutcome + " WHERE completed_at > 0 AND completed_at >= 5 AND completed_at < 9 AND application_id IN ('x', 'y')",
		"first success after it": strings.ReplaceAll(selectDelivered, "?", "5") + " WHERE id IN ('x', 'y')",
		"old deployments":        strings.ReplaceAll(selectOldDeployment+oldest.where(), "?", "5") + " ORDER BY d.completed_at, d.id LIMIT 10",
		"old deployments, again": strings.ReplaceAll(selectOldDeployment+oldest.where(), "?", "5") + " AND d.id IN ('x', 'y')",
		"old stage logs":         strings.ReplaceAll(loggedDeployments, "?", "5"),
		"old commands":           strings.ReplaceAll(oldCommands, "?", "5"),
		"due deliveries":         selectDelivery + strings.NewReplacer("d.receiver = ?", "d.receiver = 'r'", "<= ?", "<= 5").Replace(dueDeliveries) + " LIMIT 10",
		"next delivery":          strings.NewReplacer("receiver = ?", "receiver = 'r'", "> ?", "> 5").Replace(nextDelivery),
		"forgotten events":       strings.ReplaceAll(forgottenEvents, "?", "5"),
		"page of sessions":       selectSession + " WHERE " + strings.ReplaceAll(openSession, "?", "5") + " ORDER BY created_at DESC, id LIMIT 10",
		"sessions of a user":     selectSession + " WHERE subject = 's' AND issuer || '' = 'i' AND " + strings.ReplaceAll(openSession, "?", "5") + " ORDER BY created_at DESC, id LIMIT 10",
		"session of a secret":    selectSession + " WHERE hash = 'h' AND " + strings.ReplaceAll(openSession, "?", "5"),
		"sessions to end":        "UPDATE sessions SET ended_at = 5 WHERE ended_at = 0 AND issuer = 'i' AND subject = 's' RETURNING id",
		"sessions of a key":      "UPDATE sessions SET ended_at = 5 WHERE ended_at = 0 AND key_id = 'k' AND key_id <> '' RETURNING id",
		"old sessions":           strings.ReplaceAll(oldSessions, "?", "5"),
		"excess sign-ins":        strings.ReplaceAll(excessSignIns, "?", "5"),
		"expired sign-ins":       "DELETE FROM sign_in_states WHERE expires_at <= 5",
		"page of the audit log":  selectAudit + auditOrder + " LIMIT 10",
		"next audit records":     selectAudit + " WHERE at <= 5 AND (at < 5 OR id < 5)" + auditOrder + " LIMIT 10",
		"audit of a range":       selectAudit + " WHERE at >= 5 AND at < 9" + auditOrder + " LIMIT 10",
		"audit of a subject":     audited(AuditQuery{Subject: "s"}),
		"audit of a method":      audited(AuditQuery{Method: "m"}),
		"audit of a code":        audited(AuditQuery{Code: "c"}),
		"audit of an app":        audited(AuditQuery{ApplicationID: "a"}),
		"audit of everything":    audited(AuditQuery{ApplicationID: "a", Subject: "s", Method: "m", Code: "c", From: fromMilli(5)}),
		"old foreign rollouts":   strings.ReplaceAll(oldForeignRollouts, "?", "5"),
		"old audit records":      strings.ReplaceAll(oldAudit, "?", "5"),
		"events of commits":      "SELECT repo_id, commit_hash, event_id FROM event_commits WHERE commit_hash IN ('x', 'y') ORDER BY commit_hash, repo_id, event_id",
		"pull requests of one":   selectPullRequestCommit + " WHERE commit_hash IN ('x')",
		"commits of a prefix":    "SELECT DISTINCT repo_id, commit_hash FROM pull_request_commits WHERE commit_hash >= 'ab' AND commit_hash < 'abg' ORDER BY commit_hash LIMIT 10",
		"old pull requests":      strings.ReplaceAll(oldPullRequests, "?", "5"),
		"statuses":               selectTransition + " WHERE deployment_id IN ('x', 'y') AND stage_id = '' ORDER BY deployment_id, revision, position",
		"retained events":        "SELECT seq FROM outbox WHERE delivered_at > 0 AND delivered_at < 5 ORDER BY delivered_at",
	} {
		steps, err := all(context.Background(), s, func(row scanner) (detail string, err error) {
			var id, parent, unused int
			return detail, row.Scan(&id, &parent, &unused, &detail)
		}, "EXPLAIN QUERY PLAN "+query)
		if err != nil || len(steps) == 0 {
			t.Fatalf("%s: %v, %v", name, steps, err)
		}
		for _, step := range steps {
			whole := strings.HasPrefix(step, "SCAN") && !strings.Contains(step, "INDEX")
			if whole || strings.Contains(step, "TEMP B-TREE") {
				t.Errorf("%s: %s", name, strings.Join(steps, "; "))
			}
		}
	}
}

// audited returns the query of a page of the audit log.
func audited(q AuditQuery) string {
	f := q.filter()
	return selectAudit + strings.ReplaceAll(f.where(), "?", "5") + auditOrder + " LIMIT 10"
}

// TestScopesUseIndices: the rows of a large scope are read in the order of the page, and those of
// a small one are searched for from its applications. No form reads all applications for a
// label, a name, the beginning of a name or a repository.
func TestScopesUseIndices(t *testing.T) {
	s, err := Open(t.Context(), "sqlite://"+filepath.Join(t.TempDir(), "piped.db"), Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	orders := map[string]string{"applications": "updated_at", "deployments": "updated_at", "rollouts": "started_at", "drift_reports": "began_at", "audit_records": "at"}
	for name, selectors := range map[string][][]deploy.Selector{
		"a label":      {{{Labels: map[string]string{"team": "a"}}}},
		"two labels":   {{{Labels: map[string]string{"team": "a", "env": "prod"}}}},
		"names":        {{{Names: []string{"web", "api"}}}},
		"a repository": {{{Repositories: []string{"r"}}}},
		"alternatives": {{{Labels: map[string]string{"team": "a"}}}, {{Labels: map[string]string{"team": "b"}}, {Names: []string{"*-prod"}}}, {{Repositories: []string{"r", "s"}}}},
	} {
		for table, order := range orders {
			r := restriction{s.dialect, deploy.Scope{Alternatives: selectors}, scopedList{table, "application_id", order}}
			if table == "applications" {
				r.list.column = "id"
			}
			var row, set filter
			r.byRow(&row)
			r.bySet(&set)
			tail := " ORDER BY " + order + " DESC, id"
			if table == "audit_records" {
				tail += " DESC"
			}
			explainQuery := func(query string, args ...any) string {
				steps, err := all(t.Context(), s, func(row scanner) (detail string, err error) {
					var id, parent, unused int
					return detail, row.Scan(&id, &parent, &unused, &detail)
				}, "EXPLAIN QUERY PLAN "+query, args...)
				if err != nil {
					t.Fatalf("%s, %s: %v", table, name, err)
				}
				return strings.Join(steps, "; ")
			}
			explain := func(f filter) string {
				return explainQuery("SELECT * FROM "+table+f.where()+tail+" LIMIT 50", f.args...)
			}
			next, args, err := r.countNext(200, cursorAt(fromMilli(5), "x"))
			if err != nil {
				t.Fatal(err)
			}
			if plan := explainQuery(next, args...); !strings.Contains(plan, "SEARCH "+table+" USING") || strings.Contains(plan, "SCAN a") || strings.Contains(plan, "TEMP B-TREE") {
				t.Errorf("next of %s, %s: %s", table, name, plan)
			}
			whole, args := r.countAll(1001)
			if plan := explainQuery(whole, args...); !strings.Contains(plan, "SEARCH "+table+" USING") || strings.Contains(plan, "SCAN a") {
				t.Errorf("all of %s, %s: %s", table, name, plan)
			}
			if plan := explain(row); !strings.HasPrefix(plan, "SCAN "+table+" USING INDEX "+table+"_") || strings.Count(plan, "SCAN") > 1 || strings.Contains(plan, "TEMP B-TREE") {
				t.Errorf("%s by row, %s: %s", table, name, plan)
			}
			if plan := explain(set); !strings.HasPrefix(plan, "SEARCH "+table+" USING INDEX") || strings.Contains(plan, "SCAN") {
				t.Errorf("%s by set, %s: %s", table, name, plan)
			}
		}
	}
}

// TestRolloutsAreSearchedByWhatIsRare: each question that is asked again and again, or of
// all that an agent has recorded, is answered by the index that leaves the fewest.
func TestRolloutsAreSearchedByWhatIsRare(t *testing.T) {
	s, err := Open(t.Context(), "sqlite://"+filepath.Join(t.TempDir(), "piped.db"), Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	web := deploy.ObjectRef{Group: "apps", Kind: "Deployment", Namespace: "shop", Name: "web"}
	for name, c := range map[string]struct {
		q    interface{ filter() filter }
		want string
	}{
		"list, of an app and a kind": {RolloutList{ApplicationIDs: []string{"a"}, Kind: deploy.RolloutKindRollout}, "SEARCH rollouts USING INDEX rollouts_application (application_id=?)"},
		"list, of a deployment":      {RolloutList{DeploymentIDs: []string{"d"}, Kind: deploy.RolloutKindRollout}, "SEARCH rollouts USING INDEX rollouts_deployment (deployment_id=?)"},
		"list, of a namespace":       {RolloutList{Namespaces: []string{"shop", "pay"}}, "SCAN rollouts USING INDEX rollouts_started"},
		"list, of one since a time":  {RolloutList{Namespaces: []string{"shop"}, From: fromMilli(5)}, "SEARCH rollouts USING INDEX rollouts_started (started_at>?)"},
		"list, of an app's":          {RolloutList{ApplicationIDs: []string{"a"}, Namespaces: []string{"shop"}}, "SEARCH rollouts USING INDEX rollouts_application (application_id=?)"},
		"list, of a kind":            {RolloutList{Kind: deploy.RolloutKindScaling}, "SEARCH rollouts USING INDEX rollouts_kind (kind=?)"},

		"open, of others":      {RolloutQuery{Cluster: "c", External: true, OpenOnly: true}, "SCAN rollouts USING INDEX rollouts_open"},
		"open scalings":        {RolloutQuery{Kind: deploy.RolloutKindScaling, Cluster: "c", WorkloadKind: "StatefulSet", OpenOnly: true}, "SCAN rollouts USING INDEX rollouts_open"},
		"open, of a stage":     {RolloutQuery{DeploymentID: "d", StageID: "s", OpenOnly: true}, "SEARCH rollouts USING INDEX rollouts_deployment (deployment_id=? AND stage_id=?)"},
		"of a deployment":      {RolloutQuery{DeploymentID: "d"}, "SEARCH rollouts USING INDEX rollouts_deployment (deployment_id=?)"},
		"of a workload":        {RolloutQuery{Cluster: "c", Workload: web, Limit: 5}, "SEARCH rollouts USING INDEX rollouts_workload (cluster=? AND workload=? AND kind=?)"},
		"any of a kind":        {RolloutQuery{Cluster: "c", WorkloadKind: "StatefulSet", Limit: 1}, "SEARCH rollouts USING INDEX rollouts_workload (cluster=? AND workload>?)"},
		"any on a new cluster": {RolloutQuery{Cluster: "c", Limit: 1}, "SEARCH rollouts USING INDEX rollouts_workload (cluster=?)"},
	} {
		f, order := c.q.filter(), " ORDER BY created_at DESC, id"
		if _, list := c.q.(RolloutList); list {
			order = " ORDER BY started_at DESC, id LIMIT 10"
		}
		steps, err := all(t.Context(), s, func(row scanner) (detail string, err error) {
			var id, parent, unused int
			return detail, row.Scan(&id, &parent, &unused, &detail)
		}, "EXPLAIN QUERY PLAN "+selectRollout+f.where()+order, f.args...)
		if err != nil || len(steps) == 0 || steps[0] != c.want {
			t.Errorf("%s: %v, %q, want %q", name, err, steps, c.want)
		}
	}
}

func TestPlaceholdersAreNumberedForPostgreSQL(t *testing.T) {
	for query, want := range map[string]string{
		"SELECT 1":                           "SELECT 1",
		"SELECT a FROM b WHERE c = ?":        "SELECT a FROM b WHERE c = $1",
		"VALUES (?, ?, ?, ?) LIMIT ?":        "VALUES ($1, $2, $3, $4) LIMIT $5",
		"(" + placeholders(11) + ")":         "($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)",
		"INSERT INTO t VALUES (?) RETURNING": "INSERT INTO t VALUES ($1) RETURNING",
	} {
		if got := (postgresDialect{}).rewrite(query); got != want {
			t.Errorf("rewrite %q: %q, want %q", query, got, want)
		}
	}
}

package storetest

import (
	"database/sql"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/store"
)

// many is the number of further applications of a large scope: more than the store considers
// few.
const many = 1100

// letters are parts of names, patterns and labels. Each is special to a pattern of an engine,
// or differs from another one only in its case or normal form.
var letters = []string{"a", "A", "b", "?", "[", "]", "[a]", "^", "%", "_", `\`, "ä", "Ä", "a\u0308", "日", "-", " ", "'", "."}

func drawText(rt *rapid.T, label string, least, most int) string {
	return strings.Join(rapid.SliceOfN(rapid.SampledFrom(letters), least, most).Draw(rt, label), "")
}

// drawApplication draws an application; its ID is not set.
func drawApplication(rt *rapid.T) deploy.Application {
	name := drawText(rt, "name", 1, 4)
	if rapid.IntRange(0, 5).Draw(rt, "star") == 0 {
		name += "*"
	}
	return deploy.Application{
		Name: name, Kind: deploy.KindKubernetes, Labels: drawLabels(rt, 3),
		Git:      deploy.GitPath{RepoID: drawRepository(rt), ConfigFile: "app.pipecd.yaml"},
		Disabled: rapid.IntRange(0, 5).Draw(rt, "disabled") == 0, Deleted: rapid.IntRange(0, 5).Draw(rt, "deleted") == 0,
	}
}

func drawRepository(rt *rapid.T) string {
	return rapid.SampledFrom([]string{"r", "R", "r%", "r_"}).Draw(rt, "repository")
}

func drawLabels(rt *rapid.T, most int) map[string]string {
	return rapid.MapOfN(rapid.SampledFrom([]string{"team", "Team", "env", "?"}), rapid.SampledFrom([]string{"", "a", "A", "*", "%"}), 0, most).Draw(rt, "labels")
}

// drawName draws a name or pattern. Many of them derive from a name that exists.
func drawName(rt *rapid.T, names []string) string {
	name := drawText(rt, "pattern", 0, 3)
	if rapid.IntRange(0, 3).Draw(rt, "of an application") > 0 {
		name = rapid.SampledFrom(names).Draw(rt, "application")
	}
	runes := []rune(name)
	if at := rapid.IntRange(-3, len(runes)).Draw(rt, "special"); at >= 0 && at < len(runes) { // a name that an engine might take for a pattern of this one
		special := rapid.SampledFrom([]string{"?", "_", "%", "[a-z]", "[!x]", `\`, `\%`}).Draw(rt, "text")
		runes = slices.Replace(runes, at, at+1, []rune(special)...)
	}
	for range rapid.IntRange(0, 3).Draw(rt, "stars") {
		from := rapid.IntRange(0, len(runes)).Draw(rt, "from")
		to := rapid.IntRange(from, min(len(runes), from+2)).Draw(rt, "to")
		runes = slices.Replace(runes, from, to, '*')
	}
	return string(runes)
}

func drawSelector(rt *rapid.T, names []string) (s deploy.Selector) {
	s.Labels = drawLabels(rt, 2)
	for range rapid.IntRange(0, 2).Draw(rt, "names") {
		s.Names = append(s.Names, drawName(rt, names))
	}
	for range rapid.IntRange(0, 2).Draw(rt, "repositories") {
		s.Repositories = append(s.Repositories, drawRepository(rt))
	}
	return s
}

func drawScope(rt *rapid.T, names []string) deploy.Scope {
	scope := deploy.Scope{All: rapid.IntRange(0, 19).Draw(rt, "all") == 0}
	for range rapid.IntRange(0, 3).Draw(rt, "alternatives") {
		var selectors []deploy.Selector
		for range rapid.IntRange(1, 2).Draw(rt, "selectors") {
			selectors = append(selectors, drawSelector(rt, names))
		}
		scope.Alternatives = append(scope.Alternatives, selectors)
	}
	return scope
}

// scopedRow is a row of a list: its ID, and that of its application.
type scopedRow struct{ id, app string }

// scopedList is a list that can be restricted to a scope. Its rows are those of one page.
type scopedList func(scope *deploy.Scope, limit int, cursor string) (rows []scopedRow, next string, err error)

// listOf converts the results of a list query.
func listOf[T any](items []T, next string, err error, row func(T) scopedRow) ([]scopedRow, string, error) {
	rows := make([]scopedRow, len(items))
	for i, item := range items {
		rows[i] = row(item)
	}
	return rows, next, err
}

// scopedLists returns every list that can be restricted to a scope.
func (e *env) scopedLists(t *testing.T, apps []string) map[string]scopedList {
	ctx, s := t.Context(), e.store
	deployment := func(d deploy.Deployment) scopedRow { return scopedRow{d.ID, d.ApplicationID} }
	rollout := func(r deploy.Rollout) scopedRow { return scopedRow{r.ID, r.ApplicationID} }
	report := func(r deploy.DriftReport) scopedRow { return scopedRow{r.ID, r.ApplicationID} }
	return map[string]scopedList{
		"applications": func(scope *deploy.Scope, limit int, cursor string) ([]scopedRow, string, error) {
			q := store.ApplicationQuery{Scope: scope, IncludeAll: true, IncludeDeleted: true, Limit: limit, Cursor: cursor}
			found, next, err := s.ListApplications(ctx, q)
			return listOf(found, next, err, func(a deploy.Application) scopedRow { return scopedRow{a.ID, a.ID} })
		},
		"deployments": func(scope *deploy.Scope, limit int, cursor string) ([]scopedRow, string, error) {
			found, next, err := s.ListDeployments(ctx, store.DeploymentQuery{Scope: scope, Limit: limit, Cursor: cursor})
			return listOf(found, next, err, deployment)
		},
		"deployments in statuses": func(scope *deploy.Scope, limit int, cursor string) ([]scopedRow, string, error) {
			q := store.DeploymentQuery{Statuses: []deploy.Status{deploy.Pending, deploy.Cancelled}, Scope: scope, Limit: limit, Cursor: cursor}
			found, next, err := s.ListDeployments(ctx, q)
			return listOf(found, next, err, deployment)
		},
		"deployments of applications": func(scope *deploy.Scope, limit int, cursor string) ([]scopedRow, string, error) {
			found, next, err := s.ListDeployments(ctx, store.DeploymentQuery{ApplicationIDs: apps, Scope: scope, Limit: limit, Cursor: cursor})
			return listOf(found, next, err, deployment)
		},
		"rollouts": func(scope *deploy.Scope, limit int, cursor string) ([]scopedRow, string, error) {
			found, next, err := s.ListRollouts(ctx, store.RolloutList{Scope: scope, Limit: limit, Cursor: cursor})
			return listOf(found, next, err, rollout)
		},
		"rollouts of applications": func(scope *deploy.Scope, limit int, cursor string) ([]scopedRow, string, error) {
			found, next, err := s.ListRollouts(ctx, store.RolloutList{ApplicationIDs: apps, Scope: scope, Limit: limit, Cursor: cursor})
			return listOf(found, next, err, rollout)
		},
		"drift": func(scope *deploy.Scope, limit int, cursor string) ([]scopedRow, string, error) {
			found, next, err := s.ListDriftReports(ctx, store.DriftQuery{Scope: scope, Limit: limit, Cursor: cursor})
			return listOf(found, next, err, report)
		},
		"drift of applications": func(scope *deploy.Scope, limit int, cursor string) ([]scopedRow, string, error) {
			found, next, err := s.ListDriftReports(ctx, store.DriftQuery{ApplicationIDs: apps, Scope: scope, Limit: limit, Cursor: cursor})
			return listOf(found, next, err, report)
		},
		"audit": func(scope *deploy.Scope, limit int, cursor string) ([]scopedRow, string, error) {
			found, next, err := s.ListAudit(ctx, store.AuditQuery{Scope: scope, Limit: limit, Cursor: cursor})
			return listOf(found, next, err, func(r deploy.AuditRecord) scopedRow { return scopedRow{fmt.Sprint(r.ID), r.ApplicationID} })
		},
	}
}

// testScope: a list with a scope returns the rows of exactly those applications that the scope
// contains, in the same order, in full pages.
func testScope(t *testing.T, e *env) {
	e.insertMany(t)
	var names, drawn []string
	for i := range 40 {
		a := rapid.Custom(drawApplication).Example(i)
		a.ID = numbered("drawn", i)
		e.putScoped(t, a)
		names, drawn = append(names, a.Name), append(drawn, a.ID)
	}
	all, err := e.store.AllApplications(t.Context())
	must(t, err)
	if len(all) != many+len(drawn) {
		t.Fatalf("%d applications", len(all))
	}
	byID := map[string]deploy.Application{}
	for _, a := range all {
		byID[a.ID] = a
	}
	lists, unrestricted := e.scopedLists(t, drawn), map[string][]scopedRow{}
	for name, list := range lists {
		rows, _, err := list(nil, 0, "")
		must(t, err)
		unrestricted[name] = rows
	}
	listNames := slices.Sorted(maps.Keys(lists))
	selected, excluded := 0, 0
	rapid.Check(t, func(rt *rapid.T) {
		scope := drawScope(rt, names)
		large := rapid.Bool().Draw(rt, "large")
		if large && !scope.All {
			scope.Alternatives = append(scope.Alternatives, []deploy.Selector{{Labels: map[string]string{"size": "large"}}})
		}
		limit := rapid.IntRange(1, 20).Draw(rt, "limit")
		for _, name := range rapid.SliceOfNDistinct(rapid.SampledFrom(listNames), 3, 3, rapid.ID).Draw(rt, "lists") {
			list, want := lists[name], []scopedRow(nil)
			for _, row := range unrestricted[name] {
				// Rows without an application are in the scope of all only.
				if a, ok := byID[row.app]; scope.All || ok && scope.Contains(a) {
					want = append(want, row)
				}
			}
			selected, excluded = selected+len(want), excluded+len(unrestricted[name])-len(want)
			checkPages(rt, name, list, scope, limit, want)
			if large {
				continue // the whole list would take long
			}
			got, next, err := list(&scope, 0, "")
			if diff := cmp.Diff(want, got, cmp.AllowUnexported(scopedRow{}), cmpopts.EquateEmpty()); err != nil || next != "" && len(got) == 0 || diff != "" {
				rt.Fatalf("%s, whole: cursor %q, %v (-want +got):\n%s", name, next, err, diff)
			}
		}
	})
	if selected < 1000 || excluded < 1000 {
		t.Errorf("the scopes show too little: %d rows in, %d out", selected, excluded)
	}
}

// checkPages compares the first pages of a list with the rows it should have.
func checkPages(rt *rapid.T, name string, list scopedList, scope deploy.Scope, limit int, want []scopedRow) {
	cursor, at := "", 0
	for range 5 {
		page, next, err := list(&scope, limit, cursor)
		if err != nil {
			rt.Fatalf("%s: %v", name, err)
		}
		end := min(at+limit, len(want))
		if diff := cmp.Diff(want[at:end], page, cmp.AllowUnexported(scopedRow{}), cmpopts.EquateEmpty()); diff != "" {
			rt.Fatalf("%s, rows from %d in pages of %d (-want +got):\n%s", name, at, limit, diff)
		}
		if next == "" {
			if end < len(want) {
				rt.Fatalf("%s ends after %d of %d rows", name, end, len(want))
			}
			return
		}
		at, cursor = at+len(page), next
		if len(page) == 0 {
			rt.Fatalf("%s: an empty page has the cursor %q", name, next)
		}
	}
}

// putScoped stores an application with a row in every list.
func (e *env) putScoped(t *testing.T, a deploy.Application) {
	t.Helper()
	ctx, s := t.Context(), e.store
	disabled, deleted := a.Disabled, a.Deleted
	a.Disabled, a.Deleted = false, false
	_, err := s.PutApplication(ctx, a)
	must(t, err)
	e.create(t, "d-"+a.ID, a)
	_, err = s.SaveRollout(ctx, deploy.Rollout{ID: "r-" + a.ID, ApplicationID: a.ID, Cluster: "c",
		Workload: deploy.ObjectRef{Group: "apps", Kind: "Deployment", Name: a.ID}, Phase: deploy.RolloutComplete, AppliedAt: e.clock.now()})
	must(t, err)
	_, err = s.ReportDrift(ctx, a, deploy.SyncState{Status: deploy.OutOfSync}, &deploy.DriftReport{
		ID: "x-" + a.ID, ApplicationID: a.ID, Status: deploy.OutOfSync, CheckedAt: e.clock.now(), BeganAt: e.clock.now()})
	must(t, err)
	must(t, s.AppendAudit(ctx, deploy.AuditRecord{Subject: "jane", Method: "Sync", ApplicationID: a.ID, Code: "OK"},
		deploy.AuditRecord{Subject: "jane", Method: "SignIn", Code: "OK"}))
	if disabled {
		must(t, s.SetDisabled(ctx, a.ID, true))
	}
	if deleted {
		must(t, s.DeleteApplication(ctx, a.ID))
	}
}

// insertMany inserts the applications of a large scope, with a row of each in every list, and
// rows of an application that does not exist. They are older than all others.
func (e *env) insertMany(t *testing.T) {
	t.Helper()
	db := Raw(t, e.dsn)
	for _, statement := range []string{
		`applications (id, name, kind, repo_id, spec, sync_status, sync_state, created_at, updated_at)
			SELECT 'many-' || i, '0', 'KUBERNETES', 'zz', '{"labels":{"size":"large"}}', 'UNKNOWN', '{}', i, i FROM n`,
		"application_labels (application_id, name, value) SELECT 'many-' || i, 'size', 'large' FROM n",
		`deployments (id, application_id, application_name, trigger_kind, commit_hash, chain_id, origin, status, state, revision, triggered_at, created_at, updated_at)
			SELECT 'd-many-' || i, 'many-' || i, '0', 'ON_COMMIT', 'c', '', '{}', 'PENDING', '{}', 1, i, i, i FROM n`,
		`rollouts (id, kind, application_id, stage_id, cluster, workload, phase, terminal, body, version, started_at, created_at, updated_at)
			SELECT 'r-many-' || i, 'ROLLOUT', 'many-' || i, '', 'c', 'apps/Deployment//many', 'Complete', TRUE, '{}', 1, i, i, i FROM n UNION ALL
			SELECT 'r-gone', 'ROLLOUT', 'gone', '', 'c', 'apps/Deployment//gone', 'Complete', TRUE, '{}', 1, 1, 1, 1`,
		`drift_reports (id, application_id, body, began_at) SELECT 'x-many-' || i, 'many-' || i, '{"ID":"x-many-' || i || '","ApplicationID":"many-' || i || '","BeganAt":"1970-01-01T00:00:01Z"}', 1000 FROM n`,
		`audit_records (id, at, subject, method, application_id, code, body)
			SELECT -i, i, 'jane', 'Sync', 'many-' || i, 'OK', '{}' FROM n UNION ALL SELECT -100000, 1, 'jane', 'Sync', 'gone', 'OK', '{}'`,
	} {
		execute(t, db, fmt.Sprintf("WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < %d) INSERT INTO %s", many, statement))
	}
}

func execute(t *testing.T, db *sql.DB, statement string) {
	t.Helper()
	if _, err := db.ExecContext(t.Context(), statement); err != nil {
		t.Fatalf("%s: %v", statement, err)
	}
}

// testScopePatterns: each name, and what is special in it to an engine, matches as it does in
// package deploy: by itself, and as the beginning, the middle and the end of a pattern.
func testScopePatterns(t *testing.T, e *env) {
	names := []string{
		"ab", "aXb", "axb", "AXB", "a?b", "a??b", "a[b", "a]b", "a[x]b", "a[!x]b", "a[^x]b", "a[a-z]b", "a%b", "a_b", `a\b`, `a\\b`, `a\%b`, `a\_b`,
		"a*b", "a**b", `a\*b`, "aäb", "aÄb", "aa\u0308b", "a日b", "a'b", "a;b", "a b", "abab", "aXbaXb",
	}
	var apps []deploy.Application
	for i, name := range names {
		a := deploy.Application{ID: numbered("a", i), Name: name, Kind: deploy.KindKubernetes}
		_, err := e.store.PutApplication(t.Context(), a)
		must(t, err)
		apps = append(apps, a)
	}
	for _, name := range names {
		for _, pattern := range []string{name, name + "*", "*" + name, "*" + name + "*", name[:1] + "*" + name[1:], name + "*" + name, strings.ToUpper(name) + "*"} {
			scope, want := scopeOf(deploy.Selector{Names: []string{pattern}}), []string(nil)
			for _, a := range apps {
				if scope.Contains(a) {
					want = append(want, a.Name)
				}
			}
			found, _, err := e.store.ListApplications(t.Context(), store.ApplicationQuery{Scope: scope})
			must(t, err)
			slices.SortFunc(found, func(a, b deploy.Application) int { return strings.Compare(a.ID, b.ID) })
			var got []string
			for _, a := range found {
				got = append(got, a.Name)
			}
			same(t, fmt.Sprintf("pattern %q", pattern), want, got)
		}
	}
}

// testScopeEdges: scopes without conditions, of texts that no row can hold, and of very many
// conditions.
func testScopeEdges(t *testing.T, e *env) {
	web, api := e.putApp(t, "web"), e.putApp(t, "api")
	both := []string{api.ID, web.ID}
	var huge deploy.Scope
	for i := range 1200 {
		huge = huge.With(deploy.Selector{Names: []string{numbered("x*", i), "we*"}})
	}
	var names []string
	for i := range 3000 {
		names = append(names, numbered("y", i), numbered("*y", i))
	}
	for name, c := range map[string]struct {
		scope *deploy.Scope
		want  []string
	}{
		"none given":                   {nil, both},
		"all":                          {&deploy.Scope{All: true}, both},
		"none":                         {&deploy.Scope{}, nil},
		"an alternative that is empty": {&deploy.Scope{Alternatives: [][]deploy.Selector{{}}}, both},
		"a selector that is empty":     {&deploy.Scope{Alternatives: [][]deploy.Selector{{{}}}}, both},
		"any name":                     {scopeOf(deploy.Selector{Names: []string{"*"}}), both},
		"both selectors":               {scopeOf(deploy.Selector{Names: []string{"*e*"}}, deploy.Selector{Labels: map[string]string{"name": "web"}}), []string{web.ID}},
		"NUL in a pattern":             {scopeOf(deploy.Selector{Names: []string{"*\x00*"}}), nil},
		"NUL in a name":                {scopeOf(deploy.Selector{Names: []string{"web\x00"}}), nil},
		"NUL in a label":               {scopeOf(deploy.Selector{Labels: map[string]string{"name": "web\x00"}}), nil},
		"invalid UTF-8":                {scopeOf(deploy.Selector{Repositories: []string{"repo\xff"}}), nil},
		"many alternatives":            {&huge, []string{web.ID}},
		"many names":                   {scopeOf(deploy.Selector{Names: append(names, "api")}), []string{api.ID}},
	} {
		for _, limit := range []int{0, 5} {
			found, _, err := e.store.ListApplications(t.Context(), store.ApplicationQuery{Scope: c.scope, Limit: limit})
			var got []string
			for _, a := range found {
				got = append(got, a.ID)
			}
			slices.Sort(got)
			if diff := cmp.Diff(c.want, got); err != nil || diff != "" {
				t.Errorf("%s, limit %d: %v (-want +got):\n%s", name, limit, err, diff)
			}
		}
	}
	for scope, want := range map[*deploy.Scope]int{nil: 2, scopeOf(deploy.Selector{Names: []string{"web"}}): 1, {}: 0} {
		e.outcomesOfScope(t, scope, want)
	}
}

// outcomesOfScope wants figures of as many applications.
func (e *env) outcomesOfScope(t *testing.T, scope *deploy.Scope, want int) {
	t.Helper()
	for _, name := range []string{"web", "api"} {
		id := "d-" + name
		if _, err := e.store.Deployment(t.Context(), id); deploy.IsKind(err, deploy.NotFound) {
			e.create(t, id, app(name))
			e.update(t, id, func(d *deploy.Deployment) error { return d.Complete(deploy.Cancelled, "", e.clock.now()) })
		}
	}
	got, err := e.store.Outcomes(t.Context(), deploy.FiguresQuery{Scope: scope, From: epoch.AddDate(-1, 0, 0), To: epoch.AddDate(1, 0, 0)})
	if err != nil || len(got) != want {
		t.Errorf("%+v: %d outcomes, %v, want %d", scope, len(got), err, want)
	}
}

func scopeOf(selectors ...deploy.Selector) *deploy.Scope {
	return &deploy.Scope{Alternatives: [][]deploy.Selector{selectors}}
}

// testApplicationsByID: applications are read without their state.
func testApplicationsByID(t *testing.T, e *env) {
	ctx, s := t.Context(), e.store
	web, api := e.putApp(t, "web"), e.putApp(t, "api")
	must(t, s.SetDisabled(ctx, web.ID, true))
	must(t, s.DeleteApplication(ctx, api.ID))
	web.Disabled, api.Deleted = true, true
	all, err := s.AllApplications(ctx)
	if diff := cmp.Diff([]deploy.Application{api, web}, all); err != nil || diff != "" {
		t.Errorf("all: %v (-want +got):\n%s", err, diff)
	}
	for name, c := range map[string]struct {
		ids  []string
		want []deploy.Application
	}{
		"nil":           {nil, nil},
		"none":          {[]string{}, nil},
		"one":           {[]string{web.ID}, []deploy.Application{web}},
		"twice":         {[]string{web.ID, api.ID, "nobody", web.ID}, []deploy.Application{api, web}},
		"unknown":       {[]string{"nobody"}, nil},
		"more than fit": {append(slices.Repeat([]string{"nobody"}, 3), manyIDs(1200, web.ID)...), []deploy.Application{web}},
	} {
		got, err := s.ApplicationsByID(ctx, c.ids)
		if diff := cmp.Diff(c.want, got); err != nil || diff != "" {
			t.Errorf("%s: %v (-want +got):\n%s", name, err, diff)
		}
	}
}

// manyIDs returns n IDs that do not exist, and one that does.
func manyIDs(n int, id string) (ids []string) {
	for i := range n {
		ids = append(ids, numbered("unknown", i))
	}
	return append(ids, id)
}

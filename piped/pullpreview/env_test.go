package pullpreview

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/c785c783/piped/piped/config"
	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/git"
	"github.com/c785c783/piped/piped/git/gittest"
	"github.com/c785c783/piped/piped/githost"
	"github.com/c785c783/piped/piped/source"
	"github.com/c785c783/piped/piped/store"
	"github.com/c785c783/piped/piped/store/storetest"
)

// env is a Previewer between a repository, a store and a Git host, with a clock of the test. Passes
// are made here and now, and deployments and removals end when the test says so.
type env struct {
	t        *testing.T
	store    *store.Store
	upstream *gittest.Repo
	repo     *git.Repo
	p        *Previewer
	now      time.Time
	ids      int
	requests map[int]githost.OpenRequest
	comments map[int]string
	statuses map[string]string // by commit
	spaces   map[string]bool   // namespaces, as PROVIDER/NAME
	metrics  countedMetrics
	host     Host   // instead of the one of the test
	remote   string // by which that host knows the repository
	route    Route  // of every preview with mode route
	refuse   error  // why there is no such preview
	failing  bool   // removals fail
	removals int    // that have ended
}

var kinds = config.Kinds{config.Kubernetes()}

func newEnv(t *testing.T, edit ...func(*config.Previews)) *env {
	t.Helper()
	e := &env{
		t: t, upstream: gittest.New(t), now: time.Date(2025, 3, 1, 12, 0, 0, 0, time.UTC), requests: map[int]githost.OpenRequest{}, comments: map[int]string{},
		statuses: map[string]string{}, spaces: map[string]bool{},
	}
	e.store = storetest.New(t, func() time.Time { return e.now })
	var err error
	e.repo, err = git.Open(git.Config{ID: "apps", Remote: e.upstream.Dir, Branch: gittest.Branch, Dir: t.TempDir(), Timeout: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { e.must(e.repo.Close()) })
	settings := config.Previews{}
	settings.Default()
	settings.Hosts = []string{"example.com"}
	for _, f := range edit {
		f(&settings)
	}
	e.start(settings)
	return e
}

// start makes a new Previewer on the same store, as after a restart of the agent.
func (e *env) start(settings config.Previews) {
	e.p = New(Config{
		Store: e.store, Settings: settings, Kinds: kinds, Repositories: envRepositories{e}, Namespaces: envNamespaces{e}, Route: e.envRoute, Metrics: &e.metrics,
		Page: func(string) string { return "" }, Agent: "agent", Logger: slog.New(slog.NewTextHandler(e.t.Output(), nil)), Now: func() time.Time { return e.now },
		NewID: func() string { e.ids++; return fmt.Sprintf("id-%d", e.ids) },
	})
}

func (e *env) must(err error) {
	e.t.Helper()
	if err != nil {
		e.t.Fatal(err)
	}
}

// app pushes an application with these lines of spec.preview to the branch.
func (e *env) app(name, preview string) {
	e.t.Helper()
	e.upstream.Push(e.t, "add "+name, map[string]string{
		name + "/app.pipecd.yaml": "apiVersion: pipecd.dev/v1beta1\nkind: KubernetesApp\nspec:\n  name: " + name + "\n  preview: " + preview + "\n",
		name + "/version":         "1",
	})
	_, _, err := e.repo.Sync(e.t.Context())
	e.must(err)
	at := deploy.GitPath{RepoID: "apps", Dir: name, ConfigFile: "app.pipecd.yaml"}
	_, err = e.store.PutApplication(e.t.Context(), deploy.Application{ID: deploy.ApplicationID(at), Name: name, Kind: "KUBERNETES", Git: at, Provider: "local"})
	e.must(err)
}

// open opens a pull request that changes applications, or pushes to it.
func (e *env) open(number int, edit func(*githost.OpenRequest), apps ...string) {
	e.t.Helper()
	branch, files := fmt.Sprintf("pr-%d", number), map[string]string{}
	for _, app := range apps {
		e.ids++
		files[app+"/version"] = fmt.Sprint(number, " ", e.ids)
	}
	pr := githost.OpenRequest{Number: number, Head: branch, Base: gittest.Branch, Commit: e.upstream.PushOn(e.t, branch, "change", files)}
	if edit != nil {
		edit(&pr)
	}
	e.requests[number] = pr
}

// pass reconciles until nothing changes: deployments succeed and removals complete meanwhile.
func (e *env) pass() {
	e.t.Helper()
	for range 6 {
		e.must(e.p.repository(e.t.Context(), envRepositories{e}.Hosted()[0], true))
		e.work()
	}
}

// work ends deployments with success and removals.
func (e *env) work() {
	e.t.Helper()
	ctx := e.t.Context()
	pending, err := e.store.DeploymentsIn(ctx, deploy.Pending)
	e.must(err)
	for _, d := range pending {
		for _, step := range []func(*deploy.Deployment) error{
			func(d *deploy.Deployment) error {
				return d.Plan(deploy.Plan{Strategy: deploy.StrategyQuickSync, Stages: []deploy.Stage{{ID: "sync", Name: deploy.StageK8sSync}}}, e.now)
			},
			func(d *deploy.Deployment) error { return d.Start(e.now) },
			func(d *deploy.Deployment) error { return d.StartStage("sync", e.now) },
			func(d *deploy.Deployment) error { return d.FinishStage("sync", deploy.StageSuccess, "", e.now) },
			func(d *deploy.Deployment) error { return d.Complete(deploy.Success, "", e.now) },
		} {
			_, err := e.store.UpdateDeployment(ctx, d.ID, step)
			e.must(err)
		}
	}
	removals, err := e.store.OpenCommands(ctx, deploy.CommandDeleteApplication)
	e.must(err)
	for _, c := range removals {
		e.removals++
		if e.failing {
			e.must(e.store.FinishRemoval(ctx, c, deploy.CommandFailed, nil, nil))
			continue
		}
		items, err := e.store.Inventory(ctx, c.ApplicationID)
		e.must(err)
		e.must(e.store.FinishRemoval(ctx, c, deploy.CommandSucceeded, nil, items))
	}
}

// previews returns what is stored of all previews: their number and phase.
func (e *env) previews() string {
	e.t.Helper()
	list, err := e.store.PullPreviews(e.t.Context(), "", 0)
	e.must(err)
	var out []string
	for _, p := range list {
		out = append(out, fmt.Sprintf("%d %s", p.Number, p.Phase))
	}
	return strings.Join(out, ", ")
}

// stored returns what is stored of a preview.
func (e *env) stored(number int) deploy.PullPreview {
	e.t.Helper()
	list, err := e.store.PullPreviews(e.t.Context(), "apps", number)
	e.must(err)
	if len(list) != 1 {
		e.t.Fatalf("stored of pull request #%d: %v", number, list)
	}
	return list[0]
}

// want fails the test unless the stored previews, the living preview applications, and the
// namespaces are these.
func (e *env) want(what, previews, apps string, namespaces int) {
	e.t.Helper()
	if got := e.previews(); got != previews {
		e.t.Errorf("%s: the previews are %q, want %q", what, got, previews)
	}
	if got := e.apps(); got != apps {
		e.t.Errorf("%s: the applications are %q, want %q", what, got, apps)
	}
	if len(e.spaces) != namespaces {
		e.t.Errorf("%s: the namespaces are %v, want %d", what, e.spaces, namespaces)
	}
}

// apps returns the names of the preview applications that are not deleted.
func (e *env) apps() string {
	e.t.Helper()
	all, _, err := e.store.ListApplications(e.t.Context(), store.ApplicationQuery{RepoID: "apps", IncludeAll: true})
	e.must(err)
	var names []string
	for _, app := range all {
		if app.IsPreview() {
			names = append(names, app.Name)
		}
	}
	slices.Sort(names)
	return strings.Join(names, " ")
}

// countedMetrics counts what a Previewer records.
type countedMetrics struct {
	ready  []time.Duration
	failed int
}

func (m *countedMetrics) Ready(after time.Duration) { m.ready = append(m.ready, after) }
func (m *countedMetrics) Failed()                   { m.failed++ }

type envRepositories struct{ *env }

func (r envRepositories) Hosted() []Repository {
	host, remote := Host(envHost(r)), r.upstream.Dir
	if r.host != nil {
		host, remote = r.host, r.remote
	}
	return []Repository{{
		ID: "apps", Remote: remote, Branch: gittest.Branch, Git: r.repo, Host: host,
		Reports: config.GitHost{Comments: true, CommitStatus: true, ContextPrefix: "piped"},
	}}
}

func (r envRepositories) Merge(ctx context.Context, _, _, branch, commit string) (*git.Merge, error) {
	return r.repo.Merge(ctx, branch, commit)
}

func (r envRepositories) MergeRef(ctx context.Context, _, _, ref, commit string) (*git.Merge, error) {
	return r.repo.MergeRef(ctx, ref, commit)
}

// Foresee returns the applications of which the merge changes a file, as the merge describes them.
func (r envRepositories) Foresee(ctx context.Context, _ string, m *git.Merge) (out []deploy.AffectedApplication, err error) {
	apps, _, err := r.store.ListApplications(ctx, store.ApplicationQuery{RepoID: "apps", IncludeAll: true})
	if err != nil {
		return nil, err
	}
	changed, err := m.Changed(ctx, m.Base.Hash)
	for _, app := range apps {
		if !app.IsPreview() && slices.ContainsFunc(changed, func(name string) bool { return strings.HasPrefix(name, app.Git.Dir+"/") }) {
			if cfg := source.CandidateAt(m.FS(), app.Git.ConfigPath(), kinds).Config; cfg != nil {
				app.Labels, app.Provider = cfg.Labels, cmp.Or(cfg.PlatformProvider, "local")
			}
			out = append(out, deploy.AffectedApplication{Application: app})
		}
	}
	slices.SortFunc(out, func(a, b deploy.AffectedApplication) int {
		return strings.Compare(a.Application.Name, b.Application.Name)
	})
	return out, err
}

type envNamespaces struct{ *env }

func (n envNamespaces) Ensure(_ context.Context, app deploy.Application, name string) error {
	n.spaces[app.Provider+"/"+name] = true
	return nil
}

func (n envNamespaces) Delete(_ context.Context, app deploy.Application, name string) (bool, error) {
	delete(n.spaces, app.Provider+"/"+name)
	return true, nil
}

type envHost struct{ *env }

func (h envHost) OpenPullRequests(context.Context, string) (out []githost.OpenRequest, err error) {
	for _, pr := range h.requests {
		out = append(out, pr)
	}
	return out, nil
}

func (h envHost) PullRequest(_ context.Context, _ string, number int) (githost.Proposed, error) {
	_, open := h.requests[number]
	return githost.Proposed{Open: open}, nil
}

func (h envHost) UpsertComment(_ context.Context, _ string, number int, _, body string) error {
	h.comments[number] = body
	return nil
}

func (h envHost) EditComment(ctx context.Context, remote string, number int, marker, body string) error {
	if h.comments[number] == "" {
		return nil
	}
	return h.UpsertComment(ctx, remote, number, marker, body)
}

func (h envHost) SetStatus(_ context.Context, _, commit string, s githost.Status) error {
	h.statuses[commit] = string(s.State) + " " + s.Description
	return nil
}

func (h envHost) SetDeployment(context.Context, string, githost.Deployed) error { return nil }

func (h envHost) EndEnvironment(context.Context, string, string, string) error { return nil }

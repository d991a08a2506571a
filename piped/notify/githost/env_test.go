package githost

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/c785c783/piped/piped/config"
	"github.com/c785c783/piped/piped/config/strict"
	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/githost"
	"github.com/c785c783/piped/piped/githost/githosttest"
	"github.com/c785c783/piped/piped/notify"
	"github.com/c785c783/piped/piped/store"
	"github.com/c785c783/piped/piped/store/storetest"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("net/http.(*persistConn).readLoop"), goleak.IgnoreAnyFunction("net/http.(*persistConn).writeLoop"))
}

// patience limits how long a test waits for an event.
const patience = 10 * time.Minute

const (
	remote  = "git@git.example.com:shop/config.git"
	commitA = "a6ae82c7b1a177c8d03f9e96e0adf2466113728f"
	commitB = "b6ae82c7b1a177c8d03f9e96e0adf2466113728f"
)

// env is a store whose events a courier delivers to a fake GitHub.
type env struct {
	t      *testing.T
	store  *store.Store
	github *githosttest.GitHub
	host   config.GitHost
	page   string // address of the page, "" for none
}

func newEnv(t *testing.T) *env {
	g := githosttest.NewGitHub(t)
	return &env{t: t, store: storetest.New(t, nil), github: g, host: config.GitHost{
		Host: "git.example.com", Type: config.GitHostGitHub, APIURL: g.URL, ContextPrefix: "piped", CommitStatus: true, Deployments: true, Comments: true,
	}}
}

// receivers returns the receivers of the host.
func (l *env) receivers() []notify.Receiver {
	l.t.Helper()
	api, err := githost.NewAPI(l.host, strict.NewSecret(githosttest.Token), githost.Options{Pause: time.Nanosecond})
	if err != nil {
		l.t.Fatal(err)
	}
	return Receivers(Config{Host: l.host, API: api, Store: l.store, Agent: "shop/piped", Page: func() string { return l.page }, Remote: func(repoID string) string {
		if repoID == "apps" {
			return remote
		}
		return ""
	}})
}

// longest makes the pauses before retries as long as they can be, so that a test that looks at a
// delivery between two attempts has that time.
func longest() float64 { return 1 }

// run runs a courier until stop is called or the test ends.
func (l *env) run() (stop func()) {
	l.t.Helper()
	c := notify.New(notify.Config{Store: l.store, Logger: slog.New(slog.NewTextHandler(l.t.Output(), nil)), Now: time.Now, Random: longest})
	c.SetReceivers(l.receivers()...)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- c.Run(ctx) }()
	select {
	case <-c.Ready():
	case <-time.After(patience):
		l.t.Fatal("the courier does not start")
	}
	running := true
	stop = func() {
		if cancel(); running {
			running = false
			if err := <-ended; err != nil {
				l.t.Error(err)
			}
		}
	}
	l.t.Cleanup(stop)
	return stop
}

// waitDelivered waits until all events are delivered.
func (l *env) waitDelivered() {
	l.t.Helper()
	var waits []string
	l.until("everything is delivered", func() bool {
		waits = nil
		events, err := l.store.Events(l.t.Context(), 0, 0)
		if err != nil {
			l.t.Fatal(err)
		}
		for _, e := range events {
			waits = append(waits, e.Key)
		}
		states, err := l.store.ReceiverStates(l.t.Context())
		if err != nil {
			l.t.Fatal(err)
		}
		for name, s := range states {
			if s.Pending > 0 || s.Dead > 0 {
				waits = append(waits, name+": "+s.Error)
			}
		}
		return len(waits) == 0
	}, &waits)
}

func (l *env) until(what string, done func() bool, waits *[]string) {
	l.t.Helper()
	for end := time.Now().Add(patience); !done(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			l.t.Fatalf("not within %s: %s; waiting: %q", patience, what, *waits)
		}
	}
}

// app stores an application.
func (l *env) app(dir, name string, labels map[string]string) deploy.Application {
	l.t.Helper()
	at := deploy.GitPath{RepoID: "apps", Remote: remote, Branch: "main", Dir: dir, ConfigFile: "app.pipecd.yaml"}
	a := deploy.Application{ID: deploy.ApplicationID(at), Name: name, Kind: deploy.KindKubernetes, Provider: "cluster", Git: at, Labels: labels}
	if _, err := l.store.PutApplication(l.t.Context(), a); err != nil {
		l.t.Fatal(err)
	}
	return a
}

// evaluated records that the trigger has evaluated the applications in dirs at commit.
func (l *env) evaluated(commit string, dirs ...string) {
	l.t.Helper()
	bases := map[string]string{}
	for _, dir := range dirs {
		id := deploy.ApplicationID(deploy.GitPath{RepoID: "apps", Dir: dir, ConfigFile: "app.pipecd.yaml"})
		a, err := l.store.Application(l.t.Context(), id)
		if err != nil {
			l.t.Fatal(err)
		}
		bases[id] = a.EvaluatedCommit
	}
	if err := l.store.SetEvaluatedCommit(l.t.Context(), commit, bases); err != nil {
		l.t.Fatal(err)
	}
}

// create stores a new deployment, which supersedes pending ones.
func (l *env) create(id string, a deploy.Application, commit string) {
	l.t.Helper()
	if _, err := l.store.CreateDeployment(l.t.Context(), store.NewDeployment{Supersede: true, Deployment: l.deployment(id, a, commit)}); err != nil {
		l.t.Fatal(err)
	}
}

// deployment returns a new deployment.
func (l *env) deployment(id string, a deploy.Application, commit string) deploy.Deployment {
	return deploy.Deployment{
		ID: id, ApplicationID: a.ID, ApplicationName: a.Name, Git: a.Git, Provider: a.Provider, Labels: a.Labels,
		Status: deploy.Pending, StatusReason: "The deployment is waiting",
		Trigger: deploy.Trigger{Kind: deploy.OnCommit, At: time.Now(), Strategy: deploy.StrategyAuto, Commit: deploy.Commit{Hash: commit, Branch: "main", At: time.Now()}},
	}
}

// move applies transitions to a stored deployment.
func (l *env) move(id string, moves ...func(*deploy.Deployment) error) {
	l.t.Helper()
	for _, m := range moves {
		if _, err := l.store.UpdateDeployment(l.t.Context(), id, m); err != nil {
			l.t.Fatal(err)
		}
	}
}

func plan(url string) func(*deploy.Deployment) error {
	return func(d *deploy.Deployment) error {
		return d.Plan(deploy.Plan{Strategy: deploy.StrategyQuickSync, Summary: "Quick sync", EnvironmentURL: url, Stages: []deploy.Stage{
			{ID: "ask", Name: deploy.StageWaitApproval, Desc: "ask the shop", Visible: true}, {ID: "sync", Name: deploy.StageK8sSync, Visible: true},
		}}, time.Now())
	}
}

func start(d *deploy.Deployment) error { return d.Start(time.Now()) }

func end(as deploy.Status, reason string) func(*deploy.Deployment) error {
	return func(d *deploy.Deployment) error { return d.Complete(as, reason, time.Now()) }
}

// rolled stores a completed rollout of a deployment.
func (l *env) rolled(deploymentID string, a deploy.Application, workload string, began, ended time.Time) {
	l.t.Helper()
	ref := deploy.ObjectRef{Group: "apps", Version: "v1", Kind: "Deployment", Namespace: "shop", Name: workload}
	_, err := l.store.SaveRollout(l.t.Context(), deploy.Rollout{
		ID: deploy.RolloutID(deploymentID, "sync", "cluster", ref), ApplicationID: a.ID, DeploymentID: deploymentID, StageID: "sync", Cluster: "cluster",
		Workload: ref, Phase: deploy.RolloutComplete, StartedAt: began, CompletedAt: ended,
	})
	if err != nil {
		l.t.Fatal(err)
	}
}

// statuses returns the statuses of a commit as "context state: description url".
func (l *env) statuses(commit string) []string {
	var out []string
	for _, s := range l.github.Statuses(commit) {
		out = append(out, strings.TrimSpace(s.Context+" "+s.State+": "+s.Description+" "+s.TargetURL))
	}
	return out
}

// last returns the last status of each context.
func (l *env) last(commit string) []string {
	byContext := map[string]string{}
	for _, s := range l.github.Statuses(commit) {
		byContext[s.Context] = s.Context + " " + s.State + ": " + s.Description
	}
	var out []string
	for _, line := range byContext {
		out = append(out, line)
	}
	slices.Sort(out)
	return out
}

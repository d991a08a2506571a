package drift_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/c785c783/piped/piped/background"
	"github.com/c785c783/piped/piped/cluster/apply"
	"github.com/c785c783/piped/piped/cluster/live"
	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/drift"
	"github.com/c785c783/piped/piped/manifest"
	"github.com/c785c783/piped/piped/store"
	"github.com/c785c783/piped/piped/store/storetest"
)

// env is a detector with a real store and fake clusters. Its clock only moves by pass.
type env struct {
	t        *testing.T
	store    *store.Store
	detector *drift.Detector
	clock    atomic.Int64 // nanoseconds since begin
	ids      atomic.Int64

	mu         sync.Mutex
	clusters   map[string]*fakeCluster
	wanted     map[string][]manifest.Object // by deployment
	unreadable error                        // error of every applied set
	git        fakeGit
}

var begin = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// fakeCluster implements the watches and comparisons of a cluster.
type fakeCluster struct {
	env             *env
	name            string
	members         map[string]live.Member // by key
	blind           map[string]error       // errors of watches by kind
	since           time.Time
	drifts          map[string]deploy.ObjectDrift // by key: differing objects
	reportUnchanged bool                          // report objects in sync as Unchanged
	refuses         error                         // error of every comparison
	followed        map[string]bool               // by kind
	compared        []string                      // "Name", or "Name!" with Confirm
	reads           int
}

type fakeGit struct {
	commits []string
	differs bool
	err     error
	asked   int
	slow    map[string]chan struct{} // by application: closed when its rendering may complete
}

func newEnv(t *testing.T) *env {
	t.Helper()
	e := &env{t: t, clusters: map[string]*fakeCluster{}, wanted: map[string][]manifest.Object{}}
	e.store = storetest.New(t, e.now)
	e.add("c")
	e.detector = e.newDetector()
	return e
}

func (e *env) newDetector(edit ...func(*drift.Config)) *drift.Detector {
	c := drift.Config{
		Store: e.store, Clusters: e, Git: e, Expected: e.expected, PipedID: "me", Logger: slog.New(slog.DiscardHandler), Now: e.now,
		NewID: func() string { return fmt.Sprintf("period-%d", e.ids.Add(1)) }, GitPatience: 3 * time.Minute,
	}
	for _, f := range edit {
		f(&c)
	}
	return drift.New(c)
}

func (e *env) now() time.Time { return begin.Add(time.Duration(e.clock.Load())) }

func (e *env) pass(d time.Duration) { e.clock.Add(int64(d)) }

func (e *env) add(name string) *fakeCluster {
	c := &fakeCluster{env: e, name: name, members: map[string]live.Member{}, blind: map[string]error{}, drifts: map[string]deploy.ObjectDrift{}, followed: map[string]bool{}}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.clusters[name] = c
	return c
}

func (e *env) cluster() *fakeCluster { return e.clusters["c"] }

// Members implements drift.Clusters.
func (e *env) Members(provider string) (drift.Members, time.Time, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if c := e.clusters[provider]; c != nil {
		return c, time.Time{}, nil
	}
	return nil, time.Time{}, fmt.Errorf("the platform provider %q is not configured", provider)
}

// Hold implements drift.Clusters.
func (e *env) Hold(provider string, _ deploy.Application) (drift.Comparer, func(), error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if c := e.clusters[provider]; c != nil {
		return c, func() {}, nil
	}
	return nil, nil, errors.New("gone")
}

// Undeployed implements drift.Git.
func (e *env) Undeployed(ctx context.Context, app deploy.Application, _, _ string) ([]string, bool, error) {
	e.mu.Lock()
	slow := e.git.slow[app.ID]
	e.git.asked++
	e.mu.Unlock()
	if slow != nil {
		defer background.Wait(ctx, "chart https://charts.example.com/nginx-1.2.3.tgz")()
		select {
		case <-slow:
		case <-ctx.Done():
			return nil, false, ctx.Err()
		}
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.git.commits, e.git.differs, e.git.err
}

func (e *env) expected(_ deploy.AppliedSet, d deploy.Deployment, _ []deploy.InventoryItem) (drift.Expected, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.unreadable != nil {
		return drift.Expected{}, e.unreadable
	}
	return drift.Expected{Commit: d.Trigger.Commit.Hash, Objects: e.wanted[d.ID], VariantKey: "pipecd.dev/variant", VariantValue: "primary"}, nil
}

func (c *fakeCluster) Follow(objects []deploy.ObjectRef) {
	c.env.mu.Lock()
	defer c.env.mu.Unlock()
	for _, o := range objects {
		c.followed[o.Kind] = true
	}
}

func (c *fakeCluster) Get(ref deploy.ObjectRef) (live.Member, bool) {
	c.env.mu.Lock()
	defer c.env.mu.Unlock()
	m, ok := c.members[ref.Key()]
	return m, ok
}

func (c *fakeCluster) Of(app string) (of []live.Member) {
	c.env.mu.Lock()
	defer c.env.mu.Unlock()
	for _, m := range c.members {
		if m.Application == app {
			of = append(of, m)
		}
	}
	return of
}

func (c *fakeCluster) Ready(ref deploy.ObjectRef) (time.Time, error) {
	c.env.mu.Lock()
	defer c.env.mu.Unlock()
	if !c.followed[ref.Kind] {
		return time.Time{}, errors.New("not watched yet")
	}
	return c.since, c.blind[ref.Kind]
}

func (c *fakeCluster) Compare(_ context.Context, req apply.CompareRequest) (out []apply.Compared, err error) {
	c.env.mu.Lock()
	defer c.env.mu.Unlock()
	if c.refuses != nil {
		return nil, c.refuses
	}
	for _, ref := range req.Only {
		name := ref.Name
		if req.Confirm {
			name += "!"
		}
		c.compared = append(c.compared, name)
		m := c.members[ref.Key()]
		one := apply.Compared{Object: ref, UID: m.UID, OwnedHash: m.OwnedHash, Mark: m.Mark, ValuesDigest: "values", Unchanged: c.reportUnchanged}
		if d, ok := c.drifts[ref.Key()]; ok {
			if req.Diff {
				d.Diff = "- as in Git\n+ as live\n"
			}
			one.Drift, one.Unchanged = &d, false
		}
		out = append(out, one)
	}
	slices.Sort(c.compared)
	return out, nil
}

func (c *fakeCluster) DescribeExtra(_ context.Context, req apply.CompareRequest) (out []apply.Compared, err error) {
	c.env.mu.Lock()
	defer c.env.mu.Unlock()
	for _, ref := range req.Only {
		c.reads++
		out = append(out, apply.Compared{Object: ref, Drift: &deploy.ObjectDrift{Object: ref, Kind: deploy.DriftExtra}})
	}
	return out, nil
}

// takeCompared returns and resets the compared objects.
func (c *fakeCluster) takeCompared() []string {
	c.env.mu.Lock()
	defer c.env.mu.Unlock()
	taken := c.compared
	c.compared = nil
	return taken
}

func ref(name string) deploy.ObjectRef {
	return deploy.ObjectRef{Version: "v1", Kind: "ConfigMap", Namespace: "n", Name: name}
}

// object returns an expected ConfigMap.
func object(name string, annotations map[string]string) manifest.Object {
	u := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "ConfigMap"}}
	u.SetNamespace("n")
	u.SetName(name)
	u.SetAnnotations(annotations)
	return manifest.Object{Unstructured: u}
}

// write changes the watched metadata of an object, as a write does.
func (c *fakeCluster) write(name string, change func(*live.Member)) {
	c.env.mu.Lock()
	defer c.env.mu.Unlock()
	m := c.members[ref(name).Key()]
	m.ResourceVersion += "+"
	change(&m)
	c.members[ref(name).Key()] = m
}

// taken simulates that another manager took a field from the agent.
func taken(m *live.Member) { m.OwnedHash, m.Mark = "taken", m.Mark+"+" }

// marked simulates a write that leaves the agent's fields unchanged.
func marked(m *live.Member) { m.Mark += "+" }

// differ sets the fields that differ in comparisons of an object; nil is in sync.
func (c *fakeCluster) differ(name string, fields []deploy.FieldDrift) {
	c.env.mu.Lock()
	defer c.env.mu.Unlock()
	if fields == nil {
		delete(c.drifts, ref(name).Key())
		return
	}
	c.drifts[ref(name).Key()] = deploy.ObjectDrift{Object: ref(name), Cluster: c.name, Kind: deploy.DriftChanged, Fields: fields}
}

var greeting = []deploy.FieldDrift{{Path: "data.greeting", Git: `"hello"`, Live: `"bye"`, Manager: "somebody"}}

// app registers an application.
func (e *env) app(id string) deploy.Application {
	e.t.Helper()
	a := deploy.Application{ID: id, Name: id, Kind: deploy.KindKubernetes, Provider: "c", Git: deploy.GitPath{RepoID: "r", Dir: id, ConfigFile: "app.pipecd.yaml"}}
	if _, err := e.store.PutApplication(e.t.Context(), a); err != nil {
		e.t.Fatal(err)
	}
	return a
}

// deploy runs a deployment of the application to its end; objects are applied and live
// after it.
func (e *env) deploy(app, id, commit string, end deploy.Status, objects ...manifest.Object) {
	e.t.Helper()
	e.begin(app, id, commit)
	e.end(app, id, end, objects...)
}

// begin creates a RUNNING deployment.
func (e *env) begin(app, id, commit string) {
	e.t.Helper()
	e.create(app, id, commit)
	e.start(id)
}

// create creates a PENDING deployment.
func (e *env) create(app, id, commit string) {
	e.t.Helper()
	_, err := e.store.CreateDeployment(e.t.Context(), store.NewDeployment{Deployment: deploy.Deployment{
		ID: id, ApplicationID: app, ApplicationName: app, Provider: "c", Status: deploy.Pending, CreatedAt: e.now(), UpdatedAt: e.now(),
		Trigger: deploy.Trigger{Kind: deploy.OnCommit, Commit: deploy.Commit{Hash: commit}, At: e.now(), Strategy: deploy.StrategyAuto},
	}})
	if err != nil {
		e.t.Fatal(err)
	}
}

// start moves a PENDING deployment to RUNNING.
func (e *env) start(id string) {
	e.t.Helper()
	e.update(id, func(d *deploy.Deployment) error {
		return d.Plan(deploy.Plan{Strategy: deploy.StrategyQuickSync, Stages: []deploy.Stage{{ID: "sync", Name: deploy.StageK8sSync, Visible: true}}}, e.now())
	})
	e.update(id, func(d *deploy.Deployment) error { return d.Start(e.now()) })
	e.update(id, func(d *deploy.Deployment) error { return d.StartStage("sync", e.now()) })
}

func (e *env) end(app, id string, end deploy.Status, objects ...manifest.Object) {
	e.t.Helper()
	ctx, c := e.t.Context(), e.cluster()
	if end == deploy.Success {
		e.mu.Lock()
		e.wanted[id] = objects
		for _, o := range objects {
			r := manifest.Ref(o.Unstructured)
			c.members[r.Key()] = live.Member{
				Object: r, UID: "uid-" + r.Name, OwnedHash: "hash", Mark: "m-" + id, ResourceVersion: id, Application: app, Piped: "me", Variant: "primary",
			}
			delete(c.drifts, r.Key())
		}
		e.mu.Unlock()
		for _, o := range objects {
			r := manifest.Ref(o.Unstructured)
			if err := e.store.PutInventory(ctx, deploy.InventoryItem{
				ApplicationID: app, Cluster: "c", Variant: "primary", Object: r, UID: "uid-" + r.Name,
				DesiredDigest: "desired", OwnedHash: "hash", Mark: "m-" + id, ValuesDigest: "values", DeploymentID: id,
			}); err != nil {
				e.t.Fatal(err)
			}
		}
		if err := e.store.SaveAppliedSet(ctx, deploy.AppliedSet{ApplicationID: app, DeploymentID: id, Commit: id, Objects: []byte("{}")}); err != nil {
			e.t.Fatal(err)
		}
	}
	status := map[deploy.Status]deploy.StageStatus{deploy.Success: deploy.StageSuccess, deploy.Failure: deploy.StageFailure}[end]
	e.update(id, func(d *deploy.Deployment) error {
		if err := d.FinishStage("sync", status, "done", e.now()); err != nil {
			return err
		}
		return d.Complete(end, "done", e.now())
	})
}

func (e *env) update(id string, fn func(*deploy.Deployment) error) {
	e.t.Helper()
	if _, err := e.store.UpdateDeployment(e.t.Context(), id, fn); err != nil {
		e.t.Fatal(err)
	}
}

// run runs the detector until the test ends or stop is called.
func (e *env) run() (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	ended, detector := make(chan error, 1), e.detector
	go func() { ended <- detector.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			e.t.Error(err)
		}
	})
	e.t.Cleanup(stop)
	return stop
}

// report evaluates an application like a user request.
func (e *env) report(app string) deploy.DriftReport {
	e.t.Helper()
	r, err := e.detector.Report(e.t.Context(), app, false)
	if err != nil {
		e.t.Fatal(err)
	}
	return r
}

// state returns the stored sync state as "STATUS short reason".
func (e *env) state(app string) string {
	e.t.Helper()
	a, err := e.store.Application(e.t.Context(), app)
	if err != nil {
		e.t.Fatal(err)
	}
	if a.Sync.ShortReason == "" {
		return string(a.Sync.Status)
	}
	return string(a.Sync.Status) + " " + a.Sync.ShortReason
}

// wantState fails unless this sync state is stored.
func (e *env) wantState(app, want string) {
	e.t.Helper()
	if got := e.state(app); got != want {
		e.t.Errorf("the state of %s is %q, want %q", app, got, want)
	}
}

// await waits until this sync state is stored.
func (e *env) await(app, want string) {
	e.t.Helper()
	for end := time.Now().Add(10 * time.Minute); e.state(app) != want; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			e.t.Fatalf("the state of %s is %q, want %q", app, e.state(app), want)
		}
	}
}

// periods returns "ID end" of all periods, the latest first.
func (e *env) periods() (out []string) {
	e.t.Helper()
	all, _, err := e.store.ListDriftReports(e.t.Context(), store.DriftQuery{})
	if err != nil {
		e.t.Fatal(err)
	}
	for _, r := range all {
		out = append(out, r.ID+" "+string(r.End))
	}
	return out
}

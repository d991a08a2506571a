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
	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/drift"
	"github.com/c785c783/piped/piped/kubernetes"
	"github.com/c785c783/piped/piped/manifest"
	"github.com/c785c783/piped/piped/store"
	"github.com/c785c783/piped/piped/store/storetest"
)

// lab is a detector over a real store and clusters of values. Its clock stands still
// unless it is put on.
type lab struct {
	t        *testing.T
	store    *store.Store
	detector *drift.Detector
	clock    atomic.Int64 // nanoseconds since begin
	ids      atomic.Int64

	mu         sync.Mutex
	clusters   map[string]*fakeCluster
	wanted     map[string][]manifest.Object // by deployment
	unreadable error                        // why an applied set cannot be read
	git        fakeGit
}

var begin = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// fakeCluster is what watches would tell of a cluster, and how its objects compare.
type fakeCluster struct {
	lab      *lab
	name     string
	members  map[string]kubernetes.Member // by key
	blind    map[string]error             // by kind
	since    time.Time
	drifts   map[string]deploy.ObjectDrift // by key, of those that differ
	settled  bool                          // what is in sync is told to be settled
	refuses  error                         // every comparison
	followed map[string]bool               // by kind
	compared []string                      // "Name" or "Name!" when it was to be confirmed
	reads    int
}

type fakeGit struct {
	commits []string
	differs bool
	err     error
	asked   int
	slow    map[string]chan struct{} // by application: what it waits for
}

func newLab(t *testing.T) *lab {
	t.Helper()
	l := &lab{t: t, clusters: map[string]*fakeCluster{}, wanted: map[string][]manifest.Object{}}
	l.store = storetest.New(t, l.now)
	l.add("c")
	l.detector = l.newDetector()
	return l
}

func (l *lab) newDetector(edit ...func(*drift.Config)) *drift.Detector {
	c := drift.Config{
		Store: l.store, Clusters: l, Git: l, Expected: l.expected, PipedID: "me", Logger: slog.New(slog.DiscardHandler), Now: l.now,
		NewID: func() string { return fmt.Sprintf("period-%d", l.ids.Add(1)) }, GitPatience: 3 * time.Minute,
	}
	for _, f := range edit {
		f(&c)
	}
	return drift.New(c)
}

func (l *lab) now() time.Time { return begin.Add(time.Duration(l.clock.Load())) }

func (l *lab) pass(d time.Duration) { l.clock.Add(int64(d)) }

func (l *lab) add(name string) *fakeCluster {
	c := &fakeCluster{lab: l, name: name, members: map[string]kubernetes.Member{}, blind: map[string]error{}, drifts: map[string]deploy.ObjectDrift{}, followed: map[string]bool{}}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.clusters[name] = c
	return c
}

func (l *lab) cluster() *fakeCluster { return l.clusters["c"] }

// Members implements drift.Clusters.
func (l *lab) Members(provider string) (drift.Members, time.Time, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if c := l.clusters[provider]; c != nil {
		return c, time.Time{}, nil
	}
	return nil, time.Time{}, fmt.Errorf("the platform provider %q is not configured", provider)
}

// Hold implements drift.Clusters.
func (l *lab) Hold(provider string, _ deploy.Application) (drift.Comparer, func(), error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if c := l.clusters[provider]; c != nil {
		return c, func() {}, nil
	}
	return nil, nil, errors.New("gone")
}

// Undeployed implements drift.Git.
func (l *lab) Undeployed(ctx context.Context, app deploy.Application, _, _ string) ([]string, bool, error) {
	l.mu.Lock()
	slow := l.git.slow[app.ID]
	l.git.asked++
	l.mu.Unlock()
	if slow != nil {
		defer background.Wait(ctx, "chart https://charts.example.com/nginx-1.2.3.tgz")()
		select {
		case <-slow:
		case <-ctx.Done():
			return nil, false, ctx.Err()
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.git.commits, l.git.differs, l.git.err
}

func (l *lab) expected(_ deploy.AppliedSet, d deploy.Deployment, _ []deploy.InventoryItem) (drift.Expected, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.unreadable != nil {
		return drift.Expected{}, l.unreadable
	}
	return drift.Expected{Commit: d.Trigger.Commit.Hash, Objects: l.wanted[d.ID], VariantKey: "pipecd.dev/variant", VariantValue: "primary"}, nil
}

func (c *fakeCluster) Follow(objects []deploy.ObjectRef) {
	c.lab.mu.Lock()
	defer c.lab.mu.Unlock()
	for _, o := range objects {
		c.followed[o.Kind] = true
	}
}

func (c *fakeCluster) Get(ref deploy.ObjectRef) (kubernetes.Member, bool) {
	c.lab.mu.Lock()
	defer c.lab.mu.Unlock()
	m, ok := c.members[ref.Key()]
	return m, ok
}

func (c *fakeCluster) Of(app string) (of []kubernetes.Member) {
	c.lab.mu.Lock()
	defer c.lab.mu.Unlock()
	for _, m := range c.members {
		if m.Application == app {
			of = append(of, m)
		}
	}
	return of
}

func (c *fakeCluster) Ready(ref deploy.ObjectRef) (time.Time, error) {
	c.lab.mu.Lock()
	defer c.lab.mu.Unlock()
	if !c.followed[ref.Kind] {
		return time.Time{}, errors.New("not watched yet")
	}
	return c.since, c.blind[ref.Kind]
}

func (c *fakeCluster) Compare(_ context.Context, req kubernetes.CompareRequest) (out []kubernetes.Compared, err error) {
	c.lab.mu.Lock()
	defer c.lab.mu.Unlock()
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
		one := kubernetes.Compared{Object: ref, UID: m.UID, OwnedHash: m.OwnedHash, Mark: m.Mark, ValuesDigest: "values", Settled: c.settled}
		if d, ok := c.drifts[ref.Key()]; ok {
			if req.Diff {
				d.Diff = "- as in Git\n+ as live\n"
			}
			one.Drift, one.Settled = &d, false
		}
		out = append(out, one)
	}
	slices.Sort(c.compared)
	return out, nil
}

func (c *fakeCluster) DescribeExtra(_ context.Context, req kubernetes.CompareRequest) (out []kubernetes.Compared, err error) {
	c.lab.mu.Lock()
	defer c.lab.mu.Unlock()
	for _, ref := range req.Only {
		c.reads++
		out = append(out, kubernetes.Compared{Object: ref, Drift: &deploy.ObjectDrift{Object: ref, Kind: deploy.DriftExtra}})
	}
	return out, nil
}

// takeCompared returns what was compared since it was called last.
func (c *fakeCluster) takeCompared() []string {
	c.lab.mu.Lock()
	defer c.lab.mu.Unlock()
	taken := c.compared
	c.compared = nil
	return taken
}

func ref(name string) deploy.ObjectRef {
	return deploy.ObjectRef{Version: "v1", Kind: "ConfigMap", Namespace: "n", Name: name}
}

// object returns a ConfigMap as it is expected.
func object(name string, annotations map[string]string) manifest.Object {
	u := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "ConfigMap"}}
	u.SetNamespace("n")
	u.SetName(name)
	u.SetAnnotations(annotations)
	return manifest.Object{Unstructured: u}
}

// write changes what the watch tells of an object, as a write does.
func (c *fakeCluster) write(name string, change func(*kubernetes.Member)) {
	c.lab.mu.Lock()
	defer c.lab.mu.Unlock()
	m := c.members[ref(name).Key()]
	m.ResourceVersion += "+"
	change(&m)
	c.members[ref(name).Key()] = m
}

// taken says that somebody took a field from us.
func taken(m *kubernetes.Member) { m.OwnedHash, m.Mark = "taken", m.Mark+"+" }

// marked says that it was written, and that our fields are ours.
func marked(m *kubernetes.Member) { m.Mark += "+" }

// differ has an object compare as different, or as in Git again (nil).
func (c *fakeCluster) differ(name string, fields []deploy.FieldDrift) {
	c.lab.mu.Lock()
	defer c.lab.mu.Unlock()
	if fields == nil {
		delete(c.drifts, ref(name).Key())
		return
	}
	c.drifts[ref(name).Key()] = deploy.ObjectDrift{Object: ref(name), Cluster: c.name, Kind: deploy.DriftChanged, Fields: fields}
}

var greeting = []deploy.FieldDrift{{Path: "data.greeting", Git: `"hello"`, Live: `"bye"`, Manager: "somebody"}}

// app registers an application.
func (l *lab) app(id string) deploy.Application {
	l.t.Helper()
	a := deploy.Application{ID: id, Name: id, Kind: deploy.KindKubernetes, Provider: "c", Git: deploy.GitPath{RepoID: "r", Dir: id, ConfigFile: "app.pipecd.yaml"}}
	if _, err := l.store.PutApplication(l.t.Context(), a); err != nil {
		l.t.Fatal(err)
	}
	return a
}

// deploy brings a deployment of the application to its end; objects are what it
// applies, and what is live then.
func (l *lab) deploy(app, id, commit string, end deploy.Status, objects ...manifest.Object) {
	l.t.Helper()
	l.begin(app, id, commit)
	l.end(app, id, end, objects...)
}

// begin makes a deployment that is RUNNING.
func (l *lab) begin(app, id, commit string) {
	l.t.Helper()
	l.create(app, id, commit)
	l.start(id)
}

// create makes a deployment that is PENDING.
func (l *lab) create(app, id, commit string) {
	l.t.Helper()
	_, err := l.store.CreateDeployment(l.t.Context(), store.NewDeployment{Deployment: deploy.Deployment{
		ID: id, ApplicationID: app, ApplicationName: app, Provider: "c", Status: deploy.Pending, CreatedAt: l.now(), UpdatedAt: l.now(),
		Trigger: deploy.Trigger{Kind: deploy.OnCommit, Commit: deploy.Commit{Hash: commit}, At: l.now(), Strategy: deploy.StrategyAuto},
	}})
	if err != nil {
		l.t.Fatal(err)
	}
}

// start brings a deployment that is PENDING to RUNNING.
func (l *lab) start(id string) {
	l.t.Helper()
	l.update(id, func(d *deploy.Deployment) error {
		return d.Plan(deploy.Plan{Strategy: deploy.StrategyQuickSync, Stages: []deploy.Stage{{ID: "sync", Name: deploy.StageK8sSync, Visible: true}}}, l.now())
	})
	l.update(id, func(d *deploy.Deployment) error { return d.Start(l.now()) })
	l.update(id, func(d *deploy.Deployment) error { return d.StartStage("sync", l.now()) })
}

func (l *lab) end(app, id string, end deploy.Status, objects ...manifest.Object) {
	l.t.Helper()
	ctx, c := l.t.Context(), l.cluster()
	if end == deploy.Success {
		l.mu.Lock()
		l.wanted[id] = objects
		for _, o := range objects {
			r := manifest.Ref(o.Unstructured)
			c.members[r.Key()] = kubernetes.Member{
				Object: r, UID: "uid-" + r.Name, OwnedHash: "hash", Mark: "m-" + id, ResourceVersion: id, Application: app, Piped: "me", Variant: "primary",
			}
			delete(c.drifts, r.Key())
		}
		l.mu.Unlock()
		for _, o := range objects {
			r := manifest.Ref(o.Unstructured)
			if err := l.store.PutInventory(ctx, deploy.InventoryItem{
				ApplicationID: app, Cluster: "c", Variant: "primary", Object: r, UID: "uid-" + r.Name,
				DesiredDigest: "desired", OwnedHash: "hash", Mark: "m-" + id, ValuesDigest: "values", DeploymentID: id,
			}); err != nil {
				l.t.Fatal(err)
			}
		}
		if err := l.store.SaveAppliedSet(ctx, deploy.AppliedSet{ApplicationID: app, DeploymentID: id, Commit: id, Objects: []byte("{}")}); err != nil {
			l.t.Fatal(err)
		}
	}
	status := map[deploy.Status]deploy.StageStatus{deploy.Success: deploy.StageSuccess, deploy.Failure: deploy.StageFailure}[end]
	l.update(id, func(d *deploy.Deployment) error {
		if err := d.FinishStage("sync", status, "done", l.now()); err != nil {
			return err
		}
		return d.Complete(end, "done", l.now())
	})
}

func (l *lab) update(id string, fn func(*deploy.Deployment) error) {
	l.t.Helper()
	if _, err := l.store.UpdateDeployment(l.t.Context(), id, fn); err != nil {
		l.t.Fatal(err)
	}
}

// run runs the detector until the test ends or stop is called.
func (l *lab) run() (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- l.detector.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			l.t.Error(err)
		}
	})
	l.t.Cleanup(stop)
	return stop
}

// judge has an application judged as somebody asks for it, and returns the report.
func (l *lab) judge(app string) deploy.DriftReport {
	l.t.Helper()
	r, err := l.detector.Report(l.t.Context(), app, false)
	if err != nil {
		l.t.Fatal(err)
	}
	return r
}

// state returns the stored sync state, "STATUS short reason".
func (l *lab) state(app string) string {
	l.t.Helper()
	a, err := l.store.Application(l.t.Context(), app)
	if err != nil {
		l.t.Fatal(err)
	}
	if a.Sync.ShortReason == "" {
		return string(a.Sync.Status)
	}
	return string(a.Sync.Status) + " " + a.Sync.ShortReason
}

// wantState fails unless the stored sync state is this one.
func (l *lab) wantState(app, want string) {
	l.t.Helper()
	if got := l.state(app); got != want {
		l.t.Errorf("the state of %s is %q, want %q", app, got, want)
	}
}

// await waits until the stored sync state is this one.
func (l *lab) await(app, want string) {
	l.t.Helper()
	for end := time.Now().Add(3 * time.Minute); l.state(app) != want; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			l.t.Fatalf("the state of %s is %q, want %q", app, l.state(app), want)
		}
	}
}

// periods returns "ID end" of all periods, the last one first.
func (l *lab) periods() (out []string) {
	l.t.Helper()
	all, _, err := l.store.ListDriftReports(l.t.Context(), store.DriftQuery{})
	if err != nil {
		l.t.Fatal(err)
	}
	for _, r := range all {
		out = append(out, r.ID+" "+string(r.End))
	}
	return out
}

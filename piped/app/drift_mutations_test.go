package app

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/c785c783/piped/piped/cluster/clustertest"
	controlv1 "github.com/c785c783/piped/proto/piped/control/v1"
	modelv1 "github.com/c785c783/piped/proto/piped/model/v1"
)

// The extent of TestMutationsAreReported, and the minimum of its results.
const (
	mutatedApps      = 8
	mutationsPerItem = 8
	wantMutations    = 1000
	wantMutatedKinds = 15
)

// TestMutationsAreReported makes random changes to fields of all objects of applications
// with many kinds. Each change must be reported at the right path of the right object,
// and nothing else. Drift that is undone, by hand or by a sync, must end with that
// reason.
func TestMutationsAreReported(t *testing.T) {
	t.Parallel()
	clustertest.Shared(t).Define(t, documents(t, "testdata/drift/definitions-of-custom-kinds.yaml")...)
	w := newDriftEnv(t)
	seed := chaosSeed(t)
	t.Logf("seed %d (PIPED_CHAOS_SEED)", seed)
	m := newMutations(w, seed)
	began := time.Now()
	m.deploy()
	t.Logf("deployed after %s", time.Since(began).Round(time.Millisecond))

	began = time.Now()
	m.mutate()
	t.Logf("%d changes of %d kinds, written after %s: %v", m.count(), len(m.kinds), time.Since(began).Round(time.Millisecond), m.kinds)
	if m.count() < wantMutations || len(m.kinds) < wantMutatedKinds {
		t.Errorf("only %d changes of %d kinds", m.count(), len(m.kinds))
	}
	m.wantReported()
	t.Logf("all reported after %s", time.Since(began).Round(time.Millisecond))

	began = time.Now()
	m.undo()
	w.wantSynced(m.apps...)
	t.Logf("undone after %s", time.Since(began).Round(time.Millisecond))
	m.wantEnded()
}

// mutations holds applications whose objects are changed.
type mutations struct {
	*driftEnv
	apps []string
	seed uint64

	mu      sync.Mutex
	changed map[string]map[string]*changedObject // by application, by kind
	kinds   map[string]int
}

// changedObject is an object that was changed, with the paths of the changes.
type changedObject struct {
	ref   *modelv1.ObjectRef
	paths []string
	was   *unstructured.Unstructured
}

func newMutations(w *driftEnv, seed uint64) *mutations {
	m := &mutations{driftEnv: w, seed: seed, changed: map[string]map[string]*changedObject{}, kinds: map[string]int{}}
	for i := range mutatedApps {
		m.apps = append(m.apps, fmt.Sprintf("app-%d", i))
	}
	return m
}

// deploy deploys the applications and waits until they are in sync.
func (m *mutations) deploy() {
	m.t.Helper()
	text := strings.Join(texts(documents(m.t, "testdata/drift/objects-of-many-kinds.yaml")), "\n---\n")
	files := map[string]string{}
	for _, app := range m.apps {
		files[app+"/app.pipecd.yaml"] = fmt.Sprintf("apiVersion: pipecd.dev/v1beta1\nkind: KubernetesApp\nspec:\n  name: %s\n  input: {namespace: %s}\n", app, m.ns)
		files[app+"/objects.yaml"] = strings.ReplaceAll(text, "NAME", app)
	}
	commit := m.repo.Push(m.t, "applications of many kinds", files)
	for _, app := range m.apps {
		m.mustEnd(appID(app), commit, modelv1.DeploymentStatus_DEPLOYMENT_SUCCESS)
	}
	m.wantSynced(m.apps...)
	m.wantNoReports("as they are deployed")
	m.learnKinds()
}

// mutate changes all objects.
func (m *mutations) mutate() {
	m.t.Helper()
	group, ctx := errgroup.WithContext(m.ctx)
	group.SetLimit(8)
	for _, app := range m.apps {
		m.changed[app] = map[string]*changedObject{}
	}
	for i, app := range m.apps {
		for j, o := range m.objects(appID(app)) {
			random := rand.New(rand.NewPCG(m.seed, uint64(i*1000+j)))
			group.Go(func() error { return m.mutateOne(ctx, random, app, o) })
		}
	}
	if err := group.Wait(); err != nil {
		m.t.Fatal(err)
	}
}

func (m *mutations) mutateOne(ctx context.Context, random *rand.Rand, app string, o *modelv1.ObjectRef) error {
	paths, was, err := mutate(ctx, random, m.resource(o), o.GetName(), mutationsPerItem)
	if err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.changed[app][o.GetKind()] = &changedObject{o, paths, was}
	m.kinds[o.GetKind()] += len(paths)
	return nil
}

// count returns how many changes there were.
func (m *mutations) count() (n int) {
	for _, k := range m.kinds {
		n += k
	}
	return n
}

// wantReported waits until every change is reported, and fails if anything else is
// reported.
func (m *mutations) wantReported() {
	m.t.Helper()
	for _, app := range m.apps {
		var problems []string
		for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
			if problems = m.unreported(app); len(problems) == 0 {
				break
			}
		}
		if len(problems) > 0 {
			m.t.Errorf("%s: %d problems:\n%s", app, len(problems), strings.Join(problems[:min(len(problems), 30)], "\n"))
		}
	}
}

// unreported returns the errors in the current report of an application.
func (m *mutations) unreported(app string) (problems []string) {
	m.t.Helper()
	resp, err := m.control.GetDriftReport(m.ctx, &controlv1.GetDriftReportRequest{ApplicationId: appID(app)})
	if err != nil {
		m.t.Fatal(err)
	}
	reported := map[string][]string{}
	for _, o := range resp.GetReport().GetObjects() {
		if want := m.changed[app][o.GetObject().GetKind()]; want == nil || want.ref.GetName() != o.GetObject().GetName() || o.GetKind() != modelv1.DriftKind_DRIFT_KIND_CHANGED {
			problems = append(problems, fmt.Sprintf("reported: %s", o))
			continue
		}
		for _, f := range o.GetFields() {
			reported[o.GetObject().GetKind()] = append(reported[o.GetObject().GetKind()], f.GetPath())
		}
	}
	for kind, c := range m.changed[app] {
		for _, path := range c.paths {
			if !slices.ContainsFunc(reported[kind], func(r string) bool { return related(r, path) }) {
				problems = append(problems, fmt.Sprintf("%s: %s is not reported", kind, path))
			}
		}
		for _, path := range reported[kind] {
			if !slices.ContainsFunc(c.paths, func(p string) bool { return related(p, path) }) {
				problems = append(problems, fmt.Sprintf("%s: %s is reported and was not changed; changed were %v", kind, path, c.paths))
			}
		}
	}
	slices.Sort(problems)
	return problems
}

// byHand reports whether an application's objects are restored by hand; the others are
// restored by a sync.
func (m *mutations) byHand(app string) bool { return slices.Index(m.apps, app)%2 == 0 }

// undo reverts all changes.
func (m *mutations) undo() {
	m.t.Helper()
	group, ctx := errgroup.WithContext(m.ctx)
	group.SetLimit(8)
	for _, app := range m.apps {
		if !m.byHand(app) {
			continue
		}
		for _, c := range m.changed[app] {
			group.Go(func() error { return restore(ctx, m.resource(c.ref), c.was) })
		}
	}
	for _, app := range m.apps {
		if !m.byHand(app) {
			m.sync(appID(app))
		}
	}
	if err := group.Wait(); err != nil {
		m.t.Fatal(err)
	}
}

// wantEnded fails the test unless each application had one period of drift, which ended
// as it was undone.
func (m *mutations) wantEnded() {
	m.t.Helper()
	got := map[string]modelv1.DriftEnd{}
	for _, r := range m.reports() {
		if _, ok := got[r.GetApplicationName()]; ok {
			m.t.Errorf("another period of drift of %s: %s", r.GetApplicationName(), describeReport(r))
		}
		got[r.GetApplicationName()] = r.GetEnd()
	}
	for _, app := range m.apps {
		want := modelv1.DriftEnd_DRIFT_END_DEPLOYED
		if m.byHand(app) {
			want = modelv1.DriftEnd_DRIFT_END_REVERTED
		}
		if got[app] != want {
			m.t.Errorf("the drift of %s ended as %s, want %s", app, got[app], want)
		}
	}
	if len(got) != len(m.apps) {
		m.t.Errorf("applications with drift: %v", slices.Sorted(maps.Keys(got)))
	}
}

// documents returns the YAML documents of a file.
func documents(t *testing.T, path string) (out [][]byte) {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for text := range strings.SplitSeq(string(data), "\n---\n") {
		out = append(out, []byte(text))
	}
	return out
}

func texts(documents [][]byte) (out []string) {
	for _, d := range documents {
		out = append(out, string(d))
	}
	return out
}

package kubernetes

import (
	"context"
	"errors"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/c785c783/piped/piped/cluster"
	"github.com/c785c783/piped/piped/cluster/apply"
	"github.com/c785c783/piped/piped/cluster/clustertest"
	"github.com/c785c783/piped/piped/cluster/watch"
	"github.com/c785c783/piped/piped/cluster/workloads"
	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/manifest"
	"github.com/c785c783/piped/piped/source"
	"github.com/c785c783/piped/piped/store"
	"github.com/c785c783/piped/piped/store/storetest"
)

// stageEnv runs the stages of one application's deployments on a real cluster.
type stageEnv struct {
	*Executor
	shared *clustertest.Cluster
	ns     string
	app    deploy.Application
	log    *stageLog

	manifests string                   // what Git declares
	spec      string                   // of the application, as YAML
	hooks     map[string]manifest.Hook // by the names of objects
	after     map[string]manifest.Hook // of those that are hooks of two phases, the other one

	mu       sync.Mutex
	requests []string
	answered func(*http.Request) error // its error takes the place of the cluster's answer
	// slow says which requests the cluster does as late as it can: half a second later,
	// whether or not the client still waits.
	slow func(*http.Request) bool
	late sync.WaitGroup // what slow was asked of and is not done
}

// success is the deployment that the environment's rollbacks return to.
const success = "before"

func newStageEnv(t *testing.T) *stageEnv {
	t.Helper()
	l := &stageEnv{shared: clustertest.Shared(t), log: &stageLog{}}
	l.ns = l.shared.Namespace(t)
	l.spec = "  input: {namespace: " + l.ns + "}\n"
	c, err := cluster.NewCluster(cluster.ClusterConfig{
		Name: "one", KubeConfigPath: l.shared.Kubeconfig(), RetryFor: time.Minute,
		WrapTransport: func(next http.RoundTripper) http.RoundTripper { return &tap{l, next} },
	})
	if err != nil {
		t.Fatal(err)
	}
	controller, ended := watch.New(c), make(chan error, 1)
	ctx, cancel := context.WithCancel(context.Background())
	go func() { ended <- controller.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		c.Close()
	})
	s := storetest.New(t, nil)
	l.app = deploy.Application{ID: "app", Name: "web", Kind: deploy.KindKubernetes, Git: deploy.GitPath{RepoID: "r", Dir: "web", ConfigFile: "app.pipecd.yaml"}}
	if _, err := s.PutApplication(t.Context(), l.app); err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{success, "now"} {
		d := deploy.Deployment{ID: id, ApplicationID: l.app.ID, Status: deploy.Pending, Trigger: deploy.Trigger{Kind: deploy.OnCommit, At: time.Now()}}
		if _, err := s.CreateDeployment(t.Context(), store.NewDeployment{Deployment: d}); err != nil {
			t.Fatal(err)
		}
	}
	l.Executor = New(Config{
		Store: s, Sources: declared{t, l}, PipedID: "piped", Now: time.Now, NudgeWait: 3 * time.Minute,
		Clusters: fixed{"one": {Client: apply.New(c), Rollouts: workloads.NewObserver(c, controller)}},
	})
	return l
}

// giveUpSoon has the next stages, until undo, retry for a second only, for a cluster that keeps failing.
func (l *stageEnv) giveUpSoon() (undo func()) {
	before := l.Clusters
	one := l.Clusters.(fixed)["one"]
	one.Client = apply.New(one.Client.WithRetryFor(time.Second))
	l.Clusters = fixed{"one": one}
	return func() { l.Clusters = before }
}

// declared is a Sources of what the environment's Git declares.
type declared struct {
	t *testing.T
	*stageEnv
}

func (d declared) Load(_ context.Context, _ deploy.GitPath, commit string) (*source.Source, error) {
	all := objects(d.t, d.manifests)
	for i := range all {
		all[i].Hook = d.hooks[all[i].GetName()]
		if hook, ok := d.after[all[i].GetName()]; ok {
			twin := all[i].Clone()
			twin.Hook = hook
			all = append(all, twin)
		}
	}
	return &source.Source{Commit: commit, Config: application(d.t, d.spec), Objects: all}, nil
}

// tap lets the environment see every answer of the cluster.
type tap struct {
	env  *stageEnv
	next http.RoundTripper
}

func (p *tap) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := p.send(r)
	p.env.mu.Lock()
	defer p.env.mu.Unlock()
	p.env.requests = append(p.env.requests, strings.TrimSpace(r.Method+" "+r.URL.Path+" "+r.URL.Query().Get("dryRun")))
	if err == nil && p.env.answered != nil {
		if err := p.env.answered(r); err != nil {
			return nil, errors.Join(err, resp.Body.Close())
		}
	}
	return resp, err
}

func (p *tap) send(r *http.Request) (*http.Response, error) {
	if p.env.slow == nil || !p.env.slow(r) {
		return p.next.RoundTrip(r)
	}
	type answer struct {
		resp *http.Response
		err  error
	}
	done := make(chan answer, 1)
	p.env.late.Go(func() {
		time.Sleep(500 * time.Millisecond)
		resp, err := p.next.RoundTrip(r.WithContext(context.WithoutCancel(r.Context())))
		done <- answer{resp, err}
	})
	select {
	case a := <-done:
		return a.resp, a.err
	case <-r.Context().Done():
		return nil, r.Context().Err()
	}
}

// WrappedRoundTripper lets client-go find the connections to close.
func (p *tap) WrappedRoundTripper() http.RoundTripper { return p.next }

// writes returns the requests that changed something, and forgets all.
func (l *stageEnv) writes() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	out := slices.DeleteFunc(l.requests, func(r string) bool { return strings.HasPrefix(r, "GET ") || strings.HasSuffix(r, " All") })
	l.requests = nil
	return out
}

// deployment returns a run of deployment id's K8S_SYNC, with a ROLLBACK after it.
func (l *stageEnv) deployment(id string) deploy.StageRun {
	d := deploy.Deployment{
		ID: id, ApplicationID: l.app.ID, Git: l.app.Git, Provider: "one", Trigger: deploy.Trigger{Commit: deploy.Commit{Hash: "commit-" + id}},
		Stages: []deploy.Stage{
			{ID: "K8sSync", Name: deploy.StageK8sSync, Metadata: map[string]string{}},
			{ID: "Rollback", Name: deploy.StageRollback, Rollback: true},
		},
	}
	if id != success {
		d.RunningCommit, d.RunningDeploymentID = "commit-"+success, success
	}
	return deploy.StageRun{
		Application: l.app, Deployment: d, Stage: d.Stages[0], Log: l.log,
		SaveMetadata: func(_ context.Context, kv map[string]string) error {
			maps.Copy(d.Stages[0].Metadata, kv)
			return nil
		},
	}
}

// rollBack runs the ROLLBACK after run.
func (l *stageEnv) rollBack(t *testing.T, run deploy.StageRun) {
	t.Helper()
	run.Stage = run.Deployment.Stages[1]
	l.mustSucceed(t, l.Rollback(), run)
}

// succeed deploys manifests as the last success.
func (l *stageEnv) succeed(t *testing.T, manifests string) {
	t.Helper()
	l.manifests = manifests
	l.mustSucceed(t, l.Sync(), l.deployment(success))
	l.complete(t)
}

// complete ends the deployment that is the last success.
func (l *stageEnv) complete(t *testing.T) {
	t.Helper()
	for _, move := range []func(*deploy.Deployment) error{
		func(d *deploy.Deployment) error { return d.Plan(deploy.Plan{}, time.Now()) },
		func(d *deploy.Deployment) error { return d.Start(time.Now()) },
		func(d *deploy.Deployment) error { return d.Complete(deploy.Success, "", time.Now()) },
	} {
		if _, err := l.Store.UpdateDeployment(t.Context(), success, move); err != nil {
			t.Fatal(err)
		}
	}
}

func (l *stageEnv) mustSucceed(t *testing.T, stage Stage, run deploy.StageRun) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if result := stage.Execute(ctx, run); result.Status != deploy.StageSuccess {
		t.Fatalf("%s of deployment %s: %s: %s\n%s", run.Stage.Name, run.Deployment.ID, result.Status, result.Reason, strings.Join(l.log.lines, "\n"))
	}
}

const (
	keptManifest = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: kept}\n"
	newManifest  = "---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: new}\n"
)

// TestRollbackRemovesWhatWasNotRecorded: a stage that is stopped while the API
// server creates an object does not record it. The rollback finds it nevertheless.
func TestRollbackRemovesWhatWasNotRecorded(t *testing.T) {
	l := newStageEnv(t)
	l.succeed(t, keptManifest)

	ctx, cancel := context.WithCancelCause(t.Context())
	l.answered = func(r *http.Request) error {
		if r.Method != http.MethodPatch || r.URL.Query().Has("dryRun") {
			return nil
		}
		cancel(deploy.StopCancelled)
		return context.Canceled
	}
	l.manifests = keptManifest + newManifest
	run := l.deployment("now")
	if result := l.Sync().Execute(ctx, run); result.Status != deploy.StageFailure {
		t.Fatalf("the stopped stage ends %s", result.Status)
	}
	l.answered = nil
	configMaps := l.shared.Client(t).CoreV1().ConfigMaps(l.ns)
	if _, err := configMaps.Get(t.Context(), "new", metav1.GetOptions{}); err != nil {
		t.Fatalf("the object was not created: %v", err)
	}
	if _, err := configMaps.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "foreign"}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := l.announceIn(run, "new", "foreign", "never-created"); err != nil {
		t.Fatal(err)
	}

	l.rollBack(t, run)
	if _, err := configMaps.Get(t.Context(), "new", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("after the rollback the object is still there: %v", err)
	}
	if _, err := configMaps.Get(t.Context(), "foreign", metav1.GetOptions{}); err != nil {
		t.Errorf("an object that another client created meanwhile: %v", err)
	}
	items, err := l.Store.Inventory(t.Context(), l.app.ID)
	if err != nil || len(items) != 1 || items[0].Object.Name != "kept" {
		t.Errorf("inventory after the rollback: %v %v", items, err)
	}
}

// TestRollbackAfterASlowWrite: what the API server is still doing when a stage is
// stopped does not come after the rollback.
func TestRollbackAfterASlowWrite(t *testing.T) {
	l := newStageEnv(t)
	l.succeed(t, "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: kept}\ndata: {version: one}\n")

	ctx, cancel := context.WithCancelCause(t.Context())
	l.slow = func(r *http.Request) bool {
		slow := r.Method == http.MethodPatch && !r.URL.Query().Has("dryRun")
		if slow {
			cancel(deploy.StopTimedOut)
		}
		return slow
	}
	l.manifests = strings.Replace(l.manifests, "one", "two", 1)
	run := l.deployment("now")
	if result := l.Sync().Execute(ctx, run); result.Status != deploy.StageFailure {
		t.Fatalf("the stopped stage ends %s", result.Status)
	}
	l.slow = nil
	l.rollBack(t, run)
	l.late.Wait()
	kept, err := l.shared.Client(t).CoreV1().ConfigMaps(l.ns).Get(t.Context(), "kept", metav1.GetOptions{})
	if err != nil || kept.Data["version"] != "one" {
		t.Errorf("after the rollback the object holds %v (%v)", kept.Data, err)
	}
}

// announceIn has the run's stage announce that it creates some ConfigMaps.
func (l *stageEnv) announceIn(run deploy.StageRun, names ...string) error {
	var refs []deploy.ObjectRef
	for _, name := range names {
		refs = append(refs, deploy.ObjectRef{Version: "v1", Kind: "ConfigMap", Namespace: l.ns, Name: name})
	}
	w := &work{Executor: l.Executor, run: run}
	return w.announce(context.Background(), refs)
}

// TestAppliedIsRecordedAfterAStop: a stage that is stopped while an object is written
// records the write.
func TestAppliedIsRecordedAfterAStop(t *testing.T) {
	w, _, _ := newWork(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	item := deploy.InventoryItem{ApplicationID: "app", Cluster: "one", UID: "uid", Object: deploy.ObjectRef{Version: "v1", Kind: "ConfigMap", Namespace: "shop", Name: "kept"}}
	obj := objects(t, keptManifest)[0]
	w.wrote = map[string]bool{}
	w.Clusters = fixed{"one": {Client: unreached(t, "one")}}
	if err := openCluster(t.Context(), w); err != nil {
		t.Fatal(err)
	}
	if err := (journal{w}).AfterWrite(ctx, obj, obj.Unstructured, item); err != nil {
		t.Fatal(err)
	}
	if items, err := w.inventory(t.Context()); err != nil || len(items) != 1 {
		t.Errorf("inventory: %v %v", items, err)
	}
}

// TestRollbackAfterARefusalWritesNothing: a deployment that the dry run refused
// changed nothing, so its rollback has nothing to restore.
func TestRollbackAfterARefusalWritesNothing(t *testing.T) {
	l := newStageEnv(t)
	l.succeed(t, keptManifest+`---
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec: {selector: {matchLabels: {app: web}}, template: {metadata: {labels: {app: web}}, spec: {containers: [{name: c, image: "registry.example/web:v1"}]}}}
`)

	l.manifests = strings.Replace(l.manifests, "image: ", "imago: ", 1) + newManifest
	l.writes()
	run := l.deployment("now")
	result := l.Sync().Execute(t.Context(), run)
	if result.Status != deploy.StageFailure || !strings.Contains(result.Reason, "nothing was changed: apply Deployment") {
		t.Fatalf("a bad manifest ends %s: %s", result.Status, result.Reason)
	}
	l.rollBack(t, run)
	if writes := l.writes(); len(writes) > 0 {
		t.Errorf("writes: %v", writes)
	}
}

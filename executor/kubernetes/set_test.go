package kubernetes

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/c785c783/piped/piped/cluster"
	"github.com/c785c783/piped/piped/cluster/apply"
	"github.com/c785c783/piped/piped/config"
	"github.com/c785c783/piped/piped/config/kubernetes"
	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/manifest"
	"github.com/c785c783/piped/piped/source"
	"github.com/c785c783/piped/piped/source/secret"
	"github.com/c785c783/piped/piped/store"
	"github.com/c785c783/piped/piped/store/storetest"
)

// application parses a configuration; spec is YAML below spec.
func application(t *testing.T, spec string) *config.Application {
	t.Helper()
	cfg, err := config.Kinds{config.Kubernetes()}.ParseApplication("app.pipecd.yaml", []byte("apiVersion: pipecd.dev/v1beta1\nkind: KubernetesApp\nspec:\n  name: web\n"+spec))
	if err != nil {
		t.Fatal(err)
	}
	return cfg
}

// objects parses manifests.
func objects(t *testing.T, text string) []manifest.Object {
	t.Helper()
	out, err := manifest.Parse("web/app.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// TestSpecOf: the part of the configuration that a stage stores for a later rollback.
func TestSpecOf(t *testing.T) {
	defaults := setSpec{VariantKey: "pipecd.dev/variant", PrimaryValue: "primary", ReadyThreshold: 100, FailFast: true}
	cases := []struct {
		name, spec string
		want       setSpec
	}{
		{"defaults", "", defaults},
		{"everything set", `  input: {namespace: shop, autoCreateNamespace: true}
  quickSync: {prune: true}
  pruneKinds: [Namespace]
  readyThreshold: 80
  strict: true
  waitTermination: true
  failFast: false
  takeOver: true
  variantLabel: {key: example.com/v, primaryValue: main}
  driftDetection:
    ignoreFields: ["v1:ConfigMap:shop:web#data"]
    ignoreRules: [{kind: Deployment, name: web, paths: [/spec/replicas], managers: [scaler], mode: yield}, {paths: [/data]}]
`, setSpec{
			Drift: config.DriftDetection{IgnoreFields: []string{"v1:ConfigMap:shop:web#data"}, IgnoreRules: []config.IgnoreRule{
				{Kind: "Deployment", Name: "web", Paths: []string{"/spec/replicas"}, Managers: []string{"scaler"}, Mode: config.IgnoreYield},
				{Paths: []string{"/data"}, Mode: config.IgnoreObserve},
			}},
			VariantKey: "example.com/v", PrimaryValue: "main", AutoCreateNamespace: true, TakeOver: true,
			ReadyThreshold: 80, Strict: true, WaitTermination: true, Prune: true, PruneKinds: []string{"Namespace"},
		}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			got := specOf(application(t, c.spec))
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("spec (-want +got):\n%s", diff)
			}
			var kept setSpec
			if text, err := json.Marshal(got); err != nil || json.Unmarshal(text, &kept) != nil || !cmp.Equal(got, kept) {
				t.Errorf("kept with the set it is %+v (%v)", kept, err)
			}
		})
	}
}

// TestSyncOptions: a stage's own options win over those of the application.
func TestSyncOptions(t *testing.T) {
	k := *kubernetes.SpecOf(application(t, "  quickSync: {prune: true}\n  readyThreshold: 80\n").Platform)
	for name, c := range map[string]struct {
		options string
		want    setSpec
	}{
		"none":    {"", setSpec{ReadyThreshold: 80, Prune: true}},
		"its own": {`{"prune":false,"readyThreshold":"50%"}`, setSpec{ReadyThreshold: 50}},
		"what it leaves out is as for quick sync": {`{"readyThreshold":"50%"}`, setSpec{ReadyThreshold: 50, Prune: true}},
	} {
		w := &work{run: deploy.StageRun{Stage: deploy.Stage{ID: "s", Options: []byte(c.options)}}}
		o, err := w.syncOptions(k)
		if got := (setSpec{ReadyThreshold: int(o.ReadyThreshold), Prune: o.Prune}); err != nil || !cmp.Equal(got, c.want) {
			t.Errorf("%s: %+v, %v; want %+v", name, got, err, c.want)
		}
	}
	w := &work{run: deploy.StageRun{Stage: deploy.Stage{ID: "s", Options: []byte(`{"prune":1}`)}}}
	if _, err := w.syncOptions(k); !deploy.IsKind(err, deploy.Invalid) {
		t.Errorf("options that cannot be read: %v", err)
	}
}

// TestCreatedBy states which objects a rollback deletes: those the deployment
// created, but for those that are wanted.
func TestCreatedBy(t *testing.T) {
	item := func(name, version, createdBy string) deploy.InventoryItem {
		return deploy.InventoryItem{Object: deploy.ObjectRef{Group: "apps", Version: version, Kind: "Deployment", Namespace: "shop", Name: name}, CreatedBy: createdBy}
	}
	inventory := []deploy.InventoryItem{item("old", "v1", "earlier"), item("found", "v1", ""), item("new", "v1", "d"), item("kept", "v1", "d")}
	kept := []deploy.InventoryItem{item("old", "v1", "earlier"), item("kept", "v1beta1", "d")}
	if diff := cmp.Diff([]deploy.InventoryItem{item("new", "v1", "d")}, createdBy("d", inventory, kept)); diff != "" {
		t.Errorf("to delete (-want +got):\n%s", diff)
	}
}

// sources is a Sources that records what was loaded.
type sources struct {
	git    deploy.GitPath
	commit string
}

var errAsked = errors.New("asked")

func (s *sources) Load(_ context.Context, git deploy.GitPath, commit string) (*source.Source, error) {
	s.git, s.commit = git, commit
	return nil, errAsked
}

// stageLog keeps lines.
type stageLog struct {
	mu    sync.Mutex
	lines []string
}

func (l *stageLog) Infof(format string, args ...any)    { l.add(format, args) }
func (l *stageLog) Successf(format string, args ...any) { l.add(format, args) }
func (l *stageLog) Errorf(format string, args ...any)   { l.add(format, args) }

func (l *stageLog) add(format string, args []any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lines = append(l.lines, fmt.Sprintf(format, args...))
}

// newWork returns the work of a stage of deployment "now", whose application
// succeeded last with deployment "before".
func newWork(t *testing.T) (*work, *sources, *stageLog) {
	t.Helper()
	git, log := &sources{}, &stageLog{}
	s := storetest.New(t, nil)
	app := deploy.Application{ID: "app", Name: "web", Kind: deploy.KindKubernetes, Git: deploy.GitPath{RepoID: "r", Dir: "web", ConfigFile: "app.pipecd.yaml"}}
	if _, err := s.PutApplication(t.Context(), app); err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{"before", "now"} {
		d := deploy.Deployment{ID: id, ApplicationID: "app", Status: deploy.Pending, Trigger: deploy.Trigger{Kind: deploy.OnCommit, At: time.Now()}}
		if _, err := s.CreateDeployment(t.Context(), store.NewDeployment{Deployment: d}); err != nil {
			t.Fatal(err)
		}
	}
	return &work{
		Executor: New(Config{Store: s, Sources: git, Now: time.Now}), log: log, rollouts: map[string]deploy.Rollout{},
		run: deploy.StageRun{Application: app, Log: log, Deployment: deploy.Deployment{
			ID: "now", ApplicationID: "app", Git: app.Git, Provider: "one",
			RunningDeploymentID: "before", RunningCommit: "beef0123456789", RunningConfigFile: "old.pipecd.yaml",
		}},
	}, git, log
}

// TestStoredSetIsRestored: a rollback applies the set that the deployment stored, with the
// same types of numbers, without reading Git.
func TestStoredSetIsRestored(t *testing.T) {
	w, git, log := newWork(t)
	kept := set{
		Commit: "beef0123456789", Spec: specOf(application(t, "  quickSync: {prune: true}\n  pruneKinds: [Namespace]\n")),
		Objects: objects(t, `apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: shop, annotations: {note: "1"}}
spec: {replicas: 3, minReadySeconds: 9007199254740993, paused: false, template: {spec: {containers: []}}}
---
apiVersion: example.com/v1
kind: Odd
metadata: {name: odd}
data: {ratio: 0.5, nothing: null, text: "é\u0000"}
`),
	}
	w.set, w.run.Deployment.ID = kept, "before"
	w.hide = secret.NewRedactor(map[string]string{"password": "hunter2"})
	if err := storeSet(t.Context(), w); err != nil {
		t.Fatal(err)
	}
	w.set, w.hide, w.run.Deployment.ID = set{}, nil, "now"
	if err := restoreSet(t.Context(), w); err != nil {
		t.Fatal(err)
	}
	if git.commit != "" {
		t.Errorf("Git was asked for commit %s", git.commit)
	}
	w.log.Infof("found %s", "hunter2")
	if !slices.Equal(log.lines, []string{"found [redacted]"}) || w.hide.Text("hunter2") != "[redacted]" {
		t.Errorf("secrets of the kept set are shown: %q", log.lines)
	}
	if diff := cmp.Diff(kept.Spec, w.set.Spec); diff != "" || w.set.Commit != kept.Commit {
		t.Errorf("of commit %s (-kept +restored):\n%s", w.set.Commit, diff)
	}
	if len(w.set.Objects) != len(kept.Objects) {
		t.Fatalf("%d objects came back, %d were kept", len(w.set.Objects), len(kept.Objects))
	}
	for i, o := range w.set.Objects {
		if diff := cmp.Diff(kept.Objects[i].Object, o.Object); diff != "" {
			t.Errorf("object %d (-kept +restored):\n%s", i, diff)
		}
		if got := o.Origin.String(); got != "commit beef012" {
			t.Errorf("its origin is %q", got)
		}
	}
}

// TestRestoreWithoutAStoredSet: the last success is rendered from Git, with the
// configuration file of that time.
func TestRestoreWithoutAStoredSet(t *testing.T) {
	w, git, log := newWork(t)
	if err := restoreSet(t.Context(), w); !errors.Is(err, errAsked) {
		t.Fatalf("restore = %v", err)
	}
	if git.commit != "beef0123456789" || git.git.ConfigPath() != "web/old.pipecd.yaml" {
		t.Errorf("asked for %s at %s", git.git.ConfigPath(), git.commit)
	}
	if text := strings.Join(log.lines, "\n"); !strings.Contains(text, "rendering it from Git instead") {
		t.Errorf("the log does not say so: %s", text)
	}
}

// TestNothingToRestore: without an earlier success there is no rollback.
func TestNothingToRestore(t *testing.T) {
	w, _, _ := newWork(t)
	w.run.Deployment.RunningCommit = ""
	if err := restoreSet(t.Context(), w); !deploy.IsKind(err, deploy.Invalid) || err.Error() != "there is no earlier success to roll back to" {
		t.Errorf("restore = %v", err)
	}
}

// fixed are clusters that never change.
type fixed map[string]Cluster

func (f fixed) Hold(provider string) (Cluster, func(), error) {
	c, ok := f[provider]
	if !ok {
		return c, nil, fmt.Errorf("no provider %q", provider)
	}
	return c, func() {}, nil
}

// TestClusterThatCannotBeHeld: the reason is the stage's, and a deployment whose
// first stage fails so is not rolled back, for it did nothing.
func TestClusterThatCannotBeHeld(t *testing.T) {
	first, second := deploy.Stage{ID: "first", Name: deploy.StageK8sSync}, deploy.Stage{ID: "second", Name: deploy.StageK8sSync}
	for name, c := range map[string]struct {
		stage   deploy.Stage
		resumed bool
		want    deploy.StageResult
	}{
		"first stage":         {first, false, deploy.StageResult{Status: deploy.StageFailure, Reason: `no provider "one"`, NoRollback: true}},
		"first stage resumed": {first, true, deploy.StageResult{Status: deploy.StageFailure, Reason: `no provider "one"`}},
		"second stage":        {second, false, deploy.StageResult{Status: deploy.StageFailure, Reason: `no provider "one"`}},
	} {
		t.Run(name, func(t *testing.T) {
			w, _, _ := newWork(t)
			w.Clusters = fixed{"two": {}}
			w.run.Deployment.Stages = []deploy.Stage{first, second}
			w.run.Stage, w.run.Resumed = c.stage, c.resumed
			if diff := cmp.Diff(c.want, w.Sync().Execute(t.Context(), w.run)); diff != "" {
				t.Errorf("result (-want +got):\n%s", diff)
			}
		})
	}
}

// TestInventoryIsOfOneCluster: what an application left on the cluster it was on
// before is neither compared, pruned nor rolled back on another one.
func TestInventoryIsOfOneCluster(t *testing.T) {
	w, _, _ := newWork(t)
	w.Clusters = fixed{"one": {Client: unreached(t, "one")}}
	if err := openCluster(t.Context(), w); err != nil {
		t.Fatal(err)
	}
	for _, on := range []string{"one", "two"} {
		item := deploy.InventoryItem{ApplicationID: "app", Cluster: on, UID: "uid-" + on, Object: deploy.ObjectRef{Version: "v1", Kind: "ConfigMap", Namespace: "shop", Name: "web"}}
		if err := w.Store.PutInventory(t.Context(), item); err != nil {
			t.Fatal(err)
		}
	}
	items, err := w.inventory(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if len(items) != 1 || items[0].UID != "uid-one" {
		t.Errorf("inventory: %+v", items)
	}
}

// TestAnnouncedObjectsAreStored: the next run reads which objects this run, and the runs
// before, were about to create.
func TestAnnouncedObjectsAreStored(t *testing.T) {
	w, _, _ := newWork(t)
	ref := func(name string) deploy.ObjectRef {
		return deploy.ObjectRef{Version: "v1", Kind: "ConfigMap", Name: name}
	}
	metadata := map[string]string{}
	w.run.SaveMetadata = func(_ context.Context, kv map[string]string) error {
		for k, v := range kv {
			metadata[k] = v
		}
		return nil
	}
	if got, err := creating(w.run.Stage); err != nil || got != nil {
		t.Fatalf("the first run finds %v %v", got, err)
	}
	for _, name := range []string{"a", "b"} {
		if err := w.announce(t.Context(), []deploy.ObjectRef{ref(name)}); err != nil {
			t.Fatal(err)
		}
		w.run.Stage.Metadata = metadata
	}
	got, err := creating(w.run.Stage)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]deploy.ObjectRef{ref("a"), ref("b")}, got); diff != "" {
		t.Errorf("announced (-want +got):\n%s", diff)
	}
}

// unreached returns a cluster that gets no request.
func unreached(t *testing.T, name string) *apply.Client {
	t.Helper()
	file := filepath.Join(t.TempDir(), "kubeconfig")
	text := `apiVersion: v1
kind: Config
clusters: [{name: c, cluster: {server: "http://127.0.0.1:1"}}]
contexts: [{name: c, context: {cluster: c, user: u}}]
users: [{name: u, user: {}}]
current-context: c
`
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := cluster.NewCluster(cluster.ClusterConfig{Name: name, KubeConfigPath: file})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return apply.New(c)
}

// TestNoSecretIsInTheRecordOfARollout: images hold secrets, too.
func TestNoSecretIsInTheRecordOfARollout(t *testing.T) {
	w, _, _ := newWork(t)
	w.hide = secret.NewRedactor(map[string]string{"tag": "hunter2"})
	rec := deploy.Rollout{
		ID: "one", ApplicationID: "app", DeploymentID: "now", StageID: "sync", Cluster: "one", CreatedAt: w.Now(),
		Workload: deploy.ObjectRef{Group: "apps", Version: "v1", Kind: "Deployment", Namespace: "shop", Name: "web"},
		Phase:    deploy.RolloutApplied, Images: "registry/web:hunter2 registry/proxy:v1", Reason: "cannot pull registry/web:hunter2",
	}
	if err := w.save(t.Context(), rec); err != nil {
		t.Fatal(err)
	}
	rec = w.rollouts[rec.ID]
	rec.Images = "registry/web:hunter2"
	if _, err := w.saveEnd(t.Context(), rec); err != nil {
		t.Fatal(err)
	}
	stored, err := w.Store.Rollouts(t.Context(), store.RolloutQuery{DeploymentID: rec.DeploymentID})
	if err != nil || len(stored) != 1 || stored[0].Images != "registry/web:[redacted]" || stored[0].Reason != "cannot pull registry/web:[redacted]" {
		t.Errorf("stored: %+v, %v", stored, err)
	}
}

package observe

import (
	"context"
	"log/slog"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/c785c783/piped/piped/cluster/apply"
	"github.com/c785c783/piped/piped/cluster/clustertest"
	"github.com/c785c783/piped/piped/cluster/watch"
	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/store"
)

// naming stores what the pods of a workload know of a named ConfigMap.
func (l *env) naming(t *testing.T, workload, config, version string) {
	t.Helper()
	key := apply.ConfigRef("ConfigMap", l.Namespace, config).Key()
	_, err := l.store.SavePropagation(t.Context(), deploy.Propagation{
		ApplicationID: l.App, Cluster: l.Name(), Workload: deploy.ObjectRef{Group: "apps", Kind: "Deployment", Namespace: l.Namespace, Name: workload},
		Selector: "app=" + workload, Configs: map[string]string{key: "of " + version}, Named: map[string]string{key: version},
		Settings: deploy.NudgeSettings{MaxPods: 1, RatePerSecond: 1},
	})
	if err != nil {
		t.Fatal(err)
	}
}

// knows waits until the version is known that a workload's row has of a ConfigMap, and
// its pods have been annotated.
func (l *env) knows(t *testing.T, workload, config, version string) {
	t.Helper()
	key := apply.ConfigRef("ConfigMap", l.Namespace, config).Key()
	clustertest.Eventually(t, workload+" knows "+config, func() bool {
		rows, err := l.store.Propagations(t.Context(), store.PropagationQuery{Named: true})
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range rows {
			if p.Workload.Name == workload {
				return p.Named[key] == version && p.Phase == deploy.PropagationDone && p.Value != ""
			}
		}
		return false
	})
}

// TestNamedObjectsThatChangedBeforeTheyWereFollowed: between the reading of what a named
// object holds and the storing of that, or the filling of the watch, no event is seen.
func TestNamedObjectsThatChangedBeforeTheyWereFollowed(t *testing.T) {
	t.Parallel()
	l := newEnv(t)
	files := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "files"}, Data: map[string]string{"k": "a"}}
	files, err := l.Typed().CoreV1().ConfigMaps(l.Namespace).Create(t.Context(), files, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	controller := watch.New(l.Cluster)
	nudger := NewNudger(NudgerConfig{Cluster: l.Cluster, Controller: controller, Store: l.store, Logger: slog.New(slog.NewTextHandler(t.Output(), nil))})
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	for _, run := range []func(context.Context) error{controller.Run, nudger.Run} {
		running.Go(func() {
			if err := run(ctx); err != nil {
				t.Error(err)
			}
		})
	}
	t.Cleanup(func() { cancel(); running.Wait() })

	l.naming(t, "first", "gone", "1") // deleted before it is watched
	l.knows(t, "first", "gone", "")
	l.naming(t, "second", "files", "1") // seen by the watch before the row was there
	l.knows(t, "second", "files", files.ResourceVersion)
	l.naming(t, "third", "files", "1") // while another workload knows it already
	l.knows(t, "third", "files", files.ResourceVersion)
}

// TestAnUnwatchableObjectDelaysNoOther: pods are annotated all the same, and what could not
// be followed is not taken as if it were.
func TestAnUnwatchableObjectDelaysNoOther(t *testing.T) {
	t.Parallel()
	l := newEnv(t)
	controller := watch.New(l.Cluster)
	w, err := controller.Watch(watch.Resource{GroupVersionResource: apply.ConfigResource("ConfigMap"), Namespace: l.Namespace, Metadata: true, Transform: keepVersion})
	if err != nil {
		t.Fatal(err)
	}
	stop := clustertest.Run(t, controller.Run)
	if err := w.Filled(t.Context()); err != nil {
		t.Fatal(err)
	}
	stop() // handlers that are added from now on are refused
	l.naming(t, "web", "files", "1")
	rows, err := l.store.Propagations(t.Context(), store.PropagationQuery{Named: true})
	if err != nil || len(rows) != 1 {
		t.Fatal(rows, err)
	}
	p := rows[0]
	p.Phase, p.Value, p.NextAt = deploy.PropagationNudge, "v", time.Now().Add(-time.Second)
	if _, err := l.store.SavePropagation(t.Context(), p); err != nil {
		t.Fatal(err)
	}

	nudger := NewNudger(NudgerConfig{Cluster: l.Cluster, Controller: controller, Store: l.store})
	var running sync.WaitGroup
	if next := nudger.startDue(t.Context(), &running); next != nudgeRetry {
		t.Errorf("will retry in %s", next)
	}
	running.Wait()
	if due, err := l.store.Propagations(t.Context(), store.PropagationQuery{Due: true}); err != nil || len(due) > 0 {
		t.Errorf("pods left to notify: %v, %v", due, err)
	}
	if len(nudger.watched) > 0 {
		t.Errorf("taken as followed: %v", nudger.watched)
	}
}

package observe

import (
	"log/slog"
	"strings"
	"testing"

	"github.com/c785c783/piped/piped/cluster/clustertest"
	"github.com/c785c783/piped/piped/cluster/rollout"
	"github.com/c785c783/piped/piped/cluster/watch"
	"github.com/c785c783/piped/piped/cluster/workloads"
	"github.com/c785c783/piped/piped/cluster/workloads/workloadstest"
	"github.com/c785c783/piped/piped/deploy"
)

// TestRolloutsAreWatchedWithRightsInNamespacesOnly: an agent that may not watch
// workloads in the whole cluster watches them where it may, those of others included.
func TestRolloutsAreWatchedWithRightsInNamespacesOnly(t *testing.T) {
	t.Parallel()
	l, other := newEnv(t), workloadstest.New(t)
	as, err := l.As(l.Namespace)
	if err != nil {
		t.Fatal(err)
	}
	clustertest.Shared(t).PermitRollouts(t, l.Namespace, l.Namespace)
	controller := watch.New(as)
	l.Observer = workloads.NewObserver(as, controller)
	externals := NewExternalRollouts(ExternalConfig{Observer: l.Observer, Store: l.store, Logger: slog.New(slog.NewTextHandler(t.Output(), nil))})
	clustertest.Run(t, controller.Run, externals.Run)

	rec := l.Apply(t, "a", workloadstest.Text(rollout.KindDeployment, "web:1", "replicas: 2"))
	clustertest.Eventually(t, "the caches are filled", func() bool { // a wait gives them five seconds, and then says that it cannot ask
		s, err := l.Observer.Cached(t.Context(), rec)
		return err == nil && s.Workload != nil
	})
	rec = l.Wait(t, rec, nil)
	if rec.Phase != deploy.RolloutComplete {
		t.Fatalf("%s: %s", rec.Phase, rec.Reason)
	}
	if strings.Contains(l.Progress(), "cannot ask the cluster") {
		t.Errorf("the caches were of no use:\n%s", l.Progress())
	}
	if s, err := l.Observer.Cached(t.Context(), rec); err != nil || s.Workload == nil || len(s.Revisions) != 1 {
		t.Errorf("cached: %+v, %v", s, err)
	}
	l.setImage(t, "web:2")
	l.await(t, `revision 2 by "kubectl-set": Complete`)

	there := rec
	there.Workload.Namespace = other.Namespace
	clustertest.Eventually(t, "the reason where it may not", func() bool {
		_, err := l.Observer.Cached(t.Context(), there)
		return deploy.IsKind(err, deploy.Unavailable) && strings.Contains(err.Error(), "a Role in namespace "+other.Namespace)
	})
}

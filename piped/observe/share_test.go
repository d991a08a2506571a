package observe

import (
	"context"
	"log/slog"
	"testing"

	"github.com/c785c783/piped/piped/cluster/clustertest"
	"github.com/c785c783/piped/piped/cluster/rollout"
	"github.com/c785c783/piped/piped/cluster/watch"
	"github.com/c785c783/piped/piped/cluster/workloads"
	"github.com/c785c783/piped/piped/cluster/workloads/workloadstest"
	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/ownership"
	"github.com/c785c783/piped/piped/ownership/ownershiptest"
)

// share records external rollouts, like a replica with caches of its own, while it has the right to.
func (l *env) share(t *testing.T) *ownershiptest.Rights {
	t.Helper()
	rights, controller := ownershiptest.New(), watch.New(l.Cluster)
	observer := workloads.NewObserver(l.Cluster, controller)
	clustertest.Run(t, controller.Run, func(ctx context.Context) error {
		return ownership.Hold(ctx, rights, l.Name(), func(ctx context.Context, moving <-chan struct{}) error {
			ctx, stop := ownership.Interruptible(ctx, moving)
			defer stop()
			return NewExternalRollouts(ExternalConfig{Observer: observer, Store: l.store, Logger: slog.New(slog.NewTextHandler(t.Output(), nil))}).Run(ctx)
		})
	})
	return rights
}

// TestOneReplicaRecords: a rollout that no deployment began is recorded once, by the replica that has the
// right to the cluster, also by one that had the right before.
func TestOneReplicaRecords(t *testing.T) {
	t.Parallel()
	l := newEnv(t)
	a, b := l.share(t), l.share(t)
	a.Grant(l.Name())
	if rec := l.Wait(t, l.Apply(t, "a", workloadstest.Text(rollout.KindDeployment, "web:1", "")), nil); rec.Phase != deploy.RolloutComplete {
		t.Fatalf("%s: %s", rec.Phase, rec.Reason)
	}
	l.setImage(t, "web:2")
	l.await(t, `revision 2 by "kubectl-set": Complete`)
	a.HandOver(l.Name())
	l.setImage(t, "web:3")
	l.awaitRolledOut(t)
	if n := len(l.external(t)); n != 1 {
		t.Errorf("while no replica has the cluster there are %d records", n)
	}
	b.Grant(l.Name())
	l.await(t, `revision 3 by "kubectl-set": Complete`)
	l.setImage(t, "web:4")
	l.await(t, `revision 4 by "kubectl-set": Complete`)
	b.Lose(l.Name())
	a.Grant(l.Name())
	l.setImage(t, "web:5")
	l.await(t, `revision 5 by "kubectl-set": Complete`)
	if n := len(l.external(t)); n != 4 {
		t.Errorf("there are %d records of 4 rollouts", n)
	}
}

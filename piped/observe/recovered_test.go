package observe

import (
	"fmt"
	"strings"
	"testing"

	"github.com/c785c783/piped/piped/cluster/clustertest"
	"github.com/c785c783/piped/piped/cluster/rollout"
	"github.com/c785c783/piped/piped/deploy"
)

// TestAFailedRolloutCompletes: pods of no application crash until the progress deadline has
// passed, and become ready later, while the agent watches or while it is away. The record
// keeps its end and says so, once.
func TestAFailedRolloutCompletes(t *testing.T) {
	t.Parallel()
	for _, away := range []bool{false, true} {
		t.Run(fmt.Sprintf("away=%t", away), func(t *testing.T) {
			t.Parallel()
			l := newEnv(t)
			stop := l.watchAll(t)
			clustertest.Eventually(t, "the cluster is watched", func() bool {
				_, _, err := l.store.WatchedCluster(t.Context(), l.Name())
				return err == nil
			})
			l.apply(t, rollout.KindDeployment, "web:1")
			l.await(t, `revision 1 by "helm": Complete`)
			l.Patch(t, rollout.KindDeployment, "helm", `{"spec":{"template":{"spec":{"containers":[{"name":"app","image":"web:crash"}]}}}}`)
			l.await(t, `revision 2 by "helm": Progressing`)
			stop()
			// The agent may have stored it again.
			failed := l.await(t, `revision 2 by "helm": Progressing`)
			failed.Phase, failed.Reason = deploy.RolloutFailed, "pods crash" // which takes a grace period after each start
			failed, err := l.store.SaveRollout(t.Context(), failed)
			if err != nil {
				t.Fatal(err)
			}
			if away {
				l.keepReady(t)
				l.awaitRolledOut(t)
			}
			stop = l.watchAll(t)
			if !away {
				l.keepReady(t)
			}
			var rec deploy.Rollout
			clustertest.Eventually(t, "it is noted", func() bool {
				rec = l.external(t)[1]
				return !rec.RecoveredAt.IsZero()
			})
			stop()
			l.watchAll(t)
			const want = "; its rollout completed at "
			if rec.Phase != deploy.RolloutFailed || !rec.CompletedAt.Equal(failed.CompletedAt) || rec.RecoveredAt.Before(failed.CompletedAt) ||
				!strings.HasPrefix(rec.Reason, failed.Reason+want) || strings.Count(rec.Reason, want) != 1 {
				t.Errorf("%+v", rec)
			}
			l.Patch(t, rollout.KindDeployment, "helm", `{"spec":{"template":{"spec":{"containers":[{"name":"app","image":"web:3"}]}}}}`)
			l.await(t, `revision 3 by "helm": Complete`)
			events, err := l.store.Events(t.Context(), 0, 0)
			if err != nil {
				t.Fatal(err)
			}
			n := 0
			for _, event := range events {
				if event.Type == deploy.EventRolloutRecovered {
					n++
				}
			}
			if n != 1 {
				t.Errorf("%d events, want 1", n)
			}
		})
	}
}

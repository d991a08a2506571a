package rollout

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/c785c783/piped/piped/deploy"
)

// slowlyConfirmed is a stand whose API server answers slowly.
type slowlyConfirmed struct {
	*stand
	takes time.Duration
}

func (s slowlyConfirmed) Confirm(ctx context.Context, rec deploy.Rollout) (Snapshot, error) {
	time.Sleep(s.takes)
	return s.stand.Confirm(ctx, rec)
}

// TestAMarkIsNoEarlierThanItsEvidence: an old pod stops while the API server is asked
// whether a template that Git did not change has rolled out. The mark must not be earlier
// than that response.
func TestAMarkIsNoEarlierThanItsEvidence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStand()
		s.show("web", 2, 1)
		s.stale = true // the watch reports it later
		rec := deploy.Rollout{ID: "web", DeploymentID: "d", Workload: deploy.ObjectRef{Group: "apps", Kind: KindDeployment, Namespace: "shop", Name: "web"}}
		rec = Intended(rec, &Workload{Template: Template{"B", "b"}, Replicas: 3}, "")
		rec = Applied(rec, Workload{UID: "u", Generation: 2, Template: Template{"B", "b"}, Replicas: 3}, time.Now())
		rec.Version = 1
		s.stored["web"] = rec
		req := s.request(rec)
		req.Observer = slowlyConfirmed{s, 400 * time.Millisecond}
		stopped := time.Now().Add(200 * time.Millisecond)
		time.AfterFunc(time.Until(stopped), func() { s.show("web", 3, 0) })
		ended, err := startWait(t.Context(), req)()
		if err != nil || ended[0].Phase != deploy.RolloutNoRollout {
			t.Fatalf("%+v, %v", ended, err)
		}
		if ended[0].CompletedAt.Before(stopped) {
			t.Errorf("marked %s before the last old pod stopped", stopped.Sub(ended[0].CompletedAt))
		}
	})
}

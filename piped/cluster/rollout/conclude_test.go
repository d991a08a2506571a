package rollout

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/c785c783/piped/piped/deploy"
)

// TestConclude: a record for which no stage waited ends once, by the result of a last
// evaluation.
func TestConclude(t *testing.T) {
	intent := func(digest string) func(*stand, *deploy.Rollout) {
		return func(s *stand, rec *deploy.Rollout) {
			*rec = Intended(deploy.Rollout{ID: rec.ID, Workload: rec.Workload, Version: 1}, &Workload{Template: Template{"A", "a"}, Replicas: 3}, digest)
			s.stored["web"] = *rec
		}
	}
	cases := map[string]struct {
		available, old int32
		change         func(*stand, *deploy.Rollout)
		want           deploy.RolloutPhase
		reason         string
		generation     int64
	}{
		"it goes on":                     {1, 2, nil, deploy.RolloutTimedOut, "time is up", 2},
		"it ended meanwhile":             {3, 0, nil, deploy.RolloutComplete, "web: 3 of 3 pods available in ReplicaSet web-b, no old pod left", 2},
		"it was not applied":             {1, 2, intent("C"), deploy.RolloutNoRollout, "not applied: time is up", 0},
		"it was applied, unknown to us":  {1, 2, intent("B"), deploy.RolloutTimedOut, "time is up", 2},
		"what was intended is not known": {1, 2, intent(""), deploy.RolloutTimedOut, "time is up", 0},
		"the cluster cannot be asked":    {3, 0, func(s *stand, _ *deploy.Rollout) { s.down = errors.New("gone") }, deploy.RolloutTimedOut, "time is up", 2},
		"the cluster is slow": {1, 2, func(s *stand, rec *deploy.Rollout) {
			intent("B")(s, rec)
			s.slow = 12 * time.Second
		}, deploy.RolloutTimedOut, "time is up", 2},
		"the cluster is silent":         {3, 0, func(s *stand, _ *deploy.Rollout) { s.slow = time.Hour }, deploy.RolloutTimedOut, "time is up", 2},
		"no controller has observed it": {0, 3, func(s *stand, rec *deploy.Rollout) { rec.LastProgress = rec.LastProgress.Add(-time.Hour) }, deploy.RolloutTimedOut, "time is up", 2},
		"a concurrent writer stored it meanwhile": {1, 2, func(s *stand, rec *deploy.Rollout) {
			newer := s.stored["web"]
			newer.Version = 7
			s.stored["web"] = newer
		}, deploy.RolloutTimedOut, "time is up", 2},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newStand()
				rec := s.applied("web")
				s.show("web", c.available, c.old)
				if c.change != nil {
					c.change(s, &rec)
				}
				ctx, cancel := context.WithTimeout(t.Context(), ConfirmLimit+time.Second)
				defer cancel()
				if err := Conclude(ctx, s.request(rec), deploy.RolloutTimedOut, "time is up"); err != nil {
					t.Fatal(err)
				}
				got := s.stored["web"]
				if got.Phase != c.want || got.Reason != c.reason || got.Generation != c.generation || s.marks["web"] != 1 {
					t.Errorf("%s: %s (generation %d), %d marks; want %s: %s (generation %d), one", got.Phase, got.Reason, got.Generation, s.marks["web"], c.want, c.reason, c.generation)
				}
			})
		})
	}
}

// TestConcludeWithoutAStore: Conclude stops retrying when its context ends.
func TestConcludeWithoutAStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStand()
		rec := s.applied("web")
		s.saveErr = deploy.Errorf(deploy.Unavailable, "disk full")
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		if err := Conclude(ctx, s.request(rec), deploy.RolloutSuperseded, "the stage was cancelled"); !errors.Is(err, context.DeadlineExceeded) || s.saves < 2 {
			t.Errorf("error %v after %d attempts", err, s.saves)
		}
	})
}

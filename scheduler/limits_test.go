package scheduler

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/c785c783/piped/piped/deploy"
)

// TestLimits: the limits hold, waiting deployments start oldest first, and a full
// cluster does not block others.
func TestLimits(t *testing.T) {
	t.Parallel()
	cases := []struct {
		name      string
		limits    Limits
		providers []string   // of the deployments, in order
		want      [][]string // running deployments in each minute
	}{
		{"none", Limits{}, []string{"one", "one", "two"}, [][]string{{"d0", "d1", "d2"}}},
		{"in all", Limits{Deployments: 2}, []string{"one", "two", "one", "two", "one"}, [][]string{{"d0", "d1"}, {"d2", "d3"}, {"d4"}}},
		{"per cluster", Limits{PerCluster: 1}, []string{"one", "one", "one", "two"}, [][]string{{"d0", "d3"}, {"d1"}, {"d2"}}},
		{"both", Limits{Deployments: 2, PerCluster: 1}, []string{"one", "one", "two", "two"}, [][]string{{"d0", "d2"}, {"d1", "d3"}}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, e *env) {
				e.limits = c.limits
				e.executors[deploy.StageK8sSync] = lasting(time.Minute)
				for i, provider := range c.providers {
					e.waiting(fmt.Sprintf("d%d", i), provider)
					time.Sleep(time.Millisecond)
				}
				e.start()
				for i, want := range c.want {
					time.Sleep(time.Second)
					synctest.Wait()
					if diff := cmp.Diff(want, e.running()); diff != "" {
						t.Errorf("in minute %d runs (-want +got):\n%s", i, diff)
					}
					time.Sleep(59 * time.Second)
				}
				time.Sleep(time.Minute)
				synctest.Wait()
				for i := range c.providers {
					e.wantEnd(fmt.Sprintf("d%d", i), deploy.Success, "Deployment completed successfully")
				}
			})
		})
	}
}

// TestLimitsChangeWhileRunning: raised limits take effect with Rescan.
func TestLimitsChangeWhileRunning(t *testing.T) {
	inBubble(t, func(t *testing.T, e *env) {
		e.limits = Limits{Deployments: 1}
		e.executors[deploy.StageK8sSync] = lasting(time.Minute)
		e.waiting("d0", "one")
		time.Sleep(time.Millisecond)
		e.waiting("d1", "one")
		e.start()
		synctest.Wait()
		if diff := cmp.Diff([]string{"d0"}, e.running()); diff != "" {
			t.Errorf("at first runs (-want +got):\n%s", diff)
		}
		e.limits = Limits{Deployments: 2}
		e.rescan()
		synctest.Wait()
		if diff := cmp.Diff([]string{"d0", "d1"}, e.running()); diff != "" {
			t.Errorf("with a higher limit runs (-want +got):\n%s", diff)
		}
	})
}

// TestInterruptedGoFirst: after a restart interrupted deployments are resumed even
// beyond lowered limits, and no other starts until a slot is free.
func TestInterruptedGoFirst(t *testing.T) {
	inBubble(t, func(t *testing.T, e *env) {
		e.executors[deploy.StageK8sSync] = lasting(time.Minute)
		e.start()
		e.planned("d0")
		e.planned("d1")
		synctest.Wait()
		e.shutdown()
		e.waiting("d2", "one")
		e.limits = Limits{Deployments: 1}
		e.start()
		synctest.Wait()
		want := []string{"d0/one", "d1/one", "d0/one*", "d1/one*"}
		ran := e.ran()
		slices.Sort(want)
		slices.Sort(ran)
		if diff := cmp.Diff(want, ran); diff != "" {
			t.Errorf("executed (-want +got):\n%s", diff)
		}
		time.Sleep(time.Minute + time.Second)
		synctest.Wait()
		if diff := cmp.Diff([]string{"d2"}, e.running()); diff != "" {
			t.Errorf("then runs (-want +got):\n%s", diff)
		}
	})
}

// waiting stores a PLANNED deployment on a platform provider.
func (e *env) waiting(id, provider string) {
	e.t.Helper()
	e.pending(id, "app-"+id, func(d *deploy.Deployment) { d.Provider = provider })
	e.plan(id, func(p *deploy.Plan) { p.Stages = p.Stages[:1] })
}

// running returns the sorted IDs of the RUNNING deployments.
func (e *env) running() []string {
	e.t.Helper()
	ds, err := e.store.DeploymentsIn(e.t.Context(), deploy.Running)
	if err != nil {
		e.t.Fatal(err)
	}
	var ids []string
	for _, d := range ds {
		ids = append(ids, d.ID)
	}
	slices.Sort(ids)
	return ids
}

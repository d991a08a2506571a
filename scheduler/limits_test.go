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

// TestLimits: no more deployments run than allowed, the others follow oldest
// first, and a full cluster holds up no other.
func TestLimits(t *testing.T) {
	t.Parallel()
	cases := []struct {
		name      string
		limits    Limits
		providers []string   // of the deployments, in the order they come
		want      [][]string // what runs in each minute
	}{
		{"none", Limits{}, []string{"one", "one", "two"}, [][]string{{"d0", "d1", "d2"}}},
		{"in all", Limits{Deployments: 2}, []string{"one", "two", "one", "two", "one"}, [][]string{{"d0", "d1"}, {"d2", "d3"}, {"d4"}}},
		{"per cluster", Limits{PerCluster: 1}, []string{"one", "one", "one", "two"}, [][]string{{"d0", "d3"}, {"d1"}, {"d2"}}},
		{"both", Limits{Deployments: 2, PerCluster: 1}, []string{"one", "one", "two", "two"}, [][]string{{"d0", "d2"}, {"d1", "d3"}}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, l *lab) {
				l.limits = c.limits
				l.executors[deploy.StageK8sSync] = lasting(time.Minute)
				for i, provider := range c.providers {
					l.waiting(fmt.Sprintf("d%d", i), provider)
					time.Sleep(time.Millisecond)
				}
				l.start()
				for i, want := range c.want {
					time.Sleep(time.Second)
					synctest.Wait()
					if diff := cmp.Diff(want, l.running()); diff != "" {
						t.Errorf("in minute %d runs (-want +got):\n%s", i, diff)
					}
					time.Sleep(59 * time.Second)
				}
				time.Sleep(time.Minute)
				synctest.Wait()
				for i := range c.providers {
					l.wantEnd(fmt.Sprintf("d%d", i), deploy.Success, "Deployment completed successfully")
				}
			})
		})
	}
}

// TestLimitsChangeWhileRunning: raised limits count as soon as Look is called.
func TestLimitsChangeWhileRunning(t *testing.T) {
	inBubble(t, func(t *testing.T, l *lab) {
		l.limits = Limits{Deployments: 1}
		l.executors[deploy.StageK8sSync] = lasting(time.Minute)
		l.waiting("d0", "one")
		time.Sleep(time.Millisecond)
		l.waiting("d1", "one")
		l.start()
		synctest.Wait()
		if diff := cmp.Diff([]string{"d0"}, l.running()); diff != "" {
			t.Errorf("at first runs (-want +got):\n%s", diff)
		}
		l.limits = Limits{Deployments: 2}
		l.look()
		synctest.Wait()
		if diff := cmp.Diff([]string{"d0", "d1"}, l.running()); diff != "" {
			t.Errorf("with a higher limit runs (-want +got):\n%s", diff)
		}
	})
}

// TestInterruptedGoFirst: after a restart what had a slot goes on, even if the
// limits were lowered, and nothing new starts until there is room.
func TestInterruptedGoFirst(t *testing.T) {
	inBubble(t, func(t *testing.T, l *lab) {
		l.executors[deploy.StageK8sSync] = lasting(time.Minute)
		l.start()
		l.planned("d0")
		l.planned("d1")
		synctest.Wait()
		l.shutdown()
		l.waiting("d2", "one")
		l.limits = Limits{Deployments: 1}
		l.start()
		synctest.Wait()
		want := []string{"d0/one", "d1/one", "d0/one*", "d1/one*"}
		ran := l.ran()
		slices.Sort(want)
		slices.Sort(ran)
		if diff := cmp.Diff(want, ran); diff != "" {
			t.Errorf("executed (-want +got):\n%s", diff)
		}
		time.Sleep(time.Minute + time.Second)
		synctest.Wait()
		if diff := cmp.Diff([]string{"d2"}, l.running()); diff != "" {
			t.Errorf("then runs (-want +got):\n%s", diff)
		}
	})
}

// waiting stores a PLANNED deployment on a platform provider.
func (l *lab) waiting(id, provider string) {
	l.t.Helper()
	l.pending(id, "app-"+id, func(d *deploy.Deployment) { d.Provider = provider })
	l.plan(id, func(p *deploy.Plan) { p.Stages = p.Stages[:1] })
}

// running returns the IDs of the deployments that are RUNNING, sorted.
func (l *lab) running() []string {
	l.t.Helper()
	ds, err := l.store.DeploymentsIn(l.t.Context(), deploy.Running)
	if err != nil {
		l.t.Fatal(err)
	}
	var ids []string
	for _, d := range ds {
		ids = append(ids, d.ID)
	}
	slices.Sort(ids)
	return ids
}

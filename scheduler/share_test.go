package scheduler

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/ownership"
)

// grants are the rights of one replica, with terms of the store.
type grants struct {
	e  *env
	id string

	mu   sync.Mutex
	held map[deploy.Partition]*grant
}

type grant struct {
	term   deploy.Term
	moving chan struct{}
	ctx    context.Context
	lose   context.CancelCauseFunc
	users  sync.WaitGroup
}

// Own implements ownership.Rights.
func (g *grants) Own(ctx context.Context, key string) (ownership.Work, bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	h := g.held[deploy.PartitionOf(key)]
	if h == nil {
		return ownership.Work{}, false
	}
	select {
	case <-h.moving:
		return ownership.Work{}, false
	default:
	}
	h.users.Add(1)
	ctx, cancel := context.WithCancelCause(deploy.WithTerm(ctx, h.term))
	stop := context.AfterFunc(h.ctx, func() { cancel(context.Cause(h.ctx)) })
	return ownership.Work{Context: ctx, Moving: h.moving, Done: func() { stop(); cancel(nil); h.users.Done() }}, true
}

// Gained implements ownership.Rights.
func (g *grants) Gained() <-chan struct{} { return nil }

// take takes the partition of an application in the store.
func (g *grants) take(app string) {
	g.e.t.Helper()
	terms, err := g.e.store.Take(context.Background(), g.id, []deploy.Partition{deploy.PartitionOf(app)})
	if err != nil || len(terms) != 1 {
		g.e.t.Fatalf("%s takes the partition of %s: %v, %v", g.id, app, terms, err)
	}
	h := &grant{term: terms[0], moving: make(chan struct{})}
	h.ctx, h.lose = context.WithCancelCause(context.Background())
	g.mu.Lock()
	defer g.mu.Unlock()
	g.held[terms[0].Partition] = h
}

// handOver releases the partition of an application when the work on it has ended.
func (g *grants) handOver(app string) {
	g.e.t.Helper()
	g.mu.Lock()
	h := g.held[deploy.PartitionOf(app)]
	g.mu.Unlock()
	close(h.moving)
	h.users.Wait()
	g.release(h.term)
}

func (g *grants) release(term deploy.Term) {
	g.e.t.Helper()
	if err := g.e.store.Release(context.Background(), g.id, []deploy.Term{term}); err != nil {
		g.e.t.Fatal(err)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.held, term.Partition)
}

// replica is one of two schedulers on a store.
type replica struct {
	*env
	grants *grants
}

// sharing runs a test with two replicas that hold nothing.
func sharing(t *testing.T, limits Limits, executors map[string]Executor, test func(a, b *replica)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		first := newEnv(t)
		second := closedEnv(t)
		second.dsn = first.dsn
		second.store = first.store // SQLite has no change feed between processes
		var both []*replica
		for i, e := range []*env{first, second} {
			g := &grants{e: e, id: fmt.Sprint("replica-", i), held: map[deploy.Partition]*grant{}}
			if err := e.store.Join(context.Background(), deploy.Replica{ID: g.id, StartedAt: time.Now()}, 100*365*24*time.Hour); err != nil {
				t.Fatal(err)
			}
			e.rights, e.limits = g, limits
			for name, x := range executors {
				e.executors[name] = x
			}
			e.start()
			both = append(both, &replica{e, g})
		}
		defer first.close()
		defer second.shutdown()
		test(both[0], both[1])
	})
}

// wantRan fails unless the replica has executed these stages.
func (r *replica) wantRan(want ...string) {
	r.t.Helper()
	if diff := cmp.Diff(want, r.ran()); diff != "" {
		r.t.Errorf("%s executed (-want +got):\n%s", r.grants.id, diff)
	}
}

// TestReplicasWorkOnTheirOwn: each deployment is run by the replica that has the right to its
// application, one of no replica waits, and commands are answered once.
func TestReplicasWorkOnTheirOwn(t *testing.T) {
	sharing(t, Limits{}, map[string]Executor{"TWO": executor(hang)}, func(a, b *replica) {
		a.grants.take("app-d0")
		b.grants.take("app-d1")
		for _, id := range []string{"d0", "d1", "d2"} {
			a.planned(id)
		}
		synctest.Wait()
		a.wantRan("d0/one", "d0/two")
		b.wantRan("d1/one", "d1/two")
		a.ask(deploy.Command{ID: "c", Type: deploy.CommandCancel, DeploymentID: "d1", ApplicationID: "app-d1", Commander: "ann"})
		synctest.Wait()
		a.wantAnswer("c", deploy.CommandSucceeded, "")
		a.wantEnd("d1", deploy.Cancelled, "Cancelled by ann; rolled back to commit beef012")
		if got := a.get("d2").Status; got != deploy.Planned {
			a.t.Errorf("the deployment of no replica is %s", got)
		}
		b.grants.take("app-d2")
		b.rescan()
		synctest.Wait()
		b.wantRan("d1/one", "d1/two", "d1/back", "d2/one", "d2/two")
	})
}

// TestDeploymentIsHandedOver: a stage is interrupted and continues in the next replica, but for a
// script, which ends first. Each stage ends once.
func TestDeploymentIsHandedOver(t *testing.T) {
	for _, c := range []struct {
		stage         string
		after         time.Duration // until the partition is free
		first, second []string
	}{
		{"TWO", 0, []string{"d/one", "d/two"}, []string{"d/two*", "d/three"}},
		{deploy.StageScriptRun, 50 * time.Second, []string{"d/one", "d/two"}, []string{"d/three*"}},
	} {
		t.Run(c.stage, func(t *testing.T) {
			sharing(t, Limits{}, map[string]Executor{c.stage: lasting(time.Minute)}, func(a, b *replica) {
				a.grants.take("app-d")
				a.planned("d", func(p *deploy.Plan) {
					p.Stages = []deploy.Stage{{ID: "one", Name: deploy.StageK8sSync}, {ID: "two", Name: c.stage}, {ID: "three", Name: deploy.StageK8sSync}}
				})
				time.Sleep(10 * time.Second)
				began := time.Now()
				a.grants.handOver("app-d")
				if took := time.Since(began); took != c.after {
					t.Errorf("the partition was free after %s, want %s", took, c.after)
				}
				b.grants.take("app-d")
				b.rescan()
				time.Sleep(5 * time.Minute)
				synctest.Wait()
				a.wantRan(c.first...)
				b.wantRan(c.second...)
				a.wantEnd("d", deploy.Success, "Deployment completed successfully")
				a.wantLegal("d")
			})
		})
	}
}

// TestLostRight: a replica whose term is over writes nothing more, neither the result of its stage nor
// lines of its log, and leaves the deployment to the next one.
func TestLostRight(t *testing.T) {
	for _, noticed := range []bool{false, true} {
		t.Run(fmt.Sprintf("noticed=%t", noticed), func(t *testing.T) {
			stubborn := executor(func(ctx context.Context, run deploy.StageRun) deploy.StageResult {
				if run.Resumed {
					run.Log.Infof("continued")
					return succeed(ctx, run)
				}
				time.Sleep(time.Minute) // as a process that is suspended
				run.Log.Infof("late")
				return deploy.StageResult{Status: deploy.StageFailure, Reason: "late"}
			})
			sharing(t, Limits{}, map[string]Executor{"TWO": stubborn}, func(a, b *replica) {
				a.grants.take("app-d")
				a.planned("d")
				time.Sleep(10 * time.Second)
				h := a.grants.held[deploy.PartitionOf("app-d")]
				if noticed {
					h.lose(ownership.ErrLost)
				}
				a.grants.release(h.term)
				b.grants.take("app-d")
				b.rescan()
				time.Sleep(5 * time.Minute)
				synctest.Wait()
				b.wantRan("d/two*")
				a.wantRan("d/one", "d/two")
				a.wantEnd("d", deploy.Success, "Deployment completed successfully")
				a.wantLegal("d")
				if log := strings.Join(a.log("d", "two"), "\n"); strings.Contains(log, "late") || !strings.Contains(log, "continued") {
					t.Errorf("the log is %q", log)
				}
			})
		})
	}
}

// TestLimitsOfAllReplicas: replicas do not exceed a limit together, and use a slot that another one
// has freed.
func TestLimitsOfAllReplicas(t *testing.T) {
	sharing(t, Limits{Deployments: 2}, map[string]Executor{"TWO": lasting(time.Minute)}, func(a, b *replica) {
		for i := range 5 {
			r := a
			if i%2 == 1 {
				r = b
			}
			r.grants.take(fmt.Sprint("app-d", i))
			a.planned(fmt.Sprint("d", i))
		}
		for range 100 {
			time.Sleep(3 * time.Second)
			synctest.Wait()
			running, err := a.store.DeploymentsIn(context.Background(), deploy.Running)
			if err != nil || len(running) > 2 {
				t.Fatalf("%d deployments run, %v, want at most 2", len(running), err)
			}
		}
		for i := range 5 {
			a.wantEnd(fmt.Sprint("d", i), deploy.Success, "Deployment completed successfully")
		}
		if len(a.ran()) != 6 || len(b.ran()) != 4 {
			t.Errorf("executed %q and %q", a.ran(), b.ran())
		}
	})
}

package scheduler

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/c785c783/piped/piped/deploy"
)

// TestQueues: running and waiting deployments are counted in total and per provider,
// including providers without any.
func TestQueues(t *testing.T) {
	inBubble(t, func(t *testing.T, e *env) {
		e.limits = Limits{Deployments: 3, PerCluster: 1}
		e.executors[deploy.StageK8sSync] = lasting(time.Minute)
		for i, provider := range []string{"one", "one", "one", "two"} {
			e.waiting([]string{"d0", "d1", "d2", "d3"}[i], provider)
			time.Sleep(time.Second)
		}
		oldest := e.get("d1").Trigger.At
		e.start()
		synctest.Wait()
		want := []deploy.QueueState{
			{Name: "scheduler", Waiting: 2, Active: 2, Limit: 3, OldestWaiting: oldest},
			{Name: "cluster/one", Waiting: 2, Active: 1, Limit: 1, OldestWaiting: oldest},
			{Name: "cluster/two", Active: 1, Limit: 1},
		}
		if diff := cmp.Diff(want, e.queues()); diff != "" {
			t.Errorf("while deployments run (-want +got):\n%s", diff)
		}
		time.Sleep(4 * time.Minute)
		synctest.Wait()
		want = []deploy.QueueState{{Name: "scheduler", Limit: 3}, {Name: "cluster/one", Limit: 1}, {Name: "cluster/two", Limit: 1}}
		if diff := cmp.Diff(want, e.queues()); diff != "" {
			t.Errorf("once all have ended (-want +got):\n%s", diff)
		}
	})
}

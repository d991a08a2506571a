package store_test

import (
	"sync"
	"testing"
	"time"

	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/store"
	"github.com/c785c783/piped/piped/store/storetest"
)

// seen implements store.Metrics.
type seen struct {
	mu                    sync.Mutex
	writes, shared, group int
	ended                 []deploy.Rollout
}

// Wrote implements store.Metrics.
func (s *seen) Wrote(took time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if took > 0 {
		s.writes++
	}
}

// Committed implements store.Metrics.
func (s *seen) Committed(writes int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.shared++
	s.group += writes
}

// RolloutEnded implements store.Metrics.
func (s *seen) RolloutEnded(r deploy.Rollout) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ended = append(s.ended, r)
}

// TestMetrics: every write is recorded, failed ones too, and the committed transactions with
// the number of writes they shared; the end of a rollout is recorded once.
func TestMetrics(t *testing.T) {
	o := &seen{}
	s, err := store.Open(t.Context(), storetest.Ready(t), store.Options{Key: storetest.Key(), Metrics: o})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	const writers = 20
	var all sync.WaitGroup
	for i := range writers {
		all.Go(func() {
			id := string(rune('a' + i))
			if _, err := s.PutApplication(t.Context(), deploy.Application{ID: id, Name: id, Kind: deploy.KindKubernetes}); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if o.writes < writers || o.group != writers || o.shared > o.group {
		t.Errorf("%d writes, %d in %d transactions; want %d", o.writes, o.group, o.shared, writers)
	}
	r := deploy.Rollout{ID: "r", ApplicationID: "a", Cluster: "local", Workload: deploy.ObjectRef{Kind: "Deployment", Name: "web"}, Phase: deploy.RolloutProgressing}
	if r, err = s.SaveRollout(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	if len(o.ended) != 0 {
		t.Errorf("ended: %+v", o.ended)
	}
	r.Phase = deploy.RolloutComplete
	if _, err = s.SaveRollout(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	if _, err = s.SaveRollout(t.Context(), r); !deploy.IsKind(err, deploy.Conflict) {
		t.Errorf("ending it again: %v", err)
	}
	if len(o.ended) != 1 || o.ended[0].CompletedAt.IsZero() {
		t.Errorf("ended: %+v", o.ended)
	}
}

package store

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/c785c783/piped/piped/deploy"
)

// openGroup opens a store whose writers wait for each other until release is
// called: those that come meanwhile share a transaction.
func openGroup(t *testing.T) (s *Store, waiting func(int), release func()) {
	t.Helper()
	s, err := Open(t.Context(), "sqlite://"+filepath.Join(t.TempDir(), "piped.db"), Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	s.group.busy = true // as if another writer led
	waiting = func(n int) {
		for {
			s.group.mu.Lock()
			have := len(s.group.waiting)
			s.group.mu.Unlock()
			if have == n {
				return
			}
		}
	}
	return s, waiting, s.group.handOver
}

// put stores a row of the smallest table there is.
func put(ctx context.Context, t *tx, id string) error {
	_, err := t.exec(ctx, "INSERT INTO counters (name, value) VALUES (?, 1)", id)
	t.changed(deploy.TopicApplication, id, id)
	return err
}

func stored(t *testing.T, s *Store) []string {
	t.Helper()
	names, err := all(t.Context(), s, scanText, "SELECT name FROM counters WHERE name LIKE 'w%' ORDER BY name")
	if err != nil {
		t.Fatal(err)
	}
	return names
}

// TestWritersShareATransaction: what one of them is refused, gives up, or panics
// on is no other's.
func TestWritersShareATransaction(t *testing.T) {
	s, waiting, release := openGroup(t)
	feed := s.Watch(deploy.TopicApplication)
	defer feed.Close()
	refused := errors.New("refused")
	gone, leave := context.WithCancel(t.Context())
	writers := []struct {
		ctx  context.Context
		fn   func(context.Context, *tx) error
		want error
	}{
		{t.Context(), func(ctx context.Context, t *tx) error { return put(ctx, t, "w0") }, nil},
		{t.Context(), func(ctx context.Context, t *tx) error {
			if err := put(ctx, t, "w1"); err != nil {
				return err
			}
			return refused
		}, refused},
		{gone, func(ctx context.Context, t *tx) error { return put(ctx, t, "w2") }, context.Canceled},
		{t.Context(), func(ctx context.Context, t *tx) error { return put(ctx, t, "w3") }, nil},
		{t.Context(), func(context.Context, *tx) error { panic("odd") }, errors.New("panicked: odd")},
		{t.Context(), func(ctx context.Context, t *tx) error { return put(ctx, t, "w5") }, nil},
	}
	errs := make([]error, len(writers))
	var running sync.WaitGroup
	for i, w := range writers {
		running.Go(func() {
			defer func() {
				if p := recover(); p != nil {
					errs[i] = fmt.Errorf("panicked: %v", p)
				}
			}()
			errs[i] = s.write(w.ctx, func(t *tx) error { return w.fn(w.ctx, t) })
		})
		waiting(i + 1)
	}
	leave()
	waiting(len(writers) - 1)
	release()
	running.Wait()
	for i, w := range writers {
		if fmt.Sprint(errs[i]) != fmt.Sprint(w.want) {
			t.Errorf("writer %d: %v, want %v", i, errs[i], w.want)
		}
	}
	if diff := cmp.Diff([]string{"w0", "w3", "w5"}, stored(t, s)); diff != "" {
		t.Errorf("stored (-want +got):\n%s", diff)
	}
	var announced []string
	for _, c := range feed.Take() {
		announced = append(announced, c.ID)
	}
	if diff := cmp.Diff([]string{"w0", "w3", "w5"}, announced); diff != "" {
		t.Errorf("announced (-want +got):\n%s", diff)
	}
}

// TestWritersOfALostTransaction: when the database ends the shared transaction,
// each writes by itself.
func TestWritersOfALostTransaction(t *testing.T) {
	s, waiting, release := openGroup(t)
	var once sync.Once
	errs := make([]error, 3)
	var running sync.WaitGroup
	for i := range errs {
		running.Go(func() {
			errs[i] = s.write(t.Context(), func(tx *tx) (err error) {
				once.Do(func() {
					_, err = tx.sql.ExecContext(t.Context(), "ROLLBACK")
					err = errors.Join(err, errors.New("no memory"))
				})
				if err != nil {
					return err
				}
				return put(t.Context(), tx, fmt.Sprintf("w%d", i))
			})
		})
		waiting(i + 1)
	}
	release()
	running.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Error(err)
	}
	if diff := cmp.Diff([]string{"w0", "w1", "w2"}, stored(t, s)); diff != "" {
		t.Errorf("stored (-want +got):\n%s", diff)
	}
}

// TestEventsOfASharedTransaction: the events of writers that share one are numbered
// in the order of the writers; of one that was refused there are none.
func TestEventsOfASharedTransaction(t *testing.T) {
	s, waiting, release := openGroup(t)
	feed := s.Watch(deploy.TopicEvent)
	defer feed.Close()
	errs := make([]error, 4)
	var running sync.WaitGroup
	for i := range errs {
		running.Go(func() {
			errs[i] = s.write(t.Context(), func(t *tx) error {
				for _, part := range []string{"a", "b"} {
					t.events = append(t.events, deploy.Event{Key: fmt.Sprintf("%d%s", i, part), Type: deploy.EventRolloutEnded, Payload: []byte("{}")})
				}
				if i == 1 {
					return errors.New("refused")
				}
				return nil
			})
		})
		waiting(i + 1)
	}
	release()
	running.Wait()
	if fmt.Sprint(errs) != "[<nil> refused <nil> <nil>]" {
		t.Errorf("errors %v", errs)
	}
	events, err := s.Events(t.Context(), 0, 0)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, e := range events {
		got = append(got, fmt.Sprintf("%d %s", e.Seq, e.Key))
	}
	if diff := cmp.Diff([]string{"1 0a", "2 0b", "3 2a", "4 2b", "5 3a", "6 3b"}, got); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
	if announced := feed.Take(); len(announced) != len(got) {
		t.Errorf("%d events were announced, want %d", len(announced), len(got))
	}
}

// TestFencedWriterOfAGroup: a write with a term that is over fails alone, not those that share its
// transaction.
func TestFencedWriterOfAGroup(t *testing.T) {
	s, waiting, release := openGroup(t)
	over := deploy.WithTerm(t.Context(), deploy.Term{Partition: 3, Number: 99})
	current := deploy.WithTerm(t.Context(), deploy.Term{Partition: 4, Number: 0})
	contexts := []context.Context{current, over, t.Context(), over}
	errs := make([]error, len(contexts))
	var running sync.WaitGroup
	for i, ctx := range contexts {
		running.Go(func() {
			errs[i] = s.write(ctx, func(t *tx) error { return put(ctx, t, fmt.Sprint("w", i)) })
		})
		waiting(i + 1)
	}
	release()
	running.Wait()
	for i, err := range errs {
		if fenced := i == 1 || i == 3; fenced != deploy.IsKind(err, deploy.Fenced) || !fenced && err != nil {
			t.Errorf("writer %d: %v", i, err)
		}
	}
	if diff := cmp.Diff([]string{"w0", "w2"}, stored(t, s)); diff != "" {
		t.Errorf("stored (-want +got):\n%s", diff)
	}
}

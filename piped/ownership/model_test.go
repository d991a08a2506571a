package ownership

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/c785c783/piped/piped/deploy"
)

// model is a Table as the documentation of the store describes it, in memory and with the
// clock of the test. It keeps a log of the terms and checks each.
type model struct {
	t      *testing.T
	random *rand.Rand
	faulty bool // requests are slow and get lost, answers too

	mu      sync.Mutex
	expires map[string]time.Time
	terms   []deploy.HeldTerm
	given   map[deploy.Term]string // every term ever given, and to whom
	feeds   []chan struct{}
}

func newModel(t *testing.T, seed uint64) *model {
	return &model{t: t, random: rand.New(rand.NewPCG(seed, 1)), expires: map[string]time.Time{}, terms: newTable().Terms, given: map[deploy.Term]string{}}
}

// modelFeed is the feed of one replica.
type modelFeed chan struct{}

func (f modelFeed) C() <-chan struct{}  { return f }
func (modelFeed) Take() []deploy.Change { return nil }

func (m *model) feed() modelFeed {
	m.mu.Lock()
	defer m.mu.Unlock()
	f := make(chan struct{}, 1)
	m.feeds = append(m.feeds, f)
	return f
}

var errNetwork = errors.New("the network failed")

// request runs one transaction, which may be slow or get lost.
func (m *model) request(ctx context.Context, transaction func() error) error {
	before, after, lost, unanswered := m.luck()
	if err := sleep(ctx, before); err != nil || lost {
		return errors.Join(err, errNetwork)
	}
	m.mu.Lock()
	err := transaction()
	m.mu.Unlock()
	if err := sleep(ctx, after); err != nil || unanswered {
		return errors.Join(err, errNetwork)
	}
	return err
}

func (m *model) luck() (before, after time.Duration, lost, unanswered bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.faulty {
		return time.Millisecond, time.Millisecond, false, false
	}
	slow := func() time.Duration {
		if m.random.IntN(4) > 0 {
			return time.Millisecond
		}
		return time.Duration(m.random.IntN(8000)) * time.Millisecond
	}
	return slow(), slow(), m.random.IntN(5) == 0, m.random.IntN(5) == 0
}

func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}

func (m *model) Join(ctx context.Context, r deploy.Replica, expiry time.Duration) error {
	return m.request(ctx, func() error {
		m.expires[r.ID] = time.Now().Add(expiry)
		return nil
	})
}

func (m *model) Renew(ctx context.Context, id string, expiry time.Duration) (o deploy.Ownership, err error) {
	err = m.request(ctx, func() error {
		if !m.live(id) {
			return deploy.Errorf(deploy.NotFound, "replica %s has expired", id)
		}
		m.expires[id] = time.Now().Add(expiry)
		for id := range m.expires {
			if !m.live(id) {
				continue
			}
			o.Replicas = append(o.Replicas, deploy.Replica{ID: id})
			if left := time.Until(m.expires[id]); o.NextExpiry == 0 || left < o.NextExpiry {
				o.NextExpiry = left
			}
		}
		slices.SortFunc(o.Replicas, func(a, b deploy.Replica) int { return cmp.Compare(a.ID, b.ID) })
		o.Terms = append(o.Terms, m.terms...)
		return nil
	})
	return o, err
}

func (m *model) Take(ctx context.Context, id string, wanted []deploy.Partition) (taken []deploy.Term, err error) {
	err = m.request(ctx, func() error {
		for id := range m.expires {
			if !m.live(id) {
				delete(m.expires, id)
			}
		}
		for _, p := range wanted {
			t := &m.terms[p]
			if _, alive := m.expires[t.HeldBy]; alive {
				continue
			}
			t.Number++
			t.HeldBy = id
			if other, twice := m.given[t.Term]; twice {
				m.t.Errorf("term %v was given to %s and to %s", t.Term, other, id)
			}
			m.given[t.Term] = id
			taken = append(taken, t.Term)
		}
		return nil
	})
	return taken, err
}

func (m *model) Release(ctx context.Context, id string, terms []deploy.Term) error {
	return m.request(ctx, func() error {
		for _, t := range terms {
			if held := &m.terms[t.Partition]; held.Term == t && held.HeldBy == id {
				held.HeldBy = ""
			}
		}
		m.announce()
		return nil
	})
}

func (m *model) Leave(ctx context.Context, id string) error {
	return m.request(ctx, func() error {
		delete(m.expires, id)
		m.announce()
		return nil
	})
}

func (m *model) announce() {
	for _, f := range m.feeds {
		signal(f)
	}
}

func (m *model) live(id string) bool {
	at, known := m.expires[id]
	return known && time.Now().Before(at)
}

// write is a transaction of work with a context; it reports whether the model accepts it.
func (m *model) write(ctx context.Context) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, t := range deploy.TermsOf(ctx) {
		if m.terms[t.Partition].Term != t {
			return false
		}
	}
	return true
}

func (m *model) setFaulty(faulty bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.faulty = faulty
}

func (m *model) String() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	counts := map[string]int{}
	for _, t := range m.terms {
		counts[t.HeldBy]++
	}
	return fmt.Sprint(counts)
}

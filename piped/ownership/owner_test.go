package ownership

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/c785c783/piped/piped/deploy"
)

// replica is an owner at work.
type replica struct {
	*Owner
	cut  *cut
	stop context.CancelFunc
	ends chan struct{} // closed when Run has ended
}

// cut is a table that no longer answers once it is cut off.
type cut struct {
	*model
	mu  sync.Mutex
	off bool
}

func (c *cut) isOff() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.off
}

func (c *cut) set(off bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.off = off
}

func (c *cut) Join(ctx context.Context, r deploy.Replica, expiry time.Duration) error {
	if err := c.wait(ctx); err != nil {
		return err
	}
	return c.model.Join(ctx, r, expiry)
}

func (c *cut) Renew(ctx context.Context, id string, expiry time.Duration) (deploy.Ownership, error) {
	if err := c.wait(ctx); err != nil {
		return deploy.Ownership{}, err
	}
	return c.model.Renew(ctx, id, expiry)
}

func (c *cut) Leave(ctx context.Context, id string) error {
	if err := c.wait(ctx); err != nil {
		return err
	}
	return c.model.Leave(ctx, id)
}

func (c *cut) wait(ctx context.Context) error {
	if !c.isOff() {
		return nil
	}
	<-ctx.Done()
	return ctx.Err()
}

// start starts a replica.
func start(m *model) *replica {
	ctx, stop := context.WithCancel(context.Background())
	c := &cut{model: m}
	r := &replica{Owner: New(Config{Table: c, Feed: m.feed(), Logger: slog.New(slog.DiscardHandler)}), cut: c, stop: stop, ends: make(chan struct{})}
	go func() {
		defer close(r.ends)
		if err := r.Run(ctx); err != nil {
			m.t.Error(err)
		}
	}()
	m.t.Cleanup(r.end)
	return r
}

func (r *replica) end() {
	r.stop()
	<-r.ends
}

// holdings returns how many partitions a replica may work on.
func (r *replica) holdings() (n int) {
	for p := range deploy.Partitions {
		if r.Owns(keyOf(deploy.Partition(p))) {
			n++
		}
	}
	return n
}

// keyOf returns a key of a partition.
var keyOf = func() func(deploy.Partition) string {
	keys := map[deploy.Partition]string{}
	for i := 0; len(keys) < deploy.Partitions; i++ {
		key := fmt.Sprint(i)
		keys[deploy.PartitionOf(key)] = key
	}
	return func(p deploy.Partition) string { return keys[p] }
}()

// expectShares waits until the replicas share all partitions, and fails if that takes longer
// than a limit.
func expectShares(t *testing.T, limit time.Duration, replicas ...*replica) {
	t.Helper()
	for end := time.Now().Add(limit); ; time.Sleep(100 * time.Millisecond) {
		counts, sum, even := []int{}, 0, true
		for _, r := range replicas {
			n := r.holdings()
			counts, sum = append(counts, n), sum+n
			even = even && n >= deploy.Partitions/len(replicas) && n <= deploy.Partitions/len(replicas)+1
		}
		if sum == deploy.Partitions && even {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("after %s the replicas hold %v of %d partitions", limit, counts, deploy.Partitions)
		}
	}
}

// TestReplicasShare: replicas that join, leave or are killed share all partitions again within
// the times that the documentation states.
func TestReplicasShare(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newModel(t, 1)
		a := start(m)
		expectShares(t, time.Second, a)
		b, c := start(m), start(m)
		expectShares(t, 11*time.Second, a, b, c) // each reads the others when it renews
		b.end()
		expectShares(t, time.Second, a, c)
		killed := time.Now()
		c.cut.set(true)
		c.end() // it cannot say so
		expectShares(t, 15*time.Second+100*time.Millisecond-time.Since(killed), a)
		highest := int64(0)
		for _, term := range m.terms {
			highest = max(highest, term.Number)
		}
		if highest < 3 {
			t.Errorf("a partition that went from one to another and on had %d terms", highest)
		}
	})
}

// TestWorkEndsBeforeOthersBegin: the work of a replica that cannot renew ends with a cause, and
// before another one may begin with the same.
func TestWorkEndsBeforeOthersBegin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newModel(t, 1)
		a := start(m)
		expectShares(t, time.Second, a)
		work, ok := a.Own(t.Context(), "web")
		if !ok || !m.write(work.Context) {
			t.Fatal("the only replica may not work")
		}
		b := start(m)
		a.cut.set(true)
		select {
		case <-work.Context.Done():
		case <-time.After(time.Minute):
			t.Fatal("the work goes on")
		}
		if b.Owns("web") || !errors.Is(context.Cause(work.Context), ErrLost) {
			t.Errorf("at the end of the work, for the cause %v, the other replica owns it: %v", context.Cause(work.Context), b.Owns("web"))
		}
		if _, again := a.Own(t.Context(), "web"); again {
			t.Error("a replica that could not renew begins new work")
		}
		expectShares(t, 20*time.Second, b)
		if m.write(work.Context) {
			t.Error("a write of the past term was accepted")
		}
		work.Done()
		a.cut.set(false) // the replica joins again
		expectShares(t, 20*time.Second, a, b)
	})
}

// TestHandOver: the owner signals the work on a partition that is to move to another replica, and
// holds the partition until the work has ended.
func TestHandOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newModel(t, 1)
		a := start(m)
		expectShares(t, time.Second, a)
		all := map[string]Work{}
		for p := range deploy.Partitions {
			key := keyOf(deploy.Partition(p))
			all[key], _ = a.Own(t.Context(), key)
		}
		b := start(m)
		time.Sleep(time.Minute)
		moving := 0
		for _, work := range all {
			if isClosed(work.Moving) {
				moving++
			}
			if work.Context.Err() != nil || !m.write(work.Context) {
				t.Fatal("the work was not waited for")
			}
		}
		if moving != deploy.Partitions/2 || b.holdings() != 0 {
			t.Errorf("%d partitions are to be handed over, and the new replica holds %d", moving, b.holdings())
		}
		for key, work := range all {
			if isClosed(work.Moving) && a.Owns(key) {
				t.Errorf("new work on %s can begin", key)
			}
			work.Done()
		}
		expectShares(t, time.Second, a, b)
		b.end()
		expectShares(t, time.Second, a)
	})
}

// TestHandOverThatIsNotNeeded: if the replica that was to get a partition is gone before the
// work on it has ended, new work can begin.
func TestHandOverThatIsNotNeeded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newModel(t, 1)
		a := start(m)
		expectShares(t, time.Second, a)
		for p := range deploy.Partitions {
			work, _ := a.Own(t.Context(), keyOf(deploy.Partition(p)))
			defer work.Done()
		}
		b := start(m)
		time.Sleep(time.Minute)
		if n := a.holdings(); n != deploy.Partitions/2 {
			t.Fatalf("new work can begin on %d partitions while the others are to be handed over", n)
		}
		b.end()
		expectShares(t, time.Second, a)
	})
}

// TestLeaveWaitsForTheWork: a replica that ends keeps its partitions while the work on them ends, as
// long as a script that ignores SIGTERM may take for it.
func TestLeaveWaitsForTheWork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newModel(t, 1)
		a := start(m)
		expectShares(t, time.Second, a)
		work, _ := a.Own(t.Context(), "web")
		b := start(m)
		time.Sleep(9 * time.Second) // the next renewal would be a second later
		go a.end()
		time.Sleep(11 * time.Second)
		if b.Owns("web") || !m.write(work.Context) {
			t.Error("another replica has the partition before the work on it has ended")
		}
		work.Done()
		<-a.ends
		expectShares(t, time.Second, b)
	})
}

// TestFaults: while requests are slow or get lost, and replicas are cut off, killed and
// started, two replicas never work on a partition at the same time, and no write of work that
// may go on is refused. Afterwards every partition is held again within the time for expiry and
// renewal.
func TestFaults(t *testing.T) {
	for seed := range uint64(10) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := &faults{t: t, model: newModel(t, seed), random: rand.New(rand.NewPCG(seed, 2)), working: map[deploy.Partition]map[*replica]context.Context{}}
				f.run()
			})
		})
	}
}

// faults is a test of replicas that meet faults.
type faults struct {
	t      *testing.T
	model  *model
	random *rand.Rand // of the test's own goroutine
	works  sync.WaitGroup

	mu      sync.Mutex
	working map[deploy.Partition]map[*replica]context.Context // the last work of each replica
}

func (f *faults) run() {
	replicas := []*replica{start(f.model), start(f.model), start(f.model)}
	f.model.setFaulty(true)
	for range 1000 { // 8 minutes
		i := f.random.IntN(len(replicas))
		switch r := replicas[i]; f.random.IntN(40) {
		case 0:
			r.cut.set(true)
		case 1, 2:
			r.cut.set(false)
		case 3:
			r.end()
			replicas[i] = start(f.model)
		case 4:
			r.cut.set(true)
			r.end()
			replicas[i] = start(f.model)
		default:
			f.begin(r, deploy.Partition(f.random.IntN(deploy.Partitions)), time.Duration(f.random.IntN(20000))*time.Millisecond)
		}
		time.Sleep(time.Duration(f.random.IntN(1000)) * time.Millisecond)
		f.expectOneOwner(replicas)
	}
	f.model.setFaulty(false)
	for _, r := range replicas {
		r.cut.set(false)
	}
	expectShares(f.t, 40*time.Second, replicas...) // 20 s, and those of the last work
	f.works.Wait()
}

// expectOneOwner checks that no partition has two owners.
func (f *faults) expectOneOwner(replicas []*replica) {
	for p := range deploy.Partitions {
		owners := 0
		for _, r := range replicas {
			if r.Owns(keyOf(deploy.Partition(p))) {
				owners++
			}
		}
		if owners > 1 {
			f.t.Errorf("partition %d has %d owners", p, owners)
		}
	}
}

// begin begins work on a partition, if a replica has it.
func (f *faults) begin(r *replica, p deploy.Partition, takes time.Duration) {
	work, ok := r.Own(context.Background(), keyOf(p))
	if !ok {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for other, ctx := range f.working[p] {
		if other != r && ctx.Err() == nil {
			f.t.Errorf("two replicas work on partition %d", p)
		}
	}
	if f.working[p] == nil {
		f.working[p] = map[*replica]context.Context{}
	}
	f.working[p][r] = work.Context
	f.works.Go(func() {
		defer work.Done()
		select {
		case <-time.After(takes):
			if accepted := f.model.write(work.Context); !accepted && work.Context.Err() == nil {
				f.t.Errorf("a write of work on partition %d that may go on was refused", p)
			}
		case <-work.Context.Done():
		case <-work.Moving:
		}
	})
}

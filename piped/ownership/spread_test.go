package ownership_test

import (
	"context"
	"database/sql"
	"fmt"
	"log/slog"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/ownership"
	"github.com/c785c783/piped/piped/store"
	"github.com/c785c783/piped/piped/store/pgtest"
	"github.com/c785c783/piped/piped/store/storetest"
)

const patience = 2 * time.Minute // for what takes seconds

// TestWorkSpreads: 1, 2 and 3 replicas on PostgreSQL share the work on 300 idle and 60 busy applications.
// Each holds the same number of partitions within one, and no application has two replicas at a time.
// At rest each sends at most two requests per second, as the server counts them.
func TestWorkSpreads(t *testing.T) {
	t.Parallel()
	dsn := pgtest.Start(t).NewDSN(t)
	db := storetest.Raw(t, dsn)
	f := &fleet{t: t, at: map[string]string{}}
	for i := range 60 {
		f.busy = append(f.busy, fmt.Sprint("busy-", i))
	}
	for i := range 300 {
		f.idle = append(f.idle, fmt.Sprint("idle-", i))
	}
	defer f.end()
	for n := range 3 {
		f.start(fmt.Sprint("replica-", n), dsn, n == 0)
		f.awaitShares(db, n+1)
	}
	rate := f.rate(dsn)
	t.Logf("at rest: %.2f requests per second and replica", rate)
	if rate > 2 {
		t.Errorf("at rest a replica sends %.2f requests per second, at most 2 are permitted", rate)
	}
}

// fleet is replicas that work on applications.
type fleet struct {
	t          *testing.T
	busy, idle []string
	stop       []context.CancelFunc
	running    sync.WaitGroup

	mu sync.Mutex
	at map[string]string // which replica works on a busy application
}

// start starts a replica, which works on the busy applications that it owns until it has to hand them
// over.
func (f *fleet) start(name, dsn string, first bool) {
	f.t.Helper()
	st, err := store.Open(f.t.Context(), dsn, store.Options{Key: storetest.Key(), Agent: "p/a", Share: true, Exclusive: first})
	if err != nil {
		f.t.Fatal(err)
	}
	feed := st.Watch(deploy.TopicOwnership)
	owner := ownership.New(ownership.Config{Table: st, Feed: feed, Replica: deploy.Replica{Host: name, StartedAt: time.Now()}, Logger: slog.New(slog.DiscardHandler)})
	ctx, stop := context.WithCancel(context.Background())
	f.stop = append(f.stop, stop)
	var parts sync.WaitGroup
	for _, run := range []func(context.Context) error{st.Run, owner.Run} {
		parts.Go(func() {
			if err := run(ctx); err != nil {
				f.t.Errorf("%s: %v", name, err)
			}
		})
	}
	for _, app := range f.busy {
		parts.Go(func() { f.work(ctx, owner, name, app) })
	}
	f.running.Go(func() {
		parts.Wait()
		feed.Close()
		if err := st.Close(); err != nil {
			f.t.Error(err)
		}
	})
}

// end stops all replicas.
func (f *fleet) end() {
	for _, stop := range f.stop {
		stop()
	}
	f.running.Wait()
}

// work works on an application whenever the replica has the right to.
func (f *fleet) work(ctx context.Context, owner *ownership.Owner, name, app string) {
	for ctx.Err() == nil {
		right, ok := owner.Own(ctx, app)
		if !ok {
			time.Sleep(20 * time.Millisecond)
			continue
		}
		f.enter(name, app)
		select {
		case <-right.Moving:
		case <-right.Context.Done():
		}
		f.leave(app)
		right.Done()
	}
}

func (f *fleet) enter(name, app string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if other := f.at[app]; other != "" {
		f.t.Errorf("%s begins to work on %s, on which %s works", name, app, other)
	}
	f.at[app] = name
}

func (f *fleet) leave(app string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.at, app)
}

// awaitShares waits until n replicas hold all partitions, each the same number within one, and work on
// the busy applications of these.
func (f *fleet) awaitShares(db *sql.DB, n int) {
	f.t.Helper()
	for began := time.Now(); ; time.Sleep(100 * time.Millisecond) {
		holders := f.holders(db)
		counts, fewest, most := map[string]int{}, deploy.Partitions, 0
		for _, host := range holders {
			counts[host]++
		}
		for _, count := range counts {
			fewest, most = min(fewest, count), max(most, count)
		}
		if len(holders) == deploy.Partitions && len(counts) == n && most-fewest <= 1 && f.atWork(holders) {
			f.t.Logf("%d replicas after %s: partitions %v, idle applications %v, busy ones %v", n, time.Since(began).Round(time.Millisecond),
				counts, count(f.idle, holders), count(f.busy, holders))
			return
		}
		if time.Since(began) > patience {
			f.t.Fatalf("%d replicas are to share the work, and hold %v", n, counts)
		}
	}
}

// holders returns which replica holds each partition, as the database has it.
func (f *fleet) holders(db *sql.DB) map[deploy.Partition]string {
	f.t.Helper()
	rows, err := db.QueryContext(f.t.Context(), "SELECT p.id, r.host FROM partitions p JOIN replicas r ON p.holder = r.id")
	if err != nil {
		f.t.Fatal(err)
	}
	defer rows.Close()
	out := map[deploy.Partition]string{}
	for rows.Next() {
		var p deploy.Partition
		var host string
		if err := rows.Scan(&p, &host); err != nil {
			f.t.Fatal(err)
		}
		out[p] = host
	}
	if err := rows.Err(); err != nil {
		f.t.Fatal(err)
	}
	return out
}

// atWork reports whether the holder of each busy application works on it.
func (f *fleet) atWork(holders map[deploy.Partition]string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, app := range f.busy {
		if f.at[app] != holders[deploy.PartitionOf(app)] {
			return false
		}
	}
	return true
}

// count returns how many of the applications each replica has.
func count(apps []string, holders map[deploy.Partition]string) map[string]int {
	out := map[string]int{}
	for _, app := range apps {
		out[holders[deploy.PartitionOf(app)]]++
	}
	return out
}

// rate returns how many transactions per second and replica the server counts in the database, asked
// over another one.
func (f *fleet) rate(dsn string) float64 {
	f.t.Helper()
	u, err := url.Parse(dsn)
	if err != nil {
		f.t.Fatal(err)
	}
	database := strings.TrimPrefix(u.Path, "/")
	u.Path = "postgres"
	maintenance := storetest.Raw(f.t, u.String())
	transactions := func() (n int64) {
		if err := maintenance.QueryRowContext(f.t.Context(), "SELECT xact_commit + xact_rollback FROM pg_stat_database WHERE datname = $1", database).Scan(&n); err != nil {
			f.t.Fatal(err)
		}
		return n
	}
	time.Sleep(6 * time.Second) // a renewal of each, and the delay with which the server counts
	const window = 10 * time.Second
	before, began := transactions(), time.Now()
	time.Sleep(window)
	after, took := transactions(), time.Since(began) // on a busy machine the window is longer
	return float64(after-before) / took.Seconds() / float64(len(f.stop))
}

package store

import (
	"context"
	"database/sql"
	"sync"
)

// group lets writers that come at the same time share one transaction: SQLite
// has one writer, and most of what a small transaction costs is its commit. Each
// writer keeps what a transaction of its own would give it: all it wrote is
// stored or nothing, an error of one is no other's, and nothing is announced
// before it is committed. There is no goroutine: one of the writers leads.
type group struct {
	mu      sync.Mutex
	busy    bool // somebody leads
	waiting []*member
}

// groupLimit bounds how many writers share a transaction.
const groupLimit = 64

// member is one writer of a group.
type member struct {
	ctx   context.Context
	fn    func(*tx) error
	tx    *tx
	err   error
	panic any           // what fn panicked with
	alone bool          // the shared transaction came to nothing for no fault of its own
	lead  chan struct{} // closed when it is to lead
	done  chan struct{} // closed when err is settled
}

// write runs fn in a transaction, maybe together with others.
func (g *group) write(ctx context.Context, s *Store, fn func(*tx) error) error {
	m := &member{ctx: ctx, fn: fn, lead: make(chan struct{}), done: make(chan struct{})}
	if !g.join(m) {
		select {
		case <-m.done:
			return m.result(s)
		case <-ctx.Done():
			if g.leave(m) {
				return ctx.Err()
			}
			// It is being written, or is to lead: the others wait for it.
			select {
			case <-m.done:
				return m.result(s)
			case <-m.lead:
			}
		case <-m.lead:
		}
	}
	defer g.handOver()
	members := g.take(m)
	if len(members) == 1 {
		return s.writeOnce(ctx, fn)
	}
	s.writeTogether(ctx, members)
	for _, other := range members[1:] {
		close(other.done)
	}
	return m.result(s)
}

// join reports whether m leads; otherwise it waits.
func (g *group) join(m *member) (leads bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.busy {
		g.busy = true
		return true
	}
	g.waiting = append(g.waiting, m)
	return false
}

// leave takes m out of those that wait, if it still does.
func (g *group) leave(m *member) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	for i, other := range g.waiting {
		if other == m {
			g.waiting = append(g.waiting[:i:i], g.waiting[i+1:]...)
			return true
		}
	}
	return false
}

// take returns the leader and those that go with it.
func (g *group) take(leader *member) []*member {
	g.mu.Lock()
	defer g.mu.Unlock()
	n := min(len(g.waiting), groupLimit-1)
	members := append([]*member{leader}, g.waiting[:n]...)
	g.waiting = g.waiting[n:]
	return members
}

// handOver makes the writer that has waited longest the leader.
func (g *group) handOver() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.waiting) == 0 {
		g.busy = false
		return
	}
	close(g.waiting[0].lead)
	g.waiting = g.waiting[1:]
}

// result returns what became of m. What could not be written together is written
// by itself.
func (m *member) result(s *Store) error {
	switch {
	case m.panic != nil:
		panic(m.panic)
	case m.alone:
		return s.writeOnce(m.ctx, m.fn)
	}
	return m.err
}

// writeTogether runs the members in one transaction, each in a savepoint, and
// settles what becomes of each. The transaction outlives the contexts of its
// members: an interrupted statement would end it for all.
func (s *Store) writeTogether(ctx context.Context, members []*member) {
	committed, err := s.commitTogether(context.WithoutCancel(ctx), members)
	for _, m := range members {
		switch {
		case m.panic != nil:
		case err != nil:
			m.err = err // what it was refused for may be what was not stored
		case !committed:
			m.alone = true
		case m.err == nil:
			s.feed.publish(m.tx.changes)
		}
	}
}

// commitTogether reports whether the transaction was committed. It was not,
// without an error, when the database ended it because of one member.
func (s *Store) commitTogether(ctx context.Context, members []*member) (committed bool, err error) {
	shared, err := s.writer.BeginTx(ctx, nil)
	if err != nil {
		return false, err
	}
	defer shared.Rollback() //nolint:errcheck // does nothing after a commit
	var writers []*tx
	for _, m := range members {
		m.tx = &tx{store: s, sql: shared, shared: true}
		if !m.runIn(ctx, shared) {
			return false, nil
		}
		if m.err == nil && m.panic == nil {
			writers = append(writers, m.tx)
		}
	}
	if err := flushEvents(ctx, writers...); err != nil {
		return false, nil // it tells whose they are when each writes alone
	}
	if err := shared.Commit(); err != nil {
		return false, err
	}
	s.metrics.Committed(len(writers))
	for _, m := range members {
		m.tx.prepareMissed(ctx)
	}
	return true, nil
}

// runIn runs m in a savepoint of the shared transaction and reports whether the
// transaction can go on.
func (m *member) runIn(ctx context.Context, shared *sql.Tx) bool {
	if _, err := m.tx.exec(ctx, "SAVEPOINT member"); err != nil {
		return false
	}
	m.run()
	if m.err != nil || m.panic != nil {
		if _, err := shared.ExecContext(ctx, "ROLLBACK TO member"); err != nil {
			return false
		}
	}
	_, err := m.tx.exec(ctx, "RELEASE member")
	return err == nil
}

// run calls what m wants to write.
func (m *member) run() {
	defer func() { m.panic = recover() }()
	if m.err = m.ctx.Err(); m.err != nil {
		return
	}
	m.err = m.fn(m.tx)
}

package store

import (
	"context"
	"database/sql"
	"sync"
)

// group combines concurrent writers in one transaction: SQLite has one writer, and most of the
// cost of a small transaction is its commit. Each writer has the guarantees of its own
// transaction: all of its writes are stored or none, its errors do not affect others, and
// nothing is published before the commit. There is no extra goroutine: one of the writers, the
// leader, runs the transaction.
type group struct {
	mu      sync.Mutex
	busy    bool // there is a leader
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
	panic any           // value of a panic in fn
	alone bool          // must be repeated in a transaction of its own
	lead  chan struct{} // closed when this writer becomes the leader
	done  chan struct{} // closed when err is final
}

// write runs fn in a transaction, possibly together with other writers.
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
			// The write is in progress, or m becomes the leader and must serve other writers.
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

// join makes m the leader if there is none, and reports whether it did. Otherwise it enqueues
// m.
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

// leave removes m from the queue and reports whether it was in it.
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

// take returns the leader and the writers that share its transaction, and removes them from
// the queue.
func (g *group) take(leader *member) []*member {
	g.mu.Lock()
	defer g.mu.Unlock()
	n := min(len(g.waiting), groupLimit-1)
	members := append([]*member{leader}, g.waiting[:n]...)
	g.waiting = g.waiting[n:]
	return members
}

// handOver makes the writer that has waited longest the leader, if there is one.
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

// result returns the result of m. If m could not share a transaction, result writes it in a
// separate one. It repeats a panic of fn.
func (m *member) result(s *Store) error {
	switch {
	case m.panic != nil:
		panic(m.panic)
	case m.alone:
		return s.writeOnce(m.ctx, m.fn)
	}
	return m.err
}

// writeTogether runs the members in one transaction, each in a savepoint, and sets the result
// of each. The transaction ignores the cancellation of contexts: an interrupted statement
// would end it for all members.
func (s *Store) writeTogether(ctx context.Context, members []*member) {
	committed, err := s.commitTogether(context.WithoutCancel(ctx), members)
	for _, m := range members {
		switch {
		case m.panic != nil:
		case err != nil:
			m.err = err // even a rejection by fn may result from writes that were not stored
		case !committed:
			m.alone = true
		case m.err == nil:
			s.feed.publish(m.tx.changes)
		}
	}
}

// commitTogether runs the members and commits. It returns false without an error if one member
// made the transaction fail; each member must then be written separately.
func (s *Store) commitTogether(ctx context.Context, members []*member) (committed bool, err error) {
	shared, err := s.writer.BeginTx(ctx, nil)
	if err != nil {
		return false, err
	}
	defer shared.Rollback() //nolint:errcheck // does nothing after a commit
	var writers []*tx
	for _, m := range members {
		m.tx = s.writeTx(shared)
		m.tx.shared, m.tx.fences = true, s.fences(m.ctx)
		if !m.runIn(ctx, shared) {
			return false, nil
		}
		if m.err == nil && m.panic == nil {
			writers = append(writers, m.tx)
		}
	}
	if err := flushEvents(ctx, writers...); err != nil {
		return false, nil // each member gets its own errors when it is written separately
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

// runIn runs m in a savepoint of the shared transaction and reports whether the transaction
// can continue.
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

// run calls m's function and stores its error or panic.
func (m *member) run() {
	defer func() { m.panic = recover() }()
	if m.err = m.ctx.Err(); m.err != nil {
		return
	}
	if m.err = m.fn(m.tx); m.err == nil {
		m.err = m.tx.store.dialect.seal(m.ctx, m.tx)
	}
}

package store

import (
	"context"
	"database/sql"
	"sync"
)

// group combines concurrent writers in one transaction: SQLite has one writer, and a
// small transaction costs mostly its commit. Each writer has the guarantees of its own
// transaction: all of its writes are stored or none, an error of one does not affect
// another, and nothing is published before the commit. There is no goroutine: one of the
// writers leads.
type group struct {
	mu      sync.Mutex
	busy    bool // a writer leads
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
	alone bool          // must be repeated in a transaction of its own
	lead  chan struct{} // closed when it is to lead
	done  chan struct{} // closed when err is final
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
			// It is being written, or is to lead: other writers wait for it.
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

// join reports whether m leads. Otherwise it waits until m is done or leads.
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

// leave removes m from the waiting writers, if it is one.
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

// take returns the leader and the writers that share its transaction.
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

// result returns the result of m. A member that could not share a transaction is written
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

// writeTogether runs the members in one transaction, each in a savepoint, and sets the
// result of each. The transaction does not end with the contexts of its members: an
// interrupted statement would end it for all.
func (s *Store) writeTogether(ctx context.Context, members []*member) {
	committed, err := s.commitTogether(context.WithoutCancel(ctx), members)
	for _, m := range members {
		switch {
		case m.panic != nil:
		case err != nil:
			m.err = err // a rejection may be caused by writes that were not stored
		case !committed:
			m.alone = true
		case m.err == nil:
			s.feed.publish(m.tx.changes)
		}
	}
}

// commitTogether reports whether the transaction was committed. It returns false without
// an error if the database ended the transaction because of one member.
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
		return false, nil // each reports its own errors when it writes alone
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

// run calls m's function.
func (m *member) run() {
	defer func() { m.panic = recover() }()
	if m.err = m.ctx.Err(); m.err != nil {
		return
	}
	m.err = m.fn(m.tx)
}

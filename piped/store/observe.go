package store

import (
	"time"

	"github.com/c785c783/piped/piped/deploy"
)

// Observer is told of what the store does, after it was done. Its methods must be
// quick and safe for concurrent use.
type Observer interface {
	// Wrote tells how long a write took, successful or not, with what it waited for
	// others.
	Wrote(took time.Duration)
	// Committed tells how many writes a transaction held that was committed.
	Committed(writes int)
	// RolloutEnded is called once for each rollout whose end is stored.
	RolloutEnded(r deploy.Rollout)
}

// silent is an Observer that nobody asked for.
type silent struct{}

func (silent) Wrote(time.Duration)         {}
func (silent) Committed(int)               {}
func (silent) RolloutEnded(deploy.Rollout) {}

// WaitingWriters returns how many writes wait for SQLite's only writer; on PostgreSQL
// none does.
func (s *Store) WaitingWriters() int {
	s.group.mu.Lock()
	defer s.group.mu.Unlock()
	return len(s.group.waiting)
}

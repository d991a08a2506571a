package store

import (
	"context"
	"time"

	"github.com/c785c783/piped/piped/deploy"
)

// State returns the state of the store, with an error and the known values if the database
// does not answer.
func (s *Store) State(ctx context.Context) deploy.StoreState {
	state := deploy.StoreState{Engine: s.dialect.engine(), SchemaVersion: s.schema}
	counts, err := all(ctx, s, scanNumber, "SELECT value FROM counters WHERE name IN ('fenced', 'handovers') ORDER BY name")
	if state.Shared = s.share; err == nil && s.share {
		state.Replicas, err = s.replicaStates(ctx)
	}
	if err != nil {
		state.Error = s.fail(err, "read from "+s.dialect.name()).Error()
		return state
	}
	state.Fenced, state.Handovers = counts[0], counts[1]
	if size, err := s.dialect.size(ctx, s); err == nil {
		state.SizeBytes = size
	}
	if s.hold != nil {
		state.Standbys, _ = s.hold.standbys(ctx) // best effort, like the size
	}
	return state
}

// CheckWrite tests whether the database accepts writes; it changes no data. Unavailable if it
// does not, for example because the disk is full.
func (s *Store) CheckWrite(ctx context.Context) error {
	err := s.write(ctx, func(t *tx) error {
		_, err := t.exec(ctx, "UPDATE counters SET value = value WHERE name = 'outbox'")
		return err
	})
	return s.fail(err, "write to "+s.dialect.name())
}

// Backlog is the number of open items of one kind and the time of the oldest, zero if
// there is none.
type Backlog struct {
	Count int
	Since time.Time
}

// Waiting returns the backlog of pending deployments and that of open commands.
func (s *Store) Waiting(ctx context.Context) (deployments, commands Backlog, err error) {
	const pending = "SELECT COUNT(*), COALESCE(MIN(triggered_at), 0) FROM deployments WHERE status = 'PENDING'"
	const open = "SELECT COUNT(*), COALESCE(MIN(created_at), 0) FROM commands WHERE status = 'NOT_HANDLED_YET'"
	if deployments, _, err = one(ctx, s, scanBacklog, pending); err == nil {
		commands, _, err = one(ctx, s, scanBacklog, open)
	}
	return deployments, commands, s.fail(err, "count what waits")
}

func scanBacklog(row scanner) (b Backlog, err error) {
	var since int64
	err = row.Scan(&b.Count, &since)
	b.Since = fromMilli(since)
	return b, err
}

// ApplicationsIn returns the number of applications in each repository, by repository ID,
// without deleted ones.
func (s *Store) ApplicationsIn(ctx context.Context) (map[string]int, error) {
	type count struct {
		repo string
		n    int
	}
	counts, err := all(ctx, s, func(row scanner) (c count, err error) { return c, row.Scan(&c.repo, &c.n) },
		"SELECT repo_id, COUNT(*) FROM applications WHERE deleted = FALSE GROUP BY repo_id")
	if err != nil {
		return nil, s.fail(err, "count the applications of each repository")
	}
	out := make(map[string]int, len(counts))
	for _, c := range counts {
		out[c.repo] = c.n
	}
	return out, nil
}

// SyncStates returns the number of enabled applications by displayed sync status: DEPLOYING
// while a deployment is active.
func (s *Store) SyncStates(ctx context.Context) (map[deploy.SyncStatus]int, error) {
	type count struct {
		status deploy.SyncStatus
		n      int
	}
	counts, err := all(ctx, s, func(row scanner) (c count, err error) { return c, row.Scan(&c.status, &c.n) },
		`SELECT status, COUNT(*) FROM (SELECT CASE WHEN EXISTS (
			SELECT 1 FROM deployments d WHERE d.application_id = applications.id AND d.status IN ('PLANNED', 'RUNNING', 'ROLLING_BACK')
		) THEN 'DEPLOYING' ELSE sync_status END AS status FROM applications WHERE deleted = FALSE AND disabled = FALSE) states GROUP BY status`)
	if err != nil {
		return nil, s.fail(err, "count the applications in each sync state")
	}
	out := make(map[deploy.SyncStatus]int, len(counts))
	for _, c := range counts {
		out[c.status] += c.n
	}
	return out, nil
}

package store

import (
	"context"
	"encoding/json"
	"time"

	"github.com/c785c783/piped/piped/deploy"
	"github.com/jackc/pgx/v5"
)

// listener publishes the commits of other processes to a store's watches. It misses
// notifications while its connection is down. After each connect it therefore publishes the
// rows of the topics in catchUp that were written since the connection was last known to work.
type listener struct {
	store  *Store
	config *pgx.ConnConfig
}

const (
	listenBackoff    = 500 * time.Millisecond
	listenMaxBackoff = 30 * time.Second
	// listenSlack covers clock differences between processes, and long transactions.
	listenSlack = time.Minute
	closeGrace  = 5 * time.Second
)

// run listens until ctx ends.
func (l *listener) run(ctx context.Context) error {
	since, wait := l.store.opened, listenBackoff
	for ctx.Err() == nil {
		connected, err := l.session(ctx, since)
		if ctx.Err() != nil {
			break
		}
		if !connected.IsZero() {
			since, wait = connected, listenBackoff
		}
		l.store.log.Warn("lost the connection that hears of other processes' changes, connecting again", "error", err, "wait", wait)
		select {
		case <-ctx.Done():
		case <-time.After(wait):
		}
		wait = min(2*wait, listenMaxBackoff)
	}
	return nil
}

// session listens on one connection until it breaks. It returns the time at which the
// connection was last known to work, zero if it never worked.
func (l *listener) session(ctx context.Context, since time.Time) (whole time.Time, err error) {
	conn, err := pgx.ConnectConfig(ctx, l.config.Copy())
	if err != nil {
		return whole, err
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeGrace)
		defer cancel()
		_ = conn.Close(ctx) // the connection is closed either way
	}()
	if _, err := conn.Exec(ctx, "LISTEN "+postgresChannel); err != nil {
		return whole, err
	}
	now := l.store.now()
	if err := l.catchUp(ctx, since.Add(-listenSlack)); err != nil {
		return whole, err
	}
	for whole = now; ; whole = l.store.now() {
		n, err := conn.WaitForNotification(ctx)
		if err != nil {
			return whole, err
		}
		var msg notification
		if err := json.Unmarshal([]byte(n.Payload), &msg); err != nil {
			l.store.log.Warn("ignored a notification that is none of piped's", "channel", postgresChannel)
			continue
		}
		if msg.From != l.store.id {
			l.store.feed.publish(msg.Changes)
		}
	}
}

// catchUp publishes changed rows since a time. Superfluous hints are harmless.
func (l *listener) catchUp(ctx context.Context, since time.Time) error {
	ms := toMilli(since)
	changes, err := all(ctx, l.store, scanChange, `
SELECT 'application', id, id FROM applications WHERE updated_at >= ?
UNION ALL SELECT 'registration', '', '' UNION ALL SELECT 'ownership', '', '' UNION ALL SELECT 'poll', '', ''
UNION ALL SELECT 'deployment', id, application_id FROM deployments WHERE updated_at >= ?
UNION ALL SELECT 'stage_log', id, application_id FROM deployments WHERE updated_at >= ? OR status IN ('RUNNING', 'ROLLING_BACK')
UNION ALL SELECT 'command', id, application_id FROM commands WHERE updated_at >= ?
UNION ALL SELECT 'chain', chain_id, application_id FROM deployments WHERE chain_id <> '' AND (updated_at >= ? OR status = 'PENDING')
UNION ALL SELECT 'rollout', id, application_id FROM rollouts WHERE updated_at >= ?
UNION ALL SELECT 'registered_event', id, '' FROM registered_events WHERE updated_at >= ?
UNION ALL SELECT 'api_key', id, '' FROM api_keys WHERE disabled = TRUE AND updated_at >= ?
UNION ALL SELECT 'session', id, '' FROM sessions WHERE ended_at > 0 AND ended_at >= ?
UNION ALL SELECT 'drift', id, id FROM applications WHERE updated_at >= ?
UNION ALL SELECT 'drift', application_id, application_id FROM drift_reports WHERE ended_at = 0 OR ended_at >= ?
UNION ALL SELECT DISTINCT 'evaluated', evaluated_commit, '' FROM applications WHERE evaluated_commit <> '' AND deleted = FALSE
UNION ALL SELECT 'propagation', cluster || '/' || workload, application_id FROM propagations
UNION ALL SELECT 'deliveries', name, '' FROM receivers
UNION ALL SELECT 'pull_preview', repo_id || '#' || CAST(number AS TEXT), '' FROM pull_previews
UNION ALL SELECT 'event', event_key, application_id FROM outbox WHERE delivered_at = 0`, ms, ms, ms, ms, ms, ms, ms, ms, ms, ms, ms)
	if err != nil {
		return err
	}
	l.store.feed.publish(changes)
	return nil
}

func scanChange(row scanner) (c deploy.Change, err error) {
	return c, row.Scan(&c.Topic, &c.ID, &c.ApplicationID)
}

package store

import (
	"context"
	"fmt"

	"github.com/c785c783/piped/piped/deploy"
)

// Load counts the open work. The oldest deployment of a status is the one triggered first.
type Load struct {
	Deployments map[deploy.Status]Backlog // not completed
	Commands    Backlog
	Events      Backlog // open registered events
	Outbox      Backlog // events that are not routed yet
	Rollouts    Backlog // open rollouts, without scalings
}

// Load counts the open work. It reads no completed rows.
func (s *Store) Load(ctx context.Context) (Load, error) {
	l := Load{Deployments: map[deploy.Status]Backlog{}}
	type row struct {
		status deploy.Status
		Backlog
	}
	found, err := all(ctx, s, func(sc scanner) (r row, err error) {
		var since int64
		err = sc.Scan(&r.status, &r.Count, &since)
		r.Since = fromMilli(since)
		return r, err
	}, "SELECT status, COUNT(*), MIN(triggered_at) FROM deployments WHERE status IN ('PENDING', 'PLANNED', 'RUNNING', 'ROLLING_BACK') GROUP BY status")
	if err != nil {
		return l, s.fail(err, "count the deployments that have not ended")
	}
	for _, r := range found {
		l.Deployments[r.status] = r.Backlog
	}
	for _, part := range []struct {
		what, query string
		into        *Backlog
	}{
		{"commands", "SELECT COUNT(*), COALESCE(MIN(created_at), 0) FROM commands WHERE status = 'NOT_HANDLED_YET'", &l.Commands},
		{"registered events", "SELECT COUNT(*), COALESCE(MIN(created_at), 0) FROM registered_events WHERE status = 'NOT_HANDLED'", &l.Events},
		{"outbox", "SELECT COUNT(*), COALESCE(MIN(at), 0) FROM outbox WHERE delivered_at = 0", &l.Outbox},
		{"rollouts", "SELECT COUNT(*), COALESCE(MIN(created_at), 0) FROM rollouts WHERE terminal = FALSE AND kind || '' = 'ROLLOUT'", &l.Rollouts},
	} {
		if *part.into, _, err = one(ctx, s, scanBacklog, part.query); err != nil {
			return l, s.fail(err, fmt.Sprintf("count what waits of the %s", part.what))
		}
	}
	return l, nil
}

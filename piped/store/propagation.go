package store

import (
	"context"
	"time"

	"github.com/c785c783/piped/piped/deploy"
)

// propagationBody is the JSON column of a propagation.
type propagationBody struct {
	Workload deploy.ObjectRef  `json:"workload"`
	User     string            `json:"user,omitempty"`
	Selector string            `json:"selector,omitempty"`
	Configs  map[string]string `json:"configs,omitempty"`
	Named    map[string]string `json:"named,omitempty"`
	Off      bool              `json:"off,omitempty"`

	Phase     deploy.PropagationPhase `json:"phase,omitempty"`
	Value     string                  `json:"value,omitempty"`
	Changed   []string                `json:"changed,omitempty"`
	ChangedAt int64                   `json:"changedAt,omitempty"`
	Attempts  int                     `json:"attempts,omitempty"`

	Delay         time.Duration       `json:"delay,omitempty"`
	RepeatAfter   time.Duration       `json:"repeatAfter,omitempty"`
	MaxPods       int                 `json:"maxPods,omitempty"`
	RatePerSecond int                 `json:"ratePerSecond,omitempty"`
	Outcome       deploy.NudgeOutcome `json:"outcome,omitzero"`
}

// SavePropagation stores which configuration the pods of a workload were notified of, and
// returns it as stored. Version must be that of the row as read, 0 for a new row. Conflict if
// the row was written in the meantime. NotFound if the application does not exist.
func (s *Store) SavePropagation(ctx context.Context, p deploy.Propagation) (deploy.Propagation, error) {
	p.NextAt, p.ChangedAt = milli(p.NextAt), milli(p.ChangedAt)
	text, err := encode(propagationBody{
		Workload: p.Workload, User: p.User, Selector: p.Selector, Configs: p.Configs, Named: p.Named, Off: p.Off,
		Phase: p.Phase, Value: p.Value, Changed: p.Changed, ChangedAt: toMilli(p.ChangedAt), Attempts: p.Attempts,
		Delay: p.Settings.Delay, RepeatAfter: p.Settings.RepeatAfter, MaxPods: p.Settings.MaxPods, RatePerSecond: p.Settings.RatePerSecond,
		Outcome: p.Outcome,
	})
	if err != nil {
		return p, s.fail(err, "encode a propagation")
	}
	err = s.write(ctx, func(t *tx) error {
		t.changed(deploy.TopicPropagation, p.Cluster+"/"+p.Workload.Key(), p.ApplicationID)
		return t.savePropagation(ctx, p, text)
	})
	if s.dialect.foreign(err) {
		return p, deploy.Errorf(deploy.NotFound, "application %s does not exist: %w", p.ApplicationID, err)
	}
	if err != nil {
		return p, s.fail(err, "store the propagation to "+p.Workload.String())
	}
	p.Version++
	return p, nil
}

func (t *tx) savePropagation(ctx context.Context, p deploy.Propagation, text string) (err error) {
	var n int64
	if p.Version == 0 {
		n, err = t.exec(ctx, `INSERT INTO propagations (application_id, cluster, workload, body, named, next_at, version) VALUES (?, ?, ?, ?, ?, ?, 1)
			ON CONFLICT (application_id, cluster, workload) DO NOTHING`,
			p.ApplicationID, p.Cluster, p.Workload.Key(), text, len(p.Named) > 0, toMilli(p.NextAt))
	} else {
		n, err = t.exec(ctx, `UPDATE propagations SET body = ?, named = ?, next_at = ?, version = version + 1
			WHERE application_id = ? AND cluster = ? AND workload = ? AND version = ?`,
			text, len(p.Named) > 0, toMilli(p.NextAt), p.ApplicationID, p.Cluster, p.Workload.Key(), p.Version)
	}
	if err == nil && n == 0 {
		err = deploy.Errorf(deploy.Conflict, "the propagation to %s was written concurrently: read it again", p.Workload)
	}
	return err
}

// PropagationQuery selects propagations; zero fields do not restrict.
type PropagationQuery struct {
	ApplicationID string
	Cluster       string
	Due           bool // with a next step, regardless of its time
	Named         bool // with objects that are not in Git
}

// Propagations returns propagations by application, cluster and workload.
func (s *Store) Propagations(ctx context.Context, q PropagationQuery) ([]deploy.Propagation, error) {
	var f filter
	f.equal("application_id", q.ApplicationID)
	f.equal("cluster", q.Cluster)
	if q.Due {
		f.add("next_at > 0")
	}
	if q.Named {
		f.add("named = TRUE")
	}
	found, err := all(ctx, s, scanPropagation,
		"SELECT application_id, cluster, body, next_at, version FROM propagations"+f.where()+" ORDER BY application_id, cluster, workload", f.args...)
	return found, s.fail(err, "read propagations")
}

func scanPropagation(row scanner) (p deploy.Propagation, err error) {
	var text string
	var nextAt int64
	if err := row.Scan(&p.ApplicationID, &p.Cluster, &text, &nextAt, &p.Version); err != nil {
		return p, err
	}
	var b propagationBody
	if err := decode(text, &b); err != nil {
		return p, err
	}
	p.Workload, p.User, p.Selector, p.Configs, p.Named, p.Off = b.Workload, b.User, b.Selector, b.Configs, b.Named, b.Off
	p.Phase, p.Value, p.Changed, p.ChangedAt, p.Attempts = b.Phase, b.Value, b.Changed, fromMilli(b.ChangedAt), b.Attempts
	p.NextAt, p.Outcome = fromMilli(nextAt), b.Outcome
	p.Settings = deploy.NudgeSettings{Delay: b.Delay, RepeatAfter: b.RepeatAfter, MaxPods: b.MaxPods, RatePerSecond: b.RatePerSecond}
	return p, nil
}

// forgetPropagation deletes the propagation of a workload that no longer belongs to the
// application.
func (t *tx) forgetPropagation(ctx context.Context, appID, cluster string, o deploy.ObjectRef) error {
	_, err := t.exec(ctx, "DELETE FROM propagations WHERE application_id = ? AND cluster = ? AND workload = ?", appID, cluster, o.Key())
	return err
}

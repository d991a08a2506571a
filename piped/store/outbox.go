package store

import (
	"cmp"
	"context"
	"encoding/json"
	"slices"

	"github.com/c785c783/piped/piped/deploy"
)

// flushEvents numbers and writes the events of writers that share a transaction. The row of
// the counter is the last one that a transaction locks, until its commit. Numbers are
// therefore committed in ascending order, and a reader that continues after the last number
// misses nothing. An event whose key exists already is ignored.
func flushEvents(ctx context.Context, writers ...*tx) error {
	n := int64(0)
	for _, t := range writers {
		n += int64(len(t.events))
	}
	if n == 0 {
		return nil
	}
	last, _, err := one(ctx, writers[0], scanNumber, "UPDATE counters SET value = value + ? WHERE name = 'outbox' RETURNING value", n)
	if err != nil {
		return err
	}
	rows := make([][]any, 0, n)
	seq := last - n
	for _, t := range writers {
		for _, e := range t.events {
			seq++
			rows = append(rows, []any{seq, e.Key, string(e.Type), e.ApplicationID, e.DeploymentID, e.StageID, string(e.Payload), toMilli(e.At)})
			t.changed(deploy.TopicEvent, e.Key, e.ApplicationID)
		}
	}
	return writers[0].insert(ctx, "outbox", "seq, event_key, type, application_id, deployment_id, stage_id, payload, at", "ON CONFLICT (event_key) DO NOTHING", rows)
}

func scanNumber(row scanner) (n int64, err error) { return n, row.Scan(&n) }

// Events returns up to limit (0: all) unrouted events with a number above afterSeq, in
// the order of their commits.
func (s *Store) Events(ctx context.Context, afterSeq int64, limit int) ([]deploy.Event, error) {
	var f filter
	f.add("delivered_at = 0")
	f.add("seq > ?", afterSeq)
	query := f.limit(`SELECT seq, event_key, type, application_id, deployment_id, stage_id, payload, at FROM outbox`+f.where()+" ORDER BY seq", limit)
	es, err := all(ctx, s, scanEvent, query, f.args...)
	return es, s.fail(err, "read the outbox")
}

// EventsByKey returns the stored events with these keys, routed or not, in the order of
// their commits.
func (s *Store) EventsByKey(ctx context.Context, keys ...string) ([]deploy.Event, error) {
	const perQuery = 500
	var out []deploy.Event
	for chunk := range slices.Chunk(keys, perQuery) {
		es, err := all(ctx, s, scanEvent, `SELECT seq, event_key, type, application_id, deployment_id, stage_id, payload, at FROM outbox
	WHERE event_key IN (`+placeholders(len(chunk))+")", anys(chunk)...)
		if err != nil {
			return nil, s.fail(err, "read events of the outbox")
		}
		out = append(out, es...)
	}
	slices.SortFunc(out, func(a, b deploy.Event) int { return cmp.Compare(a.Seq, b.Seq) })
	return out, nil
}

func scanEvent(row scanner) (e deploy.Event, err error) {
	var payload string
	var at int64
	err = row.Scan(&e.Seq, &e.Key, &e.Type, &e.ApplicationID, &e.DeploymentID, &e.StageID, &payload, &at)
	e.Payload, e.At = json.RawMessage(payload), fromMilli(at)
	return e, err
}

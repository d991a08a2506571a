package store

import (
	"context"
	"encoding/json"
	"slices"
	"time"

	"github.com/c785c783/piped/piped/deploy"
)

// Retention of events and deliveries.
const (
	eventsFor      = 90 * 24 * time.Hour // routed events
	deadLettersFor = 30 * 24 * time.Hour
	notesFor       = 90 * 24 * time.Hour
	maxDeadLetters = 1000 // of each receiver
	shownDead      = 20   // of each receiver, shown in its state
	maxErrorText   = 1000 // bytes of the error of a delivery
)

// RegisterReceivers replaces the registered receivers. A new receiver gets only events
// committed later. The deliveries and notes of removed ones are deleted.
func (s *Store) RegisterReceivers(ctx context.Context, names ...string) error {
	err := s.write(ctx, func(t *tx) error {
		known, err := t.receivers(ctx)
		if err != nil {
			return err
		}
		for name := range known {
			if slices.Contains(names, name) {
				continue
			}
			if _, err := t.exec(ctx, "DELETE FROM receivers WHERE name = ?", name); err != nil {
				return err
			}
		}
		for _, name := range names {
			if _, err := t.exec(ctx, `INSERT INTO receivers (name, since) SELECT ?, value FROM counters WHERE name = 'outbox'
				ON CONFLICT (name) DO NOTHING`, name); err != nil {
				return err
			}
		}
		return nil
	})
	return s.fail(err, "store the receivers of notifications")
}

// receivers returns, by name, the number of the last event from before each receiver's
// registration.
func (t *tx) receivers(ctx context.Context) (map[string]int64, error) {
	type receiver struct {
		name  string
		since int64
	}
	rows, err := all(ctx, t, func(row scanner) (r receiver, err error) { return r, row.Scan(&r.name, &r.since) }, "SELECT name, since FROM receivers")
	out := make(map[string]int64, len(rows))
	for _, r := range rows {
		out[r.name] = r.since
	}
	return out, err
}

// RouteEvents marks events as routed and stores their deliveries in the same transaction. It
// uses only the receiver, order and event number of each delivery. It ignores deliveries of
// events that were routed before, of events older than their receiver's registration, and to
// receivers that are not registered.
func (s *Store) RouteEvents(ctx context.Context, seqs []int64, deliveries ...deploy.Delivery) error {
	err := s.write(ctx, func(t *tx) error {
		since, err := t.receivers(ctx)
		if err != nil {
			return err
		}
		now := toMilli(s.now())
		marked := map[int64]bool{}
		for chunk := range slices.Chunk(seqs, rowsPerInsert) {
			args := []any{now}
			for _, seq := range chunk {
				args = append(args, seq)
			}
			fresh, err := all(ctx, t, scanNumber, "UPDATE outbox SET delivered_at = ? WHERE delivered_at = 0 AND seq IN ("+placeholders(len(chunk))+") RETURNING seq", args...)
			if err != nil {
				return err
			}
			for _, seq := range fresh {
				marked[seq] = true
			}
		}
		var rows [][]any
		for _, d := range deliveries {
			if from, known := since[d.Receiver]; known && d.Event.Seq > from && marked[d.Event.Seq] {
				rows = append(rows, []any{d.Receiver, d.Event.Seq, d.Order, now, now})
				if s.share { // another replica may deliver them
					t.changed(deploy.TopicDeliveries, d.Receiver, "")
				}
			}
		}
		return t.insert(ctx, "deliveries", "receiver, seq, order_key, next_at, created_at", "ON CONFLICT (seq, receiver) DO NOTHING", rows)
	})
	return s.fail(err, "lead events to their receivers")
}

const selectDelivery = `SELECT d.receiver, d.order_key, d.attempts, d.next_at, d.error, d.created_at, d.given_up_at,
	o.seq, o.event_key, o.type, o.application_id, o.deployment_id, o.stage_id, o.payload, o.at
	FROM deliveries d JOIN outbox o ON o.seq = d.seq`

func scanDelivery(row scanner) (d deploy.Delivery, err error) {
	var payload string
	var next, created, givenUp, at int64
	e := &d.Event
	err = row.Scan(&d.Receiver, &d.Order, &d.Attempts, &next, &d.Error, &created, &givenUp,
		&e.Seq, &e.Key, &e.Type, &e.ApplicationID, &e.DeploymentID, &e.StageID, &payload, &at)
	d.NextAt, d.CreatedAt, d.GivenUpAt = fromMilli(next), fromMilli(created), fromMilli(givenUp)
	e.Payload, e.At = json.RawMessage(payload), fromMilli(at)
	return d, err
}

// dueDeliveries selects the deliveries of a receiver that may be attempted at a time: those
// without an earlier pending delivery of the same order. The plus sign keeps SQLite from using
// the index of next_at, so that it reads rows by number and can stop early.
const dueDeliveries = ` WHERE d.receiver = ? AND d.given_up_at = 0 AND +d.next_at <= ? AND (d.order_key = '' OR NOT EXISTS (
	SELECT 1 FROM deliveries e WHERE e.receiver = d.receiver AND e.order_key = d.order_key AND e.given_up_at = 0 AND e.seq < d.seq))
	ORDER BY d.seq`

const nextDelivery = "SELECT COALESCE(MIN(next_at), 0) FROM deliveries WHERE receiver = ? AND given_up_at = 0 AND next_at > ?"

// PendingDeliveries returns up to limit (0: all) deliveries of a receiver that may be
// attempted now, in the order of their events. Only the first delivery of each order may be
// attempted. next is the time of the next retry, zero if there is none.
func (s *Store) PendingDeliveries(ctx context.Context, receiver string, limit int) (due []deploy.Delivery, next time.Time, err error) {
	now := toMilli(s.now())
	f := filter{args: []any{receiver, now}}
	due, err = all(ctx, s, scanDelivery, f.limit(selectDelivery+dueDeliveries, limit), f.args...)
	if err != nil {
		return nil, time.Time{}, s.fail(err, "read the pending deliveries of "+receiver)
	}
	at, _, err := one(ctx, s, scanNumber, nextDelivery, receiver, now)
	return due, fromMilli(at), s.fail(err, "read the pending deliveries of "+receiver)
}

// FinishDelivery deletes a completed delivery. It is idempotent.
func (s *Store) FinishDelivery(ctx context.Context, d deploy.Delivery) error {
	return s.changeDelivery(ctx, d, "DELETE FROM deliveries WHERE receiver = ? AND seq = ?", d.Receiver, d.Event.Seq)
}

// RetryDelivery records a failed attempt with its error, and the time of the next attempt.
func (s *Store) RetryDelivery(ctx context.Context, d deploy.Delivery, next time.Time, why string) error {
	return s.changeDelivery(ctx, d, "UPDATE deliveries SET attempts = attempts + 1, next_at = ?, error = ? WHERE receiver = ? AND seq = ? AND given_up_at = 0",
		toMilli(next), shortened(why), d.Receiver, d.Event.Seq)
}

// changeDelivery runs a write statement for d.
func (s *Store) changeDelivery(ctx context.Context, d deploy.Delivery, query string, args ...any) error {
	err := s.write(ctx, func(t *tx) error {
		_, err := t.exec(ctx, query, args...)
		return err
	})
	return s.fail(err, "store what became of event "+d.Event.Key+" for "+d.Receiver)
}

// GiveUpDelivery records the last failed attempt and makes the delivery a dead letter. The
// last 1000 dead letters of a receiver are retained for 30 days.
func (s *Store) GiveUpDelivery(ctx context.Context, d deploy.Delivery, why string) error {
	err := s.write(ctx, func(t *tx) error {
		if _, err := t.exec(ctx, "UPDATE deliveries SET attempts = attempts + 1, given_up_at = ?, error = ? WHERE receiver = ? AND seq = ? AND given_up_at = 0",
			toMilli(s.now()), shortened(why), d.Receiver, d.Event.Seq); err != nil {
			return err
		}
		_, err := t.exec(ctx, `DELETE FROM deliveries WHERE receiver = ? AND given_up_at > 0 AND seq IN (
			SELECT seq FROM deliveries WHERE receiver = ? AND given_up_at > 0 ORDER BY given_up_at DESC, seq DESC LIMIT 1000000 OFFSET ?)`,
			d.Receiver, d.Receiver, maxDeadLetters)
		return err
	})
	return s.fail(err, "give up event "+d.Event.Key+" for "+d.Receiver)
}

// ReplayDeadLetters makes all dead letters of a receiver pending again, due now and without
// attempts, as if they were new, and returns their number. NotFound if the receiver is not registered.
func (s *Store) ReplayDeadLetters(ctx context.Context, receiver string) (int, error) {
	return s.changeDeadLetters(ctx, receiver, "replay the dead letters of "+receiver, func(t *tx) (int64, error) {
		now := toMilli(s.now())
		n, err := t.exec(ctx, "UPDATE deliveries SET attempts = 0, given_up_at = 0, error = '', created_at = ?, next_at = ? WHERE receiver = ? AND given_up_at > 0", now, now, receiver)
		if err == nil && n > 0 {
			t.changed(deploy.TopicDeliveries, receiver, "")
		}
		return n, err
	})
}

// DropDeadLetters deletes all dead letters of a receiver and returns their number. NotFound if
// the receiver is not registered.
func (s *Store) DropDeadLetters(ctx context.Context, receiver string) (int, error) {
	return s.changeDeadLetters(ctx, receiver, "drop the dead letters of "+receiver, func(t *tx) (int64, error) {
		return t.exec(ctx, "DELETE FROM deliveries WHERE receiver = ? AND given_up_at > 0", receiver)
	})
}

// changeDeadLetters runs change in a transaction if the receiver is registered, and returns the
// number of rows that it changed.
func (s *Store) changeDeadLetters(ctx context.Context, receiver, what string, change func(*tx) (int64, error)) (int, error) {
	var n int64
	err := s.write(ctx, func(t *tx) error {
		known, err := t.receivers(ctx)
		if err != nil {
			return err
		}
		if _, ok := known[receiver]; !ok {
			return deploy.Errorf(deploy.NotFound, "there is no receiver %s", receiver)
		}
		n, err = change(t)
		return err
	})
	return int(n), s.fail(err, what)
}

// shortened truncates the error of a delivery.
func shortened(text string) string {
	if len(text) > maxErrorText {
		return clean(text[:maxErrorText]) + "…"
	}
	return text
}

// HurryDeliveries makes all failed deliveries due now, for use after the cause may have been
// fixed.
func (s *Store) HurryDeliveries(ctx context.Context) error {
	err := s.write(ctx, func(t *tx) error {
		now := toMilli(s.now())
		_, err := t.exec(ctx, "UPDATE deliveries SET next_at = ? WHERE given_up_at = 0 AND next_at > ?", now, now)
		return err
	})
	return s.fail(err, "try again what failed to be delivered")
}

const forgottenEvents = `DELETE FROM outbox WHERE seq IN (SELECT o.seq FROM outbox o WHERE o.delivered_at > 0 AND o.delivered_at < ?
	AND NOT EXISTS (SELECT 1 FROM deliveries d WHERE d.seq = o.seq) ORDER BY o.delivered_at LIMIT ?)`

// eventsBatch is how many events are deleted in one transaction, so that other writers do not
// wait long.
const eventsBatch = 1000

// ForgetEvents deletes events routed 90 days ago, dead letters after 30 days, and notes
// of receivers after 90 days.
func (s *Store) ForgetEvents(ctx context.Context) error {
	now := s.now()
	err := s.write(ctx, func(t *tx) error {
		if _, err := t.exec(ctx, "DELETE FROM deliveries WHERE given_up_at > 0 AND given_up_at < ?", toMilli(now.Add(-deadLettersFor))); err != nil {
			return err
		}
		_, err := t.exec(ctx, "DELETE FROM receiver_notes WHERE updated_at < ?", toMilli(now.Add(-notesFor)))
		return err
	})
	for left := true; left && err == nil; {
		err = s.write(ctx, func(t *tx) error {
			n, err := t.exec(ctx, forgottenEvents, toMilli(now.Add(-eventsFor)), eventsBatch)
			left = n == eventsBatch
			return err
		})
	}
	return s.fail(err, "delete old events")
}

// ReceiverStates returns the state of each registered receiver, by name.
func (s *Store) ReceiverStates(ctx context.Context) (map[string]deploy.ReceiverState, error) {
	out := map[string]deploy.ReceiverState{}
	states, err := all(ctx, s, scanReceiverState, `SELECT r.name,
		(SELECT COUNT(*) FROM deliveries d WHERE d.receiver = r.name AND d.given_up_at = 0),
		(SELECT COALESCE(MIN(d.created_at), 0) FROM deliveries d WHERE d.receiver = r.name AND d.given_up_at = 0),
		(SELECT COUNT(*) FROM deliveries d WHERE d.receiver = r.name AND d.given_up_at > 0),
		COALESCE((SELECT d.error FROM deliveries d WHERE d.receiver = r.name AND d.given_up_at = 0 AND d.attempts > 0 ORDER BY d.seq LIMIT 1), '')
		FROM receivers r`)
	if err != nil {
		return nil, s.fail(err, "read the state of the receivers")
	}
	for _, state := range states {
		if state.Dead > 0 {
			f := filter{args: []any{state.Name}}
			query := f.limit(selectDelivery+" WHERE d.receiver = ? AND d.given_up_at > 0 ORDER BY d.given_up_at DESC, d.seq DESC", shownDead)
			if state.DeadLetters, err = all(ctx, s, scanDelivery, query, f.args...); err != nil {
				return nil, s.fail(err, "read what was given up")
			}
			if state.OldestDead, _, err = one(ctx, s, scanDelivery, selectDelivery+" WHERE d.receiver = ? AND d.given_up_at > 0 ORDER BY d.given_up_at, d.seq LIMIT 1", state.Name); err != nil {
				return nil, s.fail(err, "read what was given up")
			}
		}
		out[state.Name] = state
	}
	return out, nil
}

func scanReceiverState(row scanner) (r deploy.ReceiverState, err error) {
	var oldest int64
	err = row.Scan(&r.Name, &r.Pending, &oldest, &r.Dead, &r.Error)
	r.OldestPending = fromMilli(oldest)
	return r, err
}

// ReceiverNote returns the value that a receiver stored under a key, "" if there is none.
func (s *Store) ReceiverNote(ctx context.Context, receiver, key string) (string, error) {
	value, _, err := one(ctx, s, scanText, "SELECT value FROM receiver_notes WHERE receiver = ? AND note_key = ?", receiver, key)
	return value, s.fail(err, "read what "+receiver+" noted")
}

// PutReceiverNote stores a value of a registered receiver under a key. It is deleted after 90
// days without a change.
func (s *Store) PutReceiverNote(ctx context.Context, receiver, key, value string) error {
	err := s.write(ctx, func(t *tx) error {
		_, err := t.exec(ctx, `INSERT INTO receiver_notes (receiver, note_key, value, updated_at) SELECT name, ?, ?, ? FROM receivers WHERE name = ?
			ON CONFLICT (receiver, note_key) DO UPDATE SET value = excluded.value, updated_at = excluded.updated_at`,
			key, value, toMilli(s.now()), receiver)
		return err
	})
	return s.fail(err, "store what "+receiver+" notes")
}

// Announce writes events that are not part of another write. Events whose keys exist already
// are ignored.
func (s *Store) Announce(ctx context.Context, events ...deploy.Event) error {
	err := s.write(ctx, func(t *tx) error {
		t.events = append(t.events, events...)
		return nil
	})
	return s.fail(err, "announce events")
}

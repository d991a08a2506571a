package store

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/c785c783/piped/piped/deploy"
)

// registeredFor is how long an event that is no longer open is retained after its
// registration.
const registeredFor = 90 * 24 * time.Hour

// registeredBody is the JSON column of a registered event.
type registeredBody struct {
	Data     string               `json:"data"`
	Labels   map[string]string    `json:"labels,omitempty"`
	Contexts map[string]string    `json:"contexts,omitempty"`
	Trigger  deploy.TriggerCommit `json:"trigger,omitzero"`
}

const selectRegistered = `SELECT id, event_key, name, body, status, description, handlings, created_at, updated_at, handled_at,
	COALESCE((SELECT n.id FROM registered_events n WHERE n.event_key = registered_events.event_key AND n.created_at > registered_events.created_at
		ORDER BY n.created_at DESC LIMIT 1), '')
	FROM registered_events`

func scanRegistered(row scanner) (e deploy.RegisteredEvent, err error) {
	var body, handlings string
	var createdAt, updatedAt, handledAt int64
	if err := row.Scan(&e.ID, &e.Key, &e.Name, &body, &e.Status, &e.StatusDescription, &handlings, &createdAt, &updatedAt, &handledAt, &e.Newer); err != nil {
		return e, err
	}
	var b registeredBody
	if err := decode(body, &b); err != nil {
		return e, err
	}
	e.Data, e.Labels, e.Contexts, e.Trigger = b.Data, b.Labels, b.Contexts, b.Trigger
	e.CreatedAt, e.UpdatedAt, e.HandledAt = fromMilli(createdAt), fromMilli(updatedAt), fromMilli(handledAt)
	return e, decode(handlings, &e.Handlings)
}

// RegisterEvent stores a new event as open and returns it as stored. The store sets the key
// and the times. The newest event of a key has the latest time, even if the clock is set back.
// Exists if there is an event with that ID. Events registered more than 90 days ago are
// deleted unless they are open.
func (s *Store) RegisterEvent(ctx context.Context, e deploy.RegisteredEvent) (deploy.RegisteredEvent, error) {
	if e.ID == "" || e.Name == "" {
		return e, deploy.Errorf(deploy.Invalid, "an event needs an ID and a name, got %q and %q", e.ID, e.Name)
	}
	e.Key, e.Status, e.StatusDescription, e.Handlings, e.Newer = deploy.EventKey(e.Name, e.Labels), deploy.EventOpen, "", nil, ""
	e.Trigger.At, e.HandledAt = milli(e.Trigger.At), time.Time{}
	body, err := encode(registeredBody{e.Data, e.Labels, e.Contexts, e.Trigger})
	if err != nil {
		return e, s.fail(err, "register event "+e.ID)
	}
	store := func(t *tx) error {
		last, _, err := one(ctx, t, scanMilli, "SELECT created_at FROM registered_events WHERE event_key = ? ORDER BY created_at DESC LIMIT 1", e.Key)
		if err != nil {
			return err
		}
		now := toMilli(s.now())
		at := max(now, last+1)
		e.CreatedAt, e.UpdatedAt = fromMilli(at), fromMilli(at)
		n, err := t.exec(ctx, `INSERT INTO registered_events (id, event_key, name, body, status, source_commit, created_at, updated_at)
			VALUES (?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (id) DO NOTHING`, e.ID, e.Key, e.Name, body, string(e.Status), e.Trigger.Hash, at, at)
		switch {
		case s.dialect.unique(err):
			return errLostRace // another event of this key was stored in the same millisecond
		case err != nil:
			return err
		case n == 0:
			return deploy.Errorf(deploy.Exists, "event %s exists already", e.ID)
		}
		t.changed(deploy.TopicRegistered, e.ID, "")
		if err := t.insertLabels(ctx, "registered_event_labels", "event_id", e.ID, e.Labels); err != nil {
			return err
		}
		_, err = t.exec(ctx, "DELETE FROM registered_events WHERE created_at < ? AND status <> 'NOT_HANDLED'", now-registeredFor.Milliseconds())
		return err
	}
	for err = s.write(ctx, store); errors.Is(err, errLostRace); {
		err = s.write(ctx, store) // terminates: each round stores one of the concurrent events
	}
	return e, s.fail(err, "register event "+e.ID)
}

func scanMilli(row scanner) (ms int64, err error) { return ms, row.Scan(&ms) }

// RegisteredEvent returns a registered event. NotFound if there is none.
func (s *Store) RegisteredEvent(ctx context.Context, id string) (deploy.RegisteredEvent, error) {
	e, ok, err := one(ctx, s, scanRegistered, selectRegistered+" WHERE id = ?", id)
	if err == nil && !ok {
		err = noEvent(id)
	}
	return e, s.fail(err, "read event "+id)
}

func noEvent(id string) error { return deploy.Errorf(deploy.NotFound, "there is no event %s", id) }

// RegisteredEventQuery selects registered events; zero fields do not restrict.
type RegisteredEventQuery struct {
	Name     string
	Labels   map[string]string // all must match
	Statuses []deploy.EventStatus
	Limit    int // 0 means all
	Cursor   string
}

// RegisteredEvents returns registered events, the newest first, and the cursor of the next
// page, "" if there is none.
func (s *Store) RegisteredEvents(ctx context.Context, q RegisteredEventQuery) ([]deploy.RegisteredEvent, string, error) {
	var f filter
	f.equal("name", q.Name)
	in(&f, "status", q.Statuses)
	f.labels("registered_event_labels", "event_id", "registered_events.id", q.Labels)
	if q.Cursor != "" {
		p, err := parseCursor(q.Cursor)
		if err != nil {
			return nil, "", err
		}
		f.add("created_at <= ? AND (created_at < ? OR id > ?)", p.UpdatedAt, p.UpdatedAt, p.ID)
	}
	events, err := all(ctx, s, scanRegistered, f.limit(selectRegistered+f.where()+" ORDER BY created_at DESC, id", q.Limit), f.args...)
	if err != nil || len(events) == 0 {
		return nil, "", s.fail(err, "list events")
	}
	if len(events) < q.Limit || q.Limit == 0 {
		return events, "", nil
	}
	last := events[len(events)-1]
	return events, cursorAt(last.CreatedAt, last.ID), nil
}

// OpenEvents returns the registered events that are not handled yet, the oldest first.
func (s *Store) OpenEvents(ctx context.Context) ([]deploy.RegisteredEvent, error) {
	events, err := all(ctx, s, scanRegistered, selectRegistered+" WHERE status = 'NOT_HANDLED' ORDER BY created_at, id")
	return events, s.fail(err, "list open events")
}

// SaveEventHandling stores the result of handling an event in one repository, unless a final
// result is stored for it already. An open event gets the description of the handling. No
// change is published.
func (s *Store) SaveEventHandling(ctx context.Context, id string, h deploy.EventHandling) error {
	err := s.write(ctx, func(t *tx) error {
		e, err := t.lockRegistered(ctx, id)
		if err != nil {
			return err
		}
		if e.Handling(h.RepoID, h.PullRequest).Status != deploy.EventOpen {
			return nil
		}
		now := s.now()
		h.At = now
		e.Handlings = append(slices.DeleteFunc(e.Handlings, func(o deploy.EventHandling) bool {
			return o.RepoID == h.RepoID && o.PullRequest == h.PullRequest
		}), h)
		if e.Status == deploy.EventOpen {
			e.StatusDescription = h.Description
		}
		text, err := encode(e.Handlings)
		if err != nil {
			return err
		}
		_, err = t.exec(ctx, "UPDATE registered_events SET handlings = ?, description = ?, updated_at = ? WHERE id = ?", text, e.StatusDescription, toMilli(now), id)
		if err != nil {
			return err
		}
		return t.linkEvent(ctx, id, h)
	})
	return s.fail(err, "store the handling of event "+id)
}

// FinishEvent gives an open event its final status. Conflict if it has one already.
func (s *Store) FinishEvent(ctx context.Context, id string, status deploy.EventStatus, description string) error {
	if status == deploy.EventOpen {
		return deploy.Errorf(deploy.Illegal, "event %s cannot be finished as %s", id, status)
	}
	err := s.write(ctx, func(t *tx) error {
		e, err := t.lockRegistered(ctx, id)
		if err != nil {
			return err
		}
		if e.Status != deploy.EventOpen {
			return deploy.Errorf(deploy.Conflict, "event %s was handled before: it is %s", id, e.Status)
		}
		now := toMilli(s.now())
		t.changed(deploy.TopicRegistered, id, "")
		_, err = t.exec(ctx, "UPDATE registered_events SET status = ?, description = ?, updated_at = ?, handled_at = ? WHERE id = ?", string(status), description, now, now, id)
		return err
	})
	return s.fail(err, "finish event "+id)
}

// lockRegistered reads an event and locks it until the transaction ends.
func (t *tx) lockRegistered(ctx context.Context, id string) (deploy.RegisteredEvent, error) {
	e, ok, err := one(ctx, t, scanRegistered, selectRegistered+" WHERE id = ?"+t.store.dialect.forUpdate(), id)
	if err == nil && !ok {
		err = noEvent(id)
	}
	return e, err
}

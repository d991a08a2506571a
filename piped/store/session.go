package store

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/c785c783/piped/piped/deploy"
)

// sessionBody is the JSON column of a session.
type sessionBody struct {
	Name   string   `json:"name,omitempty"`
	Groups []string `json:"groups,omitempty"`
	Remote string   `json:"remote,omitempty"`
	Client string   `json:"client,omitempty"`
}

const (
	sessionColumns = "id, hash, issuer, subject, key_id, body, refresh, created_at, expires_at, last_used_at, groups_at, ended_at"
	selectSession  = "SELECT " + sessionColumns + " FROM sessions"
	// openSession is the condition that a session has neither ended nor expired. It is
	// independent of indices: nearly all stored sessions can be open, or nearly none.
	openSession = "ended_at + 0 = 0 AND expires_at + 0 > ?"
)

// scanSession reads a session whose Refresh is still encrypted.
func scanSession(row scanner) (v deploy.Session, err error) {
	var body string
	var created, expires, used, groups, ended int64
	if err := row.Scan(&v.ID, &v.Hash, &v.User.Issuer, &v.User.Subject, &v.KeyID, &body, &v.Refresh, &created, &expires, &used, &groups, &ended); err != nil {
		return v, err
	}
	var b sessionBody
	err = decode(body, &b)
	v.User.Name, v.User.Groups, v.Remote, v.Client = b.Name, b.Groups, b.Remote, b.Client
	v.CreatedAt, v.ExpiresAt, v.LastUsedAt, v.GroupsAt, v.EndedAt = fromMilli(created), fromMilli(expires), fromMilli(used), fromMilli(groups), fromMilli(ended)
	return v, err
}

func refreshOwner(sessionID string) string { return "session " + sessionID }

// lockSignIns delays concurrent sign-ins, and the disabling of users, until the transaction
// ends: a user who is being disabled opens no session unnoticed.
func (t *tx) lockSignIns(ctx context.Context) error {
	_, err := t.exec(ctx, "UPDATE counters SET value = value WHERE name = 'sign_in'")
	return err
}

// CreateSession stores a new, open session. It sets CreatedAt, LastUsedAt and GroupsAt where
// they are zero. Denied if the user or the API key of the session is disabled; Exists if there
// is a session with that ID or hash. It publishes no change.
func (s *Store) CreateSession(ctx context.Context, v deploy.Session) error {
	for _, at := range []*time.Time{&v.CreatedAt, &v.LastUsedAt, &v.GroupsAt} {
		if at.IsZero() {
			*at = s.now()
		}
	}
	refresh, err := s.encrypt(v.Refresh, refreshOwner(v.ID))
	if err != nil {
		return err
	}
	body, err := encode(sessionBody{v.User.Name, v.User.Groups, v.Remote, v.Client})
	if err != nil {
		return s.fail(err, "create session "+v.ID)
	}
	err = s.write(ctx, func(t *tx) error {
		if err := t.maySignIn(ctx, v); err != nil {
			return err
		}
		_, err := t.exec(ctx, "INSERT INTO sessions ("+sessionColumns+") VALUES ("+placeholders(12)+")",
			v.ID, v.Hash, v.User.Issuer, v.User.Subject, v.KeyID, body, refresh,
			toMilli(v.CreatedAt), toMilli(v.ExpiresAt), toMilli(v.LastUsedAt), toMilli(v.GroupsAt), 0)
		if s.dialect.unique(err) {
			return deploy.Errorf(deploy.Exists, "there is a session %s already, or one with its secret", v.ID)
		}
		return err
	})
	return s.fail(err, "create session "+v.ID)
}

// maySignIn returns an error of kind Denied if the user or the API key of a session is
// disabled. Neither can be disabled until the transaction ends.
func (t *tx) maySignIn(ctx context.Context, v deploy.Session) error {
	if err := t.lockSignIns(ctx); err != nil {
		return err
	}
	if _, disabled, err := one(ctx, t, scanText, "SELECT subject FROM disabled_users WHERE issuer = ? AND subject = ?", v.User.Issuer, v.User.Subject); err != nil || disabled {
		if disabled {
			err = deploy.Errorf(deploy.Denied, "user %s is disabled", v.User.Subject)
		}
		return err
	}
	if v.KeyID == "" {
		return nil
	}
	_, enabled, err := one(ctx, t, scanText, "SELECT id FROM api_keys WHERE id = ? AND disabled = FALSE", v.KeyID)
	if err == nil && !enabled {
		err = deploy.Errorf(deploy.Denied, "API key %s is disabled or does not exist", v.KeyID)
	}
	return err
}

// SessionByHash returns the open session whose secret has this SHA-256. NotFound if there is
// none, or it has ended or expired.
func (s *Store) SessionByHash(ctx context.Context, hash []byte) (deploy.Session, error) {
	return s.openSession(ctx, "hash = ?", hash, "with this secret")
}

// Session returns an open session. NotFound if there is none, or it has ended or expired.
func (s *Store) Session(ctx context.Context, id string) (deploy.Session, error) {
	return s.openSession(ctx, "id = ?", id, id)
}

func (s *Store) openSession(ctx context.Context, cond string, arg any, name string) (deploy.Session, error) {
	v, ok, err := one(ctx, s, scanSession, selectSession+" WHERE "+cond+" AND "+openSession, arg, toMilli(s.now()))
	if err == nil && !ok {
		err = noSession(name)
	}
	if err == nil {
		v.Refresh, err = s.decrypt(v.Refresh, refreshOwner(v.ID))
	}
	if err != nil {
		return deploy.Session{}, s.fail(err, "read session "+name)
	}
	return v, nil
}

func noSession(name string) error {
	return deploy.Errorf(deploy.NotFound, "there is no open session %s: sign in again", name)
}

// SessionQuery selects sessions. Zero fields do not restrict.
type SessionQuery struct {
	OpenOnly bool // neither ended nor expired
	Issuer   string
	Subject  string
	KeyID    string
	Limit    int // 0: no limit
	Cursor   string
}

// Sessions returns sessions without Hash and Refresh, the last created first, then by ID, and
// the cursor of the next page, "" if there is none. Invalid for a cursor that no list
// returned.
func (s *Store) Sessions(ctx context.Context, q SessionQuery) ([]deploy.Session, string, error) {
	var f filter
	f.equal("subject", q.Subject)
	f.sift("issuer", q.Issuer)
	f.equal("key_id", q.KeyID)
	if q.OpenOnly {
		f.add(openSession, toMilli(s.now()))
	}
	if err := f.afterBy("created_at", q.Cursor); err != nil {
		return nil, "", err
	}
	query := f.limit(selectSession+f.where()+" ORDER BY created_at DESC, id", extra(q.Limit))
	found, err := all(ctx, s, scanSession, query, f.args...)
	if err != nil {
		return nil, "", s.fail(err, "list sessions")
	}
	for i := range found {
		found[i].Hash, found[i].Refresh = nil, nil
	}
	if q.Limit <= 0 || len(found) <= q.Limit {
		return found, "", nil
	}
	found = found[:q.Limit]
	last := found[q.Limit-1]
	return found, cursorAt(last.CreatedAt, last.ID), nil
}

// EndSession ends a session. It is idempotent. NotFound if there is none.
func (s *Store) EndSession(ctx context.Context, id string) error {
	err := s.write(ctx, func(t *tx) error {
		_, ok, err := one(ctx, t, scanText, "SELECT id FROM sessions WHERE id = ?", id)
		switch {
		case err != nil:
			return err
		case !ok:
			return deploy.Errorf(deploy.NotFound, "there is no session %s", id)
		}
		return t.endSessions(ctx, "id = ?", id)
	})
	return s.fail(err, "end session "+id)
}

// EndSessionsOf ends all sessions of a user.
func (s *Store) EndSessionsOf(ctx context.Context, issuer, subject string) error {
	err := s.write(ctx, func(t *tx) error { return t.endSessionsOf(ctx, issuer, subject) })
	return s.fail(err, "end the sessions of "+subject)
}

func (t *tx) endSessionsOf(ctx context.Context, issuer, subject string) error {
	return t.endSessions(ctx, "issuer = ? AND subject = ?", issuer, subject)
}

// EndSessionsOfKey ends all sessions that an API key opened.
func (s *Store) EndSessionsOfKey(ctx context.Context, keyID string) error {
	err := s.write(ctx, func(t *tx) error { return t.endSessionsOfKey(ctx, keyID) })
	return s.fail(err, "end the sessions of API key "+keyID)
}

func (t *tx) endSessionsOfKey(ctx context.Context, keyID string) error {
	return t.endSessions(ctx, "key_id = ? AND key_id <> ''", keyID)
}

// endSessions ends the sessions that satisfy a condition, and publishes the end of each. Their
// Refresh is deleted: no caller can read it any more.
func (t *tx) endSessions(ctx context.Context, cond string, args ...any) error {
	args = append([]any{toMilli(t.store.now()), []byte{}}, args...)
	ended, err := all(ctx, t, scanText, "UPDATE sessions SET ended_at = ?, refresh = ? WHERE ended_at = 0 AND "+cond+" RETURNING id", args...)
	slices.Sort(ended)
	for _, id := range ended {
		t.changed(deploy.TopicSession, id, "")
	}
	return err
}

// NoteSessionUse stores the times of last use of sessions, by ID. It never sets an earlier
// time, ignores unknown sessions and publishes no change.
func (s *Store) NoteSessionUse(ctx context.Context, used map[string]time.Time) error {
	if len(used) == 0 {
		return nil
	}
	err := s.write(ctx, func(t *tx) error {
		for _, id := range slices.Sorted(maps.Keys(used)) { // one locking order avoids deadlocks
			at := toMilli(used[id])
			if _, err := t.exec(ctx, "UPDATE sessions SET last_used_at = ? WHERE id = ? AND last_used_at < ?", at, id, at); err != nil {
				return err
			}
		}
		return nil
	})
	return s.fail(err, "note the use of sessions")
}

// UpdateSessionUser stores what the issuer reported of the user of an open session at a time:
// name and groups, and what reads them again. NotFound if there is no such session, or it has
// ended or expired; Invalid if it belongs to another user.
func (s *Store) UpdateSessionUser(ctx context.Context, id string, user deploy.User, refresh []byte, at time.Time) error {
	sealed, err := s.encrypt(refresh, refreshOwner(id))
	if err != nil {
		return err
	}
	err = s.write(ctx, func(t *tx) error {
		v, ok, err := one(ctx, t, scanSession, selectSession+" WHERE id = ? AND "+openSession+t.store.dialect.forUpdate(), id, toMilli(s.now()))
		switch {
		case err != nil:
			return err
		case !ok:
			return noSession(id)
		case v.User.Issuer != user.Issuer || v.User.Subject != user.Subject:
			return deploy.Errorf(deploy.Invalid, "session %s belongs to %s, not to %s", id, v.User.Subject, user.Subject)
		}
		body, err := encode(sessionBody{user.Name, user.Groups, v.Remote, v.Client})
		if err != nil {
			return err
		}
		if _, err = t.exec(ctx, "UPDATE sessions SET body = ?, refresh = ?, groups_at = ? WHERE id = ?", body, sealed, toMilli(at), id); err != nil {
			return err
		}
		if !slices.Equal(v.User.Groups, user.Groups) { // calls under way have other rights now
			t.changed(deploy.TopicSession, id, "")
		}
		return nil
	})
	return s.fail(err, "update the user of session "+id)
}

// oldSessions deletes sessions that ended or expired before a time.
const oldSessions = `DELETE FROM sessions WHERE id IN (
	SELECT id FROM sessions WHERE (ended_at > 0 AND ended_at < ?) OR expires_at < ? LIMIT ?)`

// RemoveSessions deletes up to limit sessions that ended or expired before a time, and all
// expired sign-in states, in one transaction. It returns how many sessions were deleted.
func (s *Store) RemoveSessions(ctx context.Context, before time.Time, limit int) (removed int, err error) {
	err = s.write(ctx, func(t *tx) error {
		n, err := t.exec(ctx, oldSessions, toMilli(before), toMilli(before), limit)
		removed = int(n)
		if err != nil {
			return err
		}
		return t.dropExpiredSignIns(ctx)
	})
	if err != nil {
		return 0, s.fail(err, "remove old sessions")
	}
	return removed, nil
}

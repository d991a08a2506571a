package access

import (
	"context"
	"io"
	"time"

	"github.com/c785c783/piped/piped/deploy"
)

// OpenSessions stores sessions that are opened and ended.
type OpenSessions interface {
	// CreateSession stores a session. Denied: its user or API key is disabled.
	CreateSession(ctx context.Context, s deploy.Session) error
	// Session returns an open session. NotFound: there is none, or it has ended.
	Session(ctx context.Context, id string) (deploy.Session, error)
	// EndSession ends a session and announces it.
	EndSession(ctx context.Context, id string) error
}

// Sessions opens and ends the sessions of users.
type Sessions struct {
	Store OpenSessions
	// MaxAge returns how long a new session lasts.
	MaxAge func() time.Duration
	Now    func() time.Time
	Rand   io.Reader // crypto/rand.Reader
}

// Open opens a session and returns its token. Of s it uses User, KeyID, Refresh, Remote and
// Client, and returns the others. Denied: the user or the key is disabled.
func (m Sessions) Open(ctx context.Context, s deploy.Session) (token string, opened deploy.Session, err error) {
	if s.ID, token, s.Hash, err = NewSessionToken(m.Rand); err != nil {
		return "", deploy.Session{}, err
	}
	now := m.Now()
	s.CreatedAt, s.LastUsedAt, s.GroupsAt, s.ExpiresAt = now, now, now, now.Add(m.MaxAge())
	if err := m.Store.CreateSession(ctx, s); err != nil {
		return "", deploy.Session{}, err
	}
	return token, s, nil
}

// End ends the session with a token, and returns it. NotFound: there is no such open session.
func (m Sessions) End(ctx context.Context, token string) (deploy.Session, error) {
	id, _ := IDOf(token)
	s, err := m.Store.Session(ctx, id)
	if err == nil && !matches(s.Hash, token) {
		err = deploy.Errorf(deploy.NotFound, "there is no open session with this token")
	}
	if err != nil {
		return deploy.Session{}, err
	}
	return s, m.Store.EndSession(ctx, id)
}

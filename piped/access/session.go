package access

import (
	"context"
	"time"

	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/store"
)

// SessionStore stores sessions.
type SessionStore interface {
	// Session returns an open session. NotFound: there is none, or it has ended.
	Session(ctx context.Context, id string) (deploy.Session, error)
	// NoteSessionUse stores when sessions were last used.
	NoteSessionUse(ctx context.Context, used map[string]time.Time) error
	// APIKey returns the key that opened a session, also a disabled one.
	APIKey(ctx context.Context, id string) (deploy.APIKey, error)
	// Watch returns a feed of sessions that end from now on.
	Watch(topics ...deploy.Topic) *store.Watch
}

// storedSessions are the sessions in a store.
type storedSessions struct {
	SessionStore
	idle func() time.Duration
}

func (s storedSessions) find(ctx context.Context, id string) (credential, error) {
	v, err := s.Session(ctx, id)
	if err != nil {
		return credential{}, err
	}
	found := credential{id: v.ID, hash: v.Hash, valid: v.EndedAt.IsZero(), expires: v.ExpiresAt, idle: s.idle(), used: v.LastUsedAt}
	if v.KeyID == "" {
		found.caller = Caller{ID: v.ID, Subject: v.User.Subject, Issuer: v.User.Issuer, User: true, Session: true, Groups: v.User.Groups}
		return found, nil
	}
	key, err := s.APIKey(ctx, v.KeyID)
	if err != nil {
		return credential{}, err
	}
	found.caller = CallerOf(key)
	found.caller.ID, found.caller.Session, found.valid = v.ID, true, found.valid && !key.Disabled
	return found, nil
}

func (s storedSessions) noteUse(ctx context.Context, used map[string]time.Time) error {
	return s.NoteSessionUse(ctx, used)
}

func (s storedSessions) watch() *store.Watch { return s.Watch(deploy.TopicSession) }

func (s storedSessions) what() string { return "sessions" }

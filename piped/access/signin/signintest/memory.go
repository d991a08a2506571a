package signintest

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/c785c783/piped/piped/deploy"
)

// Sessions are sessions in memory.
type Sessions struct {
	Now func() time.Time
	// MaxAge is the lifetime of a session.
	MaxAge time.Duration

	mu       sync.Mutex
	all      map[string]deploy.Session
	disabled map[string]bool // by issuer/subject
}

// NewSessions returns sessions that end after a week.
func NewSessions(now func() time.Time) *Sessions {
	return &Sessions{Now: now, MaxAge: 7 * 24 * time.Hour, all: map[string]deploy.Session{}, disabled: map[string]bool{}}
}

// Disable makes Open refuse a user.
func (s *Sessions) Disable(issuer, subject string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.disabled[issuer+"/"+subject] = true
}

// Open opens a session.
func (s *Sessions) Open(_ context.Context, n deploy.Session) (token string, opened deploy.Session, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.disabled[n.User.Issuer+"/"+n.User.Subject] {
		return "", n, deploy.Errorf(deploy.Denied, "user %s is disabled", n.User.Subject)
	}
	now := s.Now()
	n.ID = "session-" + rand.Text()
	token = n.ID + "." + rand.Text()
	sum := sha256.Sum256([]byte(token))
	n.Hash, n.CreatedAt, n.LastUsedAt, n.GroupsAt, n.ExpiresAt = sum[:], now, now, now, now.Add(s.MaxAge)
	s.all[n.ID] = n
	return token, n, nil
}

// End ends the session with a token.
func (s *Sessions) End(ctx context.Context, token string) (deploy.Session, error) {
	found, ok := s.Find(token)
	if !ok {
		return found, deploy.Errorf(deploy.NotFound, "there is no open session with this token")
	}
	return found, s.EndSession(ctx, found.ID)
}

// Find returns the open session with a token.
func (s *Sessions) Find(token string) (deploy.Session, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	id, _, _ := strings.Cut(token, ".")
	found, ok := s.all[id]
	sum := sha256.Sum256([]byte(token))
	return found, ok && s.open(found) && string(found.Hash) == string(sum[:])
}

// Count returns the number of open sessions.
func (s *Sessions) Count() (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, one := range s.all {
		if one.EndedAt.IsZero() {
			n++
		}
	}
	return n
}

// perPage is how many sessions a page has.
const perPage = 10

// OpenSessions implements signin.Sessions.
func (s *Sessions) OpenSessions(_ context.Context, cursor string) (page []deploy.Session, next string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, one := range s.all {
		if one.ID > cursor && s.open(one) {
			one.Hash, one.Refresh = nil, nil
			page = append(page, one)
		}
	}
	slices.SortFunc(page, func(a, b deploy.Session) int { return cmp.Compare(a.ID, b.ID) })
	if len(page) > perPage {
		page = page[:perPage]
		next = page[perPage-1].ID
	}
	return page, next, nil
}

// open reports whether a session has neither ended nor expired. The caller holds mu.
func (s *Sessions) open(one deploy.Session) bool {
	return one.ID != "" && one.EndedAt.IsZero() && s.Now().Before(one.ExpiresAt)
}

// Session implements signin.Sessions.
func (s *Sessions) Session(_ context.Context, id string) (deploy.Session, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	one := s.all[id]
	if !s.open(one) {
		return deploy.Session{}, deploy.Errorf(deploy.NotFound, "there is no open session %s", id)
	}
	return one, nil
}

// UpdateSessionUser implements signin.Sessions.
func (s *Sessions) UpdateSessionUser(_ context.Context, id string, user deploy.User, refresh []byte, at time.Time) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	one := s.all[id]
	switch {
	case !s.open(one):
		return deploy.Errorf(deploy.NotFound, "there is no open session %s", id)
	case one.User.Issuer != user.Issuer || one.User.Subject != user.Subject:
		return deploy.Errorf(deploy.Invalid, "session %s belongs to %s, not to %s", id, one.User.Subject, user.Subject)
	}
	one.User, one.Refresh, one.GroupsAt = user, refresh, at
	s.all[id] = one
	return nil
}

// EndSession implements signin.Sessions.
func (s *Sessions) EndSession(_ context.Context, id string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	one, ok := s.all[id]
	if !ok {
		return deploy.Errorf(deploy.NotFound, "there is no session %s", id)
	}
	if one.EndedAt.IsZero() {
		one.EndedAt = s.Now()
		s.all[id] = one
	}
	return nil
}

// States are one-time payloads in memory.
type States struct {
	Now func() time.Time

	mu  sync.Mutex
	all map[string]state
}

type state struct {
	payload []byte
	expires time.Time
}

// NewStates returns states.
func NewStates(now func() time.Time) *States { return &States{Now: now, all: map[string]state{}} }

// PutSignInState stores a payload.
func (s *States) PutSignInState(_ context.Context, hash, payload []byte, expires time.Time) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := s.all[string(hash)]; ok {
		return deploy.Errorf(deploy.Exists, "there is a state with this hash already")
	}
	s.all[string(hash)] = state{slices.Clone(payload), expires}
	return nil
}

// TakeSignInState returns a payload once.
func (s *States) TakeSignInState(_ context.Context, hash []byte) ([]byte, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	found, ok := s.all[string(hash)]
	delete(s.all, string(hash))
	if !ok || !s.Now().Before(found.expires) {
		return nil, deploy.Errorf(deploy.NotFound, "there is no such state")
	}
	return found.payload, nil
}

// Clock is a clock that tests move.
type Clock struct {
	mu      sync.Mutex
	add     time.Duration
	stopped time.Time // zero while the clock runs
}

// Now returns the time.
func (c *Clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.stopped.IsZero() {
		return c.stopped.Add(c.add)
	}
	return time.Now().Add(c.add)
}

// Stop stops the clock: only Advance moves it.
func (c *Clock) Stop() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stopped = time.Now()
}

// Advance moves the clock.
func (c *Clock) Advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.add += d
}

// writeFile writes a secret into a file of the test.
func writeFile(t testing.TB, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(file, []byte(text+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

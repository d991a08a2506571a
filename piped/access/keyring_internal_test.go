package access

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/store"
)

// oneSession holds a session, which can end without an announcement.
type oneSession struct {
	credential
	ended bool
}

func (s *oneSession) find(context.Context, string) (credential, error) {
	if s.ended {
		return credential{}, deploy.Errorf(deploy.NotFound, "there is no open session")
	}
	return s.credential, nil
}

func (*oneSession) noteUse(context.Context, map[string]time.Time) error { return nil }
func (*oneSession) watch() *store.Watch                                 { return nil }
func (*oneSession) what() string                                        { return "sessions" }

// TestUnannouncedEnd: a session that ended in another process is refused once the cached one
// has expired, from the first call on, and its streams end with the next review.
func TestUnannouncedEnd(t *testing.T) {
	t.Parallel()
	const token = "id.secret"
	now := time.UnixMilli(1_700_000_000_000)
	s := &oneSession{credential: credential{id: "id", hash: hashToken(token), valid: true, used: now}}
	k := newKeyring(s, slog.New(slog.DiscardHandler), func() time.Time { return now })
	admit := func() error { return nil }
	if _, err := k.find(t.Context(), token, admit); err != nil {
		t.Fatal(err)
	}
	stream, release := k.hold(t.Context(), "id")
	defer release()
	s.ended, now = true, now.Add(time.Minute)
	k.review(t.Context())
	if !errors.Is(context.Cause(stream), ErrRefused) {
		t.Errorf("the stream goes on: %v", context.Cause(stream))
	}
	for range 2 {
		if _, err := k.find(t.Context(), token, admit); !errors.Is(err, ErrRefused) {
			t.Errorf("a call is accepted: %v", err)
		}
	}
}

// TestRefusedFromTheFirstCallOn: no call after the refused one is answered from the cache.
func TestRefusedFromTheFirstCallOn(t *testing.T) {
	t.Parallel()
	const token = "id.secret"
	now := time.UnixMilli(1_700_000_000_000)
	s := &oneSession{credential: credential{id: "id", hash: hashToken(token), valid: true, used: now}}
	k := newKeyring(s, slog.New(slog.DiscardHandler), func() time.Time { return now })
	admit := func() error { return nil }
	if _, err := k.find(t.Context(), token, admit); err != nil {
		t.Fatal(err)
	}
	s.ended, now = true, now.Add(time.Minute)
	for range 3 {
		if _, err := k.find(t.Context(), token, admit); !errors.Is(err, ErrRefused) {
			t.Errorf("a call is accepted: %v", err)
		}
	}
}

package access

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/store"
)

// KeyStore stores API keys. Unknown IDs are errors of kind NotFound.
type KeyStore interface {
	// APIKey returns a key, also a disabled one.
	APIKey(ctx context.Context, id string) (deploy.APIKey, error)
	// NoteAPIKeyUse stores when keys were last used.
	NoteAPIKeyUse(ctx context.Context, used map[string]time.Time) error
	// Watch returns a feed of keys that are disabled from now on.
	Watch(topics ...deploy.Topic) *store.Watch
}

// Scheme is how a caller presents a credential.
type Scheme string

// The schemes, as in the header "authorization: <scheme> <token>".
const (
	SchemeKey     Scheme = "API-KEY"
	SchemeSession Scheme = "SESSION"
)

// Store stores API keys and sessions.
type Store interface {
	KeyStore
	SessionStore
}

// Authenticator recognises callers by their API keys and sessions. Its methods are safe for
// concurrent use. Run must run, and Follow must be called before it and before any call.
type Authenticator struct {
	rings map[Scheme]*keyring
}

// NewAuthenticator returns an authenticator over the keys and sessions in a store. A session
// that was not used for the time that idle returns is refused; 0 means no limit.
func NewAuthenticator(s Store, idle func() time.Duration, log *slog.Logger, now func() time.Time) *Authenticator {
	return &Authenticator{rings: map[Scheme]*keyring{
		SchemeKey:     newKeyring(storedKeys{s}, log, now),
		SchemeSession: newKeyring(storedSessions{s, idle}, log, now),
	}}
}

// Follow subscribes to credentials that end.
func (a *Authenticator) Follow() {
	for _, ring := range a.rings {
		ring.follow()
	}
}

// Run ends the streams of ended credentials and stores when credentials were last used, until
// ctx ends.
func (a *Authenticator) Run(ctx context.Context) {
	var rings sync.WaitGroup
	defer rings.Wait()
	for _, ring := range a.rings {
		rings.Go(func() { ring.run(ctx) })
	}
}

// Find returns the caller with a token. On a cache miss it calls admit before it reads the
// store. An invalid token, or an unknown scheme, returns ErrRefused, in the same time whether
// its ID exists or not.
func (a *Authenticator) Find(ctx context.Context, scheme Scheme, token string, admit func() error) (Caller, error) {
	ring := a.rings[scheme]
	if ring == nil {
		return Caller{}, ErrRefused
	}
	return ring.find(ctx, token, admit)
}

// Hold returns a context that is cancelled with cause ErrRefused when the credential ends.
// Call it before Find, with the token whether valid or not, and release afterwards.
func (a *Authenticator) Hold(ctx context.Context, scheme Scheme, token string) (_ context.Context, release func()) {
	ring, id := a.rings[scheme], ""
	if ring == nil {
		return context.WithCancel(ctx)
	}
	id, _ = IDOf(token)
	return ring.hold(ctx, id)
}

// storedKeys are the API keys in a store.
type storedKeys struct{ KeyStore }

func (s storedKeys) find(ctx context.Context, id string) (credential, error) {
	k, err := s.APIKey(ctx, id)
	return credential{id: k.ID, hash: k.Hash, valid: !k.Disabled, caller: CallerOf(k)}, err
}

func (s storedKeys) noteUse(ctx context.Context, used map[string]time.Time) error {
	return s.NoteAPIKeyUse(ctx, used)
}

func (s storedKeys) watch() *store.Watch { return s.Watch(deploy.TopicAPIKey) }

func (s storedKeys) what() string { return "API keys" }

// CallerOf returns the caller that an API key stands for.
func CallerOf(k deploy.APIKey) Caller {
	return Caller{ID: k.ID, Key: k.ID, Subject: k.Subject, Role: string(k.Role), Limit: k.Limit}
}

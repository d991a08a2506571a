package access

import (
	"context"
	"crypto/sha256"
	"errors"
	"log/slog"
	"maps"
	"sync"
	"time"

	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/store"
)

const (
	// trusted is how long a cached credential is valid. Ended ones are announced at once;
	// this limit is for changes that are not announced, such as those by another
	// process that writes to the same SQLite file.
	trusted = 30 * time.Second
	// storeUseEvery is the interval and precision with which the last use is stored.
	storeUseEvery = time.Minute
	// lastStoreUse limits the last write of these times at shutdown.
	lastStoreUse = 3 * time.Second
	// maxKnown limits the number of cached credentials. Only valid ones are cached.
	maxKnown = 4096
)

// ErrRefused is returned for any invalid, disabled, ended or expired credential.
var ErrRefused = errors.New("the credentials are not accepted")

// credential is the stored part of an API key or a session.
type credential struct {
	id      string
	hash    []byte // SHA-256 of the token
	valid   bool   // neither disabled nor ended
	caller  Caller
	expires time.Time     // absolute; zero for never
	idle    time.Duration // the longest time without use; 0 for no limit
	used    time.Time     // last use
}

// expired reports whether a time limit has passed.
func (c *credential) expired(now time.Time) bool {
	return !c.expires.IsZero() && !now.Before(c.expires) || c.idle > 0 && now.Sub(c.used) >= c.idle
}

// credentials are the stored keys or sessions.
type credentials interface {
	// find returns a credential, also one that has ended. NotFound: there is none.
	find(ctx context.Context, id string) (credential, error)
	// noteUse stores when credentials were last used.
	noteUse(ctx context.Context, used map[string]time.Time) error
	// watch returns a feed of those that end from now on.
	watch() *store.Watch
	// what names them in the log, such as "API keys".
	what() string
}

// keyring caches recently used credentials by their hash, so that a call needs no read of the
// store. It contains no secrets. Ending a credential evicts it and ends its streams before the
// call that ends it returns.
type keyring struct {
	store credentials
	log   *slog.Logger
	now   func() time.Time

	mu    sync.Mutex
	watch *store.Watch // nil before follow
	known map[[sha256.Size]byte]*knownCredential
	age   int // number of evictions
	held  map[*holding]struct{}
	used  map[string]time.Time // by ID: minute of the last use, not stored yet
	noted map[string]time.Time // by ID: stored minute of the last use
}

// knownCredential is a cached valid credential.
type knownCredential struct {
	credential
	read time.Time
}

// holding is a stream that ends with its credential.
type holding struct {
	id  string
	end context.CancelCauseFunc
}

func newKeyring(s credentials, log *slog.Logger, now func() time.Time) *keyring {
	return &keyring{
		store: s, log: log, now: now, known: map[[sha256.Size]byte]*knownCredential{}, held: map[*holding]struct{}{},
		used: map[string]time.Time{}, noted: map[string]time.Time{},
	}
}

// follow subscribes to ended credentials. It must be called before run and before any call.
func (k *keyring) follow() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.watch = k.store.watch()
}

// run ends the streams of ended credentials and stores their last use, until ctx ends.
func (k *keyring) run(ctx context.Context) {
	defer k.watch.Close()
	tick := time.NewTicker(storeUseEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			last, end := context.WithTimeout(context.WithoutCancel(ctx), lastStoreUse)
			k.storeUse(last)
			end()
			return
		case <-k.watch.C():
			k.mu.Lock()
			k.evictEnded()
			k.mu.Unlock()
		case <-tick.C:
			k.storeUse(ctx)
			k.review(ctx)
		}
	}
}

// find returns the caller with a token. On a cache miss it calls admit before it reads the
// store. An invalid token returns ErrRefused, in the same time whether its ID exists or not.
func (k *keyring) find(ctx context.Context, token string, admit func() error) (Caller, error) {
	sum, now := sha256.Sum256([]byte(token)), k.now()
	caller, known, fresh, age := k.recall(sum, now)
	if fresh {
		return caller, nil
	}
	if !known {
		if err := admit(); err != nil {
			return Caller{}, err
		}
	}
	id, ok := IDOf(token)
	if !ok {
		return Caller{}, ErrRefused
	}
	found, err := k.store.find(ctx, id)
	switch {
	case deploy.IsKind(err, deploy.NotFound):
		if known { // it has ended, and nothing announced that here
			k.forget(id)
		}
		found.hash = make([]byte, sha256.Size) // matches no token
	case err != nil:
		return Caller{}, err
	}
	if !matches(found.hash, token) {
		return Caller{}, ErrRefused
	}
	if k.lastUse(&found); !found.valid || found.expired(now) {
		k.forget(id)
		return Caller{}, ErrRefused
	}
	k.remember(sum, knownCredential{found, now}, age)
	return found.caller, nil
}

// recall returns the cached caller and records the use. If fresh is false, the caller of
// recall must read the credential again; concurrent callers get the cached one meanwhile. age
// is for remember.
func (k *keyring) recall(sum [sha256.Size]byte, now time.Time) (_ Caller, found, fresh bool, age int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.evictEnded()
	known := k.known[sum]
	if known == nil {
		return Caller{}, false, false, k.age
	}
	if known.expired(now) { // find decides: streams and other processes can have used it since
		delete(k.known, sum)
		return Caller{}, false, false, k.age
	}
	if fresh = now.Sub(known.read) < trusted; fresh {
		known.used = now
		k.use(known.id, now)
	} else {
		known.read = now
	}
	return known.caller, true, fresh, k.age
}

// lastUse sets the last use of a credential that was read, if a later one is not stored yet.
func (k *keyring) lastUse(c *credential) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, at := range []time.Time{k.used[c.id], k.noted[c.id]} {
		if at.After(c.used) {
			c.used = at
		}
	}
}

// remember caches a valid credential under sum, the SHA-256 of its token. It does nothing if
// one was evicted since recall returned age, because that may be this one.
func (k *keyring) remember(sum [sha256.Size]byte, known knownCredential, age int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.evictEnded()
	if k.age != age {
		return
	}
	if len(k.known) >= maxKnown {
		clear(k.known)
	}
	known.hash, known.used = nil, known.read // the map's key is the hash
	k.known[sum] = &known
	k.use(known.id, known.read)
}

// use records the use of a credential. The caller holds mu.
func (k *keyring) use(id string, now time.Time) {
	if minute := now.Truncate(storeUseEvery); minute.After(k.noted[id]) {
		k.used[id] = minute
	}
}

// evictEnded drops ended credentials from the cache and ends their calls. The caller holds
// mu.
func (k *keyring) evictEnded() {
	if k.watch == nil {
		return
	}
	for _, c := range k.watch.Take() {
		k.drop(c.ID)
	}
}

// forget evicts a credential that was found to have ended.
func (k *keyring) forget(id string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.drop(id)
}

// drop evicts a credential and ends its calls. The caller holds mu.
func (k *keyring) drop(id string) {
	k.age++
	delete(k.noted, id)
	maps.DeleteFunc(k.known, func(_ [sha256.Size]byte, known *knownCredential) bool { return known.id == id })
	for h := range k.held {
		if h.id == id {
			h.end(ErrRefused)
		}
	}
}

// hold returns a context that is cancelled with cause ErrRefused when the credential ends.
// Call it before looking up the credential, and release afterwards.
func (k *keyring) hold(ctx context.Context, id string) (_ context.Context, release func()) {
	ctx, end := context.WithCancelCause(ctx)
	h := &holding{id, end}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.held[h] = struct{}{}
	return ctx, func() {
		end(nil)
		k.mu.Lock()
		defer k.mu.Unlock()
		delete(k.held, h)
	}
}

// review reads the credentials of open streams again, because trusted has passed. An open
// stream is a use, so that only the absolute limit ends it.
func (k *keyring) review(ctx context.Context) {
	now := k.now()
	k.mu.Lock()
	ids := map[string]bool{}
	for h := range k.held {
		ids[h.id] = true
	}
	for _, known := range k.known { // streams with wrong secrets are no use
		if ids[known.id] {
			k.use(known.id, now)
		}
	}
	k.mu.Unlock()
	for id := range ids {
		found, err := k.store.find(ctx, id)
		found.used = now
		if deploy.IsKind(err, deploy.NotFound) || err == nil && (!found.valid || found.expired(now)) {
			k.forget(id)
		}
	}
}

// storeUse stores when credentials were last used. After an error the times are stored with
// the next call.
func (k *keyring) storeUse(ctx context.Context) {
	k.mu.Lock()
	used := k.used
	k.used = map[string]time.Time{}
	k.mu.Unlock()
	err := k.store.noteUse(ctx, used)
	if err != nil {
		k.log.WarnContext(ctx, "cannot store the last use of "+k.store.what()+"; retrying", "error", err)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	for id, minute := range used {
		switch {
		case err == nil:
			k.noted[id] = minute
		case k.used[id].Before(minute):
			k.used[id] = minute
		}
	}
}

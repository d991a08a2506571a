package control

import (
	"context"
	"crypto/sha256"
	"log/slog"
	"maps"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/store"
)

const (
	// trusted is how long a cached key is valid. Disabled keys are announced at once;
	// this limit is for changes that are not announced, such as those by another
	// process that writes to the same SQLite file.
	trusted = 30 * time.Second
	// storeUseEvery is the interval and precision with which the last use of keys is
	// stored.
	storeUseEvery = time.Minute
	// lastStoreUse limits the last write of these times at shutdown.
	lastStoreUse = 3 * time.Second
	// maxKnown limits the number of cached keys. Only valid ones are cached.
	maxKnown = 4096
)

// errRefused is returned for any invalid or disabled key.
var errRefused = status.Error(codes.Unauthenticated, "Unauthenticated")

// keyStore stores API keys.
type keyStore interface {
	// APIKey returns a key, also a disabled one; APIKeys returns all. An unknown ID is
	// an error of kind NotFound.
	APIKey(ctx context.Context, id string) (deploy.APIKey, error)
	APIKeys(ctx context.Context) ([]deploy.APIKey, error)
	// CreateAPIKey stores a key. Exists: an enabled key has the same name.
	CreateAPIKey(ctx context.Context, k deploy.APIKey) error
	// DisableAPIKey disables a key permanently and announces it. Illegal: it is the
	// last enabled key with READ_WRITE.
	DisableAPIKey(ctx context.Context, id string) error
	// NoteAPIKeyUse stores when keys were last used.
	NoteAPIKeyUse(ctx context.Context, used map[string]time.Time) error
	// Watch returns a feed of keys that are disabled from now on.
	Watch(topics ...deploy.Topic) *store.Watch
}

// keyring caches recently used keys by their hash, so that a call needs no read of the
// store. It contains no secrets. Disabling a key evicts it and ends its streams before the
// disabling call returns.
type keyring struct {
	store keyStore
	log   *slog.Logger
	now   func() time.Time

	mu    sync.Mutex
	watch *store.Watch // nil before follow
	known map[[sha256.Size]byte]*knownKey
	age   int // number of evictions
	held  map[*holding]struct{}
	used  map[string]time.Time // by ID: minute of the last use, not stored yet
	noted map[string]time.Time // by ID: stored minute of the last use
}

// knownKey is a cached valid key.
type knownKey struct {
	record deploy.APIKey
	read   time.Time
}

// holding is a stream that ends when its key is disabled.
type holding struct {
	id  string
	end context.CancelCauseFunc
}

func newKeyring(s keyStore, log *slog.Logger, now func() time.Time) *keyring {
	return &keyring{
		store: s, log: log, now: now, known: map[[sha256.Size]byte]*knownKey{}, held: map[*holding]struct{}{},
		used: map[string]time.Time{}, noted: map[string]time.Time{},
	}
}

// follow subscribes to disabled keys. It must be called before run and before any call.
func (k *keyring) follow() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.watch = k.store.Watch(deploy.TopicAPIKey)
}

// run ends the streams of disabled keys and stores the last use of keys, until ctx ends.
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
			k.evictDisabled()
			k.mu.Unlock()
		case <-tick.C:
			k.storeUse(ctx)
			k.review(ctx)
		}
	}
}

// find returns the record of a key. On a cache miss it calls admit before it reads the
// store. An invalid key returns errRefused, in the same time whether its ID exists or not.
func (k *keyring) find(ctx context.Context, key string, admit func() error) (deploy.APIKey, error) {
	sum, now := sha256.Sum256([]byte(key)), k.now()
	record, fresh, age := k.recall(sum, now)
	if fresh {
		return record, nil
	}
	if record.ID == "" {
		if err := admit(); err != nil {
			return deploy.APIKey{}, err
		}
	}
	id, ok := keyID(key)
	if !ok {
		return deploy.APIKey{}, errRefused
	}
	record, err := k.store.APIKey(ctx, id)
	switch {
	case deploy.IsKind(err, deploy.NotFound):
		record.Hash = make([]byte, sha256.Size) // matches no key
	case err != nil:
		return deploy.APIKey{}, err
	}
	if !matches(record, key) {
		return deploy.APIKey{}, errRefused
	}
	if record.Disabled {
		k.forget(id)
		return deploy.APIKey{}, errRefused
	}
	k.remember(sum, knownKey{record, now}, age)
	return record, nil
}

// recall returns the cached record of a key and records its use. If fresh is false, the caller
// must read the key again; concurrent callers get the cached record meanwhile. age is for
// remember.
func (k *keyring) recall(sum [sha256.Size]byte, now time.Time) (record deploy.APIKey, fresh bool, age int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.evictDisabled()
	known := k.known[sum]
	if known == nil {
		return deploy.APIKey{}, false, k.age
	}
	if fresh = now.Sub(known.read) < trusted; fresh {
		k.use(known.record.ID, now)
	} else {
		known.read = now
	}
	return known.record, fresh, k.age
}

// remember caches a valid key under sum, its SHA-256. It does nothing if a key was evicted
// since recall returned age, because that may be this key.
func (k *keyring) remember(sum [sha256.Size]byte, known knownKey, age int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.evictDisabled()
	if k.age != age {
		return
	}
	if len(k.known) >= maxKnown {
		clear(k.known)
	}
	known.record.Hash = nil // the map's key is the hash
	k.known[sum] = &known
	k.use(known.record.ID, known.read)
}

// use records the use of a key. The caller holds mu.
func (k *keyring) use(id string, now time.Time) {
	if minute := now.Truncate(storeUseEvery); minute.After(k.noted[id]) {
		k.used[id] = minute
	}
}

// evictDisabled drops disabled keys from the cache and ends their calls. The caller holds
// mu.
func (k *keyring) evictDisabled() {
	if k.watch == nil {
		return
	}
	for _, c := range k.watch.Take() {
		k.drop(c.ID)
	}
}

// forget evicts a key that was found to be disabled.
func (k *keyring) forget(id string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.drop(id)
}

// drop evicts a key and ends its calls. The caller holds mu.
func (k *keyring) drop(id string) {
	k.age++
	maps.DeleteFunc(k.known, func(_ [sha256.Size]byte, known *knownKey) bool { return known.record.ID == id })
	for h := range k.held {
		if h.id == id {
			h.end(errRefused)
		}
	}
}

// hold returns a context that is cancelled with cause errRefused when the key is disabled.
// Call it before looking up the key, and release afterwards.
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

// review reads the keys of open streams again, because trusted has passed.
func (k *keyring) review(ctx context.Context) {
	k.mu.Lock()
	ids := map[string]bool{}
	for h := range k.held {
		ids[h.id] = true
	}
	k.mu.Unlock()
	for id := range ids {
		if record, err := k.store.APIKey(ctx, id); err == nil && record.Disabled {
			k.forget(id)
		}
	}
}

// storeUse stores when keys were last used. After an error the times are stored with the
// next call.
func (k *keyring) storeUse(ctx context.Context) {
	k.mu.Lock()
	used := k.used
	k.used = map[string]time.Time{}
	k.mu.Unlock()
	err := k.store.NoteAPIKeyUse(ctx, used)
	if err != nil {
		k.log.WarnContext(ctx, "cannot store the last use of API keys; retrying", "error", err)
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

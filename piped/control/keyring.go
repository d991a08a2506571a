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
	// trusted is how long a key is believed without reading it again. Its being
	// disabled is told at once; this is for what nobody tells, such as another
	// process that writes to the same SQLite file.
	trusted = 30 * time.Second
	// noteEvery is how often it is stored when keys were used last, and how
	// exactly.
	noteEvery = time.Minute
	// lastNote bounds how long that may take when the agent stops.
	lastNote = 3 * time.Second
	// maxKnown bounds the keys that are remembered. Only valid ones are.
	maxKnown = 4096
)

// errRefused is what is told of whatever is not the key of an enabled record.
var errRefused = status.Error(codes.Unauthenticated, "Unauthenticated")

// keyStore is where API keys are kept.
type keyStore interface {
	// APIKey returns a key, disabled or not, APIKeys all of them. An unknown ID is
	// an error of kind NotFound.
	APIKey(ctx context.Context, id string) (deploy.APIKey, error)
	APIKeys(ctx context.Context) ([]deploy.APIKey, error)
	// CreateAPIKey stores a key; Exists if an enabled one has its name.
	CreateAPIKey(ctx context.Context, k deploy.APIKey) error
	// DisableAPIKey disables a key for good and announces it; Illegal if it is the
	// last enabled one that may write.
	DisableAPIKey(ctx context.Context, id string) error
	// NoteAPIKeyUse stores when keys were used last.
	NoteAPIKeyUse(ctx context.Context, used map[string]time.Time) error
	// Watch tells of keys that are disabled after it returned.
	Watch(topics ...deploy.Topic) *store.Watch
}

// keyring knows the keys that were used lately, by their hash, so that a call
// costs no read of the store; it holds no secret. A key that is disabled is
// forgotten before the call that disabled it returns, and the calls that stream
// with it end.
type keyring struct {
	store keyStore
	log   *slog.Logger
	now   func() time.Time

	mu    sync.Mutex
	watch *store.Watch // nil before it is followed
	known map[[sha256.Size]byte]*knownKey
	age   int // how often keys were forgotten
	held  map[*holding]struct{}
	used  map[string]time.Time // the minute of the last use that is not stored yet, by ID
	noted map[string]time.Time // the minute that is stored, by ID
}

// knownKey is a key that was read and found to be valid.
type knownKey struct {
	record deploy.APIKey
	read   time.Time
}

// holding is a call that lasts no longer than its key.
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

// follow begins to follow which keys are disabled. It comes before run and before
// any call.
func (k *keyring) follow() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.watch = k.store.Watch(deploy.TopicAPIKey)
}

// run ends the calls of keys that are disabled, and stores when keys were used,
// until ctx ends.
func (k *keyring) run(ctx context.Context) {
	defer k.watch.Close()
	tick := time.NewTicker(noteEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			last, end := context.WithTimeout(context.WithoutCancel(ctx), lastNote)
			k.note(last)
			end()
			return
		case <-k.watch.C():
			k.mu.Lock()
			k.heed()
			k.mu.Unlock()
		case <-tick.C:
			k.note(ctx)
			k.review(ctx)
		}
	}
}

// find returns the record of a key. admit is asked before the store is, which is
// when the key is not one that was valid lately. What is no valid key is
// errRefused, and costs the same whether there is a key of that ID or not.
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
		record.Hash = make([]byte, sha256.Size) // of no key
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

// recall returns what is known of a key and notes its use. fresh is false when the
// caller is to read it again; others need not meanwhile.
func (k *keyring) recall(sum [sha256.Size]byte, now time.Time) (record deploy.APIKey, fresh bool, age int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.heed()
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

// remember keeps a key that was read, unless a key was forgotten meanwhile: it
// may have been this one.
func (k *keyring) remember(sum [sha256.Size]byte, known knownKey, age int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.heed()
	if k.age != age {
		return
	}
	if len(k.known) >= maxKnown {
		clear(k.known)
	}
	known.record.Hash = nil // the key of the map is as good
	k.known[sum] = &known
	k.use(known.record.ID, known.read)
}

// use notes the use of a key. Called with mu held.
func (k *keyring) use(id string, now time.Time) {
	if minute := now.Truncate(noteEvery); minute.After(k.noted[id]) {
		k.used[id] = minute
	}
}

// heed forgets the keys that were disabled, which is all the store tells of, and
// ends their calls. Called with mu held.
func (k *keyring) heed() {
	if k.watch == nil {
		return
	}
	for _, c := range k.watch.Take() {
		k.drop(c.ID)
	}
}

// forget drops a key that was found to be disabled.
func (k *keyring) forget(id string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.drop(id)
}

// drop forgets a key and ends its calls. Called with mu held.
func (k *keyring) drop(id string) {
	k.age++
	maps.DeleteFunc(k.known, func(_ [sha256.Size]byte, known *knownKey) bool { return known.record.ID == id })
	for h := range k.held {
		if h.id == id {
			h.end(errRefused)
		}
	}
}

// hold returns a context that ends, with errRefused as its cause, when the key is
// disabled. The key is looked up after that. The caller calls release.
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

// review reads the keys of calls that stream again: see trusted.
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

// note stores when keys were used. What cannot be stored is stored the next time.
func (k *keyring) note(ctx context.Context) {
	k.mu.Lock()
	used := k.used
	k.used = map[string]time.Time{}
	k.mu.Unlock()
	err := k.store.NoteAPIKeyUse(ctx, used)
	if err != nil {
		k.log.WarnContext(ctx, "cannot store when API keys were used last; trying again", "error", err)
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

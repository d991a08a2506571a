package ownership

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/c785c783/piped/piped/deploy"
)

// Table records who holds what; *store.Store implements it.
type Table interface {
	Join(ctx context.Context, r deploy.Replica, expiry time.Duration) error
	Renew(ctx context.Context, id string, expiry time.Duration) (deploy.Ownership, error)
	Take(ctx context.Context, id string, wanted []deploy.Partition) ([]deploy.Term, error)
	Release(ctx context.Context, id string, terms []deploy.Term) error
	Leave(ctx context.Context, id string) error
}

// Feed signals that other replicas have released partitions; *store.Watch of
// deploy.TopicOwnership implements it.
type Feed interface {
	C() <-chan struct{}
	Take() []deploy.Change
}

// Config contains the dependencies and settings of an Owner.
type Config struct {
	Table   Table
	Feed    Feed
	Replica deploy.Replica // the ID is set by the Owner

	RenewEvery time.Duration // default 5 s
	Expiry     time.Duration // of what was not renewed; default three times RenewEvery
	Margin     time.Duration // time for the work to end before that; default a fifth of Expiry
	Logger     *slog.Logger
}

// ErrLost is the cause of the end of the context of a Work whose term may be over.
var ErrLost = errors.New("this replica could not renew its right to the work in time")

// Owner holds partitions for this process. Call Run once. Other methods may be called
// concurrently.
type Owner struct {
	Config
	idle chan struct{} // work on a partition that is to be handed over has ended

	mu     sync.Mutex
	gained chan struct{}                 // closed when work can begin that could not before
	id     string                        // of this replica; "" before it has joined
	held   map[deploy.Partition]*holding // until lost
	until  time.Time                     // when everything is lost, by the monotonic clock
	lease  context.Context               // ends then
	lose   context.CancelCauseFunc
	alarm  *time.Timer // ends the lease

	expires time.Time // of the next replica that does, unless it is renewed; zero if not known. Only Run uses it
}

// holding is a partition that this replica holds.
type holding struct {
	term   deploy.Term
	users  int           // unfinished work
	moving chan struct{} // closed while the partition is to be handed over
}

// New returns an owner that holds nothing.
func New(c Config) *Owner {
	if c.RenewEvery == 0 {
		c.RenewEvery = 5 * time.Second
	}
	if c.Expiry == 0 {
		c.Expiry = 3 * c.RenewEvery
	}
	if c.Margin == 0 {
		c.Margin = c.Expiry / 5
	}
	return &Owner{Config: c, gained: make(chan struct{}), idle: make(chan struct{}, 1), held: map[deploy.Partition]*holding{}}
}

// Work is the right to work on a key.
type Work struct {
	// Context carries the term. It ends with the cause ErrLost before the term may be over.
	Context context.Context
	// Moving is closed when another replica is to continue the work. It ends at its next step.
	Moving <-chan struct{}
	// Done must be called when the work has ended.
	Done func()
}

// Own returns the right to work on a key, or false if this replica does not have it. The
// context of the work is derived from ctx. Several pieces of work on a key may have the right:
// within a process the component itself keeps them apart.
func (o *Owner) Own(ctx context.Context, key string) (Work, bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	h := o.holds(key)
	if h == nil {
		return Work{}, false
	}
	h.users++
	lease := o.lease
	work, cancel := context.WithCancelCause(deploy.WithTerm(ctx, h.term))
	stop := context.AfterFunc(lease, func() { cancel(context.Cause(lease)) })
	return Work{Context: work, Moving: h.moving, Done: sync.OnceFunc(func() {
		stop()
		cancel(context.Canceled)
		o.finish(h)
	})}, true
}

// Owns reports whether this replica has the right to work on a key.
func (o *Owner) Owns(key string) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.holds(key) != nil
}

// Gained returns a channel that is closed when this replica gets partitions the next time.
func (o *Owner) Gained() <-chan struct{} {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.gained
}

// announce wakes what waits for Gained. The mutex is held.
func (o *Owner) announce() {
	close(o.gained)
	o.gained = make(chan struct{})
}

// holds returns the partition of a key, nil if this replica may not begin work on it. The
// clock is read, because a process that was stopped continues before its timers have fired.
func (o *Owner) holds(key string) *holding {
	h := o.held[deploy.PartitionOf(key)]
	if h == nil || isClosed(h.moving) || !time.Now().Before(o.until) {
		return nil
	}
	return h
}

func (o *Owner) finish(h *holding) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if h.users--; h.users == 0 {
		signal(o.idle)
	}
}

// Run holds partitions until ctx ends. Then it waits until the work on them has ended, at most
// for as long as they are certainly its own, and leaves them to others.
func (o *Owner) Run(ctx context.Context) error {
	renew := time.NewTicker(o.RenewEvery)
	defer renew.Stop()
	for {
		if err := o.round(ctx); err != nil && ctx.Err() == nil {
			o.Logger.Warn("cannot renew the right to work on partitions; trying again", "error", err)
		}
		if !o.await(ctx, renew.C) {
			return o.leave(context.WithoutCancel(ctx))
		}
	}
}

// await waits for the next round and reports whether there is one. What an expired replica held is
// taken at once.
func (o *Owner) await(ctx context.Context, renew <-chan time.Time) bool {
	var expired <-chan time.Time
	if !o.expires.IsZero() {
		expired = time.After(time.Until(o.expires))
	}
	for {
		select {
		case <-ctx.Done():
			return false
		case <-renew:
			return true
		case <-expired:
			return true
		case <-o.Feed.C():
			o.Feed.Take()
			return true
		case <-o.idle:
			if len(o.movable()) > 0 {
				return true
			}
		}
	}
}

// expiryLag is how long after the expiry of a replica another one looks for what it held.
const expiryLag = 20 * time.Millisecond

// round renews what this replica holds and takes or hands over partitions so that all replicas
// hold the same number.
func (o *Owner) round(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, o.RenewEvery)
	defer cancel()
	sent := time.Now()
	o.expires = time.Time{}
	view, err := o.renew(ctx)
	if err != nil {
		return err
	}
	o.expires = time.Now().Add(view.NextExpiry + expiryLag)
	o.extend(sent, view)
	take, leave := share(view, o.id)
	if len(take) > 0 {
		terms, err := o.Table.Take(ctx, o.id, take)
		if err != nil {
			return err
		}
		o.take(terms)
	}
	o.move(leave)
	return o.release(ctx)
}

// renew renews this replica. If it has expired, or at first, it joins under a new ID.
func (o *Owner) renew(ctx context.Context) (deploy.Ownership, error) {
	if o.id != "" {
		view, err := o.Table.Renew(ctx, o.id, o.Expiry)
		if !deploy.IsKind(err, deploy.NotFound) {
			return view, err
		}
		o.Logger.Warn("others may have taken the partitions of this replica, because it could not renew them in time", "replica", o.id)
		o.expire()
	}
	replica := o.Replica
	replica.ID = uuid.NewString()
	if err := o.Table.Join(ctx, replica, o.Expiry); err != nil {
		return deploy.Ownership{}, err
	}
	o.join(replica.ID)
	return o.Table.Renew(ctx, replica.ID, o.Expiry)
}

// join begins to hold partitions as the replica with a new ID.
func (o *Owner) join(id string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.id, o.held = id, map[deploy.Partition]*holding{}
}

// extend records a renewal that was requested at a time: the table does not give the
// partitions away before that time and Expiry. What the table says counts, also for a request
// whose answer was lost.
func (o *Owner) extend(sent time.Time, view deploy.Ownership) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.lease == nil || o.lease.Err() != nil { // what is still held can be worked on again
		o.lease, o.lose = context.WithCancelCause(context.Background())
		defer o.announce()
	}
	o.until = sent.Add(o.Expiry - o.Margin)
	if o.alarm == nil {
		o.alarm = time.AfterFunc(time.Until(o.until), o.expireInTime)
	} else {
		o.alarm.Reset(time.Until(o.until))
	}
	mine := map[deploy.Partition]bool{}
	var found []deploy.Term
	for _, t := range view.Terms {
		if t.HeldBy == o.id {
			mine[t.Partition] = true
			found = append(found, t.Term)
		}
	}
	for p := range o.held {
		if !mine[p] {
			delete(o.held, p)
		}
	}
	o.add(found)
}

func (o *Owner) take(terms []deploy.Term) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.add(terms)
}

// add records partitions as held.
func (o *Owner) add(terms []deploy.Term) {
	gained := false
	for _, t := range terms {
		if h := o.held[t.Partition]; h == nil || h.term != t {
			o.held[t.Partition] = &holding{term: t, moving: make(chan struct{})}
			gained = true
		}
	}
	if gained {
		o.announce()
	}
}

// move tells the work on partitions to end, so that they can be handed over, and no longer that
// on others, for which there is no need any more.
func (o *Owner) move(leave []deploy.Partition) {
	o.mu.Lock()
	defer o.mu.Unlock()
	leaves := map[deploy.Partition]bool{}
	for _, p := range leave {
		leaves[p] = true
	}
	for p, h := range o.held {
		switch moves := isClosed(h.moving); {
		case leaves[p] && !moves:
			close(h.moving)
		case !leaves[p] && moves:
			h.moving = make(chan struct{})
			o.announce()
		}
	}
}

// moveAll tells all work to end; none begins any more.
func (o *Owner) moveAll() {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, h := range o.held {
		if !isClosed(h.moving) {
			close(h.moving)
		}
	}
}

// movable returns the terms of partitions that are to be handed over and have no more work.
func (o *Owner) movable() (terms []deploy.Term) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, h := range o.held {
		if isClosed(h.moving) && h.users == 0 {
			terms = append(terms, h.term)
		}
	}
	return terms
}

// release hands over what can be. The partitions are dropped by the next renewal, which is
// safe: no work begins on a moving one.
func (o *Owner) release(ctx context.Context) error {
	terms := o.movable()
	if len(terms) == 0 {
		return nil
	}
	if err := o.Table.Release(ctx, o.id, terms); err != nil {
		return err
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, t := range terms {
		delete(o.held, t.Partition)
	}
	return nil
}

// expireInTime ends all work, unless the lease was extended meanwhile.
func (o *Owner) expireInTime() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !time.Now().Before(o.until) {
		o.end()
	}
}

// expire ends all work.
func (o *Owner) expire() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.end()
}

// end ends all work. The mutex is held.
func (o *Owner) end() {
	o.until = time.Time{}
	if o.lose != nil {
		o.lose(ErrLost)
	}
}

// leave ends all work and frees the partitions.
func (o *Owner) leave(ctx context.Context) error {
	if o.id == "" {
		return nil
	}
	if o.moveAll(); o.busy() {
		o.prolong(ctx)
	}
	for end := time.After(o.left()); o.busy(); {
		select {
		case <-o.idle:
			continue
		case <-end:
		}
		break
	}
	o.expire()
	if o.alarm != nil {
		o.alarm.Stop()
	}
	ctx, cancel := context.WithTimeout(ctx, o.RenewEvery)
	defer cancel()
	if err := o.Table.Leave(ctx, o.id); err != nil {
		o.Logger.Warn("others have to wait until this replica expires", "error", err)
	}
	return nil
}

// prolong renews what this replica holds for the last time.
func (o *Owner) prolong(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, o.RenewEvery)
	defer cancel()
	sent := time.Now()
	view, err := o.Table.Renew(ctx, o.id, o.Expiry)
	switch {
	case err == nil:
		o.extend(sent, view)
		o.moveAll()
	case deploy.IsKind(err, deploy.NotFound):
		o.expire()
	}
}

// left returns how long the partitions are certainly held.
func (o *Owner) left() time.Duration {
	o.mu.Lock()
	defer o.mu.Unlock()
	return time.Until(o.until)
}

// busy reports whether there is unfinished work.
func (o *Owner) busy() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, h := range o.held {
		if h.users > 0 {
			return true
		}
	}
	return false
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// signal sends to a channel of capacity 1 unless it is full.
func signal(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

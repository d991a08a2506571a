package page

import (
	"context"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	controlv1 "github.com/c785c783/piped/proto/piped/control/v1"
)

// rooms are the views that browsers have open. The zero value is ready to use.
type rooms struct {
	mu   sync.Mutex
	open map[string]*room // by key
}

// room is a view that some browsers have open, with the same address and the same rights. One of
// them leads: the parts are read with its credentials, and drawn once for all. The room of a single
// browser differs in nothing.
type room struct {
	key   string
	turn  chan struct{} // holds a token while a member leads
	asked chan struct{} // a member joined that may show something else

	mu      sync.Mutex
	members map[*member]bool
	last    *snapshot // nil before the first
	reading bool
	began   time.Time // when the parts were read last, or the room was opened
}

// member is a browser in a room. Fields are guarded by the mutex of the room.
type member struct {
	room   *room
	has    string            // key of the parts that the browser showed when it joined
	known  map[string]string // the keys of these parts by ID, nil if they are not remembered
	shown  *snapshot         // what it shows; nil if that is not known
	next   *snapshot         // what it is to show; nil if that is sent
	signal chan struct{}     // signals next
}

// snapshot is what a room shows at one time. It is immutable.
type snapshot struct {
	id     string
	number int // counts the snapshots of the room
	parts  []drawn
	before string // ID of the snapshot before
	change string // the event that leads from the snapshot before to this one; "" for the first
}

// drawn is a part as HTML. That is empty as long as all members have it from the view itself.
type drawn struct {
	id, key, html string
	changed       int    // number of the snapshot that brought the key
	rendered      int    // number of the snapshot that the HTML shows, with all that the part contains
	within        string // ID of the part that contains it and comes before it; "" for none
}

// roomKey returns the key of the room of a stream. What a caller may do follows from the kind, the
// roles and the applications of an API key.
func (v *visit) roomKey(src source) string {
	q := v.query()
	q.Del("from")
	c := v.caller
	return keyOf(c.GetKind(), c.GetRoles(), c.GetApplications(), keyOfAll(c.GetPermissions()), v.r.URL.Path, q.Encode(), v.here(), src.opened())
}

// identity returns a key of who calls. What callers requested is shown to them, and not to others
// with the same rights, if these may not view all applications. The subject of an API key is not its
// own: such callers are kept apart by their session.
func (v *visit) identity() string {
	if v.caller.GetKind() != controlv1.CallerKind_CALLER_KIND_USER {
		return keyOf(v.caller.GetId())
	}
	return keyOf(v.caller.GetIssuer(), v.caller.GetSubject())
}

// join adds a browser that shows the parts with a key. known contains their keys by ID, if they are
// remembered.
func (r *rooms) join(key, has string, known map[string]string) *member {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.open == nil {
		r.open = map[string]*room{}
	}
	in := r.open[key]
	if in == nil {
		// The view was read a moment ago. A search as one types replaces its stream before the
		// parts are read for the first time.
		in = &room{key: key, turn: make(chan struct{}, 1), asked: make(chan struct{}, 1), members: map[*member]bool{}, began: time.Now()}
		r.open[key] = in
	}
	m := &member{room: in, has: has, known: known, signal: make(chan struct{}, 1)}
	in.mu.Lock()
	defer in.mu.Unlock()
	in.members[m] = true
	if in.last != nil && !in.reading && in.last.id == has {
		m.shown = in.last // later changes are read for it, too
	} else {
		wake(in.asked)
	}
	return m
}

// leave removes a browser.
func (r *rooms) leave(m *member) {
	r.mu.Lock()
	defer r.mu.Unlock()
	in := m.room
	in.mu.Lock()
	defer in.mu.Unlock()
	if delete(in.members, m); len(in.members) == 0 {
		delete(r.open, in.key)
	}
}

// wake sends a signal, unless one is pending.
func wake(signal chan<- struct{}) {
	select {
	case signal <- struct{}{}:
	default:
	}
}

// lead waits until no other member leads, then refreshes the parts when something changes, and
// regularly, until the visit ends or that fails. The next leader reads the parts once its own watch
// has begun, so that no change is lost.
func (r *room) lead(v *visit, src source) error {
	select {
	case r.turn <- struct{}{}:
	case <-v.ctx.Done():
		return v.ctx.Err()
	}
	defer func() { <-r.turn }()
	ctx, cancel := context.WithCancel(v.ctx)
	reader := *v
	reader.ctx, reader.allowed = ctx, map[string]bool{}
	next, err := src.watch(&reader)
	if err != nil {
		cancel()
		return err
	}
	changes, failed := make(chan struct{}, 1), make(chan error, 1)
	var watching sync.WaitGroup
	defer watching.Wait()
	defer cancel()
	watching.Go(func() {
		failed <- announce(next, changes)
		cancel() // the rights may have changed: nothing that is being read is shown
	})
	err = r.run(&reader, src, changes, failed)
	select {
	case watchErr := <-failed:
		return watchErr
	default:
		return err
	}
}

// announce signals changes from the end of the present state on, until that fails.
func announce(next receive, changes chan<- struct{}) error {
	for began := false; ; {
		caughtUp, err := next()
		if err != nil {
			return err
		}
		if began = began || caughtUp; began {
			wake(changes)
		}
	}
}

// run refreshes the parts when something changes, and regularly. What the first refresh after a
// change has of before the change is read again after that.
func (r *room) run(v *visit, src source, changes <-chan struct{}, failed <-chan error) error {
	tick := time.NewTicker(liveTick)
	defer tick.Stop()
	renewing := newRenewal(v, src)
	defer renewing.stop()
	var due, again <-chan time.Time // set while a refresh or a renewal is due
	var changed time.Time
	v.age = knownAge
	for {
		select {
		case err := <-failed:
			return err
		case <-changes:
			changed = v.config.Now()
		case <-r.asked:
			changed = v.config.Now()
		case <-tick.C:
			renewing.start(v)
			continue
		case <-again:
			again = nil
			renewing.start(v)
			continue
		case <-renewing.done:
		case <-due:
			due = nil
			if err := r.refresh(v, src); err != nil {
				return err
			}
			v.age = knownAge
			if again == nil && !v.oldest.IsZero() && v.oldest.Before(changed) {
				again = time.After(renewing.pause())
			}
			continue
		}
		if due == nil {
			due = time.After(r.pause())
		}
	}
}

// renewal reads anew what a source accepts from before a change.
type renewal struct {
	src     renewer // nil if its parts are read fast
	ctx     context.Context
	cancel  context.CancelFunc
	running sync.WaitGroup
	began   time.Time     // when it was started last
	took    atomic.Int64  // how long the last read took, in nanoseconds
	turn    chan struct{} // holds a token while it reads
	done    chan struct{} // the parts are to be refreshed
}

func newRenewal(v *visit, src source) *renewal {
	n := &renewal{turn: make(chan struct{}, 1), done: make(chan struct{}, 1)}
	n.src, _ = src.(renewer)
	n.ctx, n.cancel = context.WithCancel(v.ctx)
	return n
}

// pause returns how long the next one has to wait after a change: longer while reads take long,
// because a busy cluster must not be kept busy by those who watch it.
func (n *renewal) pause() time.Duration {
	every := max(liveRead, min(liveShare*time.Duration(n.took.Load()), liveTick))
	return max(livePause, every-time.Since(n.began))
}

// start begins to read, unless it reads already. Meanwhile the view shows changes.
func (n *renewal) start(v *visit) {
	n.began = time.Now()
	if n.src == nil {
		v.age = liveAge
		wake(n.done)
		return
	}
	select {
	case n.turn <- struct{}{}:
	default:
		return
	}
	reader := &visit{Handler: v.Handler, ctx: n.ctx, age: liveAge}
	n.running.Go(func() {
		began := time.Now()
		n.src.renew(reader)
		n.took.Store(int64(time.Since(began)))
		<-n.turn
		wake(n.done)
	})
}

func (n *renewal) stop() {
	n.cancel()
	n.running.Wait()
}

// pause returns how long a refresh has to wait, so that bursts are merged.
func (r *room) pause() time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	return max(0, livePause-time.Since(r.began))
}

// refresh reads the parts, and shows them to all who were in the room when that began: who came
// later may have seen something newer.
func (r *room) refresh(v *visit, src source) error {
	v.now, v.oldest = v.config.Now(), time.Time{}
	clear(v.allowed)
	members, last := r.read()
	parts, err := src.parts(v)
	if err == nil {
		err = v.ctx.Err()
	}
	if err != nil {
		r.show(nil, nil)
		return err
	}
	f := &snapshot{id: keyOfParts(parts)}
	if last != nil && last.id == f.id {
		f = last
	}
	if f != last || r.wantsAll(members, f) {
		f, err = draw(v.ctx, f.id, parts, last, r.wantsAll(members, f))
	}
	if err != nil {
		r.show(nil, nil)
		return err
	}
	v.shown.remember(f.id, f.keys())
	r.show(members, f)
	return nil
}

// read notes that the parts are read now. It returns the members, and what they were shown last.
func (r *room) read() (members []*member, last *snapshot) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.reading, r.began = true, time.Now()
	for m := range r.members {
		members = append(members, m)
	}
	return members, r.last
}

// wantsAll reports whether a member has to be sent all parts.
func (r *room) wantsAll(members []*member, f *snapshot) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, m := range members {
		if m.shown == nil && m.has != f.id {
			return true
		}
	}
	return false
}

// show ends a reading and gives members a snapshot.
func (r *room) show(members []*member, f *snapshot) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.reading = false
	if f != nil {
		r.last = f
	}
	for _, m := range members {
		if m.shown == nil && m.next == nil && m.has == f.id {
			m.shown = f
		}
		if m.shown != f {
			m.next = f
			wake(m.signal)
		}
	}
}

// take returns the event that shows the member the newest snapshot; "" if it shows that already.
func (m *member) take() string {
	m.room.mu.Lock()
	shown, next := m.shown, m.next
	if next != nil {
		m.shown, m.next = next, nil
	}
	m.room.mu.Unlock()
	switch {
	case next == nil:
		return ""
	case shown == nil:
		return next.since(m.known)
	case shown.id == next.before:
		return next.change
	}
	return next.since(shown.keys())
}

// draw renders the parts that have changed since the last snapshot, and all others that were never
// rendered if everything is wanted.
func draw(ctx context.Context, id string, parts []part, last *snapshot, everything bool) (*snapshot, error) {
	f, old, known := &snapshot{id: id, number: 1}, map[string]drawn{}, map[string]string{}
	if last != nil {
		f.number, known = last.number+1, last.keys()
		for _, d := range last.parts {
			old[d.id] = d
		}
	}
	for _, p := range parts {
		d := drawn{id: p.id, key: p.key, changed: f.number}
		if w, ok := p.body.(within); ok {
			d.within = w.part
		}
		if before := old[p.id]; before.key == p.key {
			d.html, d.changed, d.rendered = before.html, before.changed, before.rendered
		}
		if d.html == "" && (everything || last != nil && d.changed == f.number) {
			var err error
			if d.html, err = html(ctx, p.body); err != nil {
				return nil, err
			}
			d.rendered = f.number
		}
		f.parts = append(f.parts, d)
	}
	if last != nil {
		f.before, f.change = last.id, f.since(known)
	}
	return f, nil
}

// keys returns the keys of the parts, by ID.
func (f *snapshot) keys() map[string]string {
	keys := map[string]string{}
	for _, p := range f.parts {
		keys[p.id] = p.key
	}
	return keys
}

// since returns the event with the parts that differ from those with some keys; "" for none. A part
// is sent with all that it contains; what it contains of an earlier snapshot is sent after it.
func (f *snapshot) since(keys map[string]string) string {
	var out strings.Builder
	sent := map[string]int{} // numbers of the snapshots that the sent parts, and what these contain, show
	for _, p := range f.parts {
		shows, within := sent[p.within]
		if within && shows >= p.changed {
			sent[p.id] = shows
		} else if within || keys[p.id] != p.key {
			sent[p.id] = p.rendered
			swap(&out, p.id, p.html)
		}
	}
	if out.Len() == 0 {
		return ""
	}
	return eventOf(f.id, out.String())
}

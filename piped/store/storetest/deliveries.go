package storetest

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/store"
)

// announce writes events with the given keys and returns all unrouted events.
func (e *env) announce(t testing.TB, keys ...string) []deploy.Event {
	t.Helper()
	var events []deploy.Event
	for _, key := range keys {
		events = append(events, deploy.Event{Key: key, Type: deploy.EventPipedStarted, Payload: []byte(`{}`), At: e.clock.now()})
	}
	if err := e.store.Announce(context.Background(), events...); err != nil {
		t.Fatal(err)
	}
	found, err := e.store.Events(context.Background(), 0, 0)
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// registerReceivers replaces the registered receivers.
func (e *env) registerReceivers(t testing.TB, names ...string) {
	t.Helper()
	if err := e.store.RegisterReceivers(context.Background(), names...); err != nil {
		t.Fatal(err)
	}
}

// route routes all unrouted events to the receivers, with one order.
func (e *env) route(t testing.TB, order string, receivers ...string) {
	t.Helper()
	events, err := e.store.Events(context.Background(), 0, 0)
	if err != nil {
		t.Fatal(err)
	}
	var seqs []int64
	var ds []deploy.Delivery
	for _, ev := range events {
		seqs = append(seqs, ev.Seq)
		for _, r := range receivers {
			ds = append(ds, deploy.Delivery{Receiver: r, Order: order, Event: ev})
		}
	}
	if err := e.store.RouteEvents(context.Background(), seqs, ds...); err != nil {
		t.Fatal(err)
	}
}

// due returns the due deliveries of a receiver and the keys of their events.
func (e *env) due(t testing.TB, receiver string) (ds []deploy.Delivery, keys []string) {
	t.Helper()
	ds, _, err := e.store.PendingDeliveries(context.Background(), receiver, 0)
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range ds {
		keys = append(keys, d.Event.Key)
	}
	return ds, keys
}

func testDeliveries(t *testing.T, e *env) {
	ctx := t.Context()
	e.announce(t, "before")
	e.registerReceivers(t, "hook", "chat")
	e.announce(t, "a", "b")
	e.route(t, "x", "hook", "nobody")
	e.announce(t, "c")
	e.route(t, "", "hook")
	if left, err := e.store.Events(ctx, 0, 0); err != nil || len(left) != 0 {
		t.Fatalf("not led anywhere: %v, %v", left, err)
	}
	ds, keys := e.due(t, "hook")
	if diff := cmp.Diff([]string{"a", "c"}, keys); diff != "" { // b waits for a, before is older than the receiver
		t.Fatalf("due (-want +got):\n%s", diff)
	}
	next := e.clock.now().Add(time.Minute)
	if err := e.store.RetryDelivery(ctx, ds[0], next, "no answer"); err != nil {
		t.Fatal(err)
	}
	if _, keys = e.due(t, "hook"); !slices.Equal(keys, []string{"c"}) {
		t.Errorf("what waits for a failed one, or is not due, may be delivered: %v", keys)
	}
	if _, at, err := e.store.PendingDeliveries(ctx, "hook", 1); err != nil || !at.Equal(next.Truncate(time.Millisecond)) {
		t.Errorf("next at %s, %v; want %s", at, err, next)
	}
	if err := e.store.HurryDeliveries(ctx); err != nil {
		t.Fatal(err)
	}
	ds, keys = e.due(t, "hook")
	if !slices.Equal(keys, []string{"a", "c"}) || ds[0].Attempts != 1 || ds[0].Error != "no answer" {
		t.Errorf("tried again: %v, %+v", keys, ds[0])
	}
	if err := e.store.GiveUpDelivery(ctx, ds[0], strings.Repeat("gone ", 500)); err != nil {
		t.Fatal(err)
	}
	for range 2 { // the second call has no effect
		if err := e.store.FinishDelivery(ctx, ds[1]); err != nil {
			t.Fatal(err)
		}
	}
	if _, keys = e.due(t, "hook"); !slices.Equal(keys, []string{"b"}) {
		t.Errorf("due after one was given up: %v", keys)
	}
	states, err := e.store.ReceiverStates(ctx)
	if err != nil {
		t.Fatal(err)
	}
	hook := states["hook"]
	if hook.Pending != 1 || hook.OldestPending.IsZero() || hook.Dead != 1 || len(hook.DeadLetters) != 1 || len(states) != 2 {
		t.Fatalf("states: %+v", states)
	}
	if dead := hook.DeadLetters[0]; dead.Event.Key != "a" || dead.Attempts != 2 || dead.GivenUpAt.IsZero() || len(dead.Error) > 1010 {
		t.Errorf("dead letter: %+v", dead)
	}
	e.registerReceivers(t, "chat")
	if _, keys = e.due(t, "hook"); keys != nil {
		t.Errorf("a receiver that is gone has %v", keys)
	}
}

// testDeadLetters: the dead letters of one receiver are replayed or dropped, and nothing else.
func testDeadLetters(t *testing.T, e *env) {
	ctx := t.Context()
	e.registerReceivers(t, "hook", "chat")
	e.announce(t, "a", "b", "waits")
	e.route(t, "", "hook", "chat")
	giveUp := func(receiver string, keys ...string) {
		t.Helper()
		ds, _ := e.due(t, receiver)
		for _, d := range ds {
			if slices.Contains(keys, d.Event.Key) {
				must(t, e.store.RetryDelivery(ctx, d, e.clock.now(), "no answer"))
				must(t, e.store.GiveUpDelivery(ctx, d, "gone"))
				e.clock.ms.Add(1000)
			}
		}
	}
	wantState := func(receiver string, pending, dead int, oldest string) {
		t.Helper()
		states, err := e.store.ReceiverStates(ctx)
		if s := states[receiver]; err != nil || s.Pending != pending || s.Dead != dead || s.OldestDead.Event.Key != oldest {
			t.Errorf("%s has %d pending, %d dead, the oldest %q, %v; want %d, %d, %q", receiver, s.Pending, s.Dead, s.OldestDead.Event.Key, err, pending, dead, oldest)
		}
	}
	giveUp("hook", "a", "b")
	giveUp("chat", "a", "b")
	wantState("hook", 1, 2, "a")

	watch := e.store.Watch(deploy.TopicDeliveries)
	defer watch.Close()
	if n, err := e.store.ReplayDeadLetters(ctx, "hook"); err != nil || n != 2 {
		t.Fatalf("replayed %d, %v; want 2", n, err)
	}
	if diff := cmp.Diff([]deploy.Change{{Topic: deploy.TopicDeliveries, ID: "hook"}}, watch.Take()); diff != "" {
		t.Errorf("published (-want +got):\n%s", diff)
	}
	ds, keys := e.due(t, "hook")
	if !slices.Equal(keys, []string{"a", "b", "waits"}) {
		t.Fatalf("due after the replay: %v", keys)
	}
	if d := ds[0]; d.Attempts != 0 || d.Error != "" || !d.GivenUpAt.IsZero() {
		t.Errorf("replayed as %+v", d)
	}
	wantState("hook", 3, 0, "")
	wantState("chat", 1, 2, "a")

	giveUp("hook", "b")
	if n, err := e.store.DropDeadLetters(ctx, "hook"); err != nil || n != 1 {
		t.Fatalf("dropped %d, %v; want 1", n, err)
	}
	if _, keys := e.due(t, "hook"); !slices.Equal(keys, []string{"a", "waits"}) {
		t.Errorf("due after the drop: %v", keys)
	}
	wantState("hook", 2, 0, "")
	wantState("chat", 1, 2, "a")
	for _, change := range []func(context.Context, string) (int, error){e.store.ReplayDeadLetters, e.store.DropDeadLetters} {
		if n, err := change(ctx, "hook"); err != nil || n != 0 {
			t.Errorf("without dead letters: %d, %v", n, err)
		}
		_, err := change(ctx, "unknown")
		wantKind(t, err, deploy.NotFound, "there is no receiver unknown")
	}
	if got := watch.Take(); len(got) != 0 {
		t.Errorf("published without a replay: %v", got)
	}
}

// testRouteOnce: an event is routed once, even by concurrent or repeated calls.
func testRouteOnce(t *testing.T, e *env) {
	e.registerReceivers(t, "hook")
	events := e.announce(t, "a")
	e.route(t, "", "hook")
	ds, _ := e.due(t, "hook")
	if err := e.store.FinishDelivery(t.Context(), ds[0]); err != nil {
		t.Fatal(err)
	}
	if err := e.store.RouteEvents(t.Context(), []int64{events[0].Seq}, deploy.Delivery{Receiver: "hook", Event: events[0]}); err != nil {
		t.Fatal(err)
	}
	if left := e.announce(t, "a"); left != nil { // the key was announced before
		t.Errorf("announced twice: %v", left)
	}
	if _, keys := e.due(t, "hook"); keys != nil {
		t.Errorf("led twice: %v", keys)
	}
}

func testReceiverNotes(t *testing.T, e *env) {
	ctx := t.Context()
	e.registerReceivers(t, "chat")
	for _, value := range []string{"1", "2"} {
		if err := e.store.PutReceiverNote(ctx, "chat", "thread", value); err != nil {
			t.Fatal(err)
		}
	}
	if err := e.store.PutReceiverNote(ctx, "nobody", "thread", "3"); err != nil {
		t.Fatal(err)
	}
	for receiver, want := range map[string]string{"chat": "2", "nobody": ""} {
		if got, err := e.store.ReceiverNote(ctx, receiver, "thread"); err != nil || got != want {
			t.Errorf("%s noted %q, %v; want %q", receiver, got, err, want)
		}
	}
}

// testEventsByKey: events are found by their keys, delivered or not.
func testEventsByKey(t *testing.T, e *env) {
	ctx := context.Background()
	announced := e.announce(t, "c", "a", "b")
	must(t, e.store.RouteEvents(ctx, []int64{announced[0].Seq}))
	keys := []string{"b", "c", "unknown"}
	for i := range 1000 { // more than fit into one query
		keys = append(keys, fmt.Sprint("unknown ", i))
	}
	got, err := e.store.EventsByKey(ctx, keys...)
	if diff := cmp.Diff([]deploy.Event{announced[0], announced[2]}, got); err != nil || diff != "" {
		t.Errorf("events (-want +got): %s, %v", diff, err)
	}
	if got, err := e.store.EventsByKey(ctx); err != nil || len(got) != 0 {
		t.Errorf("of no key: %v, %v", got, err)
	}
}

func testForgetEvents(t *testing.T, e *env) {
	ctx := t.Context()
	e.registerReceivers(t, "hook")
	for _, key := range []string{"delivered", "waits", "dead"} {
		e.announce(t, key)
		e.route(t, key, "hook")
	}
	if err := e.store.PutReceiverNote(ctx, "hook", "thread", "1"); err != nil {
		t.Fatal(err)
	}
	ds, _ := e.due(t, "hook")
	if err := e.store.FinishDelivery(ctx, ds[0]); err != nil {
		t.Fatal(err)
	}
	if err := e.store.GiveUpDelivery(ctx, ds[2], "gone"); err != nil {
		t.Fatal(err)
	}
	e.clock.ms.Add((29 * 24 * time.Hour).Milliseconds())
	for _, want := range []int{1, 0} { // after 29 and 31 days
		if err := e.store.ForgetEvents(ctx); err != nil {
			t.Fatal(err)
		}
		states, err := e.store.ReceiverStates(ctx)
		if err != nil || states["hook"].Dead != want || states["hook"].Pending != 1 {
			t.Errorf("%d dead letters are to be kept: %+v, %v", want, states, err)
		}
		e.clock.ms.Add((2 * 24 * time.Hour).Milliseconds())
	}
	e.clock.ms.Add((60 * 24 * time.Hour).Milliseconds())
	if err := e.store.ForgetEvents(ctx); err != nil {
		t.Fatal(err)
	}
	if _, keys := e.due(t, "hook"); !slices.Equal(keys, []string{"waits"}) {
		t.Errorf("what waits was forgotten: %v", keys)
	}
	if note, err := e.store.ReceiverNote(ctx, "hook", "thread"); err != nil || note != "" {
		t.Errorf("the note is %q, %v", note, err)
	}
	if left := e.announce(t, "delivered"); len(left) != 1 { // the earlier event is deleted
		t.Errorf("the event is still there: %v", left)
	}

	many := make([]string, 2001) // more than fit into two transactions
	for i := range many {
		many[i] = fmt.Sprintf("many-%d", i)
	}
	e.announce(t, many...)
	e.route(t, "many")
	e.clock.ms.Add((91 * 24 * time.Hour).Milliseconds())
	if err := e.store.ForgetEvents(ctx); err != nil {
		t.Fatal(err)
	}
	if left := e.announce(t, many...); len(left) != len(many) {
		t.Errorf("%d of %d events are still there", len(many)-len(left), len(many))
	}
}

// testDeliveriesProperty: events are announced, routed and delivered in any order, and the
// process may crash between any two writes. Each receiver has each wanted event exactly once,
// as pending, delivered or given up, and gets the events of one order in sequence.
func testDeliveriesProperty(t *testing.T, e *env) {
	round := 0
	receivers := []string{"r0", "r1", "r2"}
	e.registerReceivers(t, receivers...)
	rapid.Check(t, func(rt *rapid.T) {
		round++
		w := &deliveryRound{env: e, ctx: context.Background(), prefix: fmt.Sprintf("r%d-", round), ended: map[string][]string{}}
		defer w.close()
		for range rapid.IntRange(1, 25).Draw(rt, "steps") {
			if err := w.step(rt, rapid.SampledFrom([]string{"announce", "announce", "route", "end", "end", "retry", "die"}).Draw(rt, "what")); err != nil {
				rt.Fatal(err)
			}
		}
		w.finish(rt, receivers)
	})
}

// deliveryRound records the actions of one round.
type deliveryRound struct {
	env    *env
	ctx    context.Context
	opened *store.Store // after a crash; nil before the first
	prefix string
	keys   []string            // announced
	ended  map[string][]string // delivered or given up, by receiver, in order
}

func (w *deliveryRound) store() *store.Store {
	if w.opened != nil {
		return w.opened
	}
	return w.env.store
}

func (w *deliveryRound) close() {
	if w.opened != nil {
		_ = w.opened.Close()
	}
}

// wants reports whether a receiver gets event n; each receiver gets different events. orderOf
// returns the order of event n, "" for none.
func wants(receiver string, n int) bool { return n%3 != int(receiver[1]-'0') }
func orderOf(n int) string              { return []string{"", "even", "odd", "even"}[n%4] }

func (w *deliveryRound) step(rt *rapid.T, what string) error {
	receiver := rapid.SampledFrom([]string{"r0", "r1", "r2"}).Draw(rt, "receiver")
	switch what {
	case "announce":
		key := fmt.Sprintf("%s%d", w.prefix, len(w.keys))
		w.keys = append(w.keys, key)
		return w.store().Announce(w.ctx, deploy.Event{Key: key, Type: deploy.EventPipedStarted, Payload: []byte("{}"), At: w.env.clock.now()})
	case "route":
		return w.route()
	case "die":
		w.close()
		s, err := store.Open(w.ctx, w.env.dsn, store.Options{Key: Key(), Now: w.env.clock.now})
		w.opened = s
		return err
	}
	due, _, err := w.store().PendingDeliveries(w.ctx, receiver, 0)
	if err != nil || len(due) == 0 {
		return err
	}
	d := due[rapid.IntRange(0, len(due)-1).Draw(rt, "which")]
	if what == "retry" {
		return w.store().RetryDelivery(w.ctx, d, w.env.clock.now(), "failed")
	}
	w.ended[receiver] = append(w.ended[receiver], d.Event.Key)
	if rapid.Bool().Draw(rt, "give up") {
		return w.store().GiveUpDelivery(w.ctx, d, "gone")
	}
	return w.store().FinishDelivery(w.ctx, d)
}

func (w *deliveryRound) route() error {
	events, err := w.store().Events(w.ctx, 0, 0)
	if err != nil {
		return err
	}
	var seqs []int64
	var ds []deploy.Delivery
	for _, ev := range events {
		seqs = append(seqs, ev.Seq)
		var n int
		if _, err := fmt.Sscanf(strings.TrimPrefix(ev.Key, w.prefix), "%d", &n); err != nil {
			return err
		}
		for _, r := range []string{"r0", "r1", "r2"} {
			if wants(r, n) {
				ds = append(ds, deploy.Delivery{Receiver: r, Order: orderOf(n), Event: ev})
			}
		}
	}
	return w.store().RouteEvents(w.ctx, seqs, ds...)
}

// finish delivers the pending events and compares what each receiver got with the expectation.
func (w *deliveryRound) finish(rt *rapid.T, receivers []string) {
	if err := w.route(); err != nil {
		rt.Fatal(err)
	}
	for _, r := range receivers {
		for {
			due, _, err := w.store().PendingDeliveries(w.ctx, r, 2)
			if err != nil {
				rt.Fatal(err)
			}
			if len(due) == 0 {
				break
			}
			w.ended[r] = append(w.ended[r], due[0].Event.Key)
			if err := w.store().FinishDelivery(w.ctx, due[0]); err != nil {
				rt.Fatal(err)
			}
		}
		var want []string
		inOrder := map[string][]string{}
		for n, key := range w.keys {
			if wants(r, n) {
				want = append(want, key)
				inOrder[orderOf(n)] = append(inOrder[orderOf(n)], key)
			}
		}
		got := slices.Clone(w.ended[r])
		deliveredInOrder := map[string][]string{}
		for _, key := range got {
			o := orderOf(slices.Index(w.keys, key))
			deliveredInOrder[o] = append(deliveredInOrder[o], key)
		}
		slices.Sort(want)
		slices.Sort(got)
		slices.Sort(inOrder[""])
		slices.Sort(deliveredInOrder[""])
		if diff := cmp.Diff(want, got); diff != "" {
			rt.Fatalf("%s received (-want +got):\n%s", r, diff)
		}
		if diff := cmp.Diff(inOrder, deliveredInOrder); diff != "" {
			rt.Fatalf("%s received in the order (-want +got):\n%s", r, diff)
		}
	}
}

package notify

import (
	"context"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/ownership/ownershiptest"
)

// replica is a courier that shares the store of an env with others.
type replica struct {
	rights     *ownershiptest.Rights
	hook, mail *fake
	log        strings.Builder
}

// share starts a courier with rights and two receivers.
func (l *env) share(keys ...string) *replica {
	r := &replica{rights: ownershiptest.New(keys...), hook: &fake{name: "hook"}, mail: &fake{name: "mail"}}
	c := New(Config{
		Store: l.store, Rights: r.rights, Logger: slog.New(slog.NewTextHandler(&r.log, nil)), Now: time.Now, Random: func() float64 { return 1 },
	})
	c.SetReceivers(r.hook, r.mail)
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- c.Run(ctx) }()
	synctest.Wait()
	l.stops = append(l.stops, func() {
		stop()
		if err := <-ended; err != nil {
			l.t.Error(err)
		}
		if text := r.log.String(); text != "" {
			l.t.Errorf("logged: %s", text)
		}
	})
	return r
}

// TestOneReplicaDelivers: each receiver gets an event from the replica that has the right to it,
// whichever routes the event, also after the rights have changed hands.
func TestOneReplicaDelivers(t *testing.T) {
	inBubble(t, func(t *testing.T, l *env) {
		a, b := l.share(routing, "hook"), l.share("mail")
		l.announce("d", "1", "2")
		l.pass(a.scanEvery())
		a.rights.HandOver("hook")
		a.rights.HandOver(routing)
		l.announce("d", "3")
		l.pass(a.scanEvery())
		wantDelivered(t, a.hook, "1", "2")
		wantDelivered(t, b.hook)
		b.rights.Grant(routing)
		b.rights.Grant("hook")
		l.pass(batchWindow)
		b.rights.Lose("mail")
		l.announce("d", "4")
		l.pass(a.scanEvery())
		a.rights.Grant("mail")
		synctest.Wait()
		wantDelivered(t, a.hook, "1", "2")
		wantDelivered(t, b.hook, "3", "4")
		wantDelivered(t, b.mail, "1", "2", "3")
		wantDelivered(t, a.mail, "4")
	})
}

func (*replica) scanEvery() time.Duration { return 31 * time.Second }

// TestHandOverWaitsForADelivery: a delivery in progress is completed before another replica gets the
// right to its receiver, and is not sent again.
func TestHandOverWaitsForADelivery(t *testing.T) {
	inBubble(t, func(t *testing.T, l *env) {
		a, b := l.share(routing, "hook", "mail"), l.share()
		const takes = 5 * time.Second
		a.hook.answer = func(context.Context, Notice) error { time.Sleep(takes); return nil }
		l.announce("d", "1", "2")
		began := time.Now()
		a.rights.HandOver("hook")
		if waited := time.Since(began); waited < takes/2 {
			t.Errorf("the right was handed over after %s", waited)
		}
		b.rights.Grant("hook")
		l.pass(time.Second)
		wantDelivered(t, a.hook, "1")
		wantDelivered(t, b.hook, "2")
	})
}

// TestTermThatIsOver: what a replica does with a term that is over is refused by the store, and it
// tries that neither again nor logs it.
func TestTermThatIsOver(t *testing.T) {
	inBubble(t, func(t *testing.T, l *env) {
		a := l.share(routing)
		a.rights.GrantTerm("hook", deploy.Term{Partition: deploy.PartitionOf("hook"), Number: 7})
		l.announce("d", "1")
		l.pass(time.Hour)
		if n := a.hook.tries(); n != 1 {
			t.Errorf("it was sent %d times", n)
		}
		if n := l.pending("hook"); n != 1 {
			t.Errorf("%d deliveries are pending, want that of the next owner", n)
		}
	})
}

// pending returns how many deliveries wait for a receiver.
func (l *env) pending(receiver string) int {
	l.t.Helper()
	states, err := l.store.ReceiverStates(context.Background())
	if err != nil {
		l.t.Fatal(err)
	}
	return states[receiver].Pending
}

package event

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/ownership/ownershiptest"
)

// start runs a watcher with rights until the test ends.
func (l *env) start(rights *ownershiptest.Rights) {
	c := l.config
	c.Rights = rights
	ctx, stop := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		if err := New(c).Run(ctx); err != nil {
			l.t.Error(err)
		}
	})
	l.t.Cleanup(func() { stop(); running.Wait() })
}

// await waits until an event has its final status.
func (l *env) await(id string) {
	l.t.Helper()
	for deadline := time.Now().Add(10 * time.Minute); !l.ended(id)(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			l.t.Fatalf("the event remains %+v", l.event(id))
		}
	}
}

// TestReplicasHandleAnEvent: an event is written to each repository by the replica that has the right to
// it, once, and is handled when all have written it. A repository without a rule does not delay that.
func TestReplicasHandleAnEvent(t *testing.T) {
	l := newEnv(t)
	shop, _ := l.repository("shop", "", web("web", "v1"))
	docs, _ := l.repository("docs", "", web("site", "v1"))
	l.repository("other", "", map[string]string{"README": "no rule"})
	l.application("shop", "web")
	l.application("docs", "site")
	ours, theirs := ownershiptest.New("shop", "other"), ownershiptest.New("docs")
	l.start(ours)
	l.start(theirs)
	l.register("first", "v2", appWeb)
	l.await("first")
	l.want("first", deploy.EventHandled, "")

	ours.HandOver("shop")
	theirs.Grant("shop")
	l.register("second", "v3", appWeb)
	l.await("second")
	l.want("second", deploy.EventHandled, "")
	for name, up := range map[string]struct{ commits, tag string }{
		"shop": {commits(t, shop), content(t, shop, "web/values.yaml")}, "docs": {commits(t, docs), content(t, docs, "site/values.yaml")},
	} {
		if want := web("", "v3")["/values.yaml"]; up.commits != "3" || up.tag+"\n" != want {
			t.Errorf("%s has %s commits, want the first one and one for each event, and %q", name, up.commits, up.tag)
		}
	}
}

package storetest

import (
	"context"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/c785c783/piped/piped/deploy"
)

// long is an expiry that no test lives to see; gone is one that is over at once.
const long, gone = time.Hour, -time.Second

var started = time.UnixMilli(1_700_000_000_000).UTC()

// join adds a replica that expires after a time.
func (e *env) join(t *testing.T, id string, expiry time.Duration) {
	t.Helper()
	if err := e.store.Join(t.Context(), deploy.Replica{ID: id, Host: "host", Version: "v1", StartedAt: started}, expiry); err != nil {
		t.Fatal(err)
	}
}

// take returns the numbers of the partitions that a replica gets, and the last term.
func (e *env) take(t *testing.T, id string, wanted ...deploy.Partition) (got []deploy.Partition, term deploy.Term) {
	t.Helper()
	terms, err := e.store.Take(t.Context(), id, wanted)
	if err != nil {
		t.Fatal(err)
	}
	for _, term = range terms {
		got = append(got, term.Partition)
	}
	return got, term
}

// testOwnership: a partition has one holder, and a new term with each. It is free once its
// holder has released it, has left, or has expired.
func testOwnership(t *testing.T, e *env) {
	ctx := t.Context()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	expect := func(what string, got, want any) {
		t.Helper()
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", what, diff)
		}
	}
	type partitions = []deploy.Partition
	e.join(t, "a", long)
	got, _ := e.take(t, "a", 3, 1, 2)
	expect("of free partitions", got, partitions{1, 2, 3})
	e.join(t, "b", long)
	got, term := e.take(t, "b", 2, 3, 4)
	expect("of partitions of which another replica has two", got, partitions{4})
	expect("the first term", term, deploy.Term{Partition: 4, Number: 1})

	o, err := e.store.Renew(ctx, "a", long)
	must(err)
	expect("the replicas", o.Replicas, []deploy.Replica{{ID: "a", Host: "host", Version: "v1", StartedAt: started}, {ID: "b", Host: "host", Version: "v1", StartedAt: started}})
	if o.NextExpiry <= 0 || o.NextExpiry > long {
		t.Errorf("the next replica expires in %s, each lives for %s", o.NextExpiry, long)
	}
	if len(o.Terms) != deploy.Partitions {
		t.Fatalf("there are %d partitions, want %d", len(o.Terms), deploy.Partitions)
	}
	held := func(p deploy.Partition, number int64, by string) deploy.HeldTerm {
		return deploy.HeldTerm{Term: deploy.Term{Partition: p, Number: number}, HeldBy: by}
	}
	expect("held and free ones", o.Terms[:6], []deploy.HeldTerm{held(0, 0, ""), held(1, 1, "a"), held(2, 1, "a"), held(3, 1, "a"), held(4, 1, "b"), held(5, 0, "")})

	watch := e.store.Watch(deploy.TopicOwnership)
	defer watch.Close()
	must(e.store.Release(ctx, "b", []deploy.Term{{Partition: 4, Number: 9}, {Partition: 3, Number: 1}})) // neither is its own
	got, _ = e.take(t, "b", 3, 4)
	expect("after a release of what is not held", got, partitions(nil))
	must(e.store.Release(ctx, "a", []deploy.Term{{Partition: 1, Number: 1}, {Partition: 2, Number: 1}}))
	got, term = e.take(t, "b", 1, 2, 3)
	expect("after a release", got, partitions{1, 2})
	expect("the second term", term, deploy.Term{Partition: 2, Number: 2})
	expect("announced", watch.Take(), []deploy.Change{{Topic: deploy.TopicOwnership, ID: "b"}, {Topic: deploy.TopicOwnership, ID: "a"}})

	must(e.store.Leave(ctx, "b"))
	got, _ = e.take(t, "a", 1, 4)
	expect("after the holder has left", got, partitions{1, 4})
	if _, err := e.store.Renew(ctx, "b", long); !deploy.IsKind(err, deploy.NotFound) {
		t.Errorf("a replica that has left is renewed: %v", err)
	}

	_, err = e.store.Renew(ctx, "a", gone)
	must(err)
	if _, err := e.store.Renew(ctx, "a", long); !deploy.IsKind(err, deploy.NotFound) {
		t.Errorf("an expired replica is renewed: %v", err)
	}
	e.join(t, "c", long)
	o, err = e.store.Ownership(ctx)
	must(err)
	if len(o.Replicas) != 1 || !o.Live("c") {
		t.Errorf("the live replicas are %v, want c", o.Replicas)
	}
	got, term = e.take(t, "c", 1, 3)
	expect("after the holder has expired", got, partitions{1, 3})
	expect("the next term", term, deploy.Term{Partition: 3, Number: 2})
}

// testFencing: a write with a term that is over is refused, whatever it writes, and nothing of
// it is stored or published.
func testFencing(t *testing.T, e *env) {
	e.join(t, "a", long)
	_, first := e.take(t, "a", 7)
	_, other := e.take(t, "a", 8)
	current := deploy.WithTerm(deploy.WithTerm(t.Context(), first), other)
	rename := func(ctx context.Context, name string) error {
		_, err := e.store.UpdateAgent(ctx, func(a *deploy.AgentRecord) { a.Name = name })
		return err
	}
	if err := rename(current, "current"); err != nil {
		t.Fatal(err)
	}
	if err := e.store.Release(t.Context(), "a", []deploy.Term{first}); err != nil {
		t.Fatal(err)
	}
	e.join(t, "b", long)
	_, second := e.take(t, "b", 7)

	watch := e.store.Watch()
	defer watch.Close()
	for _, ctx := range []context.Context{current, deploy.WithTerm(t.Context(), first), deploy.WithTerm(deploy.WithTerm(t.Context(), second), first)} {
		if err := rename(ctx, "stale"); !deploy.IsKind(err, deploy.Fenced) {
			t.Errorf("a write with the terms %v: %v", deploy.TermsOf(ctx), err)
		}
		_, err := e.store.UpdateAgent(ctx, func(a *deploy.AgentRecord) { a.Disabled = true }) // which is published
		if !deploy.IsKind(err, deploy.Fenced) {
			t.Errorf("a published write with the terms %v: %v", deploy.TermsOf(ctx), err)
		}
	}
	if err := rename(deploy.WithTerm(t.Context(), second), "second"); err != nil {
		t.Error(err)
	}
	if a, err := e.store.Agent(t.Context()); err != nil || a.Name != "second" || a.Disabled {
		t.Errorf("the record is %+v, %v", a, err)
	}
	if changes := watch.Take(); len(changes) > 0 {
		t.Errorf("published: %v", changes)
	}
}

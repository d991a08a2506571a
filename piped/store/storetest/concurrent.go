package storetest

import (
	"fmt"
	"strconv"
	"testing"

	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/store"
	"golang.org/x/sync/errgroup"
)

func testOneActive(t *testing.T, e *env) {
	ctx, a := t.Context(), e.putApp(t, "web")
	const n = 6
	for i := range n {
		e.create(t, numbered("d", i), a)
	}
	won := make([]error, n)
	var g errgroup.Group
	for i := range n {
		g.Go(func() error {
			_, won[i] = e.store.UpdateDeployment(ctx, numbered("d", i), func(d *deploy.Deployment) error { return d.Plan(plan(), e.clock.now()) })
			return nil
		})
	}
	_ = g.Wait() // the errors are in won
	winners := 0
	for _, err := range won {
		if err == nil {
			winners++
			continue
		}
		wantKind(t, err, deploy.Conflict, "application app-web has another active deployment")
	}
	active, err := e.store.DeploymentsIn(ctx, deploy.Planned)
	if err != nil || winners != 1 || len(active) != 1 {
		t.Fatalf("%d winners, %d planned, %v", winners, len(active), err)
	}
	e.update(t, active[0].ID, func(d *deploy.Deployment) error { return d.Complete(deploy.Cancelled, "make room", e.clock.now()) })
	waiting, err := e.store.DeploymentsIn(ctx, deploy.Pending)
	if err != nil || len(waiting) != n-1 {
		t.Fatalf("%d pending, %v", len(waiting), err)
	}
	e.run(t, waiting[0].ID)
}

func testCompareAndSwap(t *testing.T, e *env) {
	ctx, a := t.Context(), e.putApp(t, "web")
	e.create(t, "d1", a)
	const writers, writes = 5, 8
	var g errgroup.Group
	for range writers {
		g.Go(func() error {
			for range writes {
				if _, err := e.store.UpdateDeployment(ctx, "d1", increment); err != nil {
					return err
				}
			}
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}
	d, err := e.store.Deployment(ctx, "d1")
	if err != nil || d.Metadata["n"] != strconv.Itoa(writers*writes) || d.Revision != 1+writers*writes {
		t.Errorf("after %d increments: n is %s, revision %d, %v", writers*writes, d.Metadata["n"], d.Revision, err)
	}
}

// increment adds one to a number in the metadata.
func increment(d *deploy.Deployment) error {
	n, _ := strconv.Atoi(d.Metadata["n"]) // missing: 0
	if d.Metadata == nil {
		d.Metadata = map[string]string{}
	}
	d.Metadata["n"] = strconv.Itoa(n + 1)
	return nil
}

func testConcurrentSupersede(t *testing.T, e *env) {
	ctx, a := t.Context(), e.putApp(t, "web")
	var g errgroup.Group
	for i := range 8 {
		g.Go(func() error {
			_, err := e.store.CreateDeployment(ctx, store.NewDeployment{Deployment: e.deployment(fmt.Sprint("d", i), a, deploy.OnCommit), Supersede: true})
			return err
		})
	}
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}
	if pending, err := e.store.DeploymentsIn(ctx, deploy.Pending); err != nil || len(pending) != 1 {
		t.Errorf("%d deployments are left pending, want 1: %v", len(pending), err)
	}
}

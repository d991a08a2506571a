package storetest

import (
	"errors"
	"fmt"
	"strconv"
	"testing"

	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/store"
	"github.com/google/go-cmp/cmp"
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
	_ = g.Wait() // the errors are also in won
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

// testReadAtOneMoment: a deployment is read together with the stages of the same revision
// while others write both.
func testReadAtOneMoment(t *testing.T, e *env) {
	ctx := t.Context()
	e.create(t, "d1", e.putApp(t, "web"))
	e.run(t, "d1")
	reads := map[string]func() ([]deploy.Deployment, error){
		"Deployment": func() ([]deploy.Deployment, error) {
			d, err := e.store.Deployment(ctx, "d1")
			return []deploy.Deployment{d}, err
		},
		"DeploymentsByID":     func() ([]deploy.Deployment, error) { return e.store.DeploymentsByID(ctx, []string{"d1"}) },
		"DeploymentsByPrefix": func() ([]deploy.Deployment, error) { return e.store.DeploymentsByPrefix(ctx, "d", 10) },
		"DeploymentsIn":       func() ([]deploy.Deployment, error) { return e.store.DeploymentsIn(ctx, deploy.Running) },
	}
	over := make(chan struct{})
	var readers errgroup.Group
	for name, read := range reads {
		readers.Go(func() error {
			for {
				select {
				case <-over:
					return nil
				default:
				}
				ds, err := read()
				if err != nil || len(ds) != 1 {
					return fmt.Errorf("%s: %d deployments, %w", name, len(ds), err)
				}
				if whole, part := ds[0].Metadata["n"], ds[0].Stage("sync").StatusReason; whole != part {
					return fmt.Errorf("%s: the deployment is of write %s, its stage of write %s", name, whole, part)
				}
			}
		})
	}
	for range 300 {
		e.update(t, "d1", func(d *deploy.Deployment) error {
			err := increment(d)
			d.Stage("sync").StatusReason = d.Metadata["n"]
			return err
		})
	}
	close(over)
	if err := readers.Wait(); err != nil {
		t.Error(err)
	}
}

// increment adds one to a number in the deployment's metadata.
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

// testUpdateFrom: UpdateDeploymentFrom reads the deployment again only if the known one is
// outdated or its update is rejected.
func testUpdateFrom(t *testing.T, e *env) {
	ctx, a := t.Context(), e.putApp(t, "web")
	known := e.create(t, "d1", a)
	var seen []int64
	describe := func(text string) func(*deploy.Deployment) error {
		return func(d *deploy.Deployment) error {
			seen = append(seen, d.Revision)
			if d.Status == deploy.Pending && text == "planned" {
				return errors.New("not planned yet")
			}
			d.Summary += text
			return nil
		}
	}
	first, err := e.store.UpdateDeploymentFrom(ctx, known, describe("one "))
	if err != nil {
		t.Fatal(err)
	}
	e.same(t, first)
	second, err := e.store.UpdateDeploymentFrom(ctx, known, describe("two"))
	if err != nil {
		t.Fatal(err)
	}
	e.same(t, second)
	if second.Summary != "one two" {
		t.Errorf("the summary after two updates from the same deployment is %q", second.Summary)
	}
	e.update(t, "d1", func(d *deploy.Deployment) error { return d.Plan(plan(), e.clock.now()) })
	if _, err := e.store.UpdateDeploymentFrom(ctx, second, describe("planned")); err != nil {
		t.Errorf("what is only refused because it is old: %v", err)
	}
	if diff := cmp.Diff([]int64{1, 1, 2, 3, 4}, seen); diff != "" {
		t.Errorf("the revisions that were changed (-want +got):\n%s", diff)
	}
	_, err = e.store.UpdateDeploymentFrom(ctx, known, func(d *deploy.Deployment) error { d.Status = deploy.Success; return nil })
	wantKind(t, err, deploy.Illegal, "not a legal transition")
}

package storetest

import (
	"errors"
	"fmt"
	"testing"

	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/store"
	"github.com/google/go-cmp/cmp"
	"golang.org/x/sync/errgroup"
)

func testFeed(t *testing.T, e *env) {
	ctx, a := t.Context(), e.putApp(t, "web")
	everything, some, gone := e.store.Watch(), e.store.Watch(deploy.TopicDeployment, deploy.TopicCommand), e.store.Watch()
	defer everything.Close()
	defer some.Close()
	gone.Close()
	gone.Close()

	e.create(t, "d1", a)
	app := deploy.Change{Topic: deploy.TopicApplication, ID: a.ID, ApplicationID: a.ID}
	dep := deploy.Change{Topic: deploy.TopicDeployment, ID: "d1", ApplicationID: a.ID, Status: deploy.Pending}
	event := func(key string) deploy.Change {
		return deploy.Change{Topic: deploy.TopicEvent, ID: key, ApplicationID: a.ID}
	}
	<-some.C()
	if diff := cmp.Diff([]deploy.Change{dep}, some.Take()); diff != "" {
		t.Errorf("deployments (-want +got):\n%s", diff)
	}
	<-everything.C()
	if diff := cmp.Diff([]deploy.Change{dep, app, event("d1//PENDING")}, everything.Take()); diff != "" {
		t.Errorf("everything (-want +got):\n%s", diff)
	}

	// Writes that are rolled back or change nothing are not published.
	if _, err := e.store.UpdateDeployment(ctx, "d1", func(*deploy.Deployment) error { return errors.New("no") }); err == nil {
		t.Fatal("the func's error was lost")
	}
	_, err := e.store.UpdateDeployment(ctx, "d1", func(d *deploy.Deployment) error { d.Status = deploy.Success; return nil })
	wantKind(t, err, deploy.Illegal, "SUCCESS")
	wantKind(t, e.store.FinishCommand(ctx, "nobody", deploy.CommandFailed, nil), deploy.NotFound, "nobody")
	_, err = e.store.CreateDeployment(ctx, store.NewDeployment{Deployment: e.deployment("d2", a, deploy.OnCommit), CommandID: "nobody"})
	wantKind(t, err, deploy.NotFound, "no command nobody")
	if _, err := e.store.PutApplication(ctx, a); err != nil {
		t.Fatal(err)
	}
	e.update(t, "d1", func(*deploy.Deployment) error { return nil })
	if got := everything.Take(); len(got) != 0 {
		t.Errorf("announced without a commit: %v", got)
	}

	// Several writes of a row are merged into one hint.
	e.update(t, "d1", increment)
	e.update(t, "d1", increment)
	if err := e.store.AppendStageLogs(ctx, []deploy.LogBlock{{DeploymentID: "d1", StageID: "s"}, {DeploymentID: "d1", StageID: "s", Index: 1}}); err != nil {
		t.Fatal(err)
	}
	<-everything.C()
	want := []deploy.Change{dep, {Topic: deploy.TopicStageLog, ID: "d1", ApplicationID: a.ID}}
	if diff := cmp.Diff(want, everything.Take()); diff != "" {
		t.Errorf("merged (-want +got):\n%s", diff)
	}

	// Each written status of a deployment is a separate hint.
	e.run(t, "d1")
	e.update(t, "d1", increment)
	var statuses []deploy.Status
	for _, c := range some.Take() {
		statuses = append(statuses, c.Status)
	}
	if diff := cmp.Diff([]deploy.Status{deploy.Pending, deploy.Planned, deploy.Running}, statuses); diff != "" {
		t.Errorf("statuses (-want +got):\n%s", diff)
	}
	if got := gone.Take(); len(got) != 0 {
		t.Errorf("a closed watch got %v", got)
	}
}

// testFeedSlowReader: a reader that does not read delays no writer and gets every row later. A
// reader that reads continuously misses none.
func testFeedSlowReader(t *testing.T, e *env) {
	ctx, a := t.Context(), e.putApp(t, "web")
	slow, eager := e.store.Watch(deploy.TopicDeployment), e.store.Watch(deploy.TopicDeployment)
	defer slow.Close()
	defer eager.Close()
	const writers, writes = 4, 10
	last := numbered("last", 0)
	seen := map[string]bool{}
	var readers, g errgroup.Group
	readers.Go(func() error {
		for !seen[last] {
			select {
			case <-eager.C():
			case <-ctx.Done():
				return ctx.Err()
			}
			for _, c := range eager.Take() {
				seen[c.ID] = true
			}
		}
		return nil
	})
	for w := range writers {
		g.Go(func() error {
			for i := range writes {
				d := e.deployment(fmt.Sprintf("d-%d-%d", w, i), a, deploy.OnCommit)
				if _, err := e.store.CreateDeployment(ctx, store.NewDeployment{Deployment: d}); err != nil {
					return err
				}
			}
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}
	e.create(t, last, a)
	if err := readers.Wait(); err != nil {
		t.Fatal(err)
	}
	taken := slow.Take()
	if len(taken) != writers*writes+1 || len(seen) != writers*writes+1 {
		t.Errorf("the slow reader found %d rows, the eager one %d, want %d", len(taken), len(seen), writers*writes+1)
	}
}

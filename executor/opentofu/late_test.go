package opentofu

import (
	"context"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/store"
	"github.com/c785c783/piped/piped/store/storetest"
)

// TestReleaseAfterTheLastStage: a request to release a lock is left to the stage as long as one runs,
// and rejected when none runs any more, also if it arrives after the last one.
func TestReleaseAfterTheLastStage(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		ctx := context.Background()
		s := storetest.Reopen(t, storetest.Ready(t), time.Now)
		defer s.Close()
		check := func(err error) {
			t.Helper()
			if err != nil {
				t.Fatal(err)
			}
		}
		update := func(change func(*deploy.Deployment) error) {
			t.Helper()
			_, err := s.UpdateDeployment(ctx, "d", change)
			check(err)
			synctest.Wait()
		}
		ask := func(id, deployment string) {
			t.Helper()
			_, err := s.CreateCommand(ctx, deploy.Command{ID: id, Type: deploy.CommandReleaseStateLock, DeploymentID: deployment, LockID: "l"})
			check(err)
			synctest.Wait()
		}
		want := func(id string, status deploy.CommandStatus, reason string) {
			t.Helper()
			c, err := s.Command(ctx, id)
			check(err)
			if got := c.Metadata[deploy.MetaReason]; c.Status != status || !strings.Contains(got, reason) {
				t.Errorf("request %s is %s (%q), want %s with %q", id, c.Status, got, status, reason)
			}
		}
		a := deploy.Application{ID: "app", Name: "app", Kind: deploy.KindOpenTofu, Provider: "one", Git: deploy.GitPath{RepoID: "r", Dir: "."}}
		_, err := s.PutApplication(ctx, a)
		check(err)
		_, err = s.CreateDeployment(ctx, store.NewDeployment{Deployment: deploy.Deployment{ID: "d", ApplicationID: "app", ApplicationName: "app", Status: deploy.Pending, Git: a.Git}})
		check(err)
		update(func(d *deploy.Deployment) error {
			return d.Plan(deploy.Plan{Stages: []deploy.Stage{{ID: "sync", Name: "TERRAFORM_SYNC"}}}, time.Now())
		})

		e := New(Config{Store: s, Kind: deploy.KindOpenTofu, Dir: dir, ScanEvery: 24 * time.Hour, Logger: slog.New(slog.NewTextHandler(t.Output(), nil)), Now: time.Now})
		ctx, stop := context.WithCancel(ctx)
		ended := make(chan error, 1)
		go func() { ended <- e.Run(ctx) }()
		synctest.Wait()
		ask("of no deployment", "e")
		want("of no deployment", deploy.CommandFailed, "there is no deployment e")
		ask("before the stage", "d")
		want("before the stage", deploy.CommandFailed, "deployment d does not wait for a lock")
		update(func(d *deploy.Deployment) error { return d.Start(time.Now()) })
		update(func(d *deploy.Deployment) error { return d.StartStage("sync", time.Now()) })
		ask("to the stage", "d")
		want("to the stage", deploy.CommandOpen, "")
		update(func(d *deploy.Deployment) error {
			return d.FinishStage("sync", deploy.StageSuccess, "", time.Now())
		})
		want("to the stage", deploy.CommandFailed, "deployment d does not wait for a lock")
		ask("after the last stage", "d")
		want("after the last stage", deploy.CommandFailed, "deployment d does not wait for a lock")
		update(func(d *deploy.Deployment) error { return d.Complete(deploy.Success, "", time.Now()) })
		ask("after the deployment", "d")
		want("after the deployment", deploy.CommandFailed, "deployment d does not wait for a lock")
		stop()
		check(<-ended)
	})
}

package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/c785c783/piped/piped/access"
	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/store"
)

const (
	archived             = 10_000 // deployments that have ended before the measurement
	archivedApplications = 200
	archivedLines        = 5 // of each deployment's log
	archivers            = 64
)

// archive is what a store holds after long use: it is written through the store,
// while no agent runs on it.
type archive struct {
	applications, deployments []string // IDs
	keys                      []string // API keys that may read
}

// fillArchive fills the database file of an agent, and makes n keys.
func fillArchive(ctx context.Context, file string, n int) (a archive, err error) {
	s, err := store.Open(ctx, "sqlite://"+file, store.Options{})
	if err != nil {
		return a, err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	for i := range n {
		name := fmt.Sprint("client-", i)
		record, key, err := access.NewAPIKey(name, name, deploy.ReadOnly, time.Now(), rand.Reader)
		if err != nil {
			return a, err
		}
		if err := s.CreateAPIKey(ctx, record); err != nil {
			return a, err
		}
		a.keys = append(a.keys, key)
	}
	apps := make([]deploy.Application, archivedApplications)
	for i := range apps {
		name := fmt.Sprintf("old-%03d", i)
		apps[i] = deploy.Application{
			ID: name, Name: name, Kind: deploy.KindKubernetes, Provider: "devcluster",
			Git:    deploy.GitPath{RepoID: "old", Remote: "https://git.example.com/old.git", Branch: "main", Dir: name, ConfigFile: "app.pipecd.yaml"},
			Labels: map[string]string{"app": name, "team": fmt.Sprint("team-", i%10), "env": "prod"},
		}
		a.applications = append(a.applications, name)
	}
	if _, errs := s.PutApplications(ctx, apps); errors.Join(errs...) != nil {
		return a, errors.Join(errs...)
	}
	return a, a.deploy(ctx, s, apps)
}

// deploy stores the deployments, each of them planned, run and ended. Most have
// succeeded.
func (a *archive) deploy(ctx context.Context, s *store.Store, apps []deploy.Application) error {
	for i := range archived {
		a.deployments = append(a.deployments, fmt.Sprintf("old-%05d", i))
	}
	// One after the other for each application, as an agent does it.
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(archivers)
	for n, app := range apps {
		group.Go(func() error {
			for i := n; i < archived; i += len(apps) {
				if err := archiveOne(ctx, s, a.deployments[i], app, i); err != nil {
					return err
				}
			}
			return nil
		})
	}
	return group.Wait()
}

func archiveOne(ctx context.Context, s *store.Store, id string, app deploy.Application, i int) error {
	now := time.Now()
	const sync = "sync"
	outcome, stage := deploy.Success, deploy.StageSuccess
	if i%20 == 0 {
		outcome, stage = deploy.Failure, deploy.StageFailure
	}
	d, err := s.CreateDeployment(ctx, store.NewDeployment{Deployment: deploy.Deployment{
		ID: id, ApplicationID: app.ID, ApplicationName: app.Name, Git: app.Git, Provider: app.Provider, Labels: app.Labels,
		Status: deploy.Pending, StatusReason: "The deployment is waiting to be planned",
		Trigger: deploy.Trigger{Kind: deploy.OnCommit, At: now, Strategy: deploy.StrategyAuto, Commit: deploy.Commit{
			Hash: fmt.Sprintf("%040x", i), Message: "Bump the image", Author: "Ada", Branch: "main", At: now,
		}},
	}})
	if err != nil {
		return err
	}
	lines := make([]deploy.LogBlock, archivedLines)
	for n := range lines {
		lines[n] = deploy.LogBlock{DeploymentID: id, StageID: sync, Index: int64(n), Severity: deploy.SeverityInfo, Log: fmt.Sprintf("Line %d of what was done", n), At: now}
	}
	for _, move := range []func(*deploy.Deployment) error{
		func(d *deploy.Deployment) error {
			return d.Plan(deploy.Plan{Strategy: deploy.StrategyQuickSync, Summary: "Quick sync", Stages: []deploy.Stage{
				{ID: sync, Name: deploy.StageK8sSync, Visible: true}, {ID: "rollback", Name: deploy.StageRollback, Index: 1, Rollback: true},
			}}, now)
		},
		func(d *deploy.Deployment) error { return errors.Join(d.Start(now), d.StartStage(sync, now)) },
		func(d *deploy.Deployment) error {
			return errors.Join(d.FinishStage(sync, stage, "done", now), d.Complete(outcome, "done", now))
		},
	} {
		if d, err = s.UpdateDeploymentFrom(ctx, d, move); err != nil {
			return err
		}
	}
	return s.AppendStageLogs(ctx, lines)
}

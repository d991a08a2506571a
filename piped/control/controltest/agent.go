// Package controltest runs the real control API on a real SQLite store, for tests of the API
// and of its clients. It implements no behaviour of the agent: tests simulate its phases
// through the store.
package controltest

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"log/slog"
	"path/filepath"
	"sync"
	"time"

	"github.com/c785c783/piped/piped/access"
	"github.com/c785c783/piped/piped/control"
	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/store"
)

// TB is the part of testing.TB that this package uses. The environment of a test script
// implements it, too.
type TB interface {
	Fatal(args ...any)
	Cleanup(f func())
}

// PipedID and ProjectID identify the agent.
const (
	PipedID   = "piped-1"
	ProjectID = "project-1"
)

// Epoch is the time at which the agent's clock starts: 2026-01-02 03:04:05 UTC.
var Epoch = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// Agent is a running control API with its store.
type Agent struct {
	Store     *store.Store
	Server    *control.Server
	ReadWrite string // key of the subject "owner"
	ReadOnly  string // key of the subject "watcher"

	tb    TB
	clock *clock
	cfg   control.Config
	stop  func() // stops the server and waits for its end
}

// Option changes the configuration of the API.
type Option func(*control.Config)

// Start serves the API on a free loopback port, with a store in dir, until the test ends.
func Start(tb TB, dir string, options ...Option) *Agent {
	a := &Agent{tb: tb, clock: &clock{now: Epoch}}
	var err error
	a.Store, err = store.Open(context.Background(), "sqlite://"+filepath.Join(dir, "piped.db"), store.Options{Now: a.clock.read})
	a.check(err)
	tb.Cleanup(func() { a.check(a.Store.Close()) })
	a.ReadWrite = a.Key("owner", deploy.ReadWrite)
	a.ReadOnly = a.Key("watcher", deploy.ReadOnly)

	a.cfg = control.Config{
		Address: "127.0.0.1:0", Store: a.Store, Agent: Self{}, Status: status{a.Store}, PipedID: PipedID, ProjectID: ProjectID,
		Logger: slog.New(slog.DiscardHandler), Now: a.clock.read, Grace: time.Second,
	}
	for _, o := range options {
		o(&a.cfg)
	}
	a.serve()
	tb.Cleanup(func() { a.stop() })
	return a
}

// serve runs a server until stop is called.
func (a *Agent) serve() {
	var err error
	a.Server, err = control.New(a.cfg)
	a.check(err)
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- a.Server.Run(ctx) }()
	a.stop = func() {
		stop()
		a.check(<-ended)
	}
}

// Restart stops the API and serves it again on another port with the same store.
func (a *Agent) Restart() {
	a.stop()
	a.serve()
}

// Key stores a new API key and returns it.
func (a *Agent) Key(subject string, role deploy.Role) string {
	record, key, err := access.NewAPIKey(subject+"'s key", subject, role, a.clock.read(), rand.Reader)
	a.check(err)
	a.check(a.Store.CreateAPIKey(context.Background(), record))
	return key
}

// LimitedKey stores a new API key with a role, restricted to some applications unless limit
// is nil, and returns it.
func (a *Agent) LimitedKey(role string, limit *deploy.Selector) string {
	record, key, err := access.NewAPIKey(role+" "+rand.Text(), role, deploy.Role(role), a.clock.read(), rand.Reader)
	a.check(err)
	record.Limit = limit
	a.check(a.Store.CreateAPIKey(context.Background(), record))
	return key
}

// SessionLife is how long a session of SignIn lasts.
const SessionLife = 24 * time.Hour

// SignIn stores a session of a user and returns its token.
func (a *Agent) SignIn(user deploy.User) string { return a.signIn(deploy.Session{User: user}) }

// SignInWithKey stores a session that an API key opened and returns its token.
func (a *Agent) SignInWithKey(key string) string {
	id, _ := access.IDOf(key)
	record, err := a.Store.APIKey(context.Background(), id)
	a.check(err)
	return a.signIn(deploy.Session{KeyID: id, User: deploy.User{Subject: record.Subject}})
}

func (a *Agent) signIn(v deploy.Session) string {
	a.Tick(time.Second)
	id, token, hash, err := access.NewSessionToken(rand.Reader)
	a.check(err)
	v.ID, v.Hash, v.Remote, v.Client, v.ExpiresAt = id, hash, "192.0.2.1", "pipectl", a.clock.read().Add(SessionLife)
	a.check(a.Store.CreateSession(context.Background(), v))
	return token
}

// Application stores an enabled application whose ID is "app-<name>".
func (a *Agent) Application(name string, labels map[string]string) deploy.Application {
	a.Tick(time.Second)
	app := deploy.Application{
		ID: "app-" + name, Name: name, Kind: deploy.KindKubernetes, Provider: "dev", Labels: labels,
		Git: deploy.GitPath{
			RepoID: "apps", Remote: "https://git.example.com/apps.git", Branch: "main", Dir: name, ConfigFile: "app.pipecd.yaml",
		},
		Description: "the application " + name,
		Sync:        deploy.SyncState{Status: deploy.Synced, ShortReason: "as in Git", At: a.clock.read()},
	}
	_, err := a.Store.PutApplication(context.Background(), app)
	a.check(err)
	return app
}

// Deployment stores a PENDING deployment of an application, requested by a command if
// commandID is not empty.
func (a *Agent) Deployment(id string, app deploy.Application, commandID string) deploy.Deployment {
	a.Tick(time.Second)
	d, err := a.Store.CreateDeployment(context.Background(), store.NewDeployment{
		CommandID: commandID,
		Deployment: deploy.Deployment{
			ID: id, ApplicationID: app.ID, ApplicationName: app.Name, Git: app.Git, Provider: app.Provider, Labels: app.Labels,
			Status: deploy.Pending, StatusReason: "A new commit",
			Trigger: deploy.Trigger{
				Kind: deploy.OnCommit, At: a.clock.read(), Strategy: deploy.StrategyAuto,
				Commit: deploy.Commit{
					Hash: "0123456789abcdef0123456789abcdef01234567", Message: "Bump web", Author: "Ada", Branch: "main", At: Epoch,
				},
			},
		},
	})
	a.check(err)
	return d
}

// IDs of the stages that Move adds to a deployment when it plans it.
const (
	SyncStage     = "stage-sync"
	RollbackStage = "stage-rollback"
)

// Move moves a deployment through legal transitions to a status, one second per step.
func (a *Agent) Move(id string, to deploy.Status, reason string) deploy.Deployment {
	d, err := a.Store.Deployment(context.Background(), id)
	a.check(err)
	for _, next := range way(d.Status, to) {
		a.Tick(time.Second)
		d, err = a.Store.UpdateDeployment(context.Background(), id, func(d *deploy.Deployment) error {
			return step(d, next, reason, a.clock.read())
		})
		a.check(err)
	}
	return d
}

// way returns the statuses after from, up to and including to.
func way(from, to deploy.Status) []deploy.Status {
	forward := []deploy.Status{deploy.Pending, deploy.Planned, deploy.Running}
	if to == deploy.Failure {
		forward = append(forward, deploy.RollingBack)
	}
	var out []deploy.Status
	passed := false
	for _, s := range forward {
		if passed && s != to {
			out = append(out, s)
		}
		passed = passed || s == from
		if s == to {
			break
		}
	}
	return append(out, to)
}

// step makes one transition of d to a status, with the stages that it requires.
func step(d *deploy.Deployment, to deploy.Status, reason string, now time.Time) error {
	switch to {
	case deploy.Planned:
		return d.Plan(deploy.Plan{
			Strategy: deploy.StrategyQuickSync,
			Summary:  "Quick sync because it is the first deployment",
			Versions: []deploy.ArtifactVersion{{Kind: "CONTAINER_IMAGE", Name: "web", Version: "v2", URL: "example.com/web:v2"}},
			Stages: []deploy.Stage{
				{ID: SyncStage, Name: deploy.StageK8sSync, Visible: true},
				{ID: RollbackStage, Name: deploy.StageRollback, Index: 1, Rollback: true},
			},
		}, now)
	case deploy.Running:
		if err := d.Start(now); err != nil {
			return err
		}
		return d.StartStage(SyncStage, now)
	case deploy.RollingBack:
		if err := d.FinishStage(SyncStage, deploy.StageFailure, reason, now); err != nil {
			return err
		}
		return d.BeginRollback(deploy.Failure, reason, now)
	case deploy.Success:
		if err := d.FinishStage(SyncStage, deploy.StageSuccess, reason, now); err != nil {
			return err
		}
	}
	return d.Complete(to, reason, now)
}

// StartRollback starts the rollback stage of a deployment that is rolling back.
func (a *Agent) StartRollback(id string) {
	_, err := a.Store.UpdateDeployment(context.Background(), id, func(d *deploy.Deployment) error {
		return d.StartStage(RollbackStage, a.clock.read())
	})
	a.check(err)
}

// RefusePrune records on a deployment's sync stage that it exceeded the prune limit.
func (a *Agent) RefusePrune(id string, refs ...deploy.ObjectRef) {
	text, err := json.Marshal(refs)
	a.check(err)
	_, err = a.Store.UpdateDeployment(context.Background(), id, func(d *deploy.Deployment) error {
		d.Stage(SyncStage).Metadata = map[string]string{deploy.MetaPruneRefused: string(text)}
		return nil
	})
	a.check(err)
}

// Log appends lines to a stage's log.
func (a *Agent) Log(deploymentID, stageID string, lines ...string) {
	blocks := make([]deploy.LogBlock, len(lines))
	for i, line := range lines {
		blocks[i] = deploy.LogBlock{
			DeploymentID: deploymentID, StageID: stageID, Index: int64(i), Severity: deploy.SeverityInfo, Log: line, At: a.clock.read(),
		}
	}
	a.check(a.Store.AppendStageLogs(context.Background(), blocks))
}

// OpenCommand waits until there is exactly one open command and returns it.
func (a *Agent) OpenCommand() deploy.Command {
	watch := a.Store.Watch(deploy.TopicCommand)
	defer watch.Close()
	timeout := time.NewTimer(10 * time.Minute) // what sends the command may be a program that has yet to start
	defer timeout.Stop()
	for {
		open, err := a.Store.OpenCommands(context.Background())
		a.check(err)
		if len(open) == 1 {
			return open[0]
		}
		select {
		case <-watch.C():
			watch.Take()
		case <-timeout.C:
			a.tb.Fatal(fmt.Sprintf("there are %d open commands, want 1", len(open)))
		}
	}
}

// Now returns the time of the agent's clock.
func (a *Agent) Now() time.Time { return a.clock.read() }

// Tick advances the agent's clock.
func (a *Agent) Tick(d time.Duration) { a.clock.add(d) }

func (a *Agent) check(err error) {
	if err != nil {
		a.tb.Fatal(err)
	}
}

// clock is a manual clock.
type clock struct {
	mu  sync.Mutex
	now time.Time
}

func (c *clock) read() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *clock) add(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

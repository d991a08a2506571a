package approval

import (
	"context"
	"encoding/json"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/deploy/deploytest"
	"github.com/c785c783/piped/piped/store"
	"github.com/c785c783/piped/piped/store/storetest"
)

// env is a store with one deployment, d, whose stage "ok" waits for approval, inside a
// testing/synctest bubble.
type env struct {
	t     *testing.T
	dsn   string
	store *store.Store
	log   *deploytest.Log
	start time.Time

	trigger deploy.Trigger // of d
	running string         // the running commit
	chainID string
	history Commits

	stop   context.CancelCauseFunc // of the running stage
	result chan deploy.StageResult
	saved  func() // called after metadata was stored

	stopRun context.CancelFunc
	runEnds chan error
}

func inBubble(t *testing.T, options string, test func(t *testing.T, e *env)) {
	t.Helper()
	inBubbleOf(t, options, func(*env) {}, test)
}

// inBubbleOf is inBubble with a deployment that prepare describes.
func inBubbleOf(t *testing.T, options string, prepare func(*env), test func(t *testing.T, e *env)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		e := &env{t: t, dsn: storetest.Ready(t), log: &deploytest.Log{}, start: time.Now(), saved: func() {}}
		e.open()
		defer func() { e.closeStore() }()
		prepare(e)
		e.deployment(options)
		test(t, e)
	})
}

func (e *env) open() {
	e.t.Helper()
	e.store = storetest.Reopen(e.t, e.dsn, time.Now)
}

func (e *env) closeStore() {
	e.t.Helper()
	if err := e.store.Close(); err != nil {
		e.t.Error(err)
	}
}

// deployment stores d, RUNNING, with its stage "ok" running.
func (e *env) deployment(options string) {
	e.t.Helper()
	ctx := context.Background()
	a := deploy.Application{ID: "app", Name: "app", Kind: deploy.KindKubernetes, Provider: "one", Git: deploy.GitPath{RepoID: "r", Dir: "."}}
	if _, err := e.store.PutApplication(ctx, a); err != nil {
		e.t.Fatal(err)
	}
	d := deploy.Deployment{ID: "d", ApplicationID: "app", ApplicationName: "app", Status: deploy.Pending,
		Git: a.Git, Trigger: e.trigger, ChainID: e.chainID}
	if _, err := e.store.CreateDeployment(ctx, store.NewDeployment{Deployment: d}); err != nil {
		e.t.Fatal(err)
	}
	stages := []deploy.Stage{
		{ID: "ok", Name: deploy.StageWaitApproval, Options: json.RawMessage(options), Timeout: 6 * time.Hour},
		{ID: "pause", Name: deploy.StageWait},
		{ID: "later", Name: deploy.StageWaitApproval},
	}
	e.update(func(d *deploy.Deployment) error {
		return d.Plan(deploy.Plan{Stages: stages, RunningCommit: e.running}, time.Now())
	})
	e.update(func(d *deploy.Deployment) error { return d.Start(time.Now()) })
	e.update(func(d *deploy.Deployment) error { return d.StartStage("ok", time.Now()) })
}

func (e *env) update(fn func(*deploy.Deployment) error) {
	e.t.Helper()
	if _, err := e.store.UpdateDeployment(context.Background(), "d", fn); err != nil {
		e.t.Fatal(err)
	}
}

func (e *env) executor() *Executor {
	return New(Config{Store: e.store, Commits: e.history, Logger: slog.New(slog.NewTextHandler(e.t.Output(), nil))})
}

// execute runs the stage like the scheduler.
func (e *env) execute(resumed bool) {
	e.t.Helper()
	d, err := e.store.Deployment(context.Background(), "d")
	if err != nil {
		e.t.Fatal(err)
	}
	s := e.store
	run := deploy.StageRun{
		Deployment: d, Stage: *d.Stage("ok"), Resumed: resumed, Log: e.log,
		SaveMetadata: func(ctx context.Context, kv map[string]string) error {
			_, err := s.UpdateDeployment(ctx, "d", func(d *deploy.Deployment) error {
				stage := d.Stage("ok")
				if stage.Metadata == nil {
					stage.Metadata = map[string]string{}
				}
				for k, v := range kv {
					stage.Metadata[k] = v
				}
				return nil
			})
			e.saved()
			return err
		},
	}
	ctx, stop := context.WithCancelCause(context.Background())
	e.stop, e.result = stop, make(chan deploy.StageResult, 1)
	executor, result := e.executor(), e.result
	go func() { result <- executor.Execute(ctx, run) }()
	synctest.Wait()
}

// ask stores a command and waits until it is processed.
func (e *env) ask(id string, kind deploy.CommandType, who, reason string, edit ...func(*deploy.Command)) {
	e.t.Helper()
	time.Sleep(time.Second) // gives commands an order
	c := deploy.Command{ID: id, Type: kind, DeploymentID: "d", StageID: "ok", Commander: who, Reason: reason}
	for _, f := range edit {
		f(&c)
	}
	if _, err := e.store.CreateCommand(context.Background(), c); err != nil {
		e.t.Fatal(err)
	}
	synctest.Wait()
}

func (e *env) approve(id, who string, groups ...string) {
	e.t.Helper()
	e.ask(id, deploy.CommandApproveStage, who, "", func(c *deploy.Command) { c.CommanderGroups = groups })
}

// wantAnswer fails unless the command has the status, with text in its reason.
func (e *env) wantAnswer(id string, status deploy.CommandStatus, text string) {
	e.t.Helper()
	c, err := e.store.Command(context.Background(), id)
	if err != nil {
		e.t.Fatal(err)
	}
	if reason := c.Metadata[deploy.MetaReason]; c.Status != status || !strings.Contains(reason, text) || (text == "") != (reason == "") {
		e.t.Errorf("command %s is %s (%q), want %s with %q", id, c.Status, reason, status, text)
	}
}

func (e *env) wantWaiting() {
	e.t.Helper()
	select {
	case r := <-e.result:
		e.t.Fatalf("the stage ended as %+v, want it to wait", r)
	default:
	}
}

func (e *env) wantEnd(status deploy.StageStatus, reason string) {
	e.t.Helper()
	synctest.Wait()
	select {
	case r := <-e.result:
		if want := (deploy.StageResult{Status: status, Reason: reason}); r != want {
			e.t.Errorf("the stage ended as %+v, want %+v", r, want)
		}
	default:
		e.t.Fatal("the stage still waits")
	}
}

func (e *env) wantMetadata(key, want string) {
	e.t.Helper()
	d, err := e.store.Deployment(context.Background(), "d")
	if err != nil {
		e.t.Fatal(err)
	}
	if got := d.Stage("ok").Metadata[key]; got != want {
		e.t.Errorf("metadata %s is %q, want %q", key, got, want)
	}
}

// startRun starts the component that answers late commands.
func (e *env) startRun() {
	ctx, stop := context.WithCancel(context.Background())
	e.stopRun, e.runEnds = stop, make(chan error, 1)
	executor, ends := e.executor(), e.runEnds
	go func() { ends <- executor.Run(ctx) }()
	synctest.Wait()
}

func (e *env) endRun() {
	e.t.Helper()
	e.stopRun()
	if err := <-e.runEnds; err != nil {
		e.t.Errorf("Run = %v", err)
	}
}

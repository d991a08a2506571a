package scheduler

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/ownership"
	"github.com/c785c783/piped/piped/store"
	"github.com/c785c783/piped/piped/store/storetest"
)

// executor is a function that implements Executor.
type executor func(ctx context.Context, run deploy.StageRun) deploy.StageResult

func (e executor) Execute(ctx context.Context, run deploy.StageRun) deploy.StageResult {
	return e(ctx, run)
}

func succeed(context.Context, deploy.StageRun) deploy.StageResult {
	return deploy.StageResult{Status: deploy.StageSuccess}
}

func fail(reason string) executor {
	return func(context.Context, deploy.StageRun) deploy.StageResult {
		return deploy.StageResult{Status: deploy.StageFailure, Reason: reason}
	}
}

// hang runs until it is stopped, and returns the cause.
func hang(ctx context.Context, _ deploy.StageRun) deploy.StageResult {
	<-ctx.Done()
	return deploy.StageResult{Status: deploy.StageFailure, Reason: "stopped: " + string(deploy.Stopped(ctx))}
}

// slowToStop hangs, and takes a while to stop, so that the agent may end meanwhile.
func slowToStop(ctx context.Context, run deploy.StageRun) deploy.StageResult {
	<-ctx.Done()
	if !run.Resumed {
		time.Sleep(time.Second)
	}
	return hang(ctx, run)
}

// lasting returns an executor that succeeds after d.
func lasting(d time.Duration) executor {
	return func(ctx context.Context, run deploy.StageRun) deploy.StageResult {
		select {
		case <-time.After(d):
			return succeed(ctx, run)
		case <-ctx.Done():
			return hang(ctx, run)
		}
	}
}

// changes is a function that implements Changes.
type changes func(ctx context.Context, from, to string) ([]string, error)

func (c changes) Changed(ctx context.Context, _ deploy.GitPath, from, to string) ([]string, error) {
	return c(ctx, from, to)
}

// env is a store with a scheduler, inside a testing/synctest bubble with virtual time.
type env struct {
	t         *testing.T
	dsn       string
	store     *store.Store
	executors map[string]Executor // K8S_SYNC, TWO and ROLLBACK
	changes   changes
	limits    Limits
	providers []string
	storeNow  func() time.Time
	ahead     atomic.Int64 // offset of the scheduler's wall clock
	rights    ownership.Rights

	rescan func() // of the running scheduler
	queues func() []deploy.QueueState
	stop   context.CancelFunc // of the running scheduler
	ended  chan error

	logger *slog.Logger
	logged bytes.Buffer // log output, to be read when nothing runs

	mu   sync.Mutex
	runs []string // see ran
}

// inBubble runs a test with an env. All stages succeed unless the test replaces the
// executors before it calls start.
func inBubble(t *testing.T, test func(t *testing.T, e *env)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		e := newEnv(t)
		defer e.close()
		test(t, e)
	})
}

func newEnv(t *testing.T) *env {
	e := closedEnv(t)
	e.open()
	return e
}

// closedEnv returns an env whose store is not open yet.
func closedEnv(t *testing.T) *env {
	e := &env{
		t: t, dsn: storetest.Ready(t), providers: []string{"one", "two"}, storeNow: time.Now,
		executors: map[string]Executor{deploy.StageK8sSync: executor(succeed), "TWO": executor(succeed), deploy.StageRollback: executor(succeed)},
	}
	e.logger = slog.New(slog.NewTextHandler(io.MultiWriter(t.Output(), &e.logged), nil))
	return e
}

func (e *env) open() {
	e.t.Helper()
	e.store = storetest.Reopen(e.t, e.dsn, e.storeNow)
}

// start starts a new scheduler on the store.
func (e *env) start() {
	executors := map[string]Executor{}
	for name, stage := range e.executors {
		executors[name] = executor(func(ctx context.Context, run deploy.StageRun) deploy.StageResult {
			e.note(run)
			return stage.Execute(ctx, run)
		})
	}
	s := New(Config{
		Store: e.store, Executors: executors, Logger: e.logger,
		Providers: func() []string { return e.providers }, Limits: func() Limits { return e.limits }, Changes: e.changes, Rights: e.rights,
		Now: func() time.Time { return time.Now().Add(time.Duration(e.ahead.Load())) },
	})
	e.rescan, e.queues = s.Rescan, s.Queues
	ctx, stop := context.WithCancel(context.Background())
	e.stop, e.ended = stop, make(chan error, 1)
	go func() { e.ended <- s.Run(ctx) }()
}

// clockAhead sets the scheduler's wall clock without firing any timer.
func (e *env) clockAhead(d time.Duration) { e.ahead.Store(int64(d)) }

func (e *env) note(run deploy.StageRun) {
	e.mu.Lock()
	defer e.mu.Unlock()
	text := run.Deployment.ID + "/" + run.Stage.ID
	if run.Resumed {
		text += "*"
	}
	e.runs = append(e.runs, text)
}

// ran returns the executed stages in order as "deployment/stage", resumed ones with a
// "*".
func (e *env) ran() []string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Clone(e.runs)
}

// shutdown stops the scheduler as the agent does.
func (e *env) shutdown() {
	e.t.Helper()
	if e.stop == nil {
		return
	}
	e.stop()
	if err := <-e.ended; err != nil {
		e.t.Errorf("Run = %v", err)
	}
	e.stop = nil
}

// crash simulates kill -9: the scheduler writes nothing more. The store is open again
// when crash returns.
func (e *env) crash() {
	e.t.Helper()
	if err := e.store.Close(); err != nil {
		e.t.Fatal(err)
	}
	e.shutdown()
	e.open()
}

func (e *env) close() {
	e.shutdown()
	if err := e.store.Close(); err != nil {
		e.t.Error(err)
	}
}

// threeStages returns two forward stages and a rollback stage.
func threeStages() []deploy.Stage {
	return []deploy.Stage{
		{ID: "one", Name: deploy.StageK8sSync, Visible: true},
		{ID: "two", Name: "TWO", Visible: true},
		{ID: "back", Name: deploy.StageRollback, Rollback: true},
	}
}

// pending stores an application and a PENDING deployment of it.
func (e *env) pending(id, app string, edit ...func(*deploy.Deployment)) {
	e.t.Helper()
	ctx := context.Background()
	a := deploy.Application{ID: app, Name: app, Kind: deploy.KindKubernetes, Provider: "one", Git: deploy.GitPath{RepoID: "r", Dir: app}}
	if _, err := e.store.PutApplication(ctx, a); err != nil {
		e.t.Fatal(err)
	}
	d := deploy.Deployment{
		ID: id, ApplicationID: app, ApplicationName: app, Git: a.Git, Provider: "one", Status: deploy.Pending,
		Trigger: deploy.Trigger{Kind: deploy.OnCommit, At: time.Now(), Commit: deploy.Commit{Hash: "c0ffee0123456789"}},
	}
	for _, f := range edit {
		f(&d)
	}
	if _, err := e.store.CreateDeployment(ctx, store.NewDeployment{Deployment: d}); err != nil {
		e.t.Fatal(err)
	}
}

// planned stores a new application with a PLANNED deployment.
func (e *env) planned(id string, edit ...func(*deploy.Plan)) {
	e.t.Helper()
	e.pending(id, "app-"+id)
	e.plan(id, edit...)
}

func (e *env) plan(id string, edit ...func(*deploy.Plan)) {
	e.t.Helper()
	p := deploy.Plan{Stages: threeStages(), RunningCommit: "beef0123456789", Timeout: time.Hour, RollbackTimeout: time.Hour}
	for _, f := range edit {
		f(&p)
	}
	e.update(id, func(d *deploy.Deployment) error { return d.Plan(p, time.Now()) })
}

func (e *env) update(id string, fn func(*deploy.Deployment) error) {
	e.t.Helper()
	if _, err := e.store.UpdateDeployment(context.Background(), id, fn); err != nil {
		e.t.Fatal(err)
	}
}

// askCancel stores a cancel command.
func (e *env) askCancel(id, deployment string, edit ...func(*deploy.Command)) {
	e.t.Helper()
	e.ask(deploy.Command{ID: id, Type: deploy.CommandCancel, DeploymentID: deployment, Commander: "ann"}, edit...)
}

// askSkip stores a command to skip a stage.
func (e *env) askSkip(id, deployment, stage string, edit ...func(*deploy.Command)) {
	e.t.Helper()
	e.ask(deploy.Command{ID: id, Type: deploy.CommandSkipStage, DeploymentID: deployment, StageID: stage, Commander: "ann"}, edit...)
}

func (e *env) ask(c deploy.Command, edit ...func(*deploy.Command)) {
	e.t.Helper()
	for _, f := range edit {
		f(&c)
	}
	if _, err := e.store.CreateCommand(context.Background(), c); err != nil {
		e.t.Fatal(err)
	}
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

func (e *env) get(id string) deploy.Deployment {
	e.t.Helper()
	d, err := e.store.Deployment(context.Background(), id)
	if err != nil {
		e.t.Fatal(err)
	}
	return d
}

// wantEnd fails unless the deployment has the status and the reason.
func (e *env) wantEnd(id string, status deploy.Status, reason string) {
	e.t.Helper()
	if d := e.get(id); d.Status != status || d.StatusReason != reason {
		e.t.Errorf("deployment %s is %s because %q,\nwant %s because %q", id, d.Status, d.StatusReason, status, reason)
	}
}

// moves returns the deployment's transition log, one line per transition.
func (e *env) moves(id string) []string {
	e.t.Helper()
	log, err := e.store.Transitions(context.Background(), id)
	if err != nil {
		e.t.Fatal(err)
	}
	var out []string
	for _, m := range log {
		what := "deployment"
		if m.StageID != "" {
			what = m.StageID
		}
		out = append(out, fmt.Sprintf("%s %s", what, m.To))
	}
	return out
}

// wantStage fails unless the stage has the status and the reason.
func (e *env) wantStage(id, stage string, status deploy.StageStatus, reason string) {
	e.t.Helper()
	d := e.get(id)
	if s := d.Stage(stage); s.Status != status || s.StatusReason != reason {
		e.t.Errorf("stage %s of %s is %s because %q,\nwant %s because %q", stage, id, s.Status, s.StatusReason, status, reason)
	}
}

// wantRan fails unless exactly these stages were executed in this order.
func (e *env) wantRan(want ...string) {
	e.t.Helper()
	if diff := cmp.Diff(want, e.ran(), cmpopts.EquateEmpty()); diff != "" {
		e.t.Errorf("executed (-want +got):\n%s", diff)
	}
}

// log returns a stage's log as lines "index severity text".
func (e *env) log(id, stage string) []string {
	e.t.Helper()
	logs, err := e.store.StageLogs(context.Background(), id)
	if err != nil {
		e.t.Fatal(err)
	}
	var out []string
	for _, b := range logs[stage] {
		out = append(out, fmt.Sprintf("%d %s %s", b.Index, b.Severity, b.Log))
	}
	return out
}

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
	"github.com/c785c783/piped/piped/store"
	"github.com/c785c783/piped/piped/store/storetest"
)

// executor is an Executor made of a function.
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

// hang runs until it is told to stop, and says why it was.
func hang(ctx context.Context, _ deploy.StageRun) deploy.StageResult {
	<-ctx.Done()
	return deploy.StageResult{Status: deploy.StageFailure, Reason: "told to stop: " + string(deploy.Stopped(ctx))}
}

// slowToStop hangs, and when it is told to stop takes a while, in which the agent
// may end.
func slowToStop(ctx context.Context, run deploy.StageRun) deploy.StageResult {
	<-ctx.Done()
	if !run.Resumed {
		time.Sleep(time.Second)
	}
	return hang(ctx, run)
}

// lasting succeeds after a while.
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

// changes is a Changes made of a function.
type changes func(ctx context.Context, from, to string) ([]string, error)

func (c changes) Changed(ctx context.Context, _ deploy.GitPath, from, to string) ([]string, error) {
	return c(ctx, from, to)
}

// lab is a store and the scheduler that works on it, inside a bubble of
// testing/synctest: time is what the test makes it.
type lab struct {
	t         *testing.T
	dsn       string
	store     *store.Store
	executors map[string]Executor // K8S_SYNC, TWO and ROLLBACK
	changes   changes
	limits    Limits
	providers []string
	storeNow  func() time.Time
	ahead     atomic.Int64 // how far the scheduler's wall clock is ahead

	look   func() // of the scheduler that runs
	queues func() []deploy.QueueState
	stop   context.CancelFunc // of the scheduler that runs
	ended  chan error

	logger *slog.Logger
	said   bytes.Buffer // what was logged, to be read when nothing runs

	mu   sync.Mutex
	runs []string // see ran
}

// inBubble runs a test with a lab and a running scheduler whose stages succeed,
// unless the test changes it before it calls start.
func inBubble(t *testing.T, test func(t *testing.T, l *lab)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t)
		defer l.close()
		test(t, l)
	})
}

func newLab(t *testing.T) *lab {
	l := closedLab(t)
	l.open()
	return l
}

// closedLab returns a lab whose store is not open yet.
func closedLab(t *testing.T) *lab {
	l := &lab{
		t: t, dsn: storetest.Ready(t), providers: []string{"one", "two"}, storeNow: time.Now,
		executors: map[string]Executor{deploy.StageK8sSync: executor(succeed), "TWO": executor(succeed), deploy.StageRollback: executor(succeed)},
	}
	l.logger = slog.New(slog.NewTextHandler(io.MultiWriter(t.Output(), &l.said), nil))
	return l
}

func (l *lab) open() {
	l.t.Helper()
	s, err := store.Open(context.Background(), l.dsn, store.Options{Key: storetest.Key(), Now: l.storeNow})
	if err != nil {
		l.t.Fatal(err)
	}
	l.store = s
}

// start starts a new scheduler on the store.
func (l *lab) start() {
	executors := map[string]Executor{}
	for name, e := range l.executors {
		executors[name] = executor(func(ctx context.Context, run deploy.StageRun) deploy.StageResult {
			l.note(run)
			return e.Execute(ctx, run)
		})
	}
	s := New(Config{
		Store: l.store, Executors: executors, Logger: l.logger,
		Providers: func() []string { return l.providers }, Limits: func() Limits { return l.limits }, Changes: l.changes,
		Now: func() time.Time { return time.Now().Add(time.Duration(l.ahead.Load())) },
	})
	l.look, l.queues = s.Look, s.Queues
	ctx, stop := context.WithCancel(context.Background())
	l.stop, l.ended = stop, make(chan error, 1)
	go func() { l.ended <- s.Run(ctx) }()
}

// clockAhead sets the scheduler's wall clock; no timer notices.
func (l *lab) clockAhead(d time.Duration) { l.ahead.Store(int64(d)) }

func (l *lab) note(run deploy.StageRun) {
	l.mu.Lock()
	defer l.mu.Unlock()
	text := run.Deployment.ID + "/" + run.Stage.ID
	if run.Resumed {
		text += "*"
	}
	l.runs = append(l.runs, text)
}

// ran returns the stages that were executed, in order, as "deployment/stage",
// resumed ones with a "*".
func (l *lab) ran() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.runs)
}

// shutdown ends the scheduler the way the agent does.
func (l *lab) shutdown() {
	l.t.Helper()
	if l.stop == nil {
		return
	}
	l.stop()
	if err := <-l.ended; err != nil {
		l.t.Errorf("Run = %v", err)
	}
	l.stop = nil
}

// crash ends the scheduler the way kill -9 does: from one moment on it writes
// nothing more. The store is open again when it returns.
func (l *lab) crash() {
	l.t.Helper()
	if err := l.store.Close(); err != nil {
		l.t.Fatal(err)
	}
	l.shutdown()
	l.open()
}

func (l *lab) close() {
	l.shutdown()
	if err := l.store.Close(); err != nil {
		l.t.Error(err)
	}
}

// stages of the deployments: three, the last one for a rollback.
func threeStages() []deploy.Stage {
	return []deploy.Stage{
		{ID: "one", Name: deploy.StageK8sSync, Visible: true},
		{ID: "two", Name: "TWO", Visible: true},
		{ID: "back", Name: deploy.StageRollback, Rollback: true},
	}
}

// pending stores the application of that name and a PENDING deployment of it.
func (l *lab) pending(id, app string, edit ...func(*deploy.Deployment)) {
	l.t.Helper()
	ctx := context.Background()
	a := deploy.Application{ID: app, Name: app, Kind: deploy.KindKubernetes, Provider: "one", Git: deploy.GitPath{RepoID: "r", Dir: app}}
	if _, err := l.store.PutApplication(ctx, a); err != nil {
		l.t.Fatal(err)
	}
	d := deploy.Deployment{
		ID: id, ApplicationID: app, ApplicationName: app, Git: a.Git, Provider: "one", Status: deploy.Pending,
		Trigger: deploy.Trigger{Kind: deploy.OnCommit, At: time.Now(), Commit: deploy.Commit{Hash: "c0ffee0123456789"}},
	}
	for _, f := range edit {
		f(&d)
	}
	if _, err := l.store.CreateDeployment(ctx, store.NewDeployment{Deployment: d}); err != nil {
		l.t.Fatal(err)
	}
}

// planned stores a PLANNED deployment of an application of its own.
func (l *lab) planned(id string, edit ...func(*deploy.Plan)) {
	l.t.Helper()
	l.pending(id, "app-"+id)
	l.plan(id, edit...)
}

func (l *lab) plan(id string, edit ...func(*deploy.Plan)) {
	l.t.Helper()
	p := deploy.Plan{Stages: threeStages(), RunningCommit: "beef0123456789", Timeout: time.Hour, RollbackTimeout: time.Hour}
	for _, f := range edit {
		f(&p)
	}
	l.update(id, func(d *deploy.Deployment) error { return d.Plan(p, time.Now()) })
}

func (l *lab) update(id string, fn func(*deploy.Deployment) error) {
	l.t.Helper()
	if _, err := l.store.UpdateDeployment(context.Background(), id, fn); err != nil {
		l.t.Fatal(err)
	}
}

// askCancel stores a cancel command.
func (l *lab) askCancel(id, deployment string, edit ...func(*deploy.Command)) {
	l.t.Helper()
	l.ask(deploy.Command{ID: id, Type: deploy.CommandCancel, DeploymentID: deployment, Commander: "ann"}, edit...)
}

// askSkip stores a command to skip a stage.
func (l *lab) askSkip(id, deployment, stage string, edit ...func(*deploy.Command)) {
	l.t.Helper()
	l.ask(deploy.Command{ID: id, Type: deploy.CommandSkipStage, DeploymentID: deployment, StageID: stage, Commander: "ann"}, edit...)
}

func (l *lab) ask(c deploy.Command, edit ...func(*deploy.Command)) {
	l.t.Helper()
	for _, f := range edit {
		f(&c)
	}
	if _, err := l.store.CreateCommand(context.Background(), c); err != nil {
		l.t.Fatal(err)
	}
}

// wantAnswer fails unless the command was answered so, with text in its reason.
func (l *lab) wantAnswer(id string, status deploy.CommandStatus, text string) {
	l.t.Helper()
	c, err := l.store.Command(context.Background(), id)
	if err != nil {
		l.t.Fatal(err)
	}
	if reason := c.Metadata[deploy.MetaReason]; c.Status != status || !strings.Contains(reason, text) || (text == "") != (reason == "") {
		l.t.Errorf("command %s is %s (%q), want %s with %q", id, c.Status, reason, status, text)
	}
}

func (l *lab) get(id string) deploy.Deployment {
	l.t.Helper()
	d, err := l.store.Deployment(context.Background(), id)
	if err != nil {
		l.t.Fatal(err)
	}
	return d
}

// wantEnd fails unless the deployment is in a status for that reason.
func (l *lab) wantEnd(id string, status deploy.Status, reason string) {
	l.t.Helper()
	if d := l.get(id); d.Status != status || d.StatusReason != reason {
		l.t.Errorf("deployment %s is %s because %q,\nwant %s because %q", id, d.Status, d.StatusReason, status, reason)
	}
}

// moves returns the deployment's transition log, one move a line.
func (l *lab) moves(id string) []string {
	l.t.Helper()
	log, err := l.store.Transitions(context.Background(), id)
	if err != nil {
		l.t.Fatal(err)
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

// wantStage fails unless the stage is in a status for that reason.
func (l *lab) wantStage(id, stage string, status deploy.StageStatus, reason string) {
	l.t.Helper()
	d := l.get(id)
	if s := d.Stage(stage); s.Status != status || s.StatusReason != reason {
		l.t.Errorf("stage %s of %s is %s because %q,\nwant %s because %q", stage, id, s.Status, s.StatusReason, status, reason)
	}
}

// wantRan fails unless these stages were executed, in this order.
func (l *lab) wantRan(want ...string) {
	l.t.Helper()
	if diff := cmp.Diff(want, l.ran(), cmpopts.EquateEmpty()); diff != "" {
		l.t.Errorf("executed (-want +got):\n%s", diff)
	}
}

// log returns a stage's log, "index severity text" a line.
func (l *lab) log(id, stage string) []string {
	l.t.Helper()
	logs, err := l.store.StageLogs(context.Background(), id)
	if err != nil {
		l.t.Fatal(err)
	}
	var out []string
	for _, b := range logs[stage] {
		out = append(out, fmt.Sprintf("%d %s %s", b.Index, b.Severity, b.Log))
	}
	return out
}

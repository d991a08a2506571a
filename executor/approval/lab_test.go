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

// lab is a store with one deployment, d, whose stage "ok" waits for approval,
// inside a bubble of testing/synctest.
type lab struct {
	t     *testing.T
	dsn   string
	store *store.Store
	log   *deploytest.Log
	start time.Time

	stop   context.CancelCauseFunc // of the stage that runs
	result chan deploy.StageResult
	saved  func() // called when metadata was stored

	stopRun context.CancelFunc
	runEnds chan error
}

func inBubble(t *testing.T, options string, test func(t *testing.T, l *lab)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		l := &lab{t: t, dsn: storetest.Ready(t), log: &deploytest.Log{}, start: time.Now(), saved: func() {}}
		l.open()
		defer func() { l.closeStore() }()
		l.deployment(options)
		test(t, l)
	})
}

func (l *lab) open() {
	l.t.Helper()
	s, err := store.Open(context.Background(), l.dsn, store.Options{Key: storetest.Key(), Now: time.Now})
	if err != nil {
		l.t.Fatal(err)
	}
	l.store = s
}

func (l *lab) closeStore() {
	l.t.Helper()
	if err := l.store.Close(); err != nil {
		l.t.Error(err)
	}
}

// deployment stores d, RUNNING, with its stage "ok" running.
func (l *lab) deployment(options string) {
	l.t.Helper()
	ctx := context.Background()
	a := deploy.Application{ID: "app", Name: "app", Kind: deploy.KindKubernetes, Provider: "one", Git: deploy.GitPath{RepoID: "r", Dir: "."}}
	if _, err := l.store.PutApplication(ctx, a); err != nil {
		l.t.Fatal(err)
	}
	d := deploy.Deployment{ID: "d", ApplicationID: "app", ApplicationName: "app", Status: deploy.Pending}
	if _, err := l.store.CreateDeployment(ctx, store.NewDeployment{Deployment: d}); err != nil {
		l.t.Fatal(err)
	}
	stages := []deploy.Stage{
		{ID: "ok", Name: deploy.StageWaitApproval, Options: json.RawMessage(options), Timeout: 6 * time.Hour},
		{ID: "pause", Name: deploy.StageWait},
		{ID: "later", Name: deploy.StageWaitApproval},
	}
	l.update(func(d *deploy.Deployment) error { return d.Plan(deploy.Plan{Stages: stages}, time.Now()) })
	l.update(func(d *deploy.Deployment) error { return d.Start(time.Now()) })
	l.update(func(d *deploy.Deployment) error { return d.StartStage("ok", time.Now()) })
}

func (l *lab) update(fn func(*deploy.Deployment) error) {
	l.t.Helper()
	if _, err := l.store.UpdateDeployment(context.Background(), "d", fn); err != nil {
		l.t.Fatal(err)
	}
}

func (l *lab) executor() *Executor {
	return New(Config{Store: l.store, Logger: slog.New(slog.NewTextHandler(l.t.Output(), nil))})
}

// execute runs the stage as the scheduler does.
func (l *lab) execute(resumed bool) {
	l.t.Helper()
	d, err := l.store.Deployment(context.Background(), "d")
	if err != nil {
		l.t.Fatal(err)
	}
	s := l.store
	run := deploy.StageRun{
		Deployment: d, Stage: *d.Stage("ok"), Resumed: resumed, Log: l.log,
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
			l.saved()
			return err
		},
	}
	ctx, stop := context.WithCancelCause(context.Background())
	l.stop, l.result = stop, make(chan deploy.StageResult, 1)
	e, result := l.executor(), l.result
	go func() { result <- e.Execute(ctx, run) }()
	synctest.Wait()
}

// ask stores a command and waits until everything it leads to has happened.
func (l *lab) ask(id string, kind deploy.CommandType, who, reason string, edit ...func(*deploy.Command)) {
	l.t.Helper()
	time.Sleep(time.Second) // commands have an order
	c := deploy.Command{ID: id, Type: kind, DeploymentID: "d", StageID: "ok", Commander: who, Reason: reason}
	for _, f := range edit {
		f(&c)
	}
	if _, err := l.store.CreateCommand(context.Background(), c); err != nil {
		l.t.Fatal(err)
	}
	synctest.Wait()
}

func (l *lab) approve(id, who string) {
	l.t.Helper()
	l.ask(id, deploy.CommandApproveStage, who, "")
}

// wantAnswer fails unless the command is in that status, with text in its reason.
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

func (l *lab) wantWaiting() {
	l.t.Helper()
	select {
	case r := <-l.result:
		l.t.Fatalf("the stage ended as %+v, want it to wait", r)
	default:
	}
}

func (l *lab) wantEnd(status deploy.StageStatus, reason string) {
	l.t.Helper()
	synctest.Wait()
	select {
	case r := <-l.result:
		if want := (deploy.StageResult{Status: status, Reason: reason}); r != want {
			l.t.Errorf("the stage ended as %+v, want %+v", r, want)
		}
	default:
		l.t.Fatal("the stage still waits")
	}
}

func (l *lab) wantMetadata(key, want string) {
	l.t.Helper()
	d, err := l.store.Deployment(context.Background(), "d")
	if err != nil {
		l.t.Fatal(err)
	}
	if got := d.Stage("ok").Metadata[key]; got != want {
		l.t.Errorf("metadata %s is %q, want %q", key, got, want)
	}
}

// startRun starts the component that answers what is too late.
func (l *lab) startRun() {
	ctx, stop := context.WithCancel(context.Background())
	l.stopRun, l.runEnds = stop, make(chan error, 1)
	e, ends := l.executor(), l.runEnds
	go func() { ends <- e.Run(ctx) }()
	synctest.Wait()
}

func (l *lab) endRun() {
	l.t.Helper()
	l.stopRun()
	if err := <-l.runEnds; err != nil {
		l.t.Errorf("Run = %v", err)
	}
}

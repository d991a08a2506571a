package approval

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/store"
)

// answerTimeout bounds the write of a command's result, which a stopped stage still
// attempts. If the write fails, Run answers the command later.
const answerTimeout = 10 * time.Second

// Config contains the dependencies and settings of an Executor.
type Config struct {
	Store     *store.Store
	Commits   Commits
	ScanEvery time.Duration // fallback for missed changes; default 30 s
	Logger    *slog.Logger
}

// Commits reads the history of repositories.
type Commits interface {
	// ChangedBy returns the commits in the history of a commit, and not in that of another
	// one, base, that changed one of the directories. The error is NotFound when a commit is
	// missing, Unavailable when a retry may succeed.
	ChangedBy(ctx context.Context, repoID, base, commit string, dirs ...string) ([]deploy.Commit, error)
}

// Executor runs WAIT_APPROVAL stages. It is safe for concurrent use.
type Executor struct{ Config }

// New returns an Executor.
func New(c Config) *Executor {
	if c.ScanEvery == 0 {
		c.ScanEvery = 30 * time.Second
	}
	return &Executor{c}
}

// Execute waits until enough users have approved or one has rejected. It implements
// scheduler.Executor. Votes from before a restart count.
func (e *Executor) Execute(ctx context.Context, run deploy.StageRun) deploy.StageResult {
	o, err := optionsOf(run.Stage)
	if err != nil {
		return deploy.StageResult{Status: deploy.StageFailure, Reason: err.Error()}
	}
	r, err := recordOf(run.Stage)
	if err != nil {
		return deploy.StageResult{Status: deploy.StageFailure, Reason: err.Error()}
	}
	w := &waiting{Executor: e, run: run, options: o, record: r}
	w.announce()
	return w.wait(ctx)
}

// waiting is one run of a WAIT_APPROVAL stage.
type waiting struct {
	*Executor
	run     deploy.StageRun
	options options
	record  record // as stored

	parties     []party // of requireOther; read before the first approval
	partiesRead bool
	reported    bool // the stage's log says that parties cannot be read
}

// announce logs which approvals the stage waits for, and until when.
func (w *waiting) announce() {
	until := "without a time limit"
	if d := earlier(w.run.Stage.Deadline, w.run.Deployment.Deadline); !d.IsZero() {
		until = "until " + d.UTC().Format(time.RFC3339)
	}
	if !w.run.Resumed {
		w.run.Log.Infof("Waiting for %s, %s", w.options.Required(), until)
		if subject := w.subject(); subject != "" {
			w.run.Log.Infof("An approval permits %s", subject)
		}
		if w.options.RequireOther {
			w.run.Log.Infof("Those who requested this deployment or committed what it deploys cannot approve it (requireOther)")
		}
		return
	}
	w.run.Log.Infof("Waiting resumes after a restart of the agent: for %s, %s; %s", w.options.Required(), until, w.soFar())
}

// subject returns what an approval permits: what the last stage before this one has named, "" for
// nothing in particular.
func (w *waiting) subject() (out string) {
	for _, s := range w.run.Deployment.Stages {
		if s.ID == w.run.Stage.ID {
			return out
		}
		if named := s.Metadata[deploy.MetaSubject]; named != "" {
			out = named
		}
	}
	return ""
}

// earlier returns the earlier of two deadlines; zero means none.
func earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// soFar lists the users who have approved.
func (w *waiting) soFar() string {
	if len(w.record.Approvals) == 0 {
		return "no approvals yet"
	}
	return fmt.Sprintf("%d of %d have approved: %s", len(w.record.Approvals), w.options.MinApproverNum, strings.Join(w.record.approvers(), ", "))
}

// wait answers commands until the stage is decided or stopped. It subscribes before the
// first read, so that no command is missed.
func (w *waiting) wait(ctx context.Context) deploy.StageResult {
	watch := w.Store.Watch(deploy.TopicCommand)
	defer watch.Close()
	scan := time.NewTicker(w.ScanEvery)
	defer scan.Stop()
	for {
		watch.Take()
		if err := w.answer(ctx); err != nil && ctx.Err() == nil {
			w.Logger.Error("cannot answer the commands of a stage that waits for approval; trying again",
				"deployment", w.run.Deployment.ID, "stage", w.run.Stage.ID, "error", err)
		}
		if result, decided := w.result(); decided {
			return result
		}
		select {
		case <-ctx.Done():
			return deploy.StageResult{Status: deploy.Stopped(ctx).Status(), Reason: w.soFar()}
		case <-watch.C():
		case <-scan.C:
		}
	}
}

// result returns the result of the stage once it is decided.
func (w *waiting) result() (_ deploy.StageResult, decided bool) {
	switch v := w.record.Rejection; {
	case v != nil && v.Reason != "":
		return deploy.StageResult{Status: deploy.StageFailure, Reason: fmt.Sprintf("rejected by %s: %s", v.By, v.Reason)}, true
	case v != nil:
		return deploy.StageResult{Status: deploy.StageFailure, Reason: "rejected by " + v.By}, true
	case w.options.enough(w.record):
		w.run.Log.Successf("Approved by %s", strings.Join(w.record.approvers(), ", "))
		return deploy.StageResult{Status: deploy.StageSuccess}, true
	}
	return deploy.StageResult{}, false
}

// answer answers the open commands for the stage, oldest first. Commands after the
// decision are left to Run. One that cannot be answered holds up no other: a rejection counts
// while Git cannot be read.
func (w *waiting) answer(ctx context.Context) error {
	commands, err := openCommands(ctx, w.Store)
	if err != nil {
		return err
	}
	var errs []error
	for _, c := range commands {
		if c.DeploymentID == w.run.Deployment.ID && c.StageID == w.run.Stage.ID {
			errs = append(errs, w.take(ctx, c))
		}
	}
	return errors.Join(errs...)
}

// take adds the vote c to the record, stores the record and answers c. If the stage is
// already decided it leaves c open for Run.
func (w *waiting) take(ctx context.Context, c deploy.Command) error {
	if w.record.holds(c.ID) { // an earlier process stored the vote but not the answer
		return finish(ctx, w.Store, c, nil)
	}
	if w.record.Rejection != nil || w.options.enough(w.record) {
		return nil
	}
	excluded, err := w.excluded(ctx, c)
	if err != nil {
		return err
	}
	next, refusal := w.record.with(c, w.options, excluded)
	if refusal != nil {
		w.run.Log.Infof("%s by %s does not count: %s", verb(c.Type), c.Commander, refusal)
		return finish(ctx, w.Store, c, refusal)
	}
	kv, err := next.metadata()
	if err != nil {
		return fmt.Errorf("encode the approvals: %w", err)
	}
	if subject := w.subject(); subject != "" {
		kv[deploy.MetaSubject] = subject
	}
	if err := w.run.SaveMetadata(ctx, kv); err != nil {
		return fmt.Errorf("store what %s decided: %w", c.Commander, err)
	}
	w.record = next
	if c.Type == deploy.CommandApproveStage && !w.options.enough(next) {
		w.run.Log.Infof("%s has approved; %s missing", c.Commander, w.options.missing(next))
	}
	return finish(ctx, w.Store, c, nil)
}

// verb returns the subject of a log line about a vote: "The approval" or "The rejection".
func verb(t deploy.CommandType) string {
	if t == deploy.CommandRejectStage {
		return "The rejection"
	}
	return "The approval"
}

// openCommands returns the open commands of this package, oldest first.
func openCommands(ctx context.Context, s *store.Store) ([]deploy.Command, error) {
	return s.OpenCommands(ctx, deploy.CommandApproveStage, deploy.CommandRejectStage)
}

// finish stores the result of c: success, or failure with the reason refusal. It does so
// even if ctx is cancelled, because the vote may already be stored. It returns nil if c
// already has a result.
func finish(ctx context.Context, s *store.Store, c deploy.Command, refusal error) error {
	status, metadata := deploy.CommandSucceeded, map[string]string(nil)
	if refusal != nil {
		status, metadata = deploy.CommandFailed, map[string]string{deploy.MetaReason: refusal.Error()}
	}
	ctx, done := context.WithTimeout(context.WithoutCancel(ctx), answerTimeout)
	defer done()
	err := s.FinishCommand(ctx, c.ID, status, metadata)
	if deploy.IsKind(err, deploy.Conflict) { // answered already
		return nil
	}
	return err
}

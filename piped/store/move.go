package store

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"reflect"
	"time"

	"github.com/google/uuid"

	"github.com/c785c783/piped/piped/deploy"
)

// NewDeployment is a deployment to create, with options for writes in the same transaction.
type NewDeployment struct {
	Deployment deploy.Deployment
	// CommandID is the command that requested it, "" for none.
	CommandID string
	// Supersede cancels the application's waiting deployments that Git or drift triggered,
	// with the chains that they start. It does not cancel manual syncs and deployments of a
	// chain.
	Supersede bool
	// Replace requests, by one command each, the cancellation of the application's running
	// deployments, with the exceptions of Supersede.
	Replace bool
	// Chain is the deployment chain that the deployment starts. Its ID is the deployment's
	// ChainID, its first block becomes the deployment itself. For each node of the later
	// blocks a CommandChainSync with the node's CommandID is created.
	Chain *deploy.Chain
	// Base, if set, is the evaluated commit on which the decision was based. If the
	// application has another one now, the deployment is not created.
	Base *string
	// Evaluated becomes the application's evaluated commit; "" means the deployment's commit.
	// A sync to an earlier commit sets the head: the commits between them have been evaluated
	// and are not deployed again.
	Evaluated string
	// Held, if set, is the commit of the application's hold on which the decision was based,
	// "" for no hold. If that has changed, the deployment is not created.
	Held *string
	// Hold becomes the application's hold. If it is nil, a deployment triggered by a commit or
	// a command ends the current hold; others do not change it.
	Hold *deploy.Hold
	// First cancels every other waiting or running deployment of the application, also those
	// requested by users. It is for manual rollbacks, which take precedence.
	First bool
	// KeepEvaluated does not change the evaluated commit, because the head was not evaluated.
	KeepEvaluated bool
}

// CreateDeployment stores a new PENDING deployment and returns it as stored. In the same
// transaction it becomes the application's last triggered deployment, its commit (or
// n.Evaluated) becomes the evaluated commit, the command (if any) succeeds with the
// deployment's ID in its metadata, the chain is stored, superseded deployments are cancelled
// with a reason that names the new one, and the cancellation of replaced ones is requested.
//
// Exists if there is a deployment with that ID. NotFound if the application or the command
// does not exist. Illegal if the application is deleted or disabled, or the agent is disabled.
// Conflict if the command was completed before, or n.Base or n.Held is outdated. After an
// error nothing is written.
func (s *Store) CreateDeployment(ctx context.Context, n NewDeployment) (deploy.Deployment, error) {
	var created deploy.Deployment
	err := s.write(ctx, func(t *tx) (err error) {
		created, err = t.createDeployment(ctx, n)
		return err
	})
	if err != nil {
		return deploy.Deployment{}, s.fail(err, "create deployment "+n.Deployment.ID)
	}
	return created, nil
}

func (t *tx) createDeployment(ctx context.Context, n NewDeployment) (deploy.Deployment, error) {
	d := n.Deployment.Clone()
	now := t.store.now()
	if d.CreatedAt.IsZero() {
		d.CreatedAt = now
	}
	d.UpdatedAt, d.Revision = now, 1
	normalize(&d)
	if err := d.CheckMove(nil); err != nil {
		return d, err
	}
	app, err := t.lockApplication(ctx, d.ApplicationID)
	if err != nil {
		return d, err
	}
	if err := mayDeploy(app); err != nil {
		return d, err
	}
	if n.Base != nil && *n.Base != app.EvaluatedCommit {
		return d, deploy.Errorf(deploy.Conflict, "application %s was disabled or added again since this was decided: it is decided anew", app.ID)
	}
	if n.Held != nil && *n.Held != app.HeldAt() {
		return d, deploy.Errorf(deploy.Conflict, "the commit that application %s is held at was changed since this was decided: it is decided anew", app.ID)
	}
	switch agent, _, err := one(ctx, t, scanAgent, selectAgent); {
	case err != nil:
		return d, err
	case agent.Disabled:
		return d, deploy.Errorf(deploy.Illegal, "the agent is disabled: enable it first")
	}
	if n.First {
		if err := t.clear(ctx, &d); err != nil {
			return d, err
		}
	}
	if n.Supersede {
		if err := t.supersede(ctx, &d); err != nil {
			return d, err
		}
	}
	if err := t.insertDeployment(ctx, &d); err != nil {
		return d, err
	}
	if n.Replace {
		if err := t.replace(ctx, &d); err != nil {
			return d, err
		}
	}
	if n.Chain != nil {
		if err := t.beginChain(ctx, *n.Chain, &d); err != nil {
			return d, err
		}
	}
	if err := t.setHold(ctx, &d, n); err != nil {
		return d, err
	}
	return d, t.noteTriggered(ctx, &d, n)
}

// supersede cancels the waiting deployments that d supersedes.
func (t *tx) supersede(ctx context.Context, d *deploy.Deployment) error {
	reason := fmt.Sprintf("Superseded by the newer deployment %s of commit %s", d.ID, d.Trigger.Commit.Short())
	_, err := t.endWaiting(ctx, d.ApplicationID, "AND trigger_kind IN ('ON_COMMIT', 'ON_OUT_OF_SYNC')", deploy.Cancelled, reason, d.ID, d.UpdatedAt)
	return err
}

// endWaiting moves the deployments of an application that have not started to the terminal
// status as. more is a further SQL condition, by the newer deployment that supersedes them, ""
// for none. It returns the deployments as they were before.
func (t *tx) endWaiting(ctx context.Context, appID, more string, as deploy.Status, reason, by string, at time.Time) ([]deploy.Deployment, error) {
	waiting, err := deployments(ctx, t, selectDeployment+" WHERE application_id = ? AND status IN ('PENDING', 'PLANNED') "+more+
		" ORDER BY id"+t.store.dialect.forUpdate(), appID)
	if err != nil {
		return nil, err
	}
	for i := range waiting {
		prev := &waiting[i]
		next := prev.Clone()
		if err := next.Complete(as, reason, at); err != nil {
			return nil, err
		}
		next.SupersededBy, next.UpdatedAt, next.Revision = by, at, prev.Revision+1
		if err := t.endHold(ctx, &next); err != nil {
			return nil, err
		}
		if err := t.storeMove(ctx, prev, &next); err != nil {
			return nil, err
		}
	}
	return waiting, nil
}

// replace requests the cancellation of the running deployments of d's application. They are
// not rolled back, because d brings the next state.
func (t *tx) replace(ctx context.Context, d *deploy.Deployment) error {
	running, err := all(ctx, t, scanText, `SELECT id FROM deployments WHERE application_id = ? AND status = 'RUNNING'
		AND trigger_kind IN ('ON_COMMIT', 'ON_OUT_OF_SYNC') ORDER BY id`, d.ApplicationID)
	if err != nil {
		return err
	}
	for _, id := range running {
		_, err := t.insertCommand(ctx, deploy.Command{
			ID: uuid.NewString(), Type: deploy.CommandCancel, ApplicationID: d.ApplicationID, DeploymentID: id,
			Commander: fmt.Sprintf("trigger.queue: replace, for commit %s", d.Trigger.Commit.Short()), ForceNoRollback: true, SupersededBy: d.ID,
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func (t *tx) insertDeployment(ctx context.Context, d *deploy.Deployment) error {
	originText, err := encode(origin{d.Git, d.Kind, d.Provider, d.Labels, d.Trigger, d.ChainBlock})
	if err != nil {
		return err
	}
	stateText, err := stateTextOf(d)
	if err != nil {
		return err
	}
	_, err = t.exec(ctx, `INSERT INTO deployments (id, application_id, application_name, trigger_kind, commit_hash, committed_at, chain_id, origin,
		status, state, revision, triggered_at, created_at, updated_at) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`,
		d.ID, d.ApplicationID, d.ApplicationName, string(d.Trigger.Kind), d.Trigger.Commit.Hash, toMilli(committedAt(d.Trigger)), d.ChainID, originText,
		string(d.Status), stateText, d.Revision, toMilli(d.Trigger.At), toMilli(d.CreatedAt), toMilli(d.UpdatedAt))
	if t.store.dialect.unique(err) {
		return deploy.Errorf(deploy.Exists, "deployment %s exists already", d.ID)
	}
	if err != nil {
		return err
	}
	if err := t.insertLabels(ctx, "deployment_labels", "deployment_id", d.ID, d.Labels); err != nil {
		return err
	}
	if err := t.insertStages(ctx, d); err != nil {
		return err
	}
	err = t.linkPullRequest(ctx, deploy.PullRequestCommit{
		CommitRef: deploy.CommitRef{RepoID: d.Git.RepoID, Hash: d.Trigger.Commit.Hash}, Number: deploy.NamedPullRequest(d.Trigger.Commit.Message), Link: deploy.LinkNamed,
	})
	if err != nil {
		return err
	}
	return t.log(ctx, nil, d)
}

// noteTriggered records d in its application and in the command that requested it.
func (t *tx) noteTriggered(ctx context.Context, d *deploy.Deployment, n NewDeployment) error {
	ref, err := encode(d.Ref())
	if err != nil {
		return err
	}
	assignments, args := "last_triggered = ?", []any{ref}
	if !n.KeepEvaluated {
		assignments, args = assignments+", evaluated_commit = ?", append(args, cmp.Or(n.Evaluated, d.Trigger.Commit.Hash))
	}
	if err := t.updateApplication(ctx, d.ApplicationID, assignments, args...); err != nil {
		return err
	}
	if n.CommandID == "" {
		return nil
	}
	return t.finishCommand(ctx, n.CommandID, deploy.CommandSucceeded, map[string]string{deploy.MetaTriggeredDeployment: d.ID})
}

// UpdateDeployment changes a deployment and returns it as stored. fn gets a copy, which is
// then stored. If the deployment was written concurrently, fn is called again with a new copy.
// If fn returns an error, that is returned unchanged and nothing is written; nothing is
// written either if fn changes nothing. Changes of constant values (application, Git path,
// labels, trigger, chain) are ignored.
//
// Illegal if the transition is not allowed. Conflict if it would make a second active
// deployment of the application. Log entries and outbox rows are stored in the same
// transaction. On SUCCESS the deployment becomes its application's last success.
func (s *Store) UpdateDeployment(ctx context.Context, id string, fn func(*deploy.Deployment) error) (deploy.Deployment, error) {
	for {
		prev, err := s.Deployment(ctx, id)
		if err != nil {
			return deploy.Deployment{}, err
		}
		next, write, err := nextOf(prev, fn)
		if err != nil || !write {
			return next, err
		}
		next, err = s.move(ctx, prev, next)
		if err == nil {
			return next, nil
		}
		if !errors.Is(err, errLostRace) {
			return deploy.Deployment{}, s.fail(err, "update deployment "+id)
		}
	}
}

// UpdateDeploymentFrom is UpdateDeployment for a caller that already has the deployment,
// known. It reads the deployment only if it was written concurrently, or if fn fails or
// changes nothing; then it calls fn again.
func (s *Store) UpdateDeploymentFrom(ctx context.Context, known deploy.Deployment, fn func(*deploy.Deployment) error) (deploy.Deployment, error) {
	next, write, err := nextOf(known, fn)
	if err == nil && write {
		next, err = s.move(ctx, known, next)
		if err == nil {
			return next, nil
		}
		if !errors.Is(err, errLostRace) {
			return deploy.Deployment{}, s.fail(err, "update deployment "+known.ID)
		}
	}
	return s.UpdateDeployment(ctx, known.ID, fn)
}

// nextOf returns a copy of prev changed by fn, and whether it must be written.
func nextOf(prev deploy.Deployment, fn func(*deploy.Deployment) error) (next deploy.Deployment, write bool, err error) {
	next = prev.Clone()
	if err := fn(&next); err != nil {
		return deploy.Deployment{}, false, err
	}
	keepOrigin(&prev, &next)
	if reflect.DeepEqual(prev, next) {
		return prev, false, nil
	}
	if err := next.CheckMove(&prev); err != nil {
		return deploy.Deployment{}, false, err
	}
	return next, true, nil
}

// move replaces prev by next and returns it as stored.
func (s *Store) move(ctx context.Context, prev, next deploy.Deployment) (deploy.Deployment, error) {
	next.UpdatedAt, next.Revision = s.now(), prev.Revision+1
	return next, s.write(ctx, func(t *tx) error { return t.compareAndSwap(ctx, &prev, &next) })
}

// keepOrigin restores the constant values, which fn must not change, and truncates the times.
func keepOrigin(prev, next *deploy.Deployment) {
	next.ID, next.ApplicationID, next.ApplicationName = prev.ID, prev.ApplicationID, prev.ApplicationName
	next.Git, next.Provider, next.Labels, next.Trigger = prev.Git, prev.Provider, prev.Labels, prev.Trigger
	next.ChainID, next.ChainBlock = prev.ChainID, prev.ChainBlock
	next.CreatedAt, next.Revision = prev.CreatedAt, prev.Revision
	if len(next.Stages) == 0 && len(prev.Stages) == 0 {
		next.Stages = prev.Stages
	}
	normalize(next)
}

// errLostRace reports that the row was written concurrently.
var errLostRace = errors.New("it was written meanwhile")

// compareAndSwap stores next if the stored deployment is still prev. It writes the application
// first, as the locking order requires.
func (t *tx) compareAndSwap(ctx context.Context, prev, next *deploy.Deployment) error {
	if next.Status == deploy.Success && prev.Status != deploy.Success {
		ref, err := encode(next.Ref())
		if err != nil {
			return err
		}
		if err := t.updateApplication(ctx, next.ApplicationID, "last_successful = ?, last_successful_id = ?", ref, next.ID); err != nil {
			return err
		}
	}
	if next.Status.Completed() {
		if err := t.endHold(ctx, next); err != nil {
			return err
		}
	}
	return t.storeMove(ctx, prev, next)
}

// storeMove stores next in place of prev, with its stages, log entries and events.
func (t *tx) storeMove(ctx context.Context, prev, next *deploy.Deployment) error {
	text, err := stateTextOf(next)
	if err != nil {
		return err
	}
	n, err := t.exec(ctx, "UPDATE deployments SET status = ?, state = ?, revision = ?, updated_at = ?, completed_at = ? WHERE id = ? AND revision = ?",
		string(next.Status), text, next.Revision, toMilli(next.UpdatedAt), toMilli(next.CompletedAt), next.ID, prev.Revision)
	if t.store.dialect.unique(err) {
		return deploy.Errorf(deploy.Conflict, "deployment %s cannot become %s: application %s has another active deployment",
			next.ID, next.Status, next.ApplicationID)
	}
	if err != nil {
		return err
	}
	if n == 0 {
		return errLostRace
	}
	if err := t.writeStages(ctx, prev, next); err != nil {
		return err
	}
	return t.log(ctx, prev, next)
}

// log writes the transition log and the outbox rows for the transitions from prev to d, and
// publishes d.
func (t *tx) log(ctx context.Context, prev, d *deploy.Deployment) error {
	moves := d.Diff(prev, d.UpdatedAt)
	rows := make([][]any, len(moves))
	for i, m := range moves {
		rows[i] = []any{d.ID, d.Revision, i, m.StageID, m.From, m.To, m.Reason, toMilli(m.At)}
		t.events = append(t.events, deploy.EventsFor(d, m)...)
	}
	t.changes = append(t.changes, deploy.Change{Topic: deploy.TopicDeployment, ID: d.ID, ApplicationID: d.ApplicationID, Status: d.Status})
	if d.ChainID != "" && (prev == nil || d.Status.Completed()) {
		t.changed(deploy.TopicChain, d.ChainID, d.ApplicationID)
	}
	return t.insert(ctx, "transitions", "deployment_id, revision, position, stage_id, from_status, to_status, reason, at", "", rows)
}

package deploy

import (
	"fmt"
	"time"
)

// Plan is the planner's result for a PENDING deployment.
type Plan struct {
	Strategy            Strategy // QUICK_SYNC or PIPELINE
	Summary             string
	Versions            []ArtifactVersion
	Stages              []Stage // Deployment.Plan sets the status
	RunningCommit       string
	RunningDir          string
	RunningConfigFile   string
	RunningDeploymentID string
	Timeout             time.Duration
	RollbackTimeout     time.Duration
	NoAutoRollback      bool
	EnvironmentURL      string
}

// move changes the status and sets the reason and the time. If CheckTransition forbids the
// transition, it returns an error of kind Illegal and does not change d.
func (d *Deployment) move(to Status, reason string, now time.Time) error {
	if d.Status == to {
		return &Error{Kind: Illegal, Op: fmt.Sprintf("move deployment %s to %s", d.ID, to), Err: fmt.Errorf("it already has that status")}
	}
	if err := CheckTransition(d.Status, to); err != nil {
		return err
	}
	d.Status, d.StatusReason, d.UpdatedAt = to, reason, now
	if to.Completed() {
		d.CompletedAt = now
	}
	return nil
}

// Plan moves d from PENDING to PLANNED with p's stages, none of them started.
func (d *Deployment) Plan(p Plan, now time.Time) error {
	if err := d.move(Planned, "The deployment is planned and waits for a free slot", now); err != nil {
		return err
	}
	d.Strategy, d.Summary, d.Versions = p.Strategy, p.Summary, p.Versions
	d.RunningCommit, d.RunningDir, d.RunningConfigFile, d.RunningDeploymentID = p.RunningCommit, p.RunningDir, p.RunningConfigFile, p.RunningDeploymentID
	d.Timeout, d.RollbackTimeout, d.NoAutoRollback = p.Timeout, p.RollbackTimeout, p.NoAutoRollback
	if p.EnvironmentURL != "" {
		if d.Metadata == nil {
			d.Metadata = map[string]string{}
		}
		d.Metadata[MetaEnvironmentURL] = p.EnvironmentURL
	}
	d.Stages = make([]Stage, len(p.Stages))
	for i, s := range p.Stages {
		s.Status, s.CreatedAt, s.UpdatedAt = StageNotStarted, now, now
		d.Stages[i] = s
	}
	return nil
}

// Start moves d from PLANNED to RUNNING and sets its deadline.
func (d *Deployment) Start(now time.Time) error {
	if err := d.move(Running, "The deployment is running", now); err != nil {
		return err
	}
	d.Deadline = deadline(now, d.Timeout)
	return nil
}

// StartStage moves a stage to RUNNING and sets its deadline. It does not change a stage that
// is already running (after a restart).
func (d *Deployment) StartStage(id string, now time.Time) error {
	s, err := d.stageForMove(id, StageRunning)
	if err != nil || s.Status == StageRunning {
		return err
	}
	s.Status, s.StatusReason, s.StartedAt, s.UpdatedAt = StageRunning, "", now, now
	s.Deadline = deadline(now, s.Timeout)
	d.UpdatedAt = now
	return nil
}

// FinishStage moves a stage to a terminal status. Illegal if it has one already.
func (d *Deployment) FinishStage(id string, to StageStatus, reason string, now time.Time) error {
	if !to.Completed() {
		return &Error{Kind: Illegal, Op: fmt.Sprintf("finish stage %s as %s", id, to), Err: errNotInTable}
	}
	s, err := d.stageForMove(id, to)
	if err != nil {
		return err
	}
	s.Status, s.StatusReason, s.CompletedAt, s.UpdatedAt = to, reason, now, now
	d.UpdatedAt = now
	return nil
}

// stageForMove returns a stage of the running deployment. Illegal if its status must not
// change to the given one.
func (d *Deployment) stageForMove(id string, to StageStatus) (*Stage, error) {
	s := d.Stage(id)
	if s == nil {
		return nil, Errorf(NotFound, "deployment %s has no stage %q", d.ID, id)
	}
	if d.Status != Running && d.Status != RollingBack {
		return nil, Errorf(Illegal, "stage %s cannot become %s: its deployment is %s", id, to, d.Status)
	}
	return s, CheckStageTransition(s.Status, to)
}

// BeginRollback moves d from RUNNING to ROLLING_BACK. It sets the final status after the
// rollback (FAILURE or CANCELLED) and its reason.
func (d *Deployment) BeginRollback(outcome Status, reason string, now time.Time) error {
	if outcome != Failure && outcome != Cancelled {
		return &Error{Kind: Illegal, Op: fmt.Sprintf("roll back to end as %s", outcome), Err: errNotInTable}
	}
	if err := d.move(RollingBack, reason, now); err != nil {
		return err
	}
	d.Outcome, d.OutcomeReason = outcome, reason
	d.Deadline = deadline(now, d.RollbackTimeout)
	return nil
}

// Complete moves d to a terminal status.
func (d *Deployment) Complete(to Status, reason string, now time.Time) error {
	if !to.Completed() {
		return &Error{Kind: Illegal, Op: fmt.Sprintf("complete deployment %s as %s", d.ID, to), Err: errNotInTable}
	}
	return d.move(to, reason, now)
}

// RollbackStages returns the stages that run while ROLLING_BACK, in order.
func (d *Deployment) RollbackStages() []Stage { return d.stages(true) }

// ForwardStages returns the stages that run while RUNNING, in order.
func (d *Deployment) ForwardStages() []Stage { return d.stages(false) }

func (d *Deployment) stages(rollback bool) []Stage {
	var out []Stage
	for _, s := range d.Stages {
		if s.Rollback == rollback {
			out = append(out, s)
		}
	}
	return out
}

// Diff returns the transition log entries from prev to d: the deployment's own entry, then
// those of its stages. An entry with a terminal status of the deployment comes last. prev is
// nil for a new deployment.
func (d *Deployment) Diff(prev *Deployment, at time.Time) []Transition {
	from := Status("")
	if prev != nil {
		from = prev.Status
	}
	var own []Transition
	if from != d.Status {
		own = []Transition{{DeploymentID: d.ID, From: string(from), To: string(d.Status), Reason: d.StatusReason, At: at}}
	}
	stages := d.stageDiff(prev, at)
	if d.Status.Completed() {
		return append(stages, own...)
	}
	return append(own, stages...)
}

// stageDiff returns the transition log entries of the stages.
func (d *Deployment) stageDiff(prev *Deployment, at time.Time) []Transition {
	var out []Transition
	for _, s := range d.Stages {
		from := StageStatus("")
		if prev != nil {
			if p := prev.Stage(s.ID); p != nil {
				from = p.Status
			}
		}
		if from != s.Status {
			out = append(out, Transition{DeploymentID: d.ID, StageID: s.ID, From: string(from), To: string(s.Status), Reason: s.StatusReason, At: at})
		}
	}
	return out
}

// CheckMove returns nil if every difference between prev and d is a legal
// transition, and the first illegal one otherwise.
func (d *Deployment) CheckMove(prev *Deployment) error {
	from := Status("")
	if prev != nil {
		from = prev.Status
	}
	if err := CheckTransition(from, d.Status); err != nil {
		return err
	}
	seen := map[string]bool{}
	for _, s := range d.Stages {
		if seen[s.ID] {
			return Errorf(Illegal, "deployment %s has two stages with the ID %q", d.ID, s.ID)
		}
		seen[s.ID] = true
		from := StageStatus("")
		if prev != nil {
			if p := prev.Stage(s.ID); p != nil {
				from = p.Status
			}
		}
		if from != s.Status {
			if err := CheckStageTransition(from, s.Status); err != nil {
				return err
			}
		}
	}
	if prev != nil && len(prev.Stages) > 0 && len(d.Stages) != len(prev.Stages) {
		return Errorf(Illegal, "the stages of deployment %s are fixed when it is planned", d.ID)
	}
	return nil
}

// deadline returns the time after timeout, the zero time if there is no timeout.
func deadline(now time.Time, timeout time.Duration) time.Time {
	if timeout <= 0 {
		return time.Time{}
	}
	return now.Add(timeout)
}

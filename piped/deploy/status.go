package deploy

import "fmt"

// Phase is the coarse state of a deployment or a stage.
type Phase string

// The three phases of a deployment; a stage goes through the same three.
const (
	PhasePending   Phase = "Pending"
	PhaseRunning   Phase = "Running"
	PhaseCompleted Phase = "Completed"
)

// Status is the state of a deployment. Its text is stored and shown; the wire
// adds PipeCD's DEPLOYMENT_ prefix.
type Status string

// The statuses of a deployment.
const (
	Pending     Status = "PENDING"
	Planned     Status = "PLANNED"
	Running     Status = "RUNNING"
	RollingBack Status = "ROLLING_BACK"
	Success     Status = "SUCCESS"
	Failure     Status = "FAILURE"
	Cancelled   Status = "CANCELLED"
)

// Statuses lists every deployment status in the order of PipeCD's enum numbers.
func Statuses() []Status {
	return []Status{Pending, Planned, Running, RollingBack, Success, Failure, Cancelled}
}

// Phase returns the phase s belongs to.
func (s Status) Phase() Phase {
	switch s {
	case Pending, Planned:
		return PhasePending
	case Running, RollingBack:
		return PhaseRunning
	default:
		return PhaseCompleted
	}
}

// Completed reports whether s is terminal.
func (s Status) Completed() bool { return s.Phase() == PhaseCompleted }

// Active reports whether a deployment in s occupies its application: an
// application has at most one such deployment.
func (s Status) Active() bool { return s == Planned || s == Running || s == RollingBack }

// StageStatus is the state of one stage. The wire adds PipeCD's STAGE_ prefix.
type StageStatus string

// The statuses of a stage.
const (
	StageNotStarted StageStatus = "NOT_STARTED_YET"
	StageRunning    StageStatus = "RUNNING"
	StageSuccess    StageStatus = "SUCCESS"
	StageFailure    StageStatus = "FAILURE"
	StageCancelled  StageStatus = "CANCELLED"
	StageSkipped    StageStatus = "SKIPPED"
	StageExited     StageStatus = "EXITED"
)

// StageStatuses lists every stage status in the order of PipeCD's enum numbers.
func StageStatuses() []StageStatus {
	return []StageStatus{StageNotStarted, StageRunning, StageSuccess, StageFailure, StageCancelled, StageSkipped, StageExited}
}

// Phase returns the phase s belongs to.
func (s StageStatus) Phase() Phase {
	switch s {
	case StageNotStarted:
		return PhasePending
	case StageRunning:
		return PhaseRunning
	default:
		return PhaseCompleted
	}
}

// Completed reports whether s is terminal.
func (s StageStatus) Completed() bool { return s.Phase() == PhaseCompleted }

// transitions is the table of legal transitions of a deployment. Creation is the
// transition from the empty status.
var transitions = map[Status][]Status{
	"":          {Pending},
	Pending:     {Planned, Failure, Cancelled},
	Planned:     {Running, Failure, Cancelled},
	Running:     {Success, RollingBack, Failure, Cancelled},
	RollingBack: {Failure, Cancelled},
	Success:     nil,
	Failure:     nil,
	Cancelled:   nil,
}

// stageTransitions is the table of legal transitions of a stage. Planning creates stages as
// not started.
var stageTransitions = map[StageStatus][]StageStatus{
	"":              {StageNotStarted},
	StageNotStarted: {StageRunning, StageSkipped, StageCancelled},
	StageRunning:    {StageSuccess, StageFailure, StageCancelled, StageSkipped, StageExited},
	StageSuccess:    nil,
	StageFailure:    nil,
	StageCancelled:  nil,
	StageSkipped:    nil,
	StageExited:     nil,
}

// CheckTransition returns nil if a deployment may change from one status to another, and an
// error of kind Illegal otherwise. from is "" for a new deployment. An unchanged status is
// legal unless it is terminal.
func CheckTransition(from, to Status) error {
	return checkMove("deployment", transitions, from, to, from.Completed() && from != "")
}

// CheckStageTransition is CheckTransition for a stage.
func CheckStageTransition(from, to StageStatus) error {
	return checkMove("stage", stageTransitions, from, to, from.Completed() && from != "")
}

// checkMove returns an error of kind Illegal unless table permits the transition. An unchanged
// status is permitted if it is not terminal. what names the subject in the error.
func checkMove[S ~string](what string, table map[S][]S, from, to S, terminal bool) error {
	if from == to && from != "" && !terminal {
		return nil
	}
	for _, next := range table[from] {
		if next == to {
			return nil
		}
	}
	return &Error{Kind: Illegal, Op: fmt.Sprintf("move %s from %q to %q", what, from, to), Err: errNotInTable}
}

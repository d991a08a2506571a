package scheduler

import (
	"context"

	"github.com/c785c783/piped/piped/deploy"
)

// Keys of Stage.Metadata that hold the skip a stage was given, stored before the
// command is answered, as those of a cancel are.
const (
	metaSkipCommand = "SkipCommandID"
	metaSkippedBy   = "SkippedBy" // PipeCD's
	metaSkipReason  = "SkipReason"
)

// skipping is the skip a stage was given.
type skipping struct{ by, why string }

// skipOf returns the skip a stage was given, nil if none.
func skipOf(s *deploy.Stage) *skipping {
	if s.Metadata[metaSkipCommand] == "" {
		return nil
	}
	return &skipping{by: s.Metadata[metaSkippedBy], why: s.Metadata[metaSkipReason]}
}

// reason is that of the stage's status.
func (s *skipping) reason() string { return joinReason("skipped by "+s.by, s.why) }

// acceptSkip gives a stage of d the skip c: a running one ends now, one that has
// not started when its turn comes. Invalid or NotFound if the stage cannot be
// skipped, or no longer. The first skip counts.
func acceptSkip(d *deploy.Deployment, c deploy.Command) error {
	stage := d.Stage(c.StageID)
	if stage != nil && stage.Metadata[metaSkipCommand] == c.ID {
		return nil
	}
	if err := refuseSkip(d, stage, c.StageID); err != nil || skipOf(stage) != nil {
		return err
	}
	if stage.Metadata == nil {
		stage.Metadata = map[string]string{}
	}
	stage.Metadata[metaSkipCommand], stage.Metadata[metaSkippedBy] = c.ID, c.Commander
	if c.Reason != "" {
		stage.Metadata[metaSkipReason] = c.Reason
	}
	return nil
}

// refuseSkip says why a stage cannot be skipped.
func refuseSkip(d *deploy.Deployment, stage *deploy.Stage, id string) error {
	switch {
	case stage == nil && d.Status == deploy.Pending:
		return deploy.Errorf(deploy.Invalid, "deployment %s has no stages yet, because it is %s: try again when it is planned", d.ID, d.Status)
	case stage == nil:
		return deploy.Errorf(deploy.NotFound, "deployment %s has no stage %q", d.ID, id)
	case stage.Name == deploy.StageWaitApproval:
		return deploy.Errorf(deploy.Invalid, "stage %s needs approval and cannot be skipped: approve it, or reject it", id)
	case !deploy.Skippable(stage.Name):
		return deploy.Errorf(deploy.Invalid, "stage %s is a %s stage and cannot be skipped: only %s and %s can", id, stage.Name, deploy.StageWait, deploy.StageAnalysis)
	case stage.Status.Completed():
		return deploy.Errorf(deploy.Invalid, "stage %s has ended already: it is %s", id, stage.Status)
	case d.Status != deploy.Planned && d.Status != deploy.Running:
		return deploy.Errorf(deploy.Invalid, "stage %s does not run any more: the deployment is %s", id, d.Status)
	case cancelOf(d) != nil:
		return deploy.Errorf(deploy.Invalid, "stage %s does not run any more: %s has cancelled the deployment", id, cancelOf(d).by)
	}
	return nil
}

// honourSkip returns how a stage ends whose executor came to result. A skip that
// was promised holds, whatever came of the stage meanwhile but a success.
func honourSkip(s *deploy.Stage, result deploy.StageResult) deploy.StageResult {
	skip := skipOf(s)
	if skip == nil || result.Status == deploy.StageSuccess || result.Status == deploy.StageExited {
		return result
	}
	return deploy.StageResult{Status: deploy.StageSkipped, Reason: skip.reason()}
}

// enter makes stop end the stage when it is skipped: at once if that was stored
// before it began.
func (r *run) enter(stage deploy.Stage, stop context.CancelCauseFunc) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.stage, r.stopStage = stage.ID, stop
	if skip := skipOf(&stage); skip != nil {
		r.skips[stage.ID] = skip.reason()
	}
	if r.skips[stage.ID] != "" {
		stop(deploy.StopSkipped)
	}
}

// skip ends a stage because its stored row was given a skip. Too late or too
// early, it ends nothing.
func (r *run) skip(stageID, reason string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.skips[stageID] = reason
	if r.stage == stageID {
		r.stopStage(deploy.StopSkipped)
	}
}

// skipped says why a stage is skipped, "" if it is not.
func (r *run) skipped(stageID string) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.skips[stageID]
}

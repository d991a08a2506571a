package scheduler

import (
	"context"

	"github.com/c785c783/piped/piped/deploy"
)

// Keys of Stage.Metadata that hold an accepted skip request, stored before the command
// is answered.
const (
	metaSkipCommand = "SkipCommandID"
	metaSkippedBy   = "SkippedBy" // PipeCD's
	metaSkipReason  = "SkipReason"
)

// skipping is an accepted skip request.
type skipping struct{ by, why string }

// skipOf returns the skip request of a stage, nil if none.
func skipOf(s *deploy.Stage) *skipping {
	if s.Metadata[metaSkipCommand] == "" {
		return nil
	}
	return &skipping{by: s.Metadata[metaSkippedBy], why: s.Metadata[metaSkipReason]}
}

// reason returns the status reason of the skipped stage.
func (s *skipping) reason() string { return joinReason("skipped by "+s.by, s.why) }

// acceptSkip records the skip request c in a stage of d. A running stage ends now, a
// later one when its turn comes. The first request takes effect. The error is Invalid
// or NotFound if the stage cannot be skipped.
func acceptSkip(d *deploy.Deployment, c deploy.Command) error {
	stage := d.Stage(c.StageID)
	if stage != nil && stage.Metadata[metaSkipCommand] == c.ID {
		return nil
	}
	if err := validateSkip(d, stage, c.StageID); err != nil || skipOf(stage) != nil {
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

// validateSkip returns why a stage of d cannot be skipped, nil if it can. stage is nil if d
// has no stage with this ID.
func validateSkip(d *deploy.Deployment, stage *deploy.Stage, id string) error {
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

// applySkip returns the final result of a stage. A skip request replaces every result
// but a success.
func applySkip(s *deploy.Stage, result deploy.StageResult) deploy.StageResult {
	skip := skipOf(s)
	if skip == nil || result.Status == deploy.StageSuccess || result.Status == deploy.StageExited {
		return result
	}
	return deploy.StageResult{Status: deploy.StageSkipped, Reason: skip.reason()}
}

// setStage registers the running stage and its stop function. It stops the stage at
// once if a skip was requested before.
func (r *run) setStage(stage deploy.Stage, stop context.CancelCauseFunc) {
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

// skip stops the stage after a skip request was stored. It has no effect unless the
// stage is running.
func (r *run) skip(stageID, reason string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.skips[stageID] = reason
	if r.stage == stageID {
		r.stopStage(deploy.StopSkipped)
	}
}

// skipReason returns why the user skipped a stage, "" if not skipped.
func (r *run) skipReason(stageID string) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.skips[stageID]
}

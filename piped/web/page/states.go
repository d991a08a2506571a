package page

import (
	"fmt"
	"regexp"
	"strconv"

	controlv1 "github.com/c785c783/piped/proto/piped/control/v1"
	modelv1 "github.com/c785c783/piped/proto/piped/model/v1"
)

// role is the meaning of a colour. Colour is used for nothing else.
type role string

const (
	roleOK        role = "ok"
	roleActive    role = "active"
	roleAttention role = "attention"
	roleWarn      role = "warn"
	roleBad       role = "bad"
	roleMuted     role = "muted"
)

// mark is how a state is shown: an icon, a word and a colour role, always together.
type mark struct {
	icon     string
	word     string
	role     role
	progress int // percent that the ring is filled
}

// applicationStates are the states of applications: the one vocabulary of the page.
func applicationStates() map[controlv1.ApplicationState]mark {
	return map[controlv1.ApplicationState]mark{
		controlv1.ApplicationState_APPLICATION_STATE_SYNCED:               {icon: "check", word: "Synced", role: roleOK},
		controlv1.ApplicationState_APPLICATION_STATE_DEPLOYING:            {icon: "ring", word: "Deploying", role: roleActive},
		controlv1.ApplicationState_APPLICATION_STATE_WAITING_FOR_APPROVAL: {icon: "hand", word: "Waiting for approval", role: roleAttention},
		controlv1.ApplicationState_APPLICATION_STATE_HELD:                 {icon: "pause", word: "Held", role: roleAttention},
		controlv1.ApplicationState_APPLICATION_STATE_DRIFTED:              {icon: "differs", word: "Drifted", role: roleWarn},
		controlv1.ApplicationState_APPLICATION_STATE_FAILED:               {icon: "cross", word: "Failed", role: roleBad},
		controlv1.ApplicationState_APPLICATION_STATE_DEGRADED:             {icon: "pulse", word: "Degraded", role: roleBad},
		controlv1.ApplicationState_APPLICATION_STATE_INVALID_CONFIG:       {icon: "braces", word: "Invalid config", role: roleBad},
		controlv1.ApplicationState_APPLICATION_STATE_UNKNOWN:              {icon: "cloud-off", word: "Unknown", role: roleMuted},
		controlv1.ApplicationState_APPLICATION_STATE_UNSPECIFIED:          {icon: "cloud-off", word: "Unknown", role: roleMuted},
	}
}

// place is the end of a state's words, such as `2 of 4`.
var place = regexp.MustCompile(`(\d+) of (\d+)$`)

// markOf returns the mark of an application's status, with the API's words.
func markOf(s *controlv1.ApplicationStatus) mark {
	m := applicationStates()[s.GetState()]
	if s.GetWord() != "" {
		m.word = s.Word
	}
	if found := place.FindStringSubmatch(m.word); found != nil {
		at, _ := strconv.Atoi(found[1])  // digits
		all, _ := strconv.Atoi(found[2]) // digits
		if all > 0 && at <= all {
			m.progress = (2*at - 1) * 50 / all // in the middle of this stage
		}
	}
	return m
}

// stateMark returns the mark of a value of the facet `state`.
func stateMark(value string) mark {
	return applicationStates()[controlv1.ApplicationState(controlv1.ApplicationState_value["APPLICATION_STATE_"+value])]
}

// deploymentMark returns the mark of a deployment's status.
func deploymentMark(s modelv1.DeploymentStatus) mark {
	switch s {
	case modelv1.DeploymentStatus_DEPLOYMENT_PENDING:
		return mark{icon: "clock", word: "Pending", role: roleMuted}
	case modelv1.DeploymentStatus_DEPLOYMENT_PLANNED:
		return mark{icon: "clock", word: "Planned", role: roleMuted}
	case modelv1.DeploymentStatus_DEPLOYMENT_RUNNING:
		return mark{icon: "ring", word: "Running", role: roleActive, progress: 50}
	case modelv1.DeploymentStatus_DEPLOYMENT_ROLLING_BACK:
		return mark{icon: "undo", word: "Rolling back", role: roleWarn}
	case modelv1.DeploymentStatus_DEPLOYMENT_SUCCESS:
		return mark{icon: "check", word: "Succeeded", role: roleOK}
	case modelv1.DeploymentStatus_DEPLOYMENT_FAILURE:
		return mark{icon: "cross", word: "Failed", role: roleBad}
	case modelv1.DeploymentStatus_DEPLOYMENT_CANCELLED:
		return mark{icon: "stop", word: "Cancelled", role: roleMuted}
	}
	return mark{icon: "cloud-off", word: "Unknown", role: roleMuted}
}

// stageMark returns the mark of a stage.
func stageMark(s *modelv1.PipelineStage) mark {
	switch s.Status {
	case modelv1.StageStatus_STAGE_NOT_STARTED_YET:
		return mark{icon: "dot", word: "Not started", role: roleMuted}
	case modelv1.StageStatus_STAGE_RUNNING:
		if s.AvailableOperation == modelv1.ManualOperation_MANUAL_OPERATION_APPROVE {
			return mark{icon: "hand", word: "Waiting for approval", role: roleAttention}
		}
		return mark{icon: "ring", word: "Running", role: roleActive, progress: 50}
	case modelv1.StageStatus_STAGE_SUCCESS:
		return mark{icon: "check", word: "Succeeded", role: roleOK}
	case modelv1.StageStatus_STAGE_FAILURE:
		return mark{icon: "cross", word: "Failed", role: roleBad}
	case modelv1.StageStatus_STAGE_CANCELLED:
		return mark{icon: "stop", word: "Cancelled", role: roleMuted}
	case modelv1.StageStatus_STAGE_SKIPPED:
		return mark{icon: "skip", word: "Skipped", role: roleMuted}
	case modelv1.StageStatus_STAGE_EXITED:
		return mark{icon: "check", word: "Ended the deployment", role: roleOK}
	}
	return mark{icon: "cloud-off", word: "Unknown", role: roleMuted}
}

// healthMark returns the mark of a health.
func healthMark(h modelv1.Health) mark {
	switch h {
	case modelv1.Health_HEALTH_HEALTHY:
		return mark{icon: "check", word: "Healthy", role: roleOK}
	case modelv1.Health_HEALTH_PROGRESSING:
		return mark{icon: "ring", word: "Progressing", role: roleActive, progress: 50}
	case modelv1.Health_HEALTH_SUSPENDED:
		return mark{icon: "pause", word: "Suspended", role: roleAttention}
	case modelv1.Health_HEALTH_MISSING:
		return mark{icon: "cross", word: "Missing", role: roleBad}
	case modelv1.Health_HEALTH_DEGRADED:
		return mark{icon: "pulse", word: "Degraded", role: roleBad}
	}
	return mark{icon: "cloud-off", word: "Unknown", role: roleMuted}
}

// rolloutMark returns the mark of the outcome of a rollout.
func rolloutMark(o modelv1.RolloutOutcome) mark {
	switch o {
	case modelv1.RolloutOutcome_ROLLOUT_OUTCOME_PROGRESSING:
		return mark{icon: "ring", word: "Progressing", role: roleActive, progress: 50}
	case modelv1.RolloutOutcome_ROLLOUT_OUTCOME_HELD:
		return mark{icon: "pause", word: "Held", role: roleAttention}
	case modelv1.RolloutOutcome_ROLLOUT_OUTCOME_COMPLETE:
		return mark{icon: "check", word: "Complete", role: roleOK}
	case modelv1.RolloutOutcome_ROLLOUT_OUTCOME_NO_ROLLOUT:
		return mark{icon: "dot", word: "Nothing to do", role: roleMuted}
	case modelv1.RolloutOutcome_ROLLOUT_OUTCOME_FAILED:
		return mark{icon: "cross", word: "Failed", role: roleBad}
	case modelv1.RolloutOutcome_ROLLOUT_OUTCOME_TIMED_OUT:
		return mark{icon: "clock", word: "Timed out", role: roleBad}
	case modelv1.RolloutOutcome_ROLLOUT_OUTCOME_SUPERSEDED:
		return mark{icon: "skip", word: "Superseded", role: roleMuted}
	case modelv1.RolloutOutcome_ROLLOUT_OUTCOME_GONE:
		return mark{icon: "stop", word: "Deleted", role: roleMuted}
	}
	return mark{icon: "cloud-off", word: "Unknown", role: roleMuted}
}

// filled returns the dashes of a ring that is filled in percent.
func filled(progress int) string {
	return fmt.Sprintf("%d 100", min(max(progress, 4), 100))
}

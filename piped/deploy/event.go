package deploy

import (
	"encoding/json"
	"time"
)

// EventType names something worth telling. Names are PipeCD's without prefix.
type EventType string

// The events the three phases produce.
const (
	EventTriggered   EventType = "DEPLOYMENT_TRIGGERED"
	EventPlanned     EventType = "DEPLOYMENT_PLANNED"
	EventStarted     EventType = "DEPLOYMENT_STARTED"
	EventRollingBack EventType = "DEPLOYMENT_ROLLING_BACK"
	EventSucceeded   EventType = "DEPLOYMENT_SUCCEEDED"
	EventFailed      EventType = "DEPLOYMENT_FAILED"
	EventCancelled   EventType = "DEPLOYMENT_CANCELLED"

	EventStageStarted   EventType = "STAGE_STARTED"
	EventStageSkipped   EventType = "STAGE_SKIPPED"
	EventStageSucceeded EventType = "STAGE_SUCCEEDED"
	EventStageFailed    EventType = "STAGE_FAILED"
	EventStageCancelled EventType = "STAGE_CANCELLED"

	EventWaitApproval EventType = "DEPLOYMENT_WAIT_APPROVAL"
	EventApproved     EventType = "DEPLOYMENT_APPROVED"

	EventRolloutEnded EventType = "ROLLOUT_ENDED"

	// EventSelfHealStopped: drift came back too often and is no longer undone. It
	// is our own; PipeCD heals without end.
	EventSelfHealStopped EventType = "APPLICATION_SELF_HEAL_STOPPED"

	// PipeCD has these names and never sends them: a period of drift has begun, and
	// has ended.
	EventOutOfSync EventType = "APPLICATION_OUT_OF_SYNC"
	EventSynced    EventType = "APPLICATION_SYNCED"
)

var deploymentEvents = map[Status]EventType{
	Pending: EventTriggered, Planned: EventPlanned, Running: EventStarted, RollingBack: EventRollingBack,
	Success: EventSucceeded, Failure: EventFailed, Cancelled: EventCancelled,
}

var stageEvents = map[StageStatus]EventType{
	StageRunning: EventStageStarted, StageSkipped: EventStageSkipped, StageSuccess: EventStageSucceeded,
	StageExited: EventStageSucceeded, StageFailure: EventStageFailed, StageCancelled: EventStageCancelled,
}

// Event is one outbox row: written in the transaction of what it tells about,
// delivered at least once, with Key as idempotency key.
type Event struct {
	Seq           int64 // assigned by the store; order of delivery per deployment
	Key           string
	Type          EventType
	ApplicationID string
	DeploymentID  string
	StageID       string
	Payload       json.RawMessage
	At            time.Time
}

// approvalEvents tell, beside the events of every stage, of one that waits for
// people.
var approvalEvents = map[StageStatus]EventType{StageRunning: EventWaitApproval, StageSuccess: EventApproved}

// EventsFor returns the events that tell of t, a transition of d. Their keys are
// unique because a status is entered at most once.
func EventsFor(d *Deployment, t Transition) []Event {
	var out []Event
	add := func(kind EventType, key string) {
		if e, ok := newEvent(d, t, kind, key); ok {
			out = append(out, e)
		}
	}
	key := d.ID + "/" + t.StageID + "/" + t.To
	if t.StageID == "" {
		if kind, ok := deploymentEvents[Status(t.To)]; ok {
			add(kind, key)
		}
		return out
	}
	if kind, ok := stageEvents[StageStatus(t.To)]; ok {
		add(kind, key)
	}
	if stage := d.Stage(t.StageID); stage != nil && stage.Name == StageWaitApproval {
		if kind, ok := approvalEvents[StageStatus(t.To)]; ok {
			add(kind, key+"/"+string(kind))
		}
	}
	return out
}

func newEvent(d *Deployment, t Transition, kind EventType, key string) (Event, bool) {
	payload, err := json.Marshal(map[string]any{
		"application": d.ApplicationName, "commit": d.Trigger.Commit, "summary": d.Summary,
		"from": t.From, "to": t.To, "reason": t.Reason,
	})
	if err != nil {
		return Event{}, false // strings and times always encode
	}
	return Event{
		Key: key, Type: kind, ApplicationID: d.ApplicationID,
		DeploymentID: d.ID, StageID: t.StageID, Payload: payload, At: t.At,
	}, true
}

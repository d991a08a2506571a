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

	EventRolloutEnded EventType = "ROLLOUT_ENDED"
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

// EventFor returns the event that tells of t, a transition of d; ok is false
// for transitions nobody is told of. The key is unique because a status is
// entered at most once.
func EventFor(d *Deployment, t Transition) (e Event, ok bool) {
	kind, ok := deploymentEvents[Status(t.To)]
	if t.StageID != "" {
		kind, ok = stageEvents[StageStatus(t.To)]
	}
	if !ok {
		return Event{}, false
	}
	payload, err := json.Marshal(map[string]any{
		"application": d.ApplicationName, "commit": d.Trigger.Commit, "summary": d.Summary,
		"from": t.From, "to": t.To, "reason": t.Reason,
	})
	if err != nil {
		return Event{}, false // strings and times always encode
	}
	return Event{
		Key: d.ID + "/" + t.StageID + "/" + t.To, Type: kind, ApplicationID: d.ApplicationID,
		DeploymentID: d.ID, StageID: t.StageID, Payload: payload, At: t.At,
	}, true
}

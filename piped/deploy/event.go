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
	EventScalingEnded EventType = "SCALING_ENDED"

	// EventSelfHealStopped: drift came back too often and is no longer undone. It
	// is our own; PipeCD heals without end.
	EventSelfHealStopped EventType = "APPLICATION_SELF_HEAL_STOPPED"

	// EventHeld: a user keeps an application at a commit other than the head's.
	// EventReleased: that has ended. Both are our own.
	EventHeld     EventType = "APPLICATION_HELD"
	EventReleased EventType = "APPLICATION_RELEASED"

	// PipeCD has these names and never sends them: a period of drift has begun, and
	// has ended.
	EventOutOfSync EventType = "APPLICATION_OUT_OF_SYNC"
	EventSynced    EventType = "APPLICATION_SYNCED"

	// EventPlanPreviewed: a plan preview for a pull request is there to be told. It is
	// our own, and of no application.
	EventPlanPreviewed EventType = "PLAN_PREVIEW_ANSWERED"

	// EventHealthy: an application that was degraded is well again; PipeCD has the
	// name and never sends it. EventDegraded is our own.
	EventHealthy  EventType = "APPLICATION_HEALTHY"
	EventDegraded EventType = "APPLICATION_DEGRADED"

	// EventTriggerFailed: the configuration of an application cannot be used.
	EventTriggerFailed EventType = "DEPLOYMENT_TRIGGER_FAILED"

	EventPipedStarted EventType = "PIPED_STARTED"
	EventPipedStopped EventType = "PIPED_STOPPED"
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
	add := func(kind EventType, key string) { out = append(out, newEvent(d, t, kind, key)) }
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

func newEvent(d *Deployment, t Transition, kind EventType, key string) Event {
	p := EventPayload{Application: d.ApplicationName, Commit: &d.Trigger.Commit, Summary: d.Summary, From: t.From, To: t.To, Reason: t.Reason}
	switch kind {
	case EventApproved:
		p.Approver = d.Stage(t.StageID).Metadata[MetaApprovedBy]
	case EventCancelled:
		p.Commander = d.Metadata[MetaCancelledBy]
	}
	return Event{
		Key: key, Type: kind, ApplicationID: d.ApplicationID,
		DeploymentID: d.ID, StageID: t.StageID, Payload: p.JSON(), At: t.At,
	}
}

// TriggerFailedKey returns the key of the event that tells that the configuration of
// an application cannot be used at a commit, which is told once of each.
func TriggerFailedKey(applicationID, commit string) string {
	return applicationID + "/trigger-failed/" + commit
}

// EventPayload is what the payload of an event may say beside the event's own
// fields. Payloads may hold more; what is empty does not concern the event.
type EventPayload struct {
	Application string  `json:"application,omitempty"` // its name
	Commit      *Commit `json:"commit,omitempty"`
	Summary     string  `json:"summary,omitempty"` // of the deployment

	From   string `json:"from,omitempty"` // statuses, of what has moved
	To     string `json:"to,omitempty"`
	Reason string `json:"reason,omitempty"`

	Approver  string `json:"approver,omitempty"`  // of EventApproved
	Commander string `json:"commander,omitempty"` // of EventCancelled, when a person cancelled

	Cluster  string       `json:"cluster,omitempty"` // of EventRolloutEnded, as the next two
	Workload *ObjectRef   `json:"workload,omitempty"`
	Phase    RolloutPhase `json:"phase,omitempty"`
	Rollout  *RolloutEnd  `json:"rollout,omitempty"` // the whole, of EventScalingEnded, too

	Piped *PipedIdentity `json:"piped,omitempty"` // of EventPipedStarted and EventPipedStopped
}

// PipedIdentity names an agent.
type PipedIdentity struct {
	ID        string `json:"id"`
	Name      string `json:"name,omitempty"`
	Version   string `json:"version,omitempty"`
	ProjectID string `json:"projectID"`
}

// JSON returns the payload as an event carries it.
func (p EventPayload) JSON() json.RawMessage {
	data, err := json.Marshal(p)
	if err != nil {
		return json.RawMessage("{}") // strings and times always encode
	}
	return data
}

// Details returns what the payload says; what cannot be read says nothing.
func (e Event) Details() (p EventPayload) {
	if json.Unmarshal(e.Payload, &p) != nil {
		return EventPayload{}
	}
	return p
}

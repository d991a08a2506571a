package deploy

import (
	"encoding/json"
	"time"
)

// EventType is the kind of an event. Names are PipeCD's without prefix.
type EventType string

// The events of the three phases.
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

	// The start and the end of a rollout, also of one that the agent did not begin, the late completion of one that
	// had failed, and the end of a scaling. Not in PipeCD.
	EventRolloutStarted   EventType = "ROLLOUT_STARTED"
	EventRolloutEnded     EventType = "ROLLOUT_ENDED"
	EventRolloutRecovered EventType = "ROLLOUT_RECOVERED"
	EventScalingEnded     EventType = "SCALING_ENDED"

	// EventSelfHealStopped reports that drift recurred too often and self-healing
	// stopped. Not in PipeCD, which heals without limit.
	EventSelfHealStopped EventType = "APPLICATION_SELF_HEAL_STOPPED"

	// EventHeld reports that a user holds an application at another commit than the
	// head, EventReleased the end of that hold. Not in PipeCD.
	EventHeld     EventType = "APPLICATION_HELD"
	EventReleased EventType = "APPLICATION_RELEASED"

	// The begin and the end of a period of drift. PipeCD defines these names but never
	// sends them.
	EventOutOfSync EventType = "APPLICATION_OUT_OF_SYNC"
	EventSynced    EventType = "APPLICATION_SYNCED"

	// EventPlanPreviewed reports a completed plan preview of a pull request. It
	// concerns no application. Not in PipeCD.
	EventPlanPreviewed EventType = "PLAN_PREVIEW_ANSWERED"

	// EventHealthy reports the recovery of a degraded application; PipeCD defines the
	// name but never sends it. EventDegraded is not in PipeCD.
	EventHealthy  EventType = "APPLICATION_HEALTHY"
	EventDegraded EventType = "APPLICATION_DEGRADED"

	// EventTriggerFailed reports an invalid application configuration.
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

// Event is one outbox row: written in the transaction of the reported change, delivered
// at least once, with Key as idempotency key.
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

// approvalEvents are sent in addition to the stage events for stages that wait for
// approval.
var approvalEvents = map[StageStatus]EventType{StageRunning: EventWaitApproval, StageSuccess: EventApproved}

// EventsFor returns the events of transition t of d. Their keys are unique because a status is
// entered at most once.
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

// TriggerFailedKey returns the key of the EventTriggerFailed of an application at a
// commit: one event is sent for each.
func TriggerFailedKey(applicationID, commit string) string {
	return applicationID + "/trigger-failed/" + commit
}

// EventPayload holds the optional fields of an event's payload. Payloads may contain
// more; empty fields do not apply to the event.
type EventPayload struct {
	Application string  `json:"application,omitempty"` // its name
	Commit      *Commit `json:"commit,omitempty"`
	Summary     string  `json:"summary,omitempty"` // of the deployment

	From   string `json:"from,omitempty"` // old and new status of a transition
	To     string `json:"to,omitempty"`
	Reason string `json:"reason,omitempty"`

	Approver  string `json:"approver,omitempty"`  // of EventApproved
	Commander string `json:"commander,omitempty"` // of EventCancelled by a user

	// Of the events of rollouts and scalings. Interrupts is the ID of the workload's rollout
	// that had not ended when that of an EventRolloutStarted began.
	Cluster    string       `json:"cluster,omitempty"`
	Workload   *ObjectRef   `json:"workload,omitempty"`
	Phase      RolloutPhase `json:"phase,omitempty"`
	Rollout    *RolloutEnd  `json:"rollout,omitempty"`
	Interrupts string       `json:"interrupts,omitempty"`

	Piped *PipedIdentity `json:"piped,omitempty"` // of EventPipedStarted and EventPipedStopped
}

// PipedIdentity names an agent.
type PipedIdentity struct {
	ID        string `json:"id"`
	Name      string `json:"name,omitempty"`
	Version   string `json:"version,omitempty"`
	ProjectID string `json:"projectID"`
}

// JSON returns the encoded payload.
func (p EventPayload) JSON() json.RawMessage {
	data, err := json.Marshal(p)
	if err != nil {
		return json.RawMessage("{}") // cannot happen: the fields are strings, numbers and times
	}
	return data
}

// Details returns the decoded payload, or a zero one if it cannot be decoded.
func (e Event) Details() (p EventPayload) {
	if json.Unmarshal(e.Payload, &p) != nil {
		return EventPayload{}
	}
	return p
}

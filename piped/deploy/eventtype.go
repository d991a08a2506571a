package deploy

import (
	"cmp"
	"maps"
	"slices"
)

// EventGroup is a group of events that a route of notifications can name.
type EventGroup string

// The groups. PipeCD does not have the last one.
const (
	GroupDeployment        EventGroup = "DEPLOYMENT"
	GroupApplicationSync   EventGroup = "APPLICATION_SYNC"
	GroupApplicationHealth EventGroup = "APPLICATION_HEALTH"
	GroupPiped             EventGroup = "PIPED"
	GroupStage             EventGroup = "STAGE"
	GroupRollout           EventGroup = "ROLLOUT"
)

// EventGroups returns every group.
func EventGroups() []EventGroup {
	return []EventGroup{GroupDeployment, GroupApplicationSync, GroupApplicationHealth, GroupPiped, GroupStage, GroupRollout}
}

// eventNumbers are PipeCD's event numbers. Events that PipeCD lacks have the last
// numbers of their group's range, or numbers above all of PipeCD's. No configured route
// matches an event without a number.
var eventNumbers = map[EventType]int{
	EventTriggered: 0, EventPlanned: 1, EventApproved: 2, EventRollingBack: 3, EventSucceeded: 4, EventFailed: 5,
	EventCancelled: 6, EventWaitApproval: 7, EventTriggerFailed: 8, EventStarted: 9,
	EventSynced: 100, EventOutOfSync: 101, EventReleased: 197, EventHeld: 198, EventSelfHealStopped: 199,
	EventHealthy: 200, EventDegraded: 299,
	EventPipedStarted: 300, EventPipedStopped: 301,
	EventStageStarted: 400, EventStageSkipped: 401, EventStageSucceeded: 402, EventStageFailed: 403, EventStageCancelled: 404,
	EventRolloutEnded: 1000, EventScalingEnded: 1001, EventRolloutStarted: 1002, EventRolloutRecovered: 1003,
}

// EventTypes returns every numbered event in ascending order.
func EventTypes() []EventType {
	return slices.SortedFunc(maps.Keys(eventNumbers), func(a, b EventType) int { return cmp.Compare(eventNumbers[a], eventNumbers[b]) })
}

// Number returns the event's number, -1 for an unknown event.
func (t EventType) Number() int {
	n, ok := eventNumbers[t]
	if !ok {
		return -1
	}
	return n
}

// Group returns the event's group, derived from its number.
func (t EventType) Group() EventGroup {
	switch n := t.Number(); {
	case n < 0:
		return ""
	case n < 100:
		return GroupDeployment
	case n < 200:
		return GroupApplicationSync
	case n < 300:
		return GroupApplicationHealth
	case n < 400:
		return GroupPiped
	case n < 500:
		return GroupStage
	}
	return GroupRollout
}

// IsExtension reports whether PipeCD has no such event.
func (t EventType) IsExtension() bool {
	n := t.Number()
	return n < 0 || n >= 1000 || n%100 >= 97
}

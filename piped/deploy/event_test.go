package deploy

import (
	"slices"
	"testing"
)

func TestEventsFor(t *testing.T) {
	d := &Deployment{ID: "d", Stages: []Stage{{ID: "ask", Name: StageWaitApproval}, {ID: "sync", Name: StageK8sSync}}}
	keys := map[string]bool{}
	for name, c := range map[string]struct {
		transition Transition
		want       []EventType
	}{
		"a deployment starts":        {Transition{To: string(Running)}, []EventType{EventStarted}},
		"a stage is created":         {Transition{StageID: "sync", To: string(StageNotStarted)}, nil},
		"a stage starts":             {Transition{StageID: "sync", To: string(StageRunning)}, []EventType{EventStageStarted}},
		"people are asked":           {Transition{StageID: "ask", To: string(StageRunning)}, []EventType{EventStageStarted, EventWaitApproval}},
		"people have approved":       {Transition{StageID: "ask", To: string(StageSuccess)}, []EventType{EventStageSucceeded, EventApproved}},
		"people have rejected":       {Transition{StageID: "ask", To: string(StageFailure)}, []EventType{EventStageFailed}},
		"no approval needed":         {Transition{StageID: "ask", To: string(StageSkipped)}, []EventType{EventStageSkipped}},
		"another stage has finished": {Transition{StageID: "sync", To: string(StageSuccess)}, []EventType{EventStageSucceeded}},
	} {
		var got []EventType
		for _, e := range EventsFor(d, c.transition) {
			got = append(got, e.Type)
			if keys[e.Key] {
				t.Errorf("%s: the key %s is not unique", name, e.Key)
			}
			keys[e.Key] = true
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}

package rollout

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/c785c783/piped/piped/deploy"
)

// TestAppliedAgain: a repeated stage applies its workload again.
func TestAppliedAgain(t *testing.T) {
	later := epoch.Add(time.Hour)
	first := Applied(deploy.Rollout{Phase: deploy.RolloutIntent, LiveBefore: "A"}, Workload{UID: "u", Generation: 2, Template: templates[1], Replicas: 3}, epoch)
	going := first
	going.Phase, going.Reason, going.TargetUID, going.Revision = deploy.RolloutProgressing, "1 of 3", "rs", 2
	going.SeenReady, going.SeenOld, going.FailingSince = 1, 1, epoch
	going.FollowedDigest, going.FollowedAt = "B+restart", epoch
	again := Workload{UID: "u", Generation: 4, Template: templates[1], Images: "web:2", Replicas: 5, ManagedAt: later.Add(time.Second)}

	anew := going
	anew.Reason, anew.TargetUID, anew.Revision = ": applied again", "", 0
	anew.Generation, anew.DesiredAtStart, anew.ReplicasAfter, anew.Images = 4, 5, 5, "web:2"
	anew.ServerAppliedAt, anew.LastProgress, anew.UpdatedAt = later.Add(time.Second), later, later
	anew.SeenReady, anew.SeenOld, anew.FailingSince = 0, unseen, time.Time{}
	anew.FollowedDigest, anew.FollowedAt = "", time.Time{}
	created := again
	created.UID = "other"
	ofOther := anew
	ofOther.UID = "other"
	complete := going
	complete.Phase = deploy.RolloutComplete
	unchanged := Workload{UID: "u", Generation: 2, Template: templates[1], Replicas: 3}

	for name, c := range map[string]struct {
		rec  deploy.Rollout
		w    Workload
		want deploy.Rollout
	}{
		"without a change":              {going, unchanged, going},
		"before it was observed":        {first, unchanged, first},
		"over another manager's change": {going, again, anew},
		"after it was deleted":          {going, created, ofOther},
		"after the end":                 {complete, again, complete},
	} {
		if diff := cmp.Diff(c.want, Applied(c.rec, c.w, later)); diff != "" {
			t.Errorf("applied again %s (-want +got):\n%s", name, diff)
		}
	}
	if first.Phase != deploy.RolloutApplied || first.LiveBefore != "A" || !first.AppliedAt.Equal(epoch) {
		t.Errorf("applied first: %+v", first)
	}
}

package store

import (
	"encoding/json"
	"reflect"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/c785c783/piped/piped/deploy"
)

// storedRollout is the body of a record of which every field is set.
const storedRollout = `{"workload":{"group":"apps","version":"v1","kind":"Deployment","namespace":"shop","name":"web"},"uid":"u","reason":"r",
	"changedBy":"cb","supersededBy":"sb","application":"web","commit":"c","intentDigest":"id","liveBefore":"lb","templateDigest":"td","images":"web:2",
	"generation":1,"targetUID":"tu","targetName":"tn","revision":2,"desiredAtStart":3,"replicasBefore":4,"replicasAfter":5,"scheduleMillis":0,
	"pullMillis":6,"readyMillis":7,"provenBefore":true,"templateBase":"tb","followedDigest":"fd","followedAt":8,"followedBy":"fb","followed":9,
	"templateAnnotations":"ta","served":true,"pausedInGit":true,"rewritten":true,"appliedAt":10,"serverAppliedAt":11,"resumedAt":12,"lastProgress":13,
	"progress":"p","seenReady":14,"seenAvailable":15,"seenOld":16,"seenStopping":17,"failingSince":18,"troubleSince":19,
	"recoveredAt":20,"imagesBefore":"web:1","sourceRepository":"sr","sourceCommit":"sc","foundLate":true}`

// TestRolloutBody: the stored form of a rollout record does not change, and holds every
// field that is not a column.
func TestRolloutBody(t *testing.T) {
	t.Parallel()
	at := func(ms int64) time.Time { return time.UnixMilli(ms).UTC() }
	took := func(ms int64) deploy.Took {
		return deploy.Took{Measured: true, Time: time.Duration(ms) * time.Millisecond}
	}
	want := deploy.Rollout{
		Workload: deploy.ObjectRef{Group: "apps", Version: "v1", Kind: "Deployment", Namespace: "shop", Name: "web"}, UID: "u", Reason: "r",
		ChangedBy: "cb", SupersededBy: "sb", ApplicationName: "web", Commit: "c", IntentDigest: "id", LiveBefore: "lb", TemplateDigest: "td", Images: "web:2",
		Generation: 1, TargetUID: "tu", TargetName: "tn", Revision: 2, DesiredAtStart: 3, ReplicasBefore: 4, ReplicasAfter: 5,
		Parts:        deploy.RolloutParts{Schedule: took(0), Pull: took(6), Ready: took(7)},
		ProvenBefore: true, TemplateBase: "tb", FollowedDigest: "fd", FollowedAt: at(8), FollowedBy: "fb", Followed: 9,
		TemplateAnnotations: "ta", Served: true, PausedInGit: true, Rewritten: true, AppliedAt: at(10), ServerAppliedAt: at(11), ResumedAt: at(12),
		LastProgress: at(13), Progress: "p", SeenReady: 14, SeenAvailable: 15, SeenOld: 16, SeenStopping: 17, FailingSince: at(18), TroubleSince: at(19),
		ImagesBefore: "web:1", SourceRepository: "sr", SourceCommit: "sc", FoundLate: true, RecoveredAt: at(20),
	}
	var got deploy.Rollout
	if err := decodeRollout(storedRollout, &got); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("decoded (-want +got):\n%s", diff)
	}
	text, err := rolloutText(want)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(fields(t, storedRollout), fields(t, text)); diff != "" {
		t.Errorf("encoded (-want +got):\n%s", diff)
	}
	columns := map[string]bool{
		"ID": true, "Kind": true, "ApplicationID": true, "DeploymentID": true, "StageID": true, "Cluster": true, "Phase": true, "Version": true,
		"StartedAt": true, "CreatedAt": true, "UpdatedAt": true, "CompletedAt": true,
	}
	for field, value := range reflect.ValueOf(want).Fields() {
		if value.IsZero() != columns[field.Name] {
			t.Errorf("%s: set in this test: %t, a column: %t", field.Name, !value.IsZero(), columns[field.Name])
		}
	}
}

// TestRolloutBodyOfOlderRows: a record without replicasAfter has the replicas of its start.
func TestRolloutBodyOfOlderRows(t *testing.T) {
	t.Parallel()
	var r deploy.Rollout
	if err := decodeRollout(`{"workload":{"kind":"Deployment","name":"web"},"desiredAtStart":3}`, &r); err != nil || r.ReplicasAfter != 3 {
		t.Errorf("%+v, %v", r, err)
	}
	text, err := rolloutText(deploy.Rollout{})
	if want := `{"workload":{"kind":"","name":""},"replicasAfter":0}`; err != nil || text != want {
		t.Errorf("%s, %v, want %s", text, err, want)
	}
}

func fields(t *testing.T, text string) (out map[string]any) {
	t.Helper()
	if err := json.Unmarshal([]byte(text), &out); err != nil {
		t.Fatal(err)
	}
	return out
}

package control_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/c785c783/piped/piped/control/controltest"
	controlv1 "github.com/c785c783/piped/proto/piped/control/v1"
)

func TestGetStatus(t *testing.T) {
	ctx, client, _ := streaming(t)
	got, err := client.GetStatus(ctx, &controlv1.GetStatusRequest{})
	if err != nil {
		t.Fatal(err)
	}
	start := controltest.Epoch.UnixMilli()
	const minute = int64(time.Minute / time.Millisecond)
	want := &controlv1.GetStatusResponse{
		Agent: &controlv1.AgentStatus{
			PipedId: controltest.PipedID, Name: "test agent", Version: "v1.2.3", BuildCommit: "0123456", GoVersion: "go1.26",
			StartedAtMs: start, ConfigLoadedAtMs: start + minute, ConfigError: "piped.yaml:7: spec.limts: unknown field",
		},
		Queues: []*controlv1.QueueStatus{
			{Name: "planner", Waiting: 2, Active: 1, Limit: 16, OldestWaitingSinceMs: start}, {Name: "scheduler", Active: 3}, {Name: "cluster/dev", Active: 3, Limit: 5},
		},
		Repositories: []*controlv1.RepositoryStatus{
			{
				Id: "apps", Remote: "https://git.example.com/apps.git", Branch: "main", Head: "0123456789abcdef0123456789abcdef01234567",
				CheckedAtMs: start + minute, FetchedAtMs: start, Applications: 3,
			},
			{Id: "infra", Remote: "https://git.example.com/infra.git", Branch: "main", Error: "connection refused", FailingSinceMs: start},
		},
		Clusters: []*controlv1.ClusterStatus{
			{Name: "dev", Version: "v1.36.3", Reachable: true, WatchedKinds: 4, WatchedObjects: 120}, {Name: "prod", Error: "connection refused", FailingSinceMs: start},
		},
		Receivers: []*controlv1.ReceiverStatus{{
			Name: "team", Pending: 3, OldestPendingSinceMs: start, Error: "no answer", DeadLetterCount: 21,
			DeadLetters: []*controlv1.DeadLetter{{
				Key: "d1//SUCCESS", Event: "DEPLOYMENT_SUCCEEDED", DeploymentId: "d1", Attempts: 300, Error: "the answer is 404 Not Found", GivenUpAtMs: start + minute,
			}},
		}},
		Scripts: &controlv1.ScriptsStatus{Isolation: "landlock", EndedBy: "cgroup", Holds: "a script opens its own files only", Error: "no scripts"},
		Store:   &controlv1.StoreStatus{Engine: "sqlite", SchemaVersion: got.Store.SchemaVersion, SizeBytes: got.Store.SizeBytes},
	}
	if diff := cmp.Diff(want, got, protocmp.Transform()); diff != "" {
		t.Errorf("status (-want +got):\n%s", diff)
	}
	if got.Store.SchemaVersion < 6 || got.Store.SizeBytes <= 0 {
		t.Errorf("the store has schema %d and %d bytes", got.Store.SchemaVersion, got.Store.SizeBytes)
	}
}

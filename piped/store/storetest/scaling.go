package storetest

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/store"
)

// testScalings: scalings are stored like rollouts, but they are selected separately and have a
// separate event type and retention limit.
func testScalings(t *testing.T, e *env) {
	ctx, a := t.Context(), e.putApp(t, "web")
	e.create(t, "d1", a)
	ref := func(kind string) deploy.ObjectRef {
		return deploy.ObjectRef{Group: "apps", Version: "v1", Kind: kind, Namespace: "shop", Name: "web"}
	}
	save := func(r deploy.Rollout) deploy.Rollout {
		t.Helper()
		r.ApplicationID, r.Cluster = a.ID, "c"
		saved, err := e.store.SaveRollout(ctx, r)
		if err != nil {
			t.Fatal(err)
		}
		return saved
	}
	save(deploy.Rollout{ID: "own", DeploymentID: "d1", StageID: "s", Workload: ref("Deployment"), Phase: deploy.RolloutComplete})
	scaling := func(n int64, phase deploy.RolloutPhase) deploy.Rollout {
		return save(deploy.Rollout{ID: deploy.ScalingID("c", "u", n), Kind: deploy.RolloutKindScaling, Workload: ref("Deployment"), Phase: phase, ReplicasBefore: 2, ReplicasAfter: 5})
	}
	first := scaling(1, deploy.RolloutProgressing)
	save(deploy.Rollout{ID: "set", Kind: deploy.RolloutKindScaling, Workload: ref("StatefulSet"), Phase: deploy.RolloutProgressing})

	ids := func(q store.RolloutQuery) (ids []string) {
		t.Helper()
		found, err := e.store.Rollouts(ctx, q)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range found {
			ids = append(ids, r.ID)
		}
		return ids
	}
	for name, c := range map[string]struct {
		q    store.RolloutQuery
		want []string
	}{
		"rollouts, unless scalings are asked for": {store.RolloutQuery{Cluster: "c"}, []string{"own"}},
		"rollouts of a kind of workload":          {store.RolloutQuery{WorkloadKind: "StatefulSet"}, nil},
		"scalings":                                {store.RolloutQuery{Kind: deploy.RolloutKindScaling}, []string{"set", first.ID}},
		"scalings of a kind of workload":          {store.RolloutQuery{Kind: deploy.RolloutKindScaling, WorkloadKind: "Deployment", OpenOnly: true}, []string{first.ID}},
	} {
		if diff := cmp.Diff(c.want, ids(c.q)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
	for kind, want := range map[deploy.RolloutKind]int{"": 3, deploy.RolloutKindRollout: 1, deploy.RolloutKindScaling: 2} {
		if found, _, err := e.store.ListRollouts(ctx, store.RolloutList{Kind: kind}); err != nil || len(found) != want {
			t.Errorf("%d listed of kind %q, want %d; %v", len(found), kind, want, err)
		}
	}

	first.Phase = deploy.RolloutComplete
	save(first)
	events, err := e.store.Events(ctx, 0, 0)
	if err != nil {
		t.Fatal(err)
	}
	last := events[len(events)-1]
	if end := last.Details().Rollout; last.Type != deploy.EventScalingEnded || last.Key != first.ID || end == nil || end.ToReplicas != 5 || end.ApplicationName != "web" {
		t.Errorf("the event of the end: %+v", last)
	}
	for n := int64(2); n <= 210; n++ {
		scaling(n, deploy.RolloutComplete)
	}
	if kept := ids(store.RolloutQuery{Kind: deploy.RolloutKindScaling, WorkloadKind: "Deployment"}); len(kept) != 200 || kept[0] != deploy.ScalingID("c", "u", 210) {
		t.Errorf("%d scalings are kept, want the newest 200: %v", len(kept), kept)
	}
	if kept := ids(store.RolloutQuery{}); len(kept) != 1 {
		t.Errorf("rollouts after many scalings: %v", kept)
	}
}

package storetest

import (
	"testing"
	"time"

	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/store"
	"github.com/google/go-cmp/cmp"
)

func testPropagations(t *testing.T, e *env) {
	ctx := t.Context()
	a := e.putApp(t, "a")
	web := deploy.ObjectRef{Group: "apps", Version: "v1", Kind: "Deployment", Namespace: "shop", Name: "web"}
	db := deploy.ObjectRef{Group: "apps", Version: "v1", Kind: "StatefulSet", Namespace: "shop", Name: "db"}
	at := time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC)
	save := func(p deploy.Propagation) deploy.Propagation {
		t.Helper()
		saved, err := e.store.SavePropagation(ctx, p)
		if err != nil {
			t.Fatal(err)
		}
		return saved
	}
	read := func(q store.PropagationQuery, want ...deploy.Propagation) {
		t.Helper()
		got, err := e.store.Propagations(ctx, q)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%+v (-want +got):\n%s", q, diff)
		}
	}
	changes := e.store.Watch(deploy.TopicPropagation)
	defer changes.Close()
	full := save(deploy.Propagation{
		ApplicationID: a.ID, Cluster: "one", Workload: web, User: "system:serviceaccount:shop:deployer", Selector: "app=web",
		Configs: map[string]string{"/ConfigMap/shop/settings": "h"}, Named: map[string]string{"/Secret/shop/tls": "12"}, Off: true,
		Phase: deploy.PropagationNudge, Value: "0123456789", Changed: []string{"/ConfigMap/shop/settings"}, ChangedAt: at, NextAt: at.Add(time.Second), Attempts: 2,
		Settings: deploy.NudgeSettings{Delay: time.Second, RepeatAfter: 5 * time.Second, MaxPods: 10, RatePerSecond: 5},
		Outcome:  deploy.NudgeOutcome{Pods: 2, Names: []string{"web-1", "web-2"}, Over: 1, Problem: "refused"},
	})
	plain := save(deploy.Propagation{ApplicationID: a.ID, Cluster: "one", Workload: db, Configs: map[string]string{"/ConfigMap/shop/settings": "h"}})
	other := save(deploy.Propagation{ApplicationID: a.ID, Cluster: "two", Workload: web})
	if full.Version != 1 || len(changes.Take()) != 3 {
		t.Errorf("version %d, or not every row was announced", full.Version)
	}
	read(store.PropagationQuery{ApplicationID: a.ID}, full, plain, other)
	read(store.PropagationQuery{Cluster: "one", Due: true}, full)
	read(store.PropagationQuery{Cluster: "one", Named: true}, full)
	read(store.PropagationQuery{Cluster: "two"}, other)

	done := full
	done.Phase, done.NextAt, done.Named = deploy.PropagationDone, time.Time{}, nil
	done = save(done)
	read(store.PropagationQuery{Cluster: "one", Due: true})
	read(store.PropagationQuery{Cluster: "one", Named: true})
	again := plain
	again.Version = 0
	unknown := deploy.Propagation{ApplicationID: "nobody", Cluster: "one", Workload: web}
	for p, want := range map[*deploy.Propagation]deploy.Kind{&full: deploy.Conflict, &again: deploy.Conflict, &unknown: deploy.NotFound} {
		if _, err := e.store.SavePropagation(ctx, *p); !deploy.IsKind(err, want) {
			t.Errorf("save %+v: %v, want %v", *p, err, want)
		}
	}

	// Propagations of removed workloads are deleted with the inventory.
	if err := e.store.DeleteInventory(ctx, a.ID, "one", db, deploy.ObjectRef{Kind: "ConfigMap", Namespace: "shop", Name: "settings"}); err != nil {
		t.Fatal(err)
	}
	read(store.PropagationQuery{ApplicationID: a.ID}, done, other)
}

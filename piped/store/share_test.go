package store_test

import (
	"cmp"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/store"
	"github.com/c785c783/piped/piped/store/storetest"
)

// openSharing opens the store of an agent that shares its work, or of a standby.
func openSharing(t *testing.T, o store.Options, dsn string) *store.Store {
	t.Helper()
	if o.Key == nil {
		o.Key = storetest.Key()
	}
	if o.Agent == "" {
		o.Agent = "p/a"
	}
	s, err := store.Open(t.Context(), dsn, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func join(t *testing.T, s *store.Store, id string) error {
	t.Helper()
	return s.Join(t.Context(), deploy.Replica{ID: id, StartedAt: time.Now()}, time.Hour)
}

// TestWhoMayShare: only a replica of the agent that has the database joins it, with the same key,
// and only if that agent shares its work.
func TestWhoMayShare(t *testing.T) {
	dsn := postgres.NewDSN(t)
	storetest.Open(t, dsn, nil) // creates the schema
	worker := openSharing(t, store.Options{Share: true}, dsn)
	if err := join(t, worker, "early"); !deploy.IsKind(err, deploy.Unavailable) {
		t.Errorf("joined without an agent that has the database: %v", err)
	}
	active := openSharing(t, store.Options{Share: true, Exclusive: true}, dsn)
	for id, s := range map[string]*store.Store{"active": active, "worker": worker} {
		if err := join(t, s, id); err != nil {
			t.Errorf("%s: %v", id, err)
		}
	}
	for name, c := range map[string]struct {
		options store.Options
		reason  string
	}{
		"another agent": {store.Options{Share: true, Agent: "p/b"}, `belongs to the agent with projectID/pipedID "p/a"`},
		"another key":   {store.Options{Share: true, Key: []byte(strings.Repeat("x", 32))}, "the same store.keyFile"},
	} {
		if err := join(t, openSharing(t, c.options, dsn), name); !deploy.IsKind(err, deploy.Invalid) || !strings.Contains(err.Error(), c.reason) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := active.Close(); err != nil {
		t.Fatal(err)
	}
	awaitReleased(t, dsn)
	openSharing(t, store.Options{Exclusive: true}, dsn)
	if err := join(t, worker, "late"); !deploy.IsKind(err, deploy.Invalid) || !strings.Contains(err.Error(), "set store.replicas to share") {
		t.Errorf("joined an agent that works alone: %v", err)
	}
}

// TestAnAgentAloneEndsTheWorkOfReplicas: terms outlast a takeover by an agent that shares its work,
// and end with one by an agent that does not.
func TestAnAgentAloneEndsTheWorkOfReplicas(t *testing.T) {
	dsn := postgres.NewDSN(t)
	active := openSharing(t, store.Options{Share: true, Exclusive: true}, dsn)
	worker := openSharing(t, store.Options{Share: true}, dsn)
	if err := worker.Owned(t.Context()); !deploy.IsKind(err, deploy.Fenced) {
		t.Errorf("a standby has a right without a term: %v", err)
	}
	if err := join(t, worker, "w"); err != nil {
		t.Fatal(err)
	}
	terms, err := worker.Take(t.Context(), "w", []deploy.Partition{7})
	if err != nil || len(terms) != 1 {
		t.Fatal(terms, err)
	}
	owned := deploy.WithTerm(t.Context(), terms[0])
	write := func() error {
		_, err := worker.UpdateAgent(owned, func(a *deploy.AgentRecord) { a.Name = "worker" })
		return err
	}
	for range 2 {
		if err := write(); err != nil {
			t.Error(err)
		}
		if err := worker.Owned(owned); err != nil {
			t.Error(err)
		}
		if err := active.Close(); err != nil {
			t.Fatal(err)
		}
		awaitReleased(t, dsn)
		active = openSharing(t, store.Options{Share: true, Exclusive: true}, dsn)
	}
	if err := active.Close(); err != nil {
		t.Fatal(err)
	}
	awaitReleased(t, dsn)
	alone := openSharing(t, store.Options{Exclusive: true}, dsn)
	if err := write(); !deploy.IsKind(err, deploy.Fenced) {
		t.Errorf("a standby writes next to an agent that works alone: %v", err)
	}
	if err := worker.Owned(owned); !deploy.IsKind(err, deploy.Fenced) {
		t.Errorf("a standby has a right next to an agent that works alone: %v", err)
	}
	if _, err := worker.Renew(t.Context(), "w", time.Hour); !deploy.IsKind(err, deploy.NotFound) {
		t.Errorf("a standby is renewed next to an agent that works alone: %v", err)
	}
	if err := alone.Owned(t.Context()); err != nil {
		t.Error(err)
	}
}

// TestStartsAreCountedInTheWhole: replicas that start deployments at the same time do not exceed
// the limits together, and use them up.
func TestStartsAreCountedInTheWhole(t *testing.T) {
	for _, c := range []struct{ total, onProvider, want int }{{5, 0, 5}, {0, 2, 4}, {3, 2, 3}, {0, 0, 16}} {
		t.Run(fmt.Sprintf("%d %d", c.total, c.onProvider), func(t *testing.T) {
			dsn := postgres.NewDSN(t)
			stores := []*store.Store{storetest.Open(t, dsn, nil), storetest.Open(t, dsn, nil)}
			var planned []deploy.Deployment
			for i := range 16 {
				planned = append(planned, plannedOn(t, stores[0], fmt.Sprint("d", i), fmt.Sprint("cluster-", i%2)))
			}
			var running sync.WaitGroup
			for i, d := range planned {
				running.Go(func() {
					_, _, err := stores[i/2%2].StartDeployment(t.Context(), d, c.total, c.onProvider, func(d *deploy.Deployment) error { return d.Start(time.Now()) })
					if err != nil {
						t.Error(err)
					}
				})
			}
			running.Wait()
			got, err := stores[0].DeploymentsIn(t.Context(), deploy.Running)
			if err != nil || len(got) != c.want {
				t.Errorf("%d deployments run, %v, want %d", len(got), err, c.want)
			}
		})
	}
}

// plannedOn stores a PLANNED deployment of a new application.
func plannedOn(t *testing.T, s *store.Store, id, provider string) deploy.Deployment {
	t.Helper()
	app := deploy.Application{ID: "app-" + id, Name: id, Kind: deploy.KindKubernetes, Provider: provider, Git: deploy.GitPath{RepoID: "r", Dir: id}}
	if _, err := s.PutApplication(t.Context(), app); err != nil {
		t.Fatal(err)
	}
	_, err := s.CreateDeployment(t.Context(), store.NewDeployment{Deployment: deploy.Deployment{
		ID: id, ApplicationID: app.ID, ApplicationName: id, Git: app.Git, Provider: provider, Status: deploy.Pending,
		Trigger: deploy.Trigger{Kind: deploy.OnCommit, At: time.Now(), Commit: deploy.Commit{Hash: "c0ffee"}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	d, err := s.UpdateDeployment(t.Context(), id, func(d *deploy.Deployment) error { return d.Plan(deploy.Plan{}, time.Now()) })
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// TestStateNamesReplicas: the state has the partitions, the version and the last handover of each
// replica, also of those whose host begins with that of another.
func TestStateNamesReplicas(t *testing.T) {
	dsn := postgres.NewDSN(t)
	active := openSharing(t, store.Options{Share: true, Exclusive: true}, dsn)
	alone := []deploy.ReplicaState{{Host: store.Process(), Active: true}}
	if got := active.State(t.Context()); !got.Shared || !reflect.DeepEqual(got.Replicas, alone) {
		t.Errorf("before any replica has joined: %+v", got)
	}
	began := time.Now().Add(-time.Minute) // the server is on this machine
	started := time.UnixMilli(time.Now().UnixMilli()).UTC()
	take := func(id, host, version string, wanted ...deploy.Partition) {
		t.Helper()
		if err := active.Join(t.Context(), deploy.Replica{ID: id, Host: host, Version: version, StartedAt: started}, time.Hour); err != nil {
			t.Fatal(err)
		}
		if len(wanted) == 0 {
			return
		}
		if terms, err := active.Take(t.Context(), id, wanted); err != nil || len(terms) != len(wanted) {
			t.Fatal(terms, err)
		}
	}
	take("a", "web pid 1", "v1.2", 3, 4, 5)
	take("b", "web pid 12", "v1.3", 6)
	take("c", "web pid 123", "v1.4")
	take("d", "web pid 12", "v1.3", 7) // the process joined again
	state := active.State(t.Context())
	for i, r := range state.Replicas {
		if r.Partitions > 0 == (r.LastHandover.Before(began) || r.LastHandover.After(time.Now().Add(time.Minute))) {
			t.Errorf("the last handover of %s was at %s", r.Host, r.LastHandover)
		}
		state.Replicas[i].LastHandover = time.Time{}
	}
	slices.SortFunc(state.Replicas, func(a, b deploy.ReplicaState) int { return cmp.Compare(a.Version, b.Version) })
	want := []deploy.ReplicaState{
		alone[0],
		{Host: "web pid 1", Version: "v1.2", StartedAt: started, Partitions: 3},
		{Host: "web pid 12", Version: "v1.3", StartedAt: started, Partitions: 2},
		{Host: "web pid 123", Version: "v1.4", StartedAt: started},
	}
	if !reflect.DeepEqual(state.Replicas, want) {
		t.Errorf("the replicas are %+v, want %+v", state.Replicas, want)
	}
	if state.Handovers != 5 || state.Fenced != 0 {
		t.Errorf("%d handovers and %d refusals, want 5 and 0", state.Handovers, state.Fenced)
	}
}

// TestRefusalsAreCounted: what a replica was refused because another one had the work is counted in
// the database with its next renewal, once.
func TestRefusalsAreCounted(t *testing.T) {
	dsn := postgres.NewDSN(t)
	active := openSharing(t, store.Options{Share: true, Exclusive: true}, dsn)
	worker := openSharing(t, store.Options{Share: true}, dsn)
	for id, s := range map[string]*store.Store{"a": active, "w": worker} {
		if err := join(t, s, id); err != nil {
			t.Fatal(err)
		}
	}
	terms, err := worker.Take(t.Context(), "w", []deploy.Partition{7})
	if err != nil {
		t.Fatal(err)
	}
	if err := worker.Release(t.Context(), "w", terms); err != nil {
		t.Fatal(err)
	}
	late := deploy.WithTerm(t.Context(), terms[0])
	if _, err := active.Take(t.Context(), "a", []deploy.Partition{7}); err != nil {
		t.Fatal(err)
	}
	if _, err := worker.UpdateAgent(late, func(a *deploy.AgentRecord) { a.Name = "late" }); !deploy.IsKind(err, deploy.Fenced) {
		t.Errorf("a late write: %v", err)
	}
	if err := worker.Owned(late); !deploy.IsKind(err, deploy.Fenced) {
		t.Errorf("a late request: %v", err)
	}
	for range 2 {
		if _, err := worker.Renew(t.Context(), "w", time.Hour); err != nil {
			t.Fatal(err)
		}
		if got := active.State(t.Context()); got.Fenced != 2 || got.Handovers != 2 {
			t.Errorf("%d refusals and %d handovers, want 2 and 2", got.Fenced, got.Handovers)
		}
	}
}

// TestHintsOfSharedWork: the replica that owns a receiver or a repository learns from the one that routes
// events, or gets a webhook, that it has something to do.
func TestHintsOfSharedWork(t *testing.T) {
	dsn := postgres.NewDSN(t)
	storetest.Open(t, dsn, nil) // creates the schema
	active, worker := openSharing(t, store.Options{Share: true, Exclusive: true}, dsn), openSharing(t, store.Options{Share: true}, dsn)
	defer run(t, worker)()
	ctx := t.Context()
	deliveries, polls := worker.Watch(deploy.TopicDeliveries), worker.Watch(deploy.TopicPoll)
	defer deliveries.Close()
	defer polls.Close()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(active.RegisterReceivers(ctx, "hook", "idle"))
	must(active.Announce(ctx, deploy.Event{Key: "e", Type: deploy.EventPipedStarted, Payload: deploy.EventPayload{}.JSON(), At: time.Now()}))
	events, err := active.Events(ctx, 0, 0)
	must(err)
	must(active.RouteEvents(ctx, []int64{events[0].Seq}, deploy.Delivery{Receiver: "hook", Event: events[0]}))
	waitFor(t, deliveries, "hook")
	must(active.RequestPoll(ctx, "apps")) // the worker listens now; when it began, it published a hint for all repositories
	waitFor(t, polls, "apps")
}

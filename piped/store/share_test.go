package store_test

import (
	"context"
	"fmt"
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
		active = openSharing(t, store.Options{Share: true, Exclusive: true}, dsn)
	}
	if err := active.Close(); err != nil {
		t.Fatal(err)
	}
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

// TestStateSaysWhoWorksOnWhat: the state names the partitions that a standby holds.
func TestStateSaysWhoWorksOnWhat(t *testing.T) {
	dsn := postgres.NewDSN(t)
	active := openSharing(t, store.Options{Share: true, Exclusive: true}, dsn)
	ctx, stop := context.WithCancel(t.Context())
	learned, ended := make(chan store.Active, 10), make(chan error, 1)
	go func() {
		_, err := openReplica(ctx, dsn, "p/a", storetest.Key(), learned)
		ended <- err
	}()
	<-learned
	if got := active.State(t.Context()).Standbys; len(got) != 1 || got[0] != self(t) {
		t.Errorf("before the standby works: %q", got)
	}
	worker := openSharing(t, store.Options{Share: true}, dsn)
	if err := worker.Join(t.Context(), deploy.Replica{ID: "w", Host: store.Process(), Version: "v1.2", StartedAt: time.Now()}, time.Hour); err != nil {
		t.Fatal(err)
	}
	if _, err := worker.Take(t.Context(), "w", []deploy.Partition{3, 4, 5}); err != nil {
		t.Fatal(err)
	}
	want := self(t) + " (version v1.2, works on 3 of 64 partitions)"
	if got := active.State(t.Context()).Standbys; len(got) != 1 || got[0] != want {
		t.Errorf("the standbys are %q, want %q", got, want)
	}
	stop()
	if err := <-ended; err == nil {
		t.Error("the standby has the database")
	}
}

package store_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/store"
	"github.com/c785c783/piped/piped/store/storetest"
)

// openReplica opens a database as a replica, and reports what it learns of the active agent.
func openReplica(ctx context.Context, dsn, agent string, key []byte, learned chan<- store.Active) (*store.Store, error) {
	return store.Open(ctx, dsn, store.Options{Key: key, Exclusive: true, Agent: agent, Standby: func(a store.Active) error {
		learned <- a
		return nil
	}})
}

type opened struct {
	*store.Store
	err error
}

// TestStandby: a replica waits, learns where the active agent listens, and gets the database when
// that closes it or loses its connection.
func TestStandby(t *testing.T) {
	for name, end := range map[string]func(*testing.T, string, *store.Store){
		"closed": func(t *testing.T, _ string, first *store.Store) {
			if err := first.Close(); err != nil {
				t.Error(err)
			}
		},
		"cut off": func(t *testing.T, dsn string, _ *store.Store) { cutHolder(t, dsn) },
	} {
		t.Run(name, func(t *testing.T) {
			dsn := postgres.NewDSN(t)
			first, err := openReplica(t.Context(), dsn, "p/a", storetest.Key(), nil)
			if err != nil {
				t.Fatal(err)
			}
			defer first.Close()
			learned, second := make(chan store.Active, 10), make(chan opened, 1)
			go func() {
				s, err := openReplica(t.Context(), dsn, "p/a", storetest.Key(), learned)
				second <- opened{s, err}
			}()
			if a := <-learned; a.API != "" || !strings.Contains(a.Host, self(t)) {
				t.Errorf("before the active agent listens: %+v", a)
			}
			if got := first.State(t.Context()).Standbys; len(got) != 1 || got[0] != self(t) {
				t.Errorf("the active agent knows of the standbys %q", got)
			}
			if err := first.Advertise(t.Context(), "127.0.0.1:1", "0.0.0.0:2"); err != nil {
				t.Fatal(err)
			}
			if a := <-learned; a.API != "127.0.0.1:1" || strings.HasPrefix(a.Web, "0.0.0.0") || !strings.HasSuffix(a.Web, ":2") {
				t.Errorf("learned %+v", a)
			}
			end(t, dsn, first)
			got := <-second
			if got.err != nil {
				t.Fatal(got.err)
			}
			defer got.Close()
			if err := got.Owned(t.Context()); err != nil {
				t.Error(err)
			}
			if left := got.State(t.Context()).Standbys; len(left) > 0 {
				t.Errorf("there are still the standbys %q", left)
			}
			if _, err := first.UpdateAgent(t.Context(), func(a *deploy.AgentRecord) { a.Name = "late" }); err == nil {
				t.Error("the agent before writes on")
			}
		})
	}
}

// TestStandbyOfATakeover: between the moment at which an agent gets the lock and the one at which it
// stores where it listens, a standby does not use the address of the agent before, also if the name of
// that one is the beginning of the new one's.
func TestStandbyOfATakeover(t *testing.T) {
	dsn := postgres.NewDSN(t)
	active, err := openReplica(t.Context(), dsn, "p/a", storetest.Key(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer active.Close()
	if err := active.Advertise(t.Context(), "127.0.0.1:1", "127.0.0.1:2"); err != nil {
		t.Fatal(err)
	}
	before := store.Process()[:len(store.Process())-1]
	if _, err := storetest.Raw(t, dsn).ExecContext(t.Context(), "UPDATE store_owner SET host = $1", before); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	learned, ended := make(chan store.Active, 10), make(chan error, 1)
	go func() {
		_, err := openReplica(ctx, dsn, "p/a", storetest.Key(), learned)
		ended <- err
	}()
	if a := <-learned; a.API != "" || a.Web != "" || !strings.Contains(a.Host, store.Process()+",") {
		t.Errorf("the active agent is %+v after %s", a, before)
	}
	stop()
	if err := <-ended; err == nil {
		t.Error("the standby has the database")
	}
}

// TestStandbyRefused: an agent that is not a replica does not wait. A standby stops waiting when its
// callback fails or its context ends.
func TestStandbyRefused(t *testing.T) {
	dsn := postgres.NewDSN(t)
	first, err := openReplica(t.Context(), dsn, "p/a", storetest.Key(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer first.Close()
	key := storetest.Key()
	key[0]++
	for _, c := range []struct {
		agent, want string
		key         []byte
	}{
		{"p/b", `belongs to the agent with projectID/pipedID "p/a", and this one is "p/b": give each agent a store.dsn of its own`, storetest.Key()},
		{"p/a", "give all replicas the same store.keyFile", key},
	} {
		if _, err := openReplica(t.Context(), dsn, c.agent, c.key, nil); !deploy.IsKind(err, deploy.Invalid) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.agent, err, c.want)
		}
	}
	failure := &net.OpError{Op: "listen", Err: errors.New("the address is in use")} // looks like a failure of the connection
	_, err = store.Open(t.Context(), dsn, store.Options{Key: storetest.Key(), Exclusive: true, Agent: "p/a", Standby: func(store.Active) error { return failure }})
	if !errors.Is(err, failure) {
		t.Errorf("after an error: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	learned, ended := make(chan store.Active, 1), make(chan error, 1)
	go func() {
		_, err := openReplica(ctx, dsn, "p/a", storetest.Key(), learned)
		ended <- err
	}()
	<-learned
	cancel()
	if err := <-ended; err == nil || !errors.Is(err, context.Canceled) {
		t.Errorf("after a stop: %v", err)
	}
}

// TestStandbyOutlastsAnOutage: a standby whose connection ends connects again and goes on waiting.
func TestStandbyOutlastsAnOutage(t *testing.T) {
	dsn := postgres.NewDSN(t)
	first, err := openReplica(t.Context(), dsn, "p/a", storetest.Key(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer first.Close()
	learned, second := make(chan store.Active, 10), make(chan opened, 1)
	go func() {
		s, err := openReplica(t.Context(), dsn, "p/a", storetest.Key(), learned)
		second <- opened{s, err}
	}()
	<-learned
	var cut int
	ask(t, dsn, "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE datname = current_database() AND application_name LIKE 'piped standby %'", &cut)
	if cut == 0 {
		t.Fatal("there was no connection to cut")
	}
	select {
	case got := <-second:
		t.Fatalf("it does not wait any more: %v", got.err)
	case <-time.After(2 * time.Second):
	}
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	got := <-second
	if got.err != nil {
		t.Fatal(got.err)
	}
	if err := got.Close(); err != nil {
		t.Error(err)
	}
}

// TestIdleConnections: the server ends the connection of an agent that does not go on, but not of
// one that takes its time to stop.
func TestIdleConnections(t *testing.T) {
	dsn := postgres.NewDSN(t)
	first, err := openReplica(t.Context(), dsn, "p/a", storetest.Key(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer first.Close()
	stop := run(t, first)
	await := func(setting string) {
		t.Helper()
		var is bool
		for limit := time.Now().Add(2 * time.Minute); !is; time.Sleep(20 * time.Millisecond) {
			ask(t, dsn, fmt.Sprintf("SELECT count(*) > 0 FROM pg_stat_activity WHERE pid = %d AND query = 'SET idle_session_timeout = %s'", holder(t, dsn), setting), &is)
			if time.Now().After(limit) {
				t.Fatalf("the limit of the connection is not %s", setting)
			}
		}
	}
	await("15000")
	stop()
	await("0")
}

// TestNoReturn: an agent that lost the database does not get it back after another one has worked
// with it, although that one has ended.
func TestNoReturn(t *testing.T) {
	dsn := postgres.NewDSN(t)
	first, err := openReplica(t.Context(), dsn, "p/a", storetest.Key(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer first.Close()
	cutHolder(t, dsn)
	second, err := openReplica(t.Context(), dsn, "p/a", storetest.Key(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := second.Close(); err != nil {
		t.Fatal(err)
	}
	awaitReleased(t, dsn)
	if err := first.Run(t.Context()); !deploy.IsKind(err, deploy.Conflict) || !strings.Contains(err.Error(), "another agent has worked with") {
		t.Errorf("Run of the agent that lost the database: %v", err)
	}
	if _, err := first.UpdateAgent(t.Context(), func(*deploy.AgentRecord) {}); !deploy.IsKind(err, deploy.Unavailable) {
		t.Errorf("it writes on: %v", err)
	}
}

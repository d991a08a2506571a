package store_test

import (
	"database/sql"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib"

	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/store"
	"github.com/c785c783/piped/piped/store/storetest"
)

func openExclusive(t *testing.T, dsn string) (*store.Store, error) {
	t.Helper()
	return store.Open(t.Context(), dsn, store.Options{Key: storetest.Key(), Exclusive: true})
}

// TestOneAgent: a second agent is refused and learns which one has the database, and
// commands may open it all the same. The next agent gets it.
func TestOneAgent(t *testing.T) {
	engines(t, func(t *testing.T, dsn string) {
		first, err := openExclusive(t, dsn)
		if err != nil {
			t.Fatal(err)
		}
		_, err = openExclusive(t, dsn)
		if !deploy.IsKind(err, deploy.Conflict) {
			t.Fatalf("a second agent: %v, want a conflict", err)
		}
		for _, part := range []string{"in use by another agent", self(t), "since 2"} {
			if !strings.Contains(err.Error(), part) {
				t.Errorf("the error %q does not say %q", err, part)
			}
		}
		put(t, storetest.Open(t, dsn, nil), "by a command")
		if err := first.Close(); err != nil {
			t.Fatal(err)
		}
		next, err := openExclusive(t, dsn) // waits some seconds for the server to notice
		if deploy.IsKind(err, deploy.Conflict) {
			awaitReleased(t, dsn)
			next, err = openExclusive(t, dsn)
		}
		if err != nil {
			t.Fatalf("the next agent: %v", err)
		}
		if err := next.Close(); err != nil {
			t.Error(err)
		}
	})
}

// self is how an agent of this process is described to others.
func self(t *testing.T) string {
	t.Helper()
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("%.40s pid %d", host, os.Getpid())
}

// holder returns the server's process of the connection that keeps other agents out,
// 0 when there is none.
func holder(t *testing.T, dsn string) (pid int) {
	t.Helper()
	ask(t, dsn, `SELECT COALESCE(max(pid), 0) FROM pg_locks WHERE locktype = 'advisory' AND granted
		AND database = (SELECT oid FROM pg_database WHERE datname = current_database())`, &pid)
	return pid
}

// cutHolder ends that connection, and returns when its process is gone.
func cutHolder(t *testing.T, dsn string) {
	t.Helper()
	pid := holder(t, dsn)
	var cut bool
	if ask(t, dsn, fmt.Sprintf("SELECT pg_terminate_backend(%d)", pid), &cut); !cut {
		t.Fatalf("cannot end the connection of process %d", pid)
	}
	for limit := time.Now().Add(2 * time.Minute); holder(t, dsn) == pid; time.Sleep(time.Millisecond) {
		if time.Now().After(limit) {
			t.Fatal("the connection did not end")
		}
	}
}

// awaitReleased returns when the server has noticed that the connection of a store is closed, which an
// agent that starts waits for only a few seconds. The lock of a file ends with the store.
func awaitReleased(t *testing.T, dsn string) {
	t.Helper()
	if strings.HasPrefix(dsn, "sqlite://") {
		return
	}
	for limit := time.Now().Add(2 * time.Minute); holder(t, dsn) != 0; time.Sleep(20 * time.Millisecond) {
		if time.Now().After(limit) {
			t.Fatal("the server does not end the connection of the previous agent")
		}
	}
}

func ask(t *testing.T, dsn, query string, answer any) {
	t.Helper()
	db, err := sql.Open("pgx", dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if err := db.QueryRow(query).Scan(answer); err != nil {
		t.Fatal(err)
	}
}

// TestLostConnection: an agent that loses the connection goes on when it gets the
// database back, and stops, without a further write, when another agent has it.
func TestLostConnection(t *testing.T) {
	t.Run("and gets it back", func(t *testing.T) {
		dsn := postgres.NewDSN(t)
		first, err := openExclusive(t, dsn)
		if err != nil {
			t.Fatal(err)
		}
		defer first.Close()
		stop := run(t, first)
		defer stop()
		cutHolder(t, dsn)
		for limit := time.Now().Add(2 * time.Minute); holder(t, dsn) == 0; time.Sleep(20 * time.Millisecond) {
			if time.Now().After(limit) {
				t.Fatal("the database was not taken back")
			}
		}
		for limit := time.Now().Add(2 * time.Minute); first.Owned(t.Context()) != nil; time.Sleep(20 * time.Millisecond) {
			if time.Now().After(limit) {
				t.Fatal("the agent does not know that it has the database again")
			}
		}
		if _, err := openExclusive(t, dsn); !deploy.IsKind(err, deploy.Conflict) {
			t.Errorf("a second agent: %v, want a conflict", err)
		}
		put(t, first, "after")
	})
	t.Run("to another", func(t *testing.T) {
		dsn := postgres.NewDSN(t)
		first, err := openExclusive(t, dsn)
		if err != nil {
			t.Fatal(err)
		}
		defer first.Close()
		cutHolder(t, dsn)
		second, err := openExclusive(t, dsn)
		if err != nil {
			t.Fatal(err)
		}
		defer second.Close()
		if err := first.Run(t.Context()); !deploy.IsKind(err, deploy.Conflict) || !strings.Contains(err.Error(), "stops") {
			t.Errorf("Run of the agent that lost the database: %v", err)
		}
		if _, err := first.UpdateAgent(t.Context(), func(*deploy.AgentRecord) {}); !deploy.IsKind(err, deploy.Unavailable) {
			t.Errorf("it writes on: %v", err)
		}
	})
}

// TestFence: once another agent has the database, no transaction of the one before is
// stored, whether or not that has noticed it, and be it that it began before. Such a
// transaction that is about to be committed is waited for.
func TestFence(t *testing.T) {
	takenOver := func(t *testing.T) (dsn string, first *store.Store, takeOver func() *store.Store) {
		t.Helper()
		dsn = postgres.NewDSN(t)
		first, err := openExclusive(t, dsn)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { first.Close() })
		if err := first.Owned(t.Context()); err != nil {
			t.Fatal(err)
		}
		return dsn, first, func() *store.Store {
			second, err := openExclusive(t, dsn)
			if err != nil {
				t.Error(err)
				return nil
			}
			t.Cleanup(func() { second.Close() })
			return second
		}
	}
	name := func(text string) func(*deploy.AgentRecord) {
		return func(a *deploy.AgentRecord) { a.Name = text }
	}
	mustBeFenced := func(t *testing.T, err error, by *store.Store, wants string) {
		t.Helper()
		if !deploy.IsKind(err, deploy.Unavailable) || !strings.Contains(err.Error(), "another agent has taken it over") {
			t.Errorf("the agent before writes on: %v", err)
		}
		if got, err := by.Agent(t.Context()); err != nil || got.Name != wants {
			t.Errorf("the database holds %q, %v, want %q", got.Name, err, wants)
		}
	}
	t.Run("begun afterwards", func(t *testing.T) {
		dsn, first, takeOver := takenOver(t)
		if _, err := first.UpdateAgent(t.Context(), name("first")); err != nil {
			t.Fatal(err)
		}
		cutHolder(t, dsn)
		second := takeOver()
		_, err := first.UpdateAgent(t.Context(), name("late"))
		mustBeFenced(t, err, second, "first")
		if err := first.Owned(t.Context()); !deploy.IsKind(err, deploy.Unavailable) {
			t.Errorf("the agent before owns the database: %v", err)
		}
		if err := second.Owned(t.Context()); err != nil {
			t.Error(err)
		}
		if _, err := second.UpdateAgent(t.Context(), name("second")); err != nil {
			t.Error(err)
		}
		put(t, storetest.Open(t, dsn, nil), "by a command")
	})
	t.Run("begun before", func(t *testing.T) {
		dsn, first, takeOver := takenOver(t)
		var second *store.Store
		_, err := first.UpdateAgent(t.Context(), func(a *deploy.AgentRecord) {
			if second == nil {
				cutHolder(t, dsn)
				second = takeOver()
			}
			a.Name = "late"
		})
		mustBeFenced(t, err, second, "")
	})
	t.Run("about to be committed", func(t *testing.T) {
		dsn, _, takeOver := takenOver(t)
		db := storetest.Raw(t, dsn)
		sealed, err := db.Begin()
		if err != nil {
			t.Fatal(err)
		}
		defer sealed.Rollback()
		if _, err := sealed.Exec("SELECT 1 FROM store_owner FOR SHARE"); err != nil {
			t.Fatal(err)
		}
		cutHolder(t, dsn)
		second := make(chan *store.Store, 1)
		go func() { second <- takeOver() }()
		for limit := time.Now().Add(50 * time.Second); ; time.Sleep(10 * time.Millisecond) {
			waiting := false
			if ask(t, dsn, `SELECT count(*) > 0 FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'
				AND application_name LIKE 'piped agent%'`, &waiting); waiting {
				break
			}
			if time.Now().After(limit) {
				t.Fatal("the next agent does not wait")
			}
		}
		select {
		case <-second:
			t.Error("the next agent has the database before the transaction has ended")
		default:
		}
		if err := sealed.Commit(); err != nil {
			t.Fatal(err)
		}
		if s := <-second; s != nil && s.Owned(t.Context()) != nil {
			t.Error("the next agent does not own the database")
		}
	})
}

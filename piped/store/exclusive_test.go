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
		host, _ := os.Hostname()
		for _, part := range []string{"in use by another agent", fmt.Sprintf("%.40s pid %d", host, os.Getpid()), "since 2"} {
			if !strings.Contains(err.Error(), part) {
				t.Errorf("the error %q does not say %q", err, part)
			}
		}
		put(t, storetest.Open(t, dsn, nil), "by a command")
		if err := first.Close(); err != nil {
			t.Fatal(err)
		}
		next, err := openExclusive(t, dsn)
		if err != nil {
			t.Fatalf("the next agent: %v", err)
		}
		if err := next.Close(); err != nil {
			t.Error(err)
		}
	})
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
	for limit := time.Now().Add(20 * time.Second); holder(t, dsn) == pid; time.Sleep(time.Millisecond) {
		if time.Now().After(limit) {
			t.Fatal("the connection did not end")
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
		for limit := time.Now().Add(30 * time.Second); holder(t, dsn) == 0; time.Sleep(20 * time.Millisecond) {
			if time.Now().After(limit) {
				t.Fatal("the database was not taken back")
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

package store_test

import (
	"fmt"
	"os"
	"testing"

	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/store/pgtest"
	"github.com/c785c783/piped/piped/store/storetest"
)

var postgres pgtest.Server

func TestMain(m *testing.M) { os.Exit(postgres.Main(m)) }

func TestSQLite(t *testing.T) { storetest.Run(t, storetest.SQLite) }

func TestPostgreSQL(t *testing.T) {
	storetest.Run(t, func(t testing.TB) string { return postgres.NewDSN(t) })
}

// engines runs a test on both engines.
func engines(t *testing.T, test func(t *testing.T, dsn string)) {
	t.Run("SQLite", func(t *testing.T) { test(t, storetest.SQLite(t)) })
	t.Run("PostgreSQL", func(t *testing.T) { test(t, postgres.NewDSN(t)) })
}

// TestWatchesAgree: a change that one watch returns is in every other watch of its topic, too.
func TestWatchesAgree(t *testing.T) {
	s := storetest.New(t, nil)
	for round := range 20 { // the order in which watches are served is random
		first, second := s.Watch(deploy.TopicApplication), s.Watch(deploy.TopicApplication)
		stored := make(chan struct{})
		go func() {
			defer close(stored)
			for n := range 50 {
				put(t, s, fmt.Sprint(round, "-", n))
			}
		}()
		seen := map[string]bool{} // by the second
		for busy := true; busy; {
			select {
			case <-stored:
				busy = false
			default:
			}
			changes := first.Take()
			for _, c := range second.Take() {
				seen[c.ID] = true
			}
			for _, c := range changes {
				if !seen[c.ID] {
					t.Fatalf("application %s is in one watch only", c.ID)
				}
			}
		}
		first.Close()
		second.Close()
	}
}

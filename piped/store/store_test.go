package store_test

import (
	"os"
	"testing"

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

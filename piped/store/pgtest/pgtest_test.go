package pgtest_test

import (
	"context"
	"os"
	"testing"

	"github.com/c785c783/piped/piped/store/pgtest"
	"github.com/jackc/pgx/v5"
)

var postgres pgtest.Server

func TestMain(m *testing.M) { os.Exit(postgres.Main(m)) }

func TestEachTestHasADatabaseOfItsOwn(t *testing.T) {
	ctx := context.Background()
	for range 2 {
		conn, err := pgx.Connect(ctx, postgres.NewDSN(t))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := conn.Exec(ctx, "CREATE TABLE only_here (x INT)"); err != nil {
			t.Errorf("the database is not fresh: %v", err)
		}
		if err := conn.Close(ctx); err != nil {
			t.Error(err)
		}
	}
}

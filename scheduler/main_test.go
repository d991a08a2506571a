package scheduler

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"go.uber.org/goleak"

	"github.com/c785c783/piped/piped/store"
	"github.com/c785c783/piped/piped/store/storetest"
)

// emptyDatabase is the file of a store that holds nothing: making one costs more
// than most tests here.
var emptyDatabase []byte

func TestMain(m *testing.M) {
	var err error
	if emptyDatabase, err = makeDatabase(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	goleak.VerifyTestMain(m)
}

func makeDatabase() ([]byte, error) {
	dir, err := os.MkdirTemp("", "scheduler")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	file := filepath.Join(dir, "piped.db")
	s, err := store.Open(context.Background(), "sqlite://"+file, store.Options{Key: storetest.Key()})
	if err != nil {
		return nil, err
	}
	if err := s.Close(); err != nil {
		return nil, err
	}
	return os.ReadFile(file)
}

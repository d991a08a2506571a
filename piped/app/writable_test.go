package app

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestWritable: a path that is not writable is a problem until it is writable again, and
// each problem is logged once.
func TestWritable(t *testing.T) {
	var log bytes.Buffer
	var broken error
	dir := filepath.Join(t.TempDir(), "data")
	w := &writable{dir: dir, store: func(context.Context) error { return broken }, log: slog.New(slog.NewTextHandler(&log, nil))}
	for range 2 {
		w.check(t.Context())
	}
	if err := w.Problem(); err == nil || !strings.Contains(err.Error(), "write to the data directory "+dir) {
		t.Errorf("without its directory: %v", err)
	}
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if w.check(t.Context()); w.Problem() != nil {
		t.Errorf("with it: %v", w.Problem())
	}
	broken = errors.New("database or disk is full")
	if w.check(t.Context()); !errors.Is(w.Problem(), broken) {
		t.Errorf("with a full database: %v", w.Problem())
	}
	if said := log.String(); strings.Count(said, "cannot store data") != 2 || strings.Count(said, "can store data again") != 1 {
		t.Errorf("the log says\n%s", said)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 0 {
		t.Errorf("it left %v, %v", left, err)
	}
}

// TestNotReadyWithoutSpace: readiness and status say that nothing can be stored.
func TestNotReadyWithoutSpace(t *testing.T) {
	full := errors.New("no space left on device")
	a := &App{disk: &writable{problem: full}}
	a.ready.Store(true)
	if err := a.isReady(); !errors.Is(err, full) {
		t.Errorf("it is ready: %v", err)
	}
	a.disk.problem = nil
	if err := a.isReady(); err != nil {
		t.Errorf("it is not ready: %v", err)
	}
}

package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/c785c783/piped/piped/deploy"
)

// Bounds of a probe: its interval, its size, and the time that the store may take.
const (
	probeEvery   = 10 * time.Second
	probeBytes   = 64 << 10
	probeTimeout = 10 * time.Second
)

// writable checks by writing whether the agent can store data: on a full disk reads succeed.
// It is safe for concurrent use.
type writable struct {
	dir   string                      // the data directory
	store func(context.Context) error // writes to the store
	every time.Duration
	log   *slog.Logger

	mu      sync.Mutex
	problem error
}

// Run probes until ctx ends, and logs when a problem begins, and when it ends.
func (w *writable) Run(ctx context.Context) error {
	ticker := time.NewTicker(w.every)
	defer ticker.Stop()
	for {
		w.check(ctx)
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
}

// Problem returns why no data can be stored, nil if the last write succeeded.
func (w *writable) Problem() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.problem
}

func (w *writable) check(ctx context.Context) {
	err := w.write(ctx)
	if ctx.Err() != nil {
		return // the stop of the agent is no problem of its disk
	}
	w.mu.Lock()
	before := w.problem
	w.problem = err
	w.mu.Unlock()
	switch {
	case err != nil && before == nil:
		w.log.Error("the agent cannot store data", "error", err)
	case err == nil && before != nil:
		w.log.Info("the agent can store data again")
	}
}

func (w *writable) write(ctx context.Context) error {
	if err := writeProbe(filepath.Join(w.dir, "probe")); err != nil {
		return deploy.Errorf(deploy.Unavailable, "write to the data directory %s: %w: free space there, or make it writable", w.dir, err)
	}
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	if err := w.store(ctx); err != nil {
		return fmt.Errorf("%w: free space for the database, or make it writable", err)
	}
	return nil
}

// writeProbe writes a file to the disk and removes it.
func writeProbe(path string) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(make([]byte, probeBytes))
	if err == nil {
		err = f.Sync()
	}
	return errors.Join(err, f.Close(), os.Remove(path))
}

package app

import (
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

// TestTheLockIsAwaited: what an agent that has ended leaves of its lock for a moment is
// waited for, as short as that is.
func TestTheLockIsAwaited(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	syscall.ForkLock.RLock() // a process that is being started holds the lock until it executes its program
	defer syscall.ForkLock.RUnlock()
	synctest.Test(t, func(t *testing.T) {
		unlock, err := lockDataDir(t.Context(), dir)
		if err != nil {
			t.Fatal(err)
		}
		time.AfterFunc(100*time.Millisecond, func() {
			if err := unlock(); err != nil {
				t.Error(err)
			}
		})
		again, err := lockDataDir(t.Context(), dir)
		if err != nil {
			t.Fatal(err)
		}
		if err := again(); err != nil {
			t.Error(err)
		}
	})
}

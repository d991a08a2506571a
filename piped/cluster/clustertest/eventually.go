package clustertest

import (
	"testing"
	"time"
)

// Eventually polls until ok returns true. Its interval is long enough for a cluster that
// serves many tests at once.
func Eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Minute); !ok(); time.Sleep(25 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not within 10 min: %s", what)
		}
	}
}

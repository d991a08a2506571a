package apply

import (
	"context"
	"strconv"
	"testing"
	"testing/synctest"
	"time"
)

// TestDryRunsAreLimited: a hundred at once, then twenty per second.
func TestDryRunsAreLimited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		trials, began := newDryRuns(), time.Now()
		for range dryRunBurst + 3*dryRunsPerSecond {
			if err := trials.wait(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		if took := time.Since(began); took < 2900*time.Millisecond || took > 3100*time.Millisecond {
			t.Errorf("they took %s, want 3s", took)
		}
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		if trials.wait(ended) == nil {
			t.Error("a dry run is admitted although its caller has gone")
		}
	})
}

// TestVerdicts: the cache holds the last version of each object with the comparison it
// belongs to, and its size is bounded.
func TestVerdicts(t *testing.T) {
	trials := newDryRuns()
	trials.remember("a", "1", "x")
	for _, c := range []struct {
		uid, version, against string
		want                  bool
	}{{"a", "1", "x", true}, {"a", "2", "x", false}, {"a", "1", "y", false}, {"b", "1", "x", false}, {"b", "", "", false}} {
		if got := trials.known(c.uid, c.version, c.against); got != c.want {
			t.Errorf("%+v is known: %t", c, got)
		}
	}
	trials.remember("a", "2", "x")
	if trials.known("a", "1", "x") || !trials.known("a", "2", "x") {
		t.Error("the known version is not the last one")
	}
	for i := range maxVerdicts + 10 {
		trials.remember(strconv.Itoa(i), "1", "x")
	}
	if n := len(trials.inSync); n > maxVerdicts {
		t.Errorf("%d are known", n)
	}
}

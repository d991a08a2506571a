package opentofu

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/c785c783/piped/piped/deploy"
)

// newWatcher returns a watcher whose comparisons do what refresh does.
func newWatcher(refresh func(context.Context) ([]Difference, error)) *Watcher {
	return New(Config{
		Interval: func(string) (time.Duration, bool) { return time.Hour, true },
		Refresh:  func(ctx context.Context, _ deploy.Application) ([]Difference, error) { return refresh(ctx) },
		Wake:     func(string) {}, Logger: slog.New(slog.DiscardHandler), Now: time.Now,
	})
}

var app = deploy.Application{ID: "a", LastSuccessful: &deploy.DeploymentRef{DeploymentID: "d"}}

// TestResultOfBeforeAnApply: a comparison that began before an apply says nothing about what it
// left.
func TestResultOfBeforeAnApply(t *testing.T) {
	var w *Watcher
	w = newWatcher(func(context.Context) ([]Difference, error) {
		w.Applied("a")
		return []Difference{{Object: deploy.ObjectRef{Name: "x"}}}, nil
	})
	w.RefreshNow(t.Context(), app)
	if o := w.apps["a"]; len(o.diffs) != 0 || o.running != nil || o.at.IsZero() {
		t.Errorf("got %+v", o)
	}
}

// TestCallerThatGoes: a request that is cancelled changes nothing, and the next one compares.
func TestCallerThatGoes(t *testing.T) {
	calls := 0
	ctx, cancel := context.WithCancel(t.Context())
	w := newWatcher(func(context.Context) ([]Difference, error) {
		if calls++; calls == 1 {
			cancel()
			return nil, errors.New("interrupted")
		}
		return []Difference{{Object: deploy.ObjectRef{Name: "x"}}}, nil
	})
	w.RefreshNow(ctx, app)
	if o := w.apps["a"]; o.err != nil || o.running != nil {
		t.Errorf("after the cancelled request: %+v", o)
	}
	w.RefreshNow(t.Context(), app)
	if o := w.apps["a"]; calls != 2 || len(o.diffs) != 1 {
		t.Errorf("after the next one: %+v, %d comparisons", o, calls)
	}
}

// TestFailedComparison is repeated soon, and its reason is kept with the time of the first failure.
func TestFailedComparison(t *testing.T) {
	w := newWatcher(func(context.Context) ([]Difference, error) { return nil, errors.New("no backend") })
	w.apps["a"] = &observed{due: time.Now().Add(time.Hour)}
	w.RefreshNow(t.Context(), app)
	first := w.apps["a"].since
	w.RefreshNow(t.Context(), app)
	if o := w.apps["a"]; o.err == nil || !o.since.Equal(first) || time.Until(o.due) > retryAfter {
		t.Errorf("got %+v", o)
	}
}

// TestResultIsNotOlderThanTheRequest: a request during a comparison awaits its end and compares
// again.
func TestResultIsNotOlderThanTheRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		edited, release := false, make(chan struct{})
		w := newWatcher(func(context.Context) (diffs []Difference, err error) {
			if edited {
				diffs = []Difference{{Object: deploy.ObjectRef{Name: "x"}}}
			}
			<-release
			return diffs, nil
		})
		go w.compare(t.Context(), app)
		synctest.Wait()
		edited = true
		go w.RefreshNow(t.Context(), app)
		synctest.Wait()
		close(release)
		synctest.Wait()
		if o := w.apps["a"]; len(o.diffs) != 1 || o.running != nil {
			t.Errorf("got %+v", o)
		}
	})
}

// TestDeploymentThatAppliedNothing: the first look at its application after it keeps the result of
// a comparison that was asked for meanwhile.
func TestDeploymentThatAppliedNothing(t *testing.T) {
	w := newWatcher(func(context.Context) ([]Difference, error) {
		return []Difference{{Object: deploy.ObjectRef{Name: "x"}}}, nil
	})
	w.RefreshNow(t.Context(), app)
	next := deploy.Application{ID: "a", LastSuccessful: &deploy.DeploymentRef{DeploymentID: "e"}}
	w.RefreshNow(t.Context(), next)
	w.mu.Lock()
	defer w.mu.Unlock()
	if o := w.observe(next, time.Hour); len(o.diffs) != 1 {
		t.Errorf("got %+v", o)
	}
}

// TestNothingToCompare: without a platform provider that compares, nothing is read, not even the list
// of applications, and what was known is forgotten.
func TestNothingToCompare(t *testing.T) {
	w := newWatcher(nil)
	w.Enabled = func() bool { return false }
	w.apps["a"] = &observed{due: time.Now()}
	if due := w.due(t.Context()); len(due) != 0 || len(w.apps) != 0 { // there is no store to read from
		t.Errorf("%v are due, and %v are known", due, w.apps)
	}
}

package git

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/c785c783/piped/piped/git/gittest"
)

// asked implements Metrics and logs the calls.
type asked struct {
	mu    sync.Mutex
	lines []string
}

// Asked implements Metrics.
func (a *asked) Asked(op Operation, took time.Duration, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.lines = append(a.lines, fmt.Sprint(op, " ", err == nil, " ", took > 0))
}

// TestMetrics: operations on a remote are recorded with their result.
func TestMetrics(t *testing.T) {
	repo, recorded := gittest.New(t), &asked{}
	commit := repo.Push(t, "begin", map[string]string{"a.txt": "a"})
	r, err := Open(Config{ID: "apps", Remote: repo.Dir, Branch: "main", Dir: t.TempDir(), Metrics: recorded})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	})
	for range 2 { // the second finds nothing to fetch
		if _, _, err := r.Sync(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	change := Change{Parent: commit, Files: map[string][]byte{"a.txt": []byte("b")}, Message: "b", Author: "a", Email: "a@example.com", At: time.Now()}
	for range 2 { // the second comes too late
		_, err = r.Push(t.Context(), "main", change)
	}
	if err == nil {
		t.Error("a change of an old commit was pushed")
	}
	if err := r.Follow(t.Context(), repo.Dir, "gone", Auth{}); err != nil {
		t.Fatal(err)
	}
	if _, _, err := r.Sync(t.Context()); err == nil {
		t.Error("a branch that is not there was read")
	}
	want := []string{"ls_remote true true", "fetch true true", "ls_remote true true", "push true true", "push false true", "ls_remote false true"}
	if diff := cmp.Diff(want, slices.Clone(recorded.lines)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

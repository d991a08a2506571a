package pullpreview

import (
	"testing"
	"time"
)

// TestHeldPreviewEnds: while the head of a pull request cannot be deployed, because it conflicts or
// because it is not approved, what runs is removed when its time is over or a user says so.
func TestHeldPreviewEnds(t *testing.T) {
	for name, hold := range map[string]func(e *env){
		"a conflict": func(e *env) {
			e.upstream.Push(e.t, "ours", map[string]string{"web/version": "ours"})
			_, _, err := e.repo.Sync(e.t.Context())
			e.must(err)
		},
		"a push that conflicts": func(e *env) {
			e.upstream.Push(e.t, "ours", map[string]string{"web/version": "ours"})
			_, _, err := e.repo.Sync(e.t.Context())
			e.must(err)
			pr := e.requests[7]
			pr.Commit = e.upstream.PushOn(e.t, pr.Head, "theirs", map[string]string{"web/other": "theirs"})
			e.requests[7] = pr
		},
		"an unapproved head": func(e *env) { e.fork([]string{"preview"}, map[string]string{"web/version": "evil"}) },
	} {
		start := func(t *testing.T) *env {
			t.Helper()
			e := newEnv(t)
			e.app("web", "{label: preview, allowForks: true, ttl: 1h}")
			if name == "an unapproved head" {
				e.approve(map[string]string{"web/version": "2"})
			} else {
				e.open(7, nil, "web")
				e.label("preview")
			}
			e.pass()
			e.want("deployed", "7 READY", "web-pr-7", 1)
			return e
		}
		t.Run(name+", ttl", func(t *testing.T) {
			e := start(t)
			begin := e.now
			hold(e)
			e.pass()
			e.start(e.p.Settings)
			e.now = begin.Add(time.Hour - time.Millisecond)
			e.pass()
			if got := e.apps(); got != "web-pr-7" {
				t.Fatalf("a moment before the end: %q", got)
			}
			e.must(e.store.ExtendPullPreview(t.Context(), "apps", 7, e.stored(7).Head, begin.Add(2*time.Hour)))
			e.now = begin.Add(2*time.Hour - time.Millisecond)
			e.pass()
			if got := e.apps(); got != "web-pr-7" {
				t.Fatalf("a moment before the extended end: %q", got)
			}
			e.now = begin.Add(2 * time.Hour)
			e.pass()
			if got := e.apps(); got != "" || len(e.spaces) > 0 {
				t.Errorf("at the end: %q, %v", got, e.spaces)
			}
		})
		t.Run(name+", removed by a user", func(t *testing.T) {
			e := start(t)
			hold(e)
			e.pass()
			e.must(e.store.DismissPullPreview(t.Context(), "apps", 7, e.stored(7).Head, "ann"))
			e.pass()
			e.want("removed while it is held", "7 REMOVED", "", 0)
			e.says(7, "ann removed it")
		})
		t.Run(name+" after the removal by a user", func(t *testing.T) {
			e := start(t)
			e.must(e.store.DismissPullPreview(t.Context(), "apps", 7, e.stored(7).Head, "ann"))
			hold(e)
			e.pass()
			if got := e.apps(); got != "" || len(e.spaces) > 0 {
				t.Errorf("what runs stays: %q, %v", got, e.spaces)
			}
		})
	}
}

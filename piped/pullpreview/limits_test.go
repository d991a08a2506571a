package pullpreview

import (
	"strings"
	"testing"
	"time"

	"github.com/c785c783/piped/piped/config"
	"github.com/c785c783/piped/piped/githost"
)

// says fails the test unless the comment of a pull request contains texts.
func (e *env) says(number int, texts ...string) {
	e.t.Helper()
	for _, text := range texts {
		if !strings.Contains(e.comments[number], text) {
			e.t.Errorf("the comment of #%d lacks %q: %s", number, text, e.comments[number])
		}
	}
}

// TestTTL: a preview is removed when the time since its deployment is over, not a moment before and
// also after a restart. It stays removed until a new commit, or until a user extends it.
func TestTTL(t *testing.T) {
	e := newEnv(t)
	e.app("web", "{ttl: 1h}")
	e.open(7, nil, "web")
	e.pass()
	begin := e.now
	e.want("deployed", "7 READY", "web-pr-7", 1)
	if got := e.stored(7).ExpiresAt; !got.Equal(begin.Add(time.Hour)) {
		t.Errorf("it expires at %s, want an hour after %s", got, begin)
	}
	e.now = begin.Add(time.Hour - time.Millisecond)
	e.pass()
	e.want("a moment before the end", "7 READY", "web-pr-7", 1)
	e.now = begin.Add(time.Hour)
	e.start(e.p.Settings)
	e.pass()
	e.want("at the end", "7 REMOVED", "", 0)
	e.says(7, "### Preview: removed", "more than 1h0m0s ago")
	e.now = begin.Add(100 * time.Hour)
	e.start(e.p.Settings)
	e.pass()
	e.want("long after", "7 REMOVED", "", 0)

	until := e.now.Add(2 * time.Hour)
	e.must(e.store.ExtendPullPreview(t.Context(), "apps", 7, e.stored(7).Head, until))
	e.pass()
	e.want("extended after the end", "7 READY", "web-pr-7", 1)
	if got := e.stored(7).ExpiresAt; !got.Equal(until) {
		t.Errorf("it expires at %s, want %s", got, until)
	}
	e.now = until
	e.pass()
	e.want("after the extended time", "7 REMOVED", "", 0)
	e.says(7, "extended time is over")

	e.open(7, nil, "web")
	e.pass()
	e.want("a new commit", "7 READY", "web-pr-7", 1)
	delete(e.requests, 7)
	e.pass()
	e.want("closed", "", "", 0)
	if len(e.metrics.ready) != 3 || e.metrics.failed != 0 {
		t.Errorf("counted %+v, want ready for each of the three times", e.metrics)
	}
}

// TestTTLAfterOtherPush: a push that touches no file of the application does not deploy it, and does not
// disable its ttl. One that touches it begins the time anew.
func TestTTLAfterOtherPush(t *testing.T) {
	e := newEnv(t)
	e.app("web", "{ttl: 1h}")
	e.open(7, nil, "web")
	e.pass()
	begin := e.now
	e.now = begin.Add(10 * time.Minute)
	e.open(7, nil, "docs")
	e.pass()
	e.want("a push elsewhere", "7 READY", "web-pr-7", 1)
	if got := e.stored(7).ExpiresAt; !got.Equal(begin.Add(time.Hour)) {
		t.Errorf("it expires at %s, want an hour after %s", got, begin)
	}
	e.now = begin.Add(time.Hour)
	e.pass()
	e.want("at the end", "7 REMOVED", "", 0)
	e.now = begin.Add(10 * time.Hour)
	e.open(7, nil, "web")
	e.pass()
	e.want("a new commit", "7 READY", "web-pr-7", 1)
	e.now = begin.Add(10*time.Hour + 30*time.Minute)
	e.open(7, nil, "web")
	e.pass()
	e.now = begin.Add(11*time.Hour + time.Minute)
	e.pass()
	e.want("an hour after the first of two", "7 READY", "web-pr-7", 1)
}

// TestRemovedByUser: a preview that a user has removed stays removed until the next commit.
func TestRemovedByUser(t *testing.T) {
	e := newEnv(t)
	e.app("web", "{}")
	e.open(7, nil, "web")
	e.pass()
	e.must(e.store.DismissPullPreview(t.Context(), "apps", 7, e.stored(7).Head, "ann"))
	e.pass()
	e.want("removed", "7 REMOVED", "", 0)
	e.says(7, "### Preview: removed", "ann removed it")
	if got := e.statuses[e.requests[7].Commit]; !strings.Contains(got, "ann removed it") {
		t.Errorf("the status is %q", got)
	}
	e.start(e.p.Settings)
	e.pass()
	e.want("after a restart", "7 REMOVED", "", 0)
	e.open(7, nil, "web")
	e.pass()
	e.want("a new commit", "7 READY", "web-pr-7", 1)
}

// TestMaxActive: pull requests beyond a limit wait, say for what, and get their preview when another
// one ends. One that waits and is closed leaves nothing.
func TestMaxActive(t *testing.T) {
	for name, tc := range map[string]struct {
		settings func(*config.Previews)
		preview  string
		waits    string
	}{
		"of the agent":       {func(p *config.Previews) { p.MaxActive = 2 }, "{}", "as many as the agent allows"},
		"of the application": {func(*config.Previews) {}, "{maxActive: 2}", "2 pull requests have a preview of web/app.pipecd.yaml"},
	} {
		t.Run(name, func(t *testing.T) {
			e := newEnv(t, tc.settings)
			e.app("web", tc.preview)
			for number := 1; number <= 4; number++ {
				e.open(number, nil, "web")
			}
			e.pass()
			e.want("opened", "1 READY, 2 READY, 3 WAITING, 4 WAITING", "web-pr-1 web-pr-2", 2)
			e.says(3, "### Preview: building", tc.waits)
			delete(e.requests, 4)
			e.pass()
			e.want("one that waits is closed", "1 READY, 2 READY, 3 WAITING", "web-pr-1 web-pr-2", 2)
			e.says(4, "### Preview: removed")
			e.open(2, nil, "web")
			e.pass()
			e.want("a push to one that is active", "1 READY, 2 READY, 3 WAITING", "web-pr-1 web-pr-2", 2)
			delete(e.requests, 1)
			e.pass()
			e.want("one that is active is closed", "2 READY, 3 READY", "web-pr-2 web-pr-3", 2)
		})
	}
}

// TestLimitHoldsOnEveryWay: a preview that waits for room gets none by its label, by a listing, by a restart of the
// agent, or because a user extends its time.
func TestLimitHoldsOnEveryWay(t *testing.T) {
	e := newEnv(t, func(p *config.Previews) { p.MaxActive = 1 })
	e.app("web", "{label: preview, ttl: 1h}")
	labelled := func(pr *githost.OpenRequest) { pr.Labels = []string{"preview"} }
	e.open(7, labelled, "web")
	e.pass()
	e.now = e.now.Add(time.Hour)
	e.pass()
	e.open(8, labelled, "web")
	e.pass()
	e.want("the time of the first is over", "7 REMOVED, 8 READY", "web-pr-8", 1)

	e.must(e.store.ExtendPullPreview(t.Context(), "apps", 7, e.stored(7).Head, e.now.Add(time.Hour)))
	e.pass()
	e.want("extended", "7 WAITING, 8 READY", "web-pr-8", 1)
	e.open(9, nil, "web")
	e.pass()
	e.want("without the label", "7 WAITING, 8 READY", "web-pr-8", 1)
	e.open(9, labelled, "web")
	e.pass()
	e.start(e.p.Settings)
	e.pass()
	e.want("labelled, and after a restart", "7 WAITING, 8 READY, 9 WAITING", "web-pr-8", 1)
	delete(e.requests, 8)
	e.pass()
	e.want("there is room for one", "7 READY, 9 WAITING", "web-pr-7", 1)
}

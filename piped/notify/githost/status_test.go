package githost

import (
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/c785c783/piped/piped/config"
	"github.com/c785c783/piped/piped/deploy"
)

// TestStatuses checks the status after each step of a deployment.
func TestStatuses(t *testing.T) {
	l := newEnv(t)
	l.run()
	web := l.app("web", "web", nil)
	step := func(moves ...func(*deploy.Deployment) error) {
		t.Helper()
		l.move("d1", moves...)
		l.waitDelivered()
	}
	l.create("d1", web, commitA)
	l.waitDelivered()
	step(plan("https://shop.example.com"))
	step(start)
	step(func(d *deploy.Deployment) error { return d.StartStage("ask", time.Now()) })
	step(func(d *deploy.Deployment) error {
		return d.FinishStage("ask", deploy.StageSuccess, "approved by ann", time.Now())
	})
	ended := time.Now()
	l.rolled("d1", web, "web", ended.Add(-42*time.Second), ended.Add(-3*time.Second))
	l.rolled("d1", web, "worker", ended.Add(-30*time.Second), ended)
	step(end(deploy.Success, "All stages succeeded"))
	want := []string{
		"piped/web pending: The deployment is waiting",
		"piped/web pending: planned: Quick sync",
		"piped/web pending: rolling out: Quick sync",
		"piped/web pending: waiting for approval: ask the shop",
		"piped/web pending: rolling out: Quick sync",
		"piped/web success: live: rollout took 42 s https://shop.example.com",
	}
	if diff := cmp.Diff(want, l.statuses(commitA)); diff != "" {
		t.Errorf("statuses (-want +got):\n%s", diff)
	}
}

// TestStatusesLinkToThePage: each status links to its deployment, a success to the application's
// environment if that is configured, and an invalid configuration to the application.
func TestStatusesLinkToThePage(t *testing.T) {
	l := newEnv(t)
	l.page = "https://example.com/piped/"
	l.run()
	web, api, db := l.app("web", "web", nil), l.app("api", "api", nil), l.app("db", "db", nil)
	l.create("d1", web, commitA)
	l.waitDelivered()
	l.move("d1", plan(""), start)
	l.waitDelivered()
	l.move("d1", end(deploy.Success, ""))
	l.create("d2", api, commitA)
	l.move("d2", plan("https://shop.example.com"), start, end(deploy.Success, ""))
	l.create("d3", l.app("job", "job", nil), commitA)
	l.move("d3", plan("https://shop.example.com"), start, end(deploy.Failure, "no"))
	l.create("d4", l.app("old", "old", nil), commitA)
	l.move("d4", end(deploy.Cancelled, "cancelled by ann"))
	l.invalid(db, commitA, "spec.nonsense: unknown field", true)
	l.waitDelivered()
	got := map[string][]string{}
	for _, s := range l.github.Statuses(commitA) {
		got[s.Context] = append(got[s.Context], s.State+" "+s.TargetURL)
	}
	for name, states := range got {
		got[name] = slices.Compact(states)
		if name != "piped/web" {
			got[name] = states[len(states)-1:] // pending states may have passed before they are reported
		}
	}
	want := map[string][]string{
		"piped/web": {"pending https://example.com/piped/deployments/d1", "success https://example.com/piped/deployments/d1"},
		"piped/api": {"success https://shop.example.com"},
		"piped/job": {"failure https://example.com/piped/deployments/d3"},
		"piped/old": {"error https://example.com/piped/deployments/d4"},
		"piped/db":  {"failure https://example.com/piped/applications/" + db.ID},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("statuses (-want +got):\n%s", diff)
	}
}

// TestNothingPendingFollowsTheEnd: after an outage the host gets the current statuses
// only, not those of the events that it missed.
func TestNothingPendingFollowsTheEnd(t *testing.T) {
	l := newEnv(t)
	var mu sync.Mutex
	failures := map[string]int{}
	l.github.SetFault(func(w http.ResponseWriter, r *http.Request, next http.Handler) {
		mu.Lock()
		defer mu.Unlock()
		if failures[r.URL.Path]++; failures[r.URL.Path] <= 2 {
			w.WriteHeader(http.StatusInternalServerError)
			return
		}
		next.ServeHTTP(w, r)
	})
	l.run()
	web, api := l.app("web", "web", nil), l.app("api", "api", nil)
	l.create("d1", web, commitA)
	l.create("d2", api, commitA)
	l.move("d1", plan(""), start, end(deploy.Success, ""))
	l.move("d2", plan(""), start, end(deploy.Failure, "stage sync: "+strings.Repeat("it is broken ", 50)))
	l.waitDelivered()
	got := l.statuses(commitA)
	for i, line := range got {
		if app, _, _ := strings.Cut(line, " "); strings.Contains(line, " pending: ") && slices.ContainsFunc(got[:i], func(before string) bool {
			return strings.HasPrefix(before, app+" ") && !strings.Contains(before, " pending: ")
		}) {
			t.Errorf("pending after the end: %q", got)
		}
	}
	last := l.last(commitA)
	if len(last) != 2 || !strings.HasPrefix(last[0], "piped/api failure: stage sync: it is broken it is") || !strings.HasSuffix(last[0], "…") ||
		last[1] != "piped/web success: live: no pod had to be replaced" {
		t.Errorf("the last: %q", last)
	}
}

// TestALimitIsWaitedFor: no request is sent before the time that GitHub's rate limit sets.
func TestALimitIsWaitedFor(t *testing.T) {
	l := newEnv(t)
	l.host.Deployments, l.host.Comments = false, false
	var mu sync.Mutex
	var asked []time.Time
	reset := time.Now().Add(3 * time.Second).Truncate(time.Second)
	l.github.SetFault(func(w http.ResponseWriter, r *http.Request, next http.Handler) {
		mu.Lock()
		asked = append(asked, time.Now())
		first := len(asked) == 1
		mu.Unlock()
		if !first {
			next.ServeHTTP(w, r)
			return
		}
		w.Header().Set("X-RateLimit-Limit", "5000")
		w.Header().Set("X-RateLimit-Remaining", "0")
		w.Header().Set("X-RateLimit-Reset", strconv.FormatInt(reset.Unix(), 10))
		w.WriteHeader(http.StatusForbidden)
	})
	l.run()
	l.create("d1", l.app("web", "web", nil), commitA)
	l.waitDelivered()
	mu.Lock()
	defer mu.Unlock()
	if len(asked) != 2 || asked[1].Before(reset) {
		t.Errorf("requests at %v, although the rate limit lasts until %v", asked, reset)
	}
}

// TestOtherEnds: superseded, cancelled, rolled back, and invalid.
func TestOtherEnds(t *testing.T) {
	l := newEnv(t)
	l.run()
	web, api, db := l.app("web", "web", nil), l.app("api", "api", nil), l.app("db", "db", nil)
	l.create("old", web, commitA)
	l.create("new", web, commitB)
	l.create("back", api, commitA)
	l.move("back", plan(""), start, func(d *deploy.Deployment) error {
		return d.BeginRollback(deploy.Failure, "stage sync has failed", time.Now())
	})
	l.create("bad", l.app("job", "job", nil), commitA)
	l.move("bad", plan(""), start, end(deploy.Failure, "Stage sync failed: Deployment shop/job: new pods do not start: 0 of 3 new pods available, 3 old pods left; "+
		"pod job-7d9f-x2x4z, container app: ImagePullBackOff: the image cannot be pulled (job:2). Everything was rolled back."))
	err := l.store.Announce(t.Context(), deploy.Event{
		Key: "invalid", Type: deploy.EventTriggerFailed, ApplicationID: db.ID, At: time.Now(),
		Payload: deploy.EventPayload{Application: "db", Commit: &deploy.Commit{Hash: commitA}, Reason: "db/app.pipecd.yaml:4: spec.nonsense: unknown field"}.JSON(),
	})
	if err != nil {
		t.Fatal(err)
	}
	l.waitDelivered()
	want := []string{
		"piped/api pending: rolling back: stage sync has failed",
		"piped/db failure: db/app.pipecd.yaml:4: spec.nonsense: unknown field",
		"piped/job failure: pod job-7d9f-x2x4z, container app: ImagePullBackOff: the image cannot be pulled (job:2). Everything was rolled back. Stage sync failed: Dep…",
		"piped/web error: Superseded by the newer deployment new of commit b6ae82c",
	}
	if diff := cmp.Diff(want, l.last(commitA)); diff != "" {
		t.Errorf("statuses (-want +got):\n%s", diff)
	}
}

// TestApplicationsOfOneName have contexts of their own.
func TestApplicationsOfOneName(t *testing.T) {
	l := newEnv(t)
	l.run()
	l.create("d1", l.app("north", "web", nil), commitA)
	l.app("south", "web", nil)
	l.waitDelivered()
	if got := l.last(commitA); len(got) != 1 || !strings.HasPrefix(got[0], "piped/web (north) pending: ") && !strings.HasPrefix(got[0], "piped/web pending: ") {
		t.Errorf("statuses: %q", got)
	}
	l.move("d1", plan(""))
	l.waitDelivered()
	if got := l.last(commitA); !slices.Contains(got, "piped/web (north) pending: planned: Quick sync") {
		t.Errorf("statuses: %q", got)
	}
}

// TestOtherHostsGetNothing: a repository on another host causes no calls.
func TestOtherHostsGetNothing(t *testing.T) {
	l := newEnv(t)
	l.host.Host = "elsewhere.example.com"
	l.run()
	l.create("d1", l.app("web", "web", nil), commitA)
	l.waitDelivered()
	if calls := l.github.Calls(); len(calls) != 0 {
		t.Errorf("calls: %q", calls)
	}
}

// TestStatusesElsewhere: GitLab and Gitea get statuses too, after a failed first request.
func TestStatusesElsewhere(t *testing.T) {
	for kind, want := range map[config.GitHostType][]string{
		config.GitHostGitLab: {`"state":"success"`, "/projects/shop%2Fconfig/statuses/" + commitA},
		config.GitHostGitea:  {`"state":"success"`, "/repos/shop/config/statuses/" + commitA},
	} {
		t.Run(string(kind), func(t *testing.T) {
			l := newEnv(t)
			var mu sync.Mutex
			var got []string
			failed := false
			s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				mu.Lock()
				defer mu.Unlock()
				if !failed {
					failed = true
					w.WriteHeader(http.StatusBadGateway)
					return
				}
				body := make([]byte, 1000)
				n, _ := r.Body.Read(body)
				got = append(got, r.URL.EscapedPath()+" "+string(body[:n]))
				_, _ = w.Write([]byte("{}"))
			}))
			defer s.Close()
			l.host.Type, l.host.APIURL, l.host.Deployments, l.host.Comments = kind, s.URL, false, false
			l.run()
			l.create("d1", l.app("web", "web", nil), commitA)
			l.move("d1", plan(""), start, end(deploy.Success, ""))
			l.waitDelivered()
			mu.Lock()
			defer mu.Unlock()
			for _, part := range want {
				if !strings.Contains(got[len(got)-1], part) {
					t.Errorf("the last of %q has no %s", got, part)
				}
			}
		})
	}
}

package githost

import (
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/notify"
	"github.com/c785c783/piped/piped/store"
)

// invalid stores that an application's configuration is invalid at a commit, as the
// trigger does; with announced it also stores the event.
func (l *env) invalid(a deploy.Application, commit, reason string, announced bool) {
	l.t.Helper()
	var news []deploy.Event
	if announced {
		news = append(news, deploy.Event{
			Key: deploy.TriggerFailedKey(a.ID, commit), Type: deploy.EventTriggerFailed, ApplicationID: a.ID, At: time.Now(),
			Payload: deploy.EventPayload{Application: a.Name, Commit: &deploy.Commit{Hash: commit}, Reason: reason}.JSON(),
		})
	}
	if _, err := l.store.SetSyncState(l.t.Context(), a.ID, deploy.SyncState{Status: deploy.SyncInvalidConfig, Reason: reason, At: time.Now()}, news...); err != nil {
		l.t.Fatal(err)
	}
}

// body returns the only comment of pull request 7.
func (l *env) body() string {
	l.t.Helper()
	got := l.github.Comments(7)
	if len(got) != 1 {
		l.t.Fatalf("comments: %v", got)
	}
	return got[0].Body
}

// TestInvalidIsNotLive: a commit does not count as live while an application's
// configuration is invalid at it, also if it was invalid before or was fixed since.
func TestInvalidIsNotLive(t *testing.T) {
	for name, c := range map[string]struct {
		announced, fixed bool
	}{"since the commit": {announced: true}, "since before": {}, "fixed since": {announced: true, fixed: true}} {
		t.Run(name, func(t *testing.T) {
			l := newEnv(t)
			l.run()() // registers the receivers
			l.merged(7, commitA)
			web, db := l.app("web", "web", nil), l.app("db", "db", nil)
			l.invalid(db, commitA, "db/app.pipecd.yaml:4: spec.nonsense: unknown field", c.announced)
			l.create("d1", web, commitA)
			l.move("d1", plan(""), start, end(deploy.Success, ""))
			if c.fixed {
				if _, err := l.store.SetSyncState(t.Context(), db.ID, deploy.SyncState{Status: deploy.Synced, At: time.Now()}); err != nil {
					t.Fatal(err)
				}
				l.create("d2", db, commitB)
				l.evaluated(commitB, "web")
			}
			l.run()
			l.waitDelivered()
			golden(t, "live-but-one-invalid", l.body())
		})
	}
}

// TestChainIsLiveAsAWhole: applications in later blocks of a deployment chain count
// before they have a deployment; those in other repositories do not.
func TestChainIsLiveAsAWhole(t *testing.T) {
	l := newEnv(t)
	l.merged(7, commitA)
	web, api := l.app("web", "web", nil), l.app("api", "api", nil)
	elsewhere := web
	elsewhere.Git.RepoID, elsewhere.Name = "others", "elsewhere"
	elsewhere.ID = deploy.ApplicationID(elsewhere.Git)
	if _, err := l.store.PutApplication(t.Context(), elsewhere); err != nil {
		t.Fatal(err)
	}
	l.evaluated(commitA, "api") // it has no change of its own
	block := func(a deploy.Application) deploy.ChainBlock {
		return deploy.ChainBlock{Nodes: []deploy.ChainNode{{ApplicationID: a.ID, ApplicationName: a.Name, CommandID: "sync-" + a.Name}}}
	}
	first := l.deployment("d1", web, commitA)
	first.ChainID = "chain"
	_, err := l.store.CreateDeployment(t.Context(), store.NewDeployment{Deployment: first, Chain: &deploy.Chain{
		ID: "chain", Blocks: []deploy.ChainBlock{{}, block(api), block(elsewhere)},
	}})
	if err != nil {
		t.Fatal(err)
	}
	l.move("d1", plan(""), start, end(deploy.Success, ""))
	l.waits("1 more application")
	if got := l.github.Comments(7); len(got) != 0 {
		t.Fatalf("commented before the chain has ended: %v", got)
	}
	second := l.deployment("d2", api, commitA)
	second.ChainID, second.ChainBlock, second.Trigger.Kind = "chain", 1, deploy.OnChain
	if _, err := l.store.CreateDeployment(t.Context(), store.NewDeployment{Deployment: second, CommandID: "sync-api"}); err != nil {
		t.Fatal(err)
	}
	l.run()
	l.move("d2", plan(""), start, end(deploy.Success, ""))
	l.waitDelivered()
	if body := l.body(); !strings.Contains(body, "is live\n") || strings.Count(body, "**live**") != 2 {
		t.Errorf("the comment: %s", body)
	}
}

// waits fails the test unless the delivery of d1's end is postponed for a reason.
func (l *env) waits(reason string) {
	l.t.Helper()
	err := l.deliver(1)
	if !deploy.IsKind(err, deploy.Unavailable) || !strings.Contains(err.Error(), reason) {
		l.t.Fatalf("delivered: %v", err)
	}
}

// deliver delivers the end of d1 once.
func (l *env) deliver(attempt int) error {
	l.t.Helper()
	d, err := l.store.Deployment(l.t.Context(), "d1")
	if err != nil {
		l.t.Fatal(err)
	}
	for _, r := range l.receivers() {
		if r, ok := r.(comments); ok {
			return r.Deliver(l.t.Context(), notify.Notice{Event: deploy.Event{Type: deploy.EventSucceeded, DeploymentID: "d1"}, Attempt: attempt, Deployment: &d})
		}
	}
	l.t.Fatal("there is no receiver of comments")
	return nil
}

// TestLiveOnceAllIsDecided: the trigger creates the deployments of a commit in batches,
// and those of the first may end before the next is created.
func TestLiveOnceAllIsDecided(t *testing.T) {
	l := newEnv(t)
	l.merged(7, commitA)
	web, late := l.app("web", "web", nil), l.app("late", "late", nil)
	l.app("still", "still", nil)
	l.create("d1", web, commitA)
	l.move("d1", plan(""), start, end(deploy.Success, ""))
	l.waits("2 more applications")
	l.create("d2", late, commitA)
	if err := l.deliver(1); err != nil { // the end of d2 will report it
		t.Fatal(err)
	}
	l.move("d2", plan(""), start)
	if got := l.github.Comments(7); len(got) != 0 {
		t.Fatalf("commented before all is decided: %v", got)
	}
	l.run()
	l.move("d2", end(deploy.Success, ""))
	l.until("the comment waits", func() bool {
		states, err := l.store.ReceiverStates(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return strings.Contains(states["git.example.com comments"].Error, "1 more application")
	}, new([]string))
	l.evaluated(commitA, "still")
	l.waitDelivered()
	if body := l.body(); !strings.Contains(body, "is live\n") || strings.Count(body, "**live**") != 2 {
		t.Errorf("the comment: %s", body)
	}
}

// TestUndecidedIsListed: an undecided application is listed after some attempts and does
// not block the comment.
func TestUndecidedIsListed(t *testing.T) {
	l := newEnv(t)
	l.merged(7, commitA)
	web := l.app("web", "web", nil)
	l.app("held", "held", nil)
	l.create("d1", web, commitA)
	l.move("d1", plan(""), start, end(deploy.Success, ""))
	if err := l.deliver(maxWaits); err != nil {
		t.Fatal(err)
	}
	if body := l.body(); !strings.Contains(body, "is live in 1 of 2 applications") || !strings.Contains(body, "| `held` |  | not decided yet |") {
		t.Errorf("the comment: %s", body)
	}
}

// TestPreviewAndLiveAreOneComment: a merge while the preview is being delivered does not
// create a second comment.
func TestPreviewAndLiveAreOneComment(t *testing.T) {
	l := newEnv(t)
	l.host.CommitStatus, l.host.Deployments = false, false
	l.open(commitA)
	var asked atomic.Int32
	searching, both := make(chan struct{}), make(chan struct{})
	l.github.SetFault(func(w http.ResponseWriter, r *http.Request, next http.Handler) {
		if r.Method == http.MethodGet && strings.HasSuffix(r.URL.Path, "/comments") {
			switch asked.Add(1) {
			case 1: // the preview's, answered late
				l.merged(7, commitB)
				close(searching)
				select {
				case <-both:
				case <-time.After(time.Second):
				}
			case 2:
				close(both)
			}
		}
		next.ServeHTTP(w, r)
	})
	l.run()
	_, err := l.store.CreateCommand(t.Context(), deploy.Command{ID: "p1", Type: deploy.CommandBuildPlanPreview, PlanPreview: &deploy.PlanPreviewRequest{
		RepoID: "apps", HeadBranch: "more", HeadCommit: commitA, BaseBranch: "main", PullRequest: 7,
	}})
	if err != nil {
		t.Fatal(err)
	}
	if err := l.store.AnswerPlanPreview(t.Context(), deploy.PlanPreview{CommandID: "p1", At: time.Now()}, deploy.CommandSucceeded); err != nil {
		t.Fatal(err)
	}
	select {
	case <-searching:
	case <-time.After(patience):
		t.Fatal("the preview is not delivered")
	}
	l.create("d1", l.app("web", "web", nil), commitB)
	l.move("d1", plan(""), start, end(deploy.Success, ""))
	l.waitDelivered()
	if body := l.body(); !strings.Contains(body, "is live\n") {
		t.Errorf("the comment: %s", body)
	}
}

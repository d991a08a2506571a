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

// invalid says that the configuration of an application cannot be used at a commit, as
// the trigger does before it makes deployments; told is whether that is news.
func (l *lab) invalid(a deploy.Application, commit, reason string, told bool) {
	l.t.Helper()
	var news []deploy.Event
	if told {
		news = append(news, deploy.Event{
			Key: deploy.TriggerFailedKey(a.ID, commit), Type: deploy.EventTriggerFailed, ApplicationID: a.ID, At: time.Now(),
			Payload: deploy.EventPayload{Application: a.Name, Commit: &deploy.Commit{Hash: commit}, Reason: reason}.JSON(),
		})
	}
	if _, err := l.store.SetSyncState(l.t.Context(), a.ID, deploy.SyncState{Status: deploy.SyncInvalidConfig, Reason: reason, At: time.Now()}, news...); err != nil {
		l.t.Fatal(err)
	}
}

// body returns the one comment of pull request 7.
func (l *lab) body() string {
	l.t.Helper()
	got := l.github.Comments(7)
	if len(got) != 1 {
		l.t.Fatalf("comments: %v", got)
	}
	return got[0].Body
}

// TestInvalidIsNotLive: a commit is not live as a whole when an application's
// configuration cannot be used at it, also when it has not been for longer, and when it
// was mended since.
func TestInvalidIsNotLive(t *testing.T) {
	for name, c := range map[string]struct {
		told, mended bool
	}{"since the commit": {told: true}, "since before": {}, "mended since": {told: true, mended: true}} {
		t.Run(name, func(t *testing.T) {
			l := newLab(t)
			l.run()() // the host is known from now on
			l.merged(7, commitA)
			web, db := l.app("web", "web", nil), l.app("db", "db", nil)
			l.invalid(db, commitA, "db/app.pipecd.yaml:4: spec.nonsense: unknown field", c.told)
			l.create("d1", web, commitA)
			l.move("d1", plan(""), start, end(deploy.Success, ""))
			if c.mended {
				if _, err := l.store.SetSyncState(t.Context(), db.ID, deploy.SyncState{Status: deploy.Synced, At: time.Now()}); err != nil {
					t.Fatal(err)
				}
				l.create("d2", db, commitB)
				l.evaluated(commitB, "web")
			}
			l.run()
			l.told()
			golden(t, "live-but-one-invalid", l.body())
		})
	}
}

// TestChainIsLiveAsAWhole: what a chain of the commit deploys in later blocks counts
// before it has a deployment; what it deploys elsewhere does not.
func TestChainIsLiveAsAWhole(t *testing.T) {
	l := newLab(t)
	l.merged(7, commitA)
	web, api := l.app("web", "web", nil), l.app("api", "api", nil)
	elsewhere := web
	elsewhere.Git.RepoID, elsewhere.Name = "others", "elsewhere"
	elsewhere.ID = deploy.ApplicationID(elsewhere.Git)
	if _, err := l.store.PutApplication(t.Context(), elsewhere); err != nil {
		t.Fatal(err)
	}
	l.evaluated(commitA, "api") // nothing of its own has changed
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
		t.Fatalf("told before the chain has ended: %v", got)
	}
	second := l.deployment("d2", api, commitA)
	second.ChainID, second.ChainBlock, second.Trigger.Kind = "chain", 1, deploy.OnChain
	if _, err := l.store.CreateDeployment(t.Context(), store.NewDeployment{Deployment: second, CommandID: "sync-api"}); err != nil {
		t.Fatal(err)
	}
	l.run()
	l.move("d2", plan(""), start, end(deploy.Success, ""))
	l.told()
	if body := l.body(); !strings.Contains(body, "is live\n") || strings.Count(body, "**live**") != 2 {
		t.Errorf("the comment: %s", body)
	}
}

// waits fails unless the end of d1 is not told for a reason.
func (l *lab) waits(reason string) {
	l.t.Helper()
	err := l.tell(1)
	if !deploy.IsKind(err, deploy.Unavailable) || !strings.Contains(err.Error(), reason) {
		l.t.Fatalf("told: %v", err)
	}
}

// tell tells the end of d1 once.
func (l *lab) tell(attempt int) error {
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

// TestLiveOnceAllIsDecided: a trigger makes the deployments of a commit in several
// batches, and the first may have ended before the next is there.
func TestLiveOnceAllIsDecided(t *testing.T) {
	l := newLab(t)
	l.merged(7, commitA)
	web, late := l.app("web", "web", nil), l.app("late", "late", nil)
	l.app("still", "still", nil)
	l.create("d1", web, commitA)
	l.move("d1", plan(""), start, end(deploy.Success, ""))
	l.waits("2 more applications")
	l.create("d2", late, commitA)
	if err := l.tell(1); err != nil { // the end of d2 tells it
		t.Fatal(err)
	}
	l.move("d2", plan(""), start)
	if got := l.github.Comments(7); len(got) != 0 {
		t.Fatalf("told before all is decided: %v", got)
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
	l.told()
	if body := l.body(); !strings.Contains(body, "is live\n") || strings.Count(body, "**live**") != 2 {
		t.Errorf("the comment: %s", body)
	}
}

// TestWhatStaysUndecided is named: it keeps no comment back for long.
func TestWhatStaysUndecided(t *testing.T) {
	l := newLab(t)
	l.merged(7, commitA)
	web := l.app("web", "web", nil)
	l.app("held", "held", nil)
	l.create("d1", web, commitA)
	l.move("d1", plan(""), start, end(deploy.Success, ""))
	if err := l.tell(lastAsked); err != nil {
		t.Fatal(err)
	}
	if body := l.body(); !strings.Contains(body, "is live in 1 of 2 applications") || !strings.Contains(body, "| `held` |  | not decided yet |") {
		t.Errorf("the comment: %s", body)
	}
}

// TestPreviewAndLiveAreOneComment: that a pull request is merged while its preview is
// told does not make two of it.
func TestPreviewAndLiveAreOneComment(t *testing.T) {
	l := newLab(t)
	l.host.CommitStatus, l.host.Deployments = false, false
	l.open(commitA)
	var asked atomic.Int32
	looking, both := make(chan struct{}), make(chan struct{})
	l.github.SetFault(func(w http.ResponseWriter, r *http.Request, next http.Handler) {
		if r.Method == http.MethodGet && strings.HasSuffix(r.URL.Path, "/comments") {
			switch asked.Add(1) {
			case 1: // the preview's, which is answered late
				l.merged(7, commitB)
				close(looking)
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
	case <-looking:
	case <-time.After(patience):
		t.Fatal("the preview is not told")
	}
	l.create("d1", l.app("web", "web", nil), commitB)
	l.move("d1", plan(""), start, end(deploy.Success, ""))
	l.told()
	if body := l.body(); !strings.Contains(body, "is live\n") {
		t.Errorf("the comment: %s", body)
	}
}

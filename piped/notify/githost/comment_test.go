package githost

import (
	"flag"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/githost"
	"github.com/c785c783/piped/piped/githost/githosttest"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// golden compares got with the golden file of the given name.
func golden(t *testing.T, name, got string) {
	t.Helper()
	file := filepath.Join("testdata", name+".md")
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", file, diff)
	}
}

// merged adds a pull request whose merge brought a commit.
func (l *env) merged(number int, commit string) {
	now := time.Now()
	l.github.SetPull(githosttest.PullRequest{Number: number, State: "closed", MergedAt: &now, Base: githosttest.Ref{Ref: "main"}, Brought: []string{commit}})
}

// TestLiveComment: a merged pull request gets its comment once all deployments of the
// commit have ended, and the comment is updated when one of them is deployed again.
func TestLiveComment(t *testing.T) {
	l := newEnv(t)
	stop := l.run()
	l.merged(7, commitA)
	web, api, db := l.app("web", "web", map[string]string{"env": "production"}), l.app("api", "api", nil), l.app("db", "db", nil)
	l.create("d-web", web, commitA)
	l.create("d-api", api, commitA)
	l.create("d-db", db, commitA)
	ended := time.Now()
	l.move("d-web", plan("https://shop.example.com"), start)
	l.rolled("d-web", web, "web", ended.Add(-42*time.Second), ended)
	l.move("d-web", end(deploy.Success, ""))
	l.create("d-db-2", db, commitB) // supersedes
	l.waitDelivered()
	if got := l.github.Comments(7); len(got) != 0 {
		t.Fatalf("commented before all deployments have ended: %v", got)
	}
	l.move("d-api", plan(""), start, end(deploy.Failure, "stage sync: `kubectl` | @ann"))
	l.waitDelivered()
	got := l.github.Comments(7)
	if len(got) != 1 {
		t.Fatalf("comments: %v", got)
	}
	golden(t, "live-in-one-of-three", got[0].Body)

	stop() // as another run of the agent
	l.run()
	l.create("d-api-2", api, commitA)
	l.waitDelivered()
	if got := l.github.Comments(7); len(got) != 1 || !strings.Contains(got[0].Body, "is being rolled out: 2 of 3 applications are done") {
		t.Errorf("while it is done again: %v", got)
	}
	l.move("d-api-2", plan(""), start, end(deploy.Success, ""))
	l.waitDelivered()
	if got := l.github.Comments(7); len(got) != 1 || !strings.Contains(got[0].Body, "is live in 2 of 3 applications") || got[0].Edits != 2 {
		t.Errorf("after it was done again: %v", got)
	}
}

func TestLiveCommentOfAll(t *testing.T) {
	l := newEnv(t)
	l.run()
	l.merged(7, commitA)
	l.merged(8, commitA)
	l.create("d1", l.app("web", "web", nil), commitA)
	l.create("d2", l.app("other", "other", nil), commitB) // of no pull request
	l.move("d1", plan(""), start, end(deploy.Success, ""))
	l.move("d2", plan(""), start, end(deploy.Success, ""))
	l.evaluated(commitB, "web")
	l.waitDelivered()
	for _, number := range []int{7, 8} {
		if got := l.github.Comments(number); len(got) != 1 {
			t.Fatalf("comments: %v", got)
		}
	}
	golden(t, "live", l.github.Comments(7)[0].Body)
}

// TestCommentsLinkToThePage: the row of an application links to its deployment, or to the
// application without one, and a plan preview to its page.
func TestCommentsLinkToThePage(t *testing.T) {
	l := newEnv(t)
	l.page = "https://piped.example.com/"
	l.run()
	l.open(commitA)
	l.previewed("p1", commitA, deploy.PlanPreview{})
	if got := l.body(); !strings.Contains(got, "### [Plan preview](https://piped.example.com/plan-previews/p1) of `a6ae82c` into `main`\n") {
		t.Errorf("preview: %s", got)
	}
	l.merged(7, commitA)
	l.invalid(l.app("db", "db", nil), commitA, "db/app.pipecd.yaml:4: spec.nonsense: unknown field", true)
	l.create("d1", l.app("web", "web", nil), commitA)
	l.move("d1", plan("https://shop.example.com"), start, end(deploy.Success, ""))
	l.waitDelivered()
	golden(t, "live-with-links", l.body())
}

// TestACommitOfManyApplications: the number of API calls does not grow with the
// applications.
func TestACommitOfManyApplications(t *testing.T) {
	l := newEnv(t)
	l.host.CommitStatus, l.host.Deployments = false, false
	l.run()
	l.merged(7, commitA)
	const many = 50
	for i := range many {
		id := fmt.Sprintf("d%02d", i)
		l.create(id, l.app(id, id, nil), commitA)
	}
	for i := range many {
		l.move(fmt.Sprintf("d%02d", i), plan(""), start, end(deploy.Success, ""))
	}
	l.waitDelivered()
	if got := l.github.Comments(7); len(got) != 1 || !strings.Contains(got[0].Body, "is live\n") || got[0].Edits != 0 {
		t.Errorf("comments: %v", got)
	}
	if calls := l.github.Calls(); len(calls) > 8 {
		t.Errorf("%d calls: %q", len(calls), calls)
	}
}

// TestACommentWhoseAnswerWasLost is not created twice, also after a restart of the agent.
func TestACommentWhoseAnswerWasLost(t *testing.T) {
	l := newEnv(t)
	l.merged(7, commitA)
	var lost atomic.Bool
	l.github.SetFault(func(w http.ResponseWriter, r *http.Request, next http.Handler) {
		if r.Method == http.MethodPost && strings.HasSuffix(r.URL.Path, "/comments") {
			next.ServeHTTP(httptest.NewRecorder(), r)
			lost.Store(true)
			<-r.Context().Done() // the agent ends before it gets the response
			return
		}
		next.ServeHTTP(w, r)
	})
	stop := l.run()
	l.create("d1", l.app("web", "web", nil), commitA)
	l.move("d1", plan(""), start, end(deploy.Success, ""))
	l.until("the comment is made", lost.Load, new([]string))
	stop()
	l.github.SetFault(nil)
	l.run()
	l.waitDelivered()
	if got := l.github.Comments(7); len(got) != 1 || got[0].Edits != 0 {
		t.Errorf("comments: %v", got)
	}
}

// TestEnvironments: each deployment goes through GitHub's states.
func TestEnvironments(t *testing.T) {
	l := newEnv(t)
	stop := l.run()
	web := l.app("web", "web", map[string]string{"env": "production"})
	l.create("d1", web, commitA)
	l.create("d2", web, commitB) // d1 never starts
	l.move("d2", plan("https://shop.example.com"), start)
	l.waitDelivered()
	l.move("d2", end(deploy.Success, ""))
	l.waitDelivered()
	l.create("d3", web, commitA)
	l.move("d3", plan(""), start)
	l.waitDelivered()
	l.move("d3", func(d *deploy.Deployment) error {
		return d.BeginRollback(deploy.Failure, "stage sync has failed", time.Now())
	})
	l.waitDelivered()
	l.move("d3", end(deploy.Failure, "stage sync has failed"))
	l.waitDelivered()
	stop() // so that d4 has ended when its start is delivered
	l.create("d4", web, commitA)
	l.move("d4", plan(""), start, end(deploy.Cancelled, "cancelled by ann"))
	l.run()
	l.waitDelivered()
	var got []string
	for _, d := range l.github.Deployments() {
		line := d.SHA[:7] + " " + d.Environment + ":"
		for _, s := range d.Statuses {
			line += " " + s.State + s.EnvironmentURL
			if s.LogURL != "" {
				t.Errorf("log_url %q without a page", s.LogURL)
			}
		}
		got = append(got, line)
	}
	want := []string{
		"b6ae82c production/web: in_progresshttps://shop.example.com successhttps://shop.example.com",
		"a6ae82c production/web: in_progress in_progress failure",
		"a6ae82c production/web: inactive",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("deployments (-want +got):\n%s", diff)
	}
}

// TestEnvironmentsLinkToThePage: each state of a deployment has the page as its log.
func TestEnvironmentsLinkToThePage(t *testing.T) {
	l := newEnv(t)
	l.page = "https://example.com/piped"
	l.run()
	l.create("d1", l.app("web", "web", nil), commitA)
	l.move("d1", plan("https://shop.example.com"), start)
	l.waitDelivered()
	l.move("d1", end(deploy.Success, ""))
	l.waitDelivered()
	all := l.github.Deployments()
	if len(all) != 1 || len(all[0].Statuses) != 2 {
		t.Fatalf("deployments: %+v", all)
	}
	for _, s := range all[0].Statuses {
		if s.LogURL != "https://example.com/piped/deployments/d1" || s.EnvironmentURL != "https://shop.example.com" {
			t.Errorf("%s: log_url %q, environment_url %q", s.State, s.LogURL, s.EnvironmentURL)
		}
	}
}

// previewed stores the result of a plan preview of pull request 7.
func (l *env) previewed(id, head string, p deploy.PlanPreview) {
	l.t.Helper()
	_, err := l.store.CreateCommand(l.t.Context(), deploy.Command{ID: id, Type: deploy.CommandBuildPlanPreview, PlanPreview: &deploy.PlanPreviewRequest{
		RepoID: "apps", HeadBranch: "more", HeadCommit: head, BaseBranch: "main", PullRequest: 7,
	}})
	if err != nil {
		l.t.Fatal(err)
	}
	p.CommandID, p.At = id, time.Now()
	if err := l.store.AnswerPlanPreview(l.t.Context(), p, deploy.CommandSucceeded); err != nil {
		l.t.Fatal(err)
	}
	l.waitDelivered()
}

// open opens pull request 7 or moves its head.
func (l *env) open(head string) {
	l.github.SetPull(githosttest.PullRequest{Number: 7, State: "open", Head: githosttest.Ref{Ref: "more", SHA: head}, Base: githosttest.Ref{Ref: "main"}})
}

// TestPreviewComment: an open pull request has one comment with the preview of its newest
// head; once it is merged the comment shows where it is live.
func TestPreviewComment(t *testing.T) {
	l := newEnv(t)
	l.run()
	l.open(commitA)
	l.previewed("p1", commitA, deploy.PlanPreview{Results: []deploy.ApplicationPreview{
		{Name: "web", Dir: "web", Kind: deploy.KindKubernetes, Strategy: deploy.StrategyQuickSync, Summary: "Quick sync: 2 changed", Details: "-  replicas: 2\n+  replicas: 4\n ```\n"},
		{Name: "api", Dir: "api", Strategy: deploy.StrategyAuto, NoChange: true},
		{Name: "db", Dir: "db", Error: "db/app.pipecd.yaml:4: spec.nonsense: unknown field"},
	}})
	got := l.github.Comments(7)
	if len(got) != 1 {
		t.Fatalf("comments: %v", got)
	}
	golden(t, "preview", got[0].Body)

	l.open(commitB)
	l.previewed("p2", commitA, deploy.PlanPreview{Error: "of an old head"})
	if now := l.github.Comments(7); len(now) != 1 || now[0].Edits != 0 {
		t.Errorf("an old head was reported: %v", now)
	}
	l.previewed("p3", commitB, deploy.PlanPreview{Error: "conflicts in web/app.yaml"})
	if now := l.github.Comments(7); len(now) != 1 || now[0].Edits != 1 {
		t.Fatalf("the new head: %v", now)
	}
	golden(t, "preview-that-could-not-be-built", l.github.Comments(7)[0].Body)
	l.previewed("p4", commitB, deploy.PlanPreview{})
	golden(t, "preview-of-nothing", l.github.Comments(7)[0].Body)

	l.merged(7, commitB)
	l.create("d1", l.app("web", "web", nil), commitB)
	l.move("d1", plan(""), start, end(deploy.Success, ""))
	l.waitDelivered()
	l.previewed("p5", commitB, deploy.PlanPreview{Error: "too late"})
	if now := l.github.Comments(7); len(now) != 1 || !strings.Contains(now[0].Body, "`b6ae82c` is live") {
		t.Errorf("once it is merged: %v", now)
	}
	commits, err := l.store.CommitsOfPullRequest(t.Context(), "apps", 7, 10)
	links := map[string]deploy.PullRequestLink{}
	for _, c := range commits {
		links[c.Hash] = c.Link
	}
	if diff := cmp.Diff(map[string]deploy.PullRequestLink{commitA: deploy.LinkHead, commitB: deploy.LinkMerged}, links); diff != "" || err != nil {
		t.Errorf("commits of the pull request, %v (-want +got):\n%s", err, diff)
	}
}

// TestTextsHaveRoom: a preview of any size fits into a comment and is well formed.
func TestTextsHaveRoom(t *testing.T) {
	for name, c := range map[string]struct{ applications, details int }{
		"one large": {1, 1 << 20}, "many large": {40, 1 << 18}, "very many": {1000, 2000}, "many small": {60, 100},
	} {
		p := deploy.PlanPreview{}
		for range c.applications {
			p.Results = append(p.Results, deploy.ApplicationPreview{
				Name: strings.Repeat("n", 100), Dir: strings.Repeat("d", 200), Strategy: deploy.StrategyPipeline, Summary: strings.Repeat("ü", 1000),
				Details: strings.Repeat("+ größer\n", c.details/11),
			})
		}
		text := previewText("<!-- piped -->", "https://piped.example.com/plan-previews/p1", deploy.PlanPreviewRequest{HeadCommit: commitA, BaseBranch: "main"}, p)
		if len(text) > githost.MaxComment || strings.Count(text, "```")%2 != 0 || strings.Count(text, "<details>") != strings.Count(text, "</details>") {
			t.Errorf("%s: %d bytes, %d fences, %d details", name, len(text), strings.Count(text, "```"), strings.Count(text, "<details>"))
		}
		if c.applications == 1 && len(text) < githost.MaxComment-8<<10 {
			t.Errorf("%s: only %d bytes of text", name, len(text))
		}
	}
}

func TestDuration(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0: "0.0 s", 1500 * time.Millisecond: "1.5 s", 42 * time.Second: "42 s", 60 * time.Second: "1 min 0 s", 59700 * time.Millisecond: "1 min 0 s",
		185 * time.Second: "3 min 5 s", 2*time.Hour + 5*time.Minute: "2 h 5 min",
	} {
		if got := duration(d); got != want {
			t.Errorf("%s: %s, want %s", d, got, want)
		}
	}
}

package app

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/c785c783/piped/piped/app/agenttest"
	"github.com/c785c783/piped/piped/cluster/clustertest"
	"github.com/c785c783/piped/piped/git/gittest"
	"github.com/c785c783/piped/piped/githost/githosttest"
	modelv1 "github.com/c785c783/piped/proto/piped/model/v1"
)

// lateRequest holds the first request of a kind, as if it were still on its way, until it is let in.
type lateRequest struct {
	is      func(*http.Request) bool
	seen    atomic.Bool
	held    chan struct{}
	letIn   chan struct{}
	arrived chan *httptest.ResponseRecorder // what the server has answered
}

func newLateRequest(is func(*http.Request) bool) *lateRequest {
	return &lateRequest{is: is, held: make(chan struct{}), letIn: make(chan struct{}), arrived: make(chan *httptest.ResponseRecorder, 1)}
}

// pass is a fault of a server.
func (l *lateRequest) pass(w http.ResponseWriter, r *http.Request, next http.Handler) {
	if !l.is(r) || l.seen.Swap(true) {
		next.ServeHTTP(w, r)
		return
	}
	body, _ := io.ReadAll(r.Body) // the server notices what is missing
	close(l.held)
	<-l.letIn
	r = r.Clone(context.WithoutCancel(r.Context()))
	r.Body = io.NopCloser(bytes.NewReader(body))
	answer := httptest.NewRecorder()
	next.ServeHTTP(answer, r)
	l.arrived <- answer
}

// await waits until the request is held.
func (l *lateRequest) await(t *testing.T) {
	t.Helper()
	select {
	case <-l.held:
	case <-time.After(patience):
		t.Fatal("there was no such request")
	}
}

// arrive lets the request in and returns the answer.
func (l *lateRequest) arrive(t *testing.T) *httptest.ResponseRecorder {
	t.Helper()
	close(l.letIn)
	select {
	case answer := <-l.arrived:
		return answer
	case <-time.After(patience):
		t.Fatal("the late request was not answered")
		return nil
	}
}

// suspend suspends the replica that holds the partition of a key, and makes another one answer the
// calls of the test.
func (f *sharingFleet) suspend(key string) (victim *agenttest.Agent) {
	f.t.Helper()
	host := f.holder(key)
	var other *agenttest.Agent
	for _, a := range []*agenttest.Agent{f.first, f.second, f.third} {
		if strings.HasSuffix(host, fmt.Sprint(" pid ", a.PID())) {
			victim = a
		} else {
			other = a
			f.client = &client{t: f.t, ctx: f.t.Context(), api: a.API, control: a.Control}
		}
	}
	if victim == nil {
		f.t.Fatalf("no replica is %q, which holds %q", host, key)
	}
	f.signal(victim, syscall.SIGSTOP)
	if victim == f.first { // the one that takes the database over ends its connections
		f.awaitTakeover(victim)
		f.answers(other)
	}
	return victim
}

// resume lets a suspended replica go on. The one that had the database ends then, and starts again.
func (f *sharingFleet) resume(victim *agenttest.Agent) {
	f.t.Helper()
	f.signal(victim, syscall.SIGCONT)
	if victim == f.first {
		select {
		case <-victim.Ended():
		case <-time.After(patience):
			f.t.Fatal("the replica that had the database does not end")
		}
		f.relaunch(victim)
	}
	f.awaitShares(3)
}

// TestALatePushIsRefused: the replica that pushes the commit of an event is suspended in the push until
// another one has pushed. The branch gets one commit.
func TestALatePushIsRefused(t *testing.T) {
	t.Parallel()
	var server *gittest.HTTPServer
	f := startSharing(t, 0, clustertest.Shared(t).Kubeconfig, func(o *agenttest.Options, repo *gittest.Repo) {
		server = repo.HTTP(t, gittest.HTTPOptions{Push: true})
		o.Remote = server.URL
	})
	web := appID("web")
	f.client.mustEnd(web, f.repo.Push(t, "add web", withRule(f.ns)), modelv1.DeploymentStatus_DEPLOYMENT_SUCCESS)
	push := newLateRequest(func(r *http.Request) bool {
		return r.Method == http.MethodPost && strings.HasSuffix(r.URL.Path, "/git-receive-pack")
	})
	server.SetFault(push.pass)

	id := f.client.register("web", "registry.example/web:v2")
	push.await(t)
	victim := f.suspend("apps")
	e := f.client.handled(id)
	head := gitOf(t, f.repo, "rev-parse", "main")
	if e.Status != modelv1.EventStatus_EVENT_SUCCESS || e.PushedCommit != head {
		t.Fatalf("the event: %v, head %s", e, head)
	}
	mustHaveEndedOnce(t, f.client.mustEnd(web, head, modelv1.DeploymentStatus_DEPLOYMENT_SUCCESS))
	if answer := push.arrive(t).Body.String(); !strings.Contains(answer, "ng refs/heads/main") {
		t.Errorf("the late push was answered %q", answer)
	}
	f.resume(victim)
	if again := f.client.handled(id); again.PushedCommit != head {
		t.Errorf("the event after the late push: %v", again)
	}
	if got := gitOf(t, f.repo, "rev-list", "--count", "main"); got != "3" || gitOf(t, f.repo, "rev-parse", "main") != head {
		t.Errorf("%s commits, want 3: none may be made twice", got)
	}
}

// TestALateCommentIsOneMore: the replica that comments on a pull request is suspended in that until
// another one has commented. The comment is there twice then, as docs/operations.md says, and not more
// often.
func TestALateCommentIsOneMore(t *testing.T) {
	t.Parallel()
	var remote string
	var g *githosttest.GitHub
	f := startSharing(t, 0, clustertest.Shared(t).Kubeconfig, func(o *agenttest.Options, repo *gittest.Repo) {
		remote = repo.HTTP(t, gittest.HTTPOptions{Folder: "shop"}).URL
		g = githosttest.NewGitHub(t)
		o.Remote = remote
		o.More += gitHubLines(g.URL, "token: "+githosttest.Token)
	})
	files := simple("settings", f.ns, "hello")
	f.client.mustEnd(appID("settings"), f.repo.Push(t, "begin", files), modelv1.DeploymentStatus_DEPLOYMENT_SUCCESS)
	comment := newLateRequest(func(r *http.Request) bool {
		return r.Method == http.MethodPost && strings.HasSuffix(r.URL.Path, "/issues/7/comments")
	})
	g.SetFault(comment.pass)

	change := simple("settings", f.ns, "hello again")
	commit := f.repo.PushOn(t, "more", "merge the pull request", change)
	now := time.Now()
	g.SetPull(githosttest.PullRequest{Number: 7, State: "closed", MergedAt: &now, Base: githosttest.Ref{Ref: "main"}, Brought: []string{commit}})
	if err := f.repo.Reset(commit); err != nil { // now that the host knows what has brought it
		t.Fatal(err)
	}
	comment.await(t)
	victim := f.suspend("127.0.0.1 comments")
	live := func() (n int) {
		for _, c := range g.Comments(7) {
			if strings.Contains(c.Body, "`"+commit[:7]+"` is live") {
				n++
			}
		}
		return n
	}
	eventually(t, "another replica comments", func() bool { return live() == 1 })
	comment.arrive(t)
	f.resume(victim)
	next := f.repo.Push(t, "one more", simple("settings", f.ns, "hello once more"))
	f.client.mustEnd(appID("settings"), next, modelv1.DeploymentStatus_DEPLOYMENT_SUCCESS)
	if all := g.Comments(7); len(all) != 2 {
		t.Errorf("the comments: %v", all)
	}
}

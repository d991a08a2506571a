package app

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/c785c783/piped/piped/app/agenttest"
	"github.com/c785c783/piped/piped/cluster/clustertest"
	"github.com/c785c783/piped/piped/git/gittest"
	"github.com/c785c783/piped/proto/pipecd/apiservice"
	controlv1 "github.com/c785c783/piped/proto/piped/control/v1"
	modelv1 "github.com/c785c783/piped/proto/piped/model/v1"
)

// eventRule returns lines of spec: a rule for the event image-pushed of an
// application.
func eventRule(app, more, replacement string) string {
	return fmt.Sprintf(`  eventWatcher:
    - matcher: {name: image-pushed, labels: {app: %s}}
      handler: {config: {%s replacements: [%s]}}
`, app, more, replacement)
}

// withRule is webApp with a rule that sets its image.
func withRule(namespace string) map[string]string {
	files := webApp(namespace, "v1", "")
	files["web/app.pipecd.yaml"] += eventRule("web", "", `{file: app.yaml, yamlField: "$.spec.template.spec.containers[0].image"}`)
	return files
}

// sourceCommit is the commit from which the images of events were built.
const sourceCommit = "c0ffee0123456789"

// register registers an event image-pushed and returns its ID.
func (c *client) register(app, data string) string {
	c.t.Helper()
	resp, err := c.api.RegisterEvent(c.ctx, &apiservice.RegisterEventRequest{
		Name: "image-pushed", Data: data, Labels: map[string]string{"app": app}, Contexts: map[string]string{"Build": "7"},
		CommitHash: sourceCommit, CommitUrl: "https://example.com/c0ffee",
	})
	if err != nil {
		c.t.Fatal(err)
	}
	return resp.EventId
}

// handled returns an event once it has its final status.
func (c *client) handled(id string) *modelv1.Event {
	c.t.Helper()
	var last []*modelv1.Event
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		resp, err := c.control.ListEvents(c.ctx, &controlv1.ListEventsRequest{Name: "image-pushed"})
		if err != nil {
			c.t.Fatal(err)
		}
		last = resp.Events
		for _, e := range last {
			if e.Id == id && e.Status != modelv1.EventStatus_EVENT_NOT_HANDLED {
				return e
			}
		}
	}
	c.t.Fatalf("event %s was not handled: %v", id, last)
	return nil
}

// mustTrace fails the test unless an event and the commit that it wrote lead to a successful
// deployment with a complete rollout.
func (c *client) mustTrace(eventID, commit string, d *modelv1.Deployment) {
	c.t.Helper()
	for name, req := range map[string]*controlv1.GetDeploymentTraceRequest{
		"event": {EventId: eventID}, "commit": {Commit: commit[:8]}, "source commit": {Commit: "c0ffee0"}, "deployment": {DeploymentId: d.Id},
	} {
		resp, err := c.control.GetDeploymentTrace(c.ctx, req)
		if err != nil {
			c.t.Errorf("trace from the %s: %v", name, err)
			continue
		}
		m := resp.Trace
		if len(m.Events) != 1 || m.Events[0].EventId != eventID || len(m.Commits) != 1 || m.Commits[0].Hash != commit || len(m.Commits[0].Deployments) != 1 {
			c.t.Errorf("trace from the %s: %v", name, m)
			continue
		}
		found := m.Commits[0].Deployments[0]
		var phases []string
		for _, p := range found.Phases {
			phases = append(phases, strings.TrimPrefix(p.Status.String(), "DEPLOYMENT_"))
		}
		if found.Deployment.DeploymentId != d.Id || strings.Join(phases, " ") != "PENDING PLANNED RUNNING SUCCESS" {
			c.t.Errorf("trace from the %s: deployment %s: %s", name, found.Deployment.DeploymentId, phases)
		}
		if len(found.Rollouts) != 1 || found.Rollouts[0].WorkloadName != "web" || found.Rollouts[0].Outcome != modelv1.RolloutOutcome_ROLLOUT_OUTCOME_COMPLETE || found.Rollouts[0].CompletedAtMs < found.Rollouts[0].StartedAtMs {
			c.t.Errorf("trace from the %s: rollouts %v", name, found.Rollouts)
		}
	}
}

// gitOf runs git in a repository.
func gitOf(t *testing.T, repo *gittest.Repo, args ...string) string {
	t.Helper()
	out, err := exec.Command("git", append([]string{"-c", "safe.directory=*", "-C", repo.Dir}, args...)...).CombinedOutput()
	if err != nil {
		t.Fatalf("git %v: %v\n%s", args, err, out)
	}
	return strings.TrimSpace(string(out))
}

// TestARegisteredEventIsDeployed registers an image over the wire, as a build does. The
// image must reach Git and the cluster. Then it registers two images at once, of which
// the newer one must win, and one that becomes a merge request.
func TestARegisteredEventIsDeployed(t *testing.T) {
	t.Parallel()
	cluster := clustertest.Shared(t)
	ns, kube := cluster.Namespace(t), cluster.Client(t)
	repo := newRepo(t)
	server := repo.HTTP(t, gittest.HTTPOptions{Push: true})
	asked := make(chan string, 10)
	host := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		asked <- r.URL.Path + " " + r.Header.Get("PRIVATE-TOKEN") + " " + string(body)
		_, _ = io.WriteString(w, `{"web_url":"https://git.example.com/apps/1"}`)
	}))
	defer host.Close()
	reviewed := simple("reviewed", ns, "v1")
	reviewed["reviewed/app.pipecd.yaml"] += eventRule("reviewed", "makePullRequest: true,", "{file: map.yaml, yamlField: $.data.greeting}")
	first := repo.Push(t, "applications", merged(withRule(ns), reviewed))
	agent := runAgent(t, settings{
		dataDir: t.TempDir(), remote: server.URL, kubeconfig: cluster.Kubeconfig(),
		more: fmt.Sprintf("  git: {username: robot, email: robot@example.com}\n  gitHosts: [{host: 127.0.0.1, type: GITLAB, apiURL: %q, token: s3cr3t, commitStatus: false}]\n", host.URL),
	})
	web := appID("web")
	agent.mustEnd(web, first, modelv1.DeploymentStatus_DEPLOYMENT_SUCCESS)

	began := time.Now()
	e := agent.handled(agent.register("web", "registry.example/web:v2"))
	t.Logf("from register to commit: %s", time.Since(began))
	head := gitOf(t, repo, "rev-parse", "main")
	if e.Status != modelv1.EventStatus_EVENT_SUCCESS || e.PushedCommit != head {
		t.Fatalf("event: %v, head %s", e, head)
	}
	d := agent.mustEnd(web, head, modelv1.DeploymentStatus_DEPLOYMENT_SUCCESS)
	if d.DeploymentTraceCommitHash != sourceCommit || d.Trigger.Commit.Author != "robot" {
		t.Errorf("deployment: trace %q, commit %v", d.DeploymentTraceCommitHash, d.Trigger.Commit)
	}
	agent.mustTrace(e.Id, head, d)
	if got := gitOf(t, repo, "diff", "main~1", "main", "--unified=0"); strings.Count(got, "\n+") != 2 || !strings.Contains(got, `image: "registry.example/web:v2"`) {
		t.Errorf("the commit changes\n%s", got)
	}

	older := agent.register("web", "registry.example/web:v3")
	newest := agent.handled(agent.register("web", "registry.example/web:v4"))
	if newest.Status != modelv1.EventStatus_EVENT_SUCCESS || agent.handled(older).Status == modelv1.EventStatus_EVENT_FAILURE {
		t.Errorf("of two: %v, %v", agent.handled(older), newest)
	}
	agent.mustEnd(web, newest.PushedCommit, modelv1.DeploymentStatus_DEPLOYMENT_SUCCESS)
	live, err := kube.AppsV1().Deployments(ns).Get(t.Context(), "web", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if got := live.Spec.Template.Spec.Containers[0].Image; got != "registry.example/web:v4" {
		t.Errorf("image %s", got)
	}

	before := gitOf(t, repo, "rev-parse", "main")
	id := agent.register("reviewed", "v2")
	e = agent.handled(id)
	branch := "image-pushed-" + id[:8]
	if e.Status != modelv1.EventStatus_EVENT_SUCCESS || e.PullRequestUrl != "https://git.example.com/apps/1" || e.PushedCommit != gitOf(t, repo, "rev-parse", branch) {
		t.Errorf("event of a merge request: %v", e)
	}
	if got := <-asked; !strings.HasPrefix(got, "/projects/repo/merge_requests s3cr3t ") || !strings.Contains(got, `"source_branch":"`+branch+`","target_branch":"main"`) {
		t.Errorf("the host was asked %s", got)
	}
	if got := gitOf(t, repo, "rev-parse", "main"); got != before {
		t.Errorf("main was moved to %s", got)
	}
}

// TestKilledBetweenThePushAndItsAnswer kills the agent with SIGKILL when the remote has
// the commit and the agent does not know it yet. After the restart there must be exactly
// one commit of the event.
func TestKilledBetweenThePushAndItsAnswer(t *testing.T) {
	t.Parallel()
	cluster := clustertest.Shared(t)
	repo := newRepo(t)
	server := repo.HTTP(t, gittest.HTTPOptions{Push: true})
	first := repo.Push(t, "add web", withRule(cluster.Namespace(t)))
	p := startProcess(t, agenttest.Options{Remote: server.URL, Kubeconfig: cluster.Kubeconfig()})
	agent := dial(t, p.Address, filepath.Dir(p.KeyFile))
	web := appID("web")
	agent.mustEnd(web, first, modelv1.DeploymentStatus_DEPLOYMENT_SUCCESS)

	pushed := make(chan struct{})
	server.SetFault(func(w http.ResponseWriter, r *http.Request, next http.Handler) {
		if r.Method != http.MethodPost || !strings.HasSuffix(r.URL.Path, "/git-receive-pack") {
			next.ServeHTTP(w, r)
			return
		}
		next.ServeHTTP(httptest.NewRecorder(), r)
		close(pushed)
		<-r.Context().Done()
	})
	id := agent.register("web", "registry.example/web:v2")
	select {
	case <-pushed:
	case <-time.After(patience):
		t.Fatal("nothing was pushed")
	}
	p.Kill()
	server.SetFault(nil)
	commit := gitOf(t, repo, "rev-parse", "main")
	if err := p.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	if e := agent.handled(id); e.Status != modelv1.EventStatus_EVENT_SUCCESS || e.PushedCommit != commit {
		t.Errorf("event: %v, pushed %s", e, commit)
	}
	if got := gitOf(t, repo, "rev-list", "--count", "main"); got != "3" {
		t.Errorf("%s commits, want 3: none may be made twice", got)
	}
	agent.mustEnd(web, commit, modelv1.DeploymentStatus_DEPLOYMENT_SUCCESS)
}

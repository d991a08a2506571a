package app

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/c785c783/piped/piped/app/agenttest"
	"github.com/c785c783/piped/piped/cluster/clustertest"
	"github.com/c785c783/piped/piped/git/gittest"
	"github.com/c785c783/piped/piped/githost/githosttest"
	modelv1 "github.com/c785c783/piped/proto/piped/model/v1"
)

// gitHubLines returns configuration lines that make the agent report to a fake GitHub for
// repositories on 127.0.0.1, and accept its webhooks.
func gitHubLines(apiURL, credential string) string {
	return fmt.Sprintf("  gitHosts: [{host: 127.0.0.1, type: GITHUB, apiURL: %q, %s, deployments: true, comments: true}]\n", apiURL, credential) +
		"  webhooks: [{name: github, type: GITHUB, secret: webhook-secret}]\n"
}

// eventually waits until a condition holds.
func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !holds(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not within %s: %s", patience, what)
		}
	}
}

// stateOf returns the sequence of states of a commit's statuses in a context, without
// repetitions, and the last description.
func stateOf(g *githosttest.GitHub, commit, name string) (states []string, says string) {
	for _, s := range g.Statuses(commit) {
		if s.Context == name {
			states, says = append(states, s.State), s.Description
		}
	}
	return slices.Compact(states), says
}

// awaitStart waits until the start of web is reported. A deployment that has ended by then is
// reported as such.
func awaitStart(t *testing.T, g *githosttest.GitHub, commit string) {
	t.Helper()
	eventually(t, "the start of web is reported", func() bool {
		states, _ := stateOf(g, commit, "piped/web")
		return len(states) > 0
	})
}

// TestGitHubIsNotified pushes a pull request and its merge. GitHub announces the pull
// request and gets a comment with the preview. After the merge it gets commit statuses, a
// deployment, and an update of the same comment that shows where the commit is live. They link
// to the page. The agent authenticates as a GitHub App.
func TestGitHubIsNotified(t *testing.T) {
	t.Parallel()
	cluster := clustertest.Shared(t)
	ns, kube, repo := cluster.Namespace(t), cluster.Client(t), newRepo(t)
	remote := repo.HTTP(t, gittest.HTTPOptions{Folder: "shop"}).URL
	g, key := githosttest.NewGitHubApp(t, pathOf(remote))
	agent := runReloading(t, spec{
		dataDir: t.TempDir(), repositories: map[string]string{"apps": remote}, providers: map[string]string{"local": cluster.Kubeconfig()},
		more: gitHubLines(g.URL, fmt.Sprintf("app: {appID: %d, privateKey: %q}", githosttest.AppID, key)) + "  access: {externalURL: https://piped.example.com}\n",
	}, time.Second)
	files := merged(heldApp("web", webApp(ns, "v1", "")), simple("settings", ns, "hello"))
	files["web/app.pipecd.yaml"] = strings.Replace(files["web/app.pipecd.yaml"], "spec:\n", "spec:\n  environmentURL: https://shop.example.com\n  labels: {env: production}\n", 1)
	endReported := func(commit string) *modelv1.Deployment {
		t.Helper()
		awaitStart(t, g, commit)
		agent.letPodsBeReady(kube, ns, appID("web"), commit)
		return agent.mustEnd(appID("web"), commit, modelv1.DeploymentStatus_DEPLOYMENT_SUCCESS)
	}
	first := repo.Push(t, "begin", files)
	endReported(first)
	eventually(t, "the first commit is reported", func() bool {
		_, says := stateOf(g, first, "piped/web")
		return strings.HasPrefix(says, "live: rollout took ")
	})
	inOrder := []string{"pending", "success"}
	if states, _ := stateOf(g, first, "piped/web"); !slices.Equal(states, inOrder) {
		t.Errorf("states of the first commit: %q", states)
	}

	change := merged(map[string]string{"web/app.yaml": heldApp("web", webApp(ns, "v2", ""))["web/app.yaml"]}, simple("settings", ns, "hello again"))
	head, err := repo.CommitOn("more", "a pull request", func(r *gittest.Repo) error { return r.Write(change) })
	if err != nil {
		t.Fatal(err)
	}
	g.SetPull(githosttest.PullRequest{Number: 7, State: "open", Head: githosttest.Ref{Ref: "more", SHA: head}, Base: githosttest.Ref{Ref: "main"}})
	payload := fmt.Sprintf(`{"action": "opened", "number": 7, "pull_request": {"head": {"ref": "more", "sha": %q, "repo": {"full_name": "a/b"}}, "base": {"ref": "main"}},
		"repository": {"full_name": "a/b", "clone_url": %q}}`, head, remote)
	if code := post(t, "http://"+agent.app.WebAddr()+"/webhooks/github", "pull_request", payload, "webhook-secret"); code != http.StatusAccepted {
		t.Fatalf("the webhook returned %d", code)
	}
	eventually(t, "the pull request shows what it would deploy", func() bool { return len(g.Comments(7)) == 1 })
	preview := g.Comments(7)[0].Body
	mustContain(t, preview, "### [Plan preview](https://piped.example.com/plan-previews/", ") of `"+head[:7]+"` into `main`", "**`web`** in `web`: QUICK_SYNC", "+      - image: registry.example/web:v2", "**`settings`**")

	commit := repo.Push(t, "merge the pull request", change)
	now := time.Now()
	g.SetPull(githosttest.PullRequest{Number: 7, State: "closed", MergedAt: &now, Base: githosttest.Ref{Ref: "main"}, Brought: []string{commit}})
	web := endReported(commit)
	settings := agent.mustEnd(appID("settings"), commit, modelv1.DeploymentStatus_DEPLOYMENT_SUCCESS)
	eventually(t, "the pull request shows that it is live", func() bool { return strings.Contains(g.Comments(7)[0].Body, "`"+commit[:7]+"` is live") })
	if all := g.Comments(7); len(all) != 1 || all[0].Edits != 1 {
		t.Errorf("comments: %v", all)
	}
	const page = "https://piped.example.com/deployments/"
	mustContain(t, g.Comments(7)[0].Body, "| [`web`]("+page+web.Id+") | `production` <https://shop.example.com> | **live** | rollout took ",
		"| [`settings`]("+page+settings.Id+") | `test` | **live** | ")
	eventually(t, "the status of web is reported", func() bool {
		states, _ := stateOf(g, commit, "piped/web")
		return slices.Equal(states, inOrder)
	})
	eventually(t, "the status of settings is reported", func() bool {
		states, _ := stateOf(g, commit, "piped/settings") // it may be deployed before its start can be reported
		return slices.Equal(states, inOrder) || slices.Equal(states, inOrder[1:])
	})
	for _, s := range g.Statuses(commit) {
		want := map[string]string{"piped/web": page + web.Id, "piped/settings": page + settings.Id}[s.Context]
		if s.Context == "piped/web" && s.State == "success" {
			want = "https://shop.example.com"
		}
		if s.TargetURL != want {
			t.Errorf("the status %s %s links to %q, want %q", s.Context, s.State, s.TargetURL, want)
		}
	}
	eventually(t, "the deployments are reported", func() bool {
		states := map[string]string{}
		for _, d := range g.Deployments() {
			if n := len(d.Statuses); n > 0 {
				states[d.SHA+" "+d.Environment] = d.Statuses[n-1].State + d.Statuses[n-1].EnvironmentURL
			}
		}
		return len(states) == 4 && states[first+" production/web"] == "inactive" && states[commit+" production/web"] == "successhttps://shop.example.com" &&
			states[commit+" test/settings"] == "success"
	})
}

// pathOf returns the path of a remote on its host.
func pathOf(remote string) string {
	_, path, _ := strings.Cut(strings.TrimPrefix(remote, "http://"), "/")
	return strings.TrimSuffix(path, ".git")
}

// TestKilledWhileGitHubIsNotified kills the agent with SIGKILL when GitHub has a comment
// that the agent has not recorded. After the restart nothing is reported twice, nothing
// is missing, and no pending status follows the final one.
func TestKilledWhileGitHubIsNotified(t *testing.T) {
	t.Parallel()
	cluster := clustertest.Shared(t)
	repo := newRepo(t)
	remote := repo.HTTP(t, gittest.HTTPOptions{Folder: "shop"}).URL
	g := githosttest.NewGitHub(t)
	commented := make(chan struct{}, 1)
	g.SetFault(func(w http.ResponseWriter, r *http.Request, next http.Handler) {
		if r.Method != http.MethodPost || !strings.HasSuffix(r.URL.Path, "/comments") {
			next.ServeHTTP(w, r)
			return
		}
		next.ServeHTTP(httptest.NewRecorder(), r)
		commented <- struct{}{}
		<-r.Context().Done()
	})
	ns := cluster.Namespace(t)
	commit := repo.Push(t, "add web", heldApp("web", webApp(ns, "v1", "")))
	now := time.Now()
	g.SetPull(githosttest.PullRequest{Number: 7, State: "closed", MergedAt: &now, Base: githosttest.Ref{Ref: "main"}, Brought: []string{commit}})
	p := startProcess(t, agenttest.Options{Remote: remote, Kubeconfig: cluster.Kubeconfig(), More: gitHubLines(g.URL, "token: "+githosttest.Token)})
	awaitStart(t, g, commit)
	dial(t, p.Address, filepath.Dir(p.KeyFile)).letPodsBeReady(cluster.Client(t), ns, appID("web"), commit)
	select {
	case <-commented:
	case <-time.After(patience):
		t.Fatal("nothing was commented")
	}
	p.Kill()
	g.SetFault(nil)
	if err := p.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	eventually(t, "everything is reported", func() bool {
		states, _ := stateOf(g, commit, "piped/web")
		deployments := g.Deployments()
		return slices.Equal(states, []string{"pending", "success"}) && len(deployments) == 1 && slices.ContainsFunc(deployments[0].Statuses, func(s githosttest.DeploymentState) bool { return s.State == "success" }) &&
			slices.Contains(g.Calls()[lastPost(g):], "GET "+commentsPath(remote))
	})
	if all := g.Comments(7); len(all) != 1 || !strings.Contains(all[0].Body, "`"+commit[:7]+"` is live") {
		t.Errorf("comments: %v", all)
	}
}

func commentsPath(remote string) string { return "/repos/" + pathOf(remote) + "/issues/7/comments" }

// lastPost returns the index after the call that created the comment.
func lastPost(g *githosttest.GitHub) int {
	calls := g.Calls()
	for i, call := range slices.Backward(calls) {
		if strings.HasPrefix(call, "POST ") && strings.HasSuffix(call, "/comments") {
			return i + 1
		}
	}
	return len(calls)
}

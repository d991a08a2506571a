package pullpreview

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/c785c783/piped/piped/deploy"
)

// webConfig returns the configuration of web with more lines of its spec.
func webConfig(lines string) string {
	return "apiVersion: pipecd.dev/v1beta1\nkind: KubernetesApp\nspec:\n  name: web\n  preview: {}\n" + lines
}

// change pushes a configuration of web to pull request 7.
func (e *env) change(config string) {
	e.t.Helper()
	pr := e.requests[7]
	pr.Commit = e.upstream.PushOn(e.t, pr.Head, "configuration", map[string]string{"web/app.pipecd.yaml": config})
	e.requests[7] = pr
}

// spaceProviders returns the clusters with a namespace of a preview.
func (e *env) spaceProviders() string {
	var out []string
	for space := range maps.Keys(e.spaces) {
		provider, _, _ := strings.Cut(space, "/")
		out = append(out, provider)
	}
	slices.Sort(out)
	return strings.Join(out, " ")
}

// TestPullRequestChoosesNoCluster: a pull request decides neither the cluster nor the labels of its
// preview, because access depends on them.
func TestPullRequestChoosesNoCluster(t *testing.T) {
	e := newEnv(t)
	e.app("web", "{}")
	e.branchConfig(webConfig("  labels: {team: shop}\n"))
	e.open(7, nil, "web")
	e.change(webConfig("  labels: {team: platform, admin: 'true', pull-request: '8'}\n"))
	e.pass()
	e.want("with other labels", "7 READY", "web-pr-7", 1)
	at := deploy.GitPath{RepoID: "apps", Dir: "web", ConfigFile: "app.pipecd.yaml", PullRequest: 7}
	app, err := e.store.Application(t.Context(), deploy.ApplicationID(at))
	e.must(err)
	if want := map[string]string{"team": "shop", "pull-request": "7"}; !maps.Equal(app.Labels, want) {
		t.Errorf("the labels are %v, want %v", app.Labels, want)
	}
	deployed := len(e.deployments())
	e.change(webConfig("  platformProvider: production\n"))
	e.pass()
	if got := e.stored(7); got.Phase != deploy.PreviewFailed || !strings.Contains(got.Reason, "changes spec.platformProvider") {
		t.Errorf("stored: %+v", got)
	}
	if got := e.spaceProviders(); got != "local" || len(e.deployments()) != deployed {
		t.Errorf("another cluster was used: %q", got)
	}
	delete(e.requests, 7)
	e.pass()
	e.want("closed", "", "", 0)
}

// TestBranchMovesCluster: when the branch has another platform provider, the preview moves, and leaves
// no namespace behind.
func TestBranchMovesCluster(t *testing.T) {
	e := newEnv(t)
	e.app("web", "{}")
	e.open(7, nil, "web")
	e.pass()
	e.branchConfig(webConfig("  platformProvider: other\n"))
	e.pass()
	e.want("moved", "7 READY", "web-pr-7", 1)
	if got := e.spaceProviders(); got != "other" {
		t.Errorf("the namespaces are in %q, want other", got)
	}
}

// deployments returns all deployments of previews.
func (e *env) deployments() []deploy.Deployment {
	e.t.Helper()
	list, err := e.store.DeploymentsByPrefix(e.t.Context(), "id-", 1000)
	e.must(err)
	return list
}

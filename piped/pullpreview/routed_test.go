package pullpreview

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/c785c783/piped/piped/deploy"
)

// routed returns the configuration of web whose previews are next to it, with more lines of its preview.
func routed(lines string) string {
	return "apiVersion: pipecd.dev/v1beta1\nkind: KubernetesApp\nspec:\n  name: web\n  input: {namespace: shop}\n  preview:\n    mode: route\n    header: X-Preview\n" + lines
}

// applied records an object of the preview of web, as its deployment does.
func (e *env) applied() {
	e.t.Helper()
	at := deploy.GitPath{RepoID: "apps", Dir: "web", ConfigFile: "app.pipecd.yaml", PullRequest: 7}
	e.appliedTo(deploy.Application{ID: deploy.ApplicationID(at), Name: "web-pr-7"})
}

// appliedTo records an object of an application, as its deployment does.
func (e *env) appliedTo(app deploy.Application) {
	e.t.Helper()
	e.must(e.store.PutInventory(e.t.Context(), deploy.InventoryItem{
		ApplicationID: app.ID, Cluster: "local", Object: deploy.ObjectRef{Group: "apps", Version: "v1", Kind: "Deployment", Namespace: "shop", Name: app.Name}, UID: "1",
	}))
}

// TestRoutedPreviewIsRemovedWhenNothingIsLeft: a preview next to its application has no namespace. Its comment
// says how it is reached and what it does not have, and that it is removed when no object of it is
// left, also if a removal fails and the agent is started again meanwhile.
func TestRoutedPreviewIsRemovedWhenNothingIsLeft(t *testing.T) {
	e := newEnv(t)
	e.app("web", "{}")
	e.branchConfig(routed(""))
	e.route = Route{ByHeader: true, Hostnames: []string{"shop.example.com"}, Shared: []string{"Job migrate: it is not run | @all"}}
	e.open(7, nil, "web")
	e.pass()
	e.want("opened", "7 READY", "web-pr-7", 0)
	if got := e.stored(7).Applications[0]; got.Header != "X-Preview: pr-7-apps" || len(got.Hostnames) != 1 {
		t.Errorf("stored: %+v", got)
	}
	for _, want := range []string{
		"\n```\ncurl -H 'X-Preview: pr-7-apps' https://shop.example.com/\n```\n",
		"| `web-pr-7` | **ready** | requests to `shop.example.com` with the header `X-Preview: pr-7-apps` |",
		"Not in the preview `web-pr-7`:\n\n* Job migrate: it is not run \\| @\u200ball\n",
	} {
		if !strings.Contains(e.comments[7], want) {
			t.Errorf("the comment does not say %q:\n%s", want, e.comments[7])
		}
	}

	e.applied()
	e.failing = true
	delete(e.requests, 7)
	e.pass()
	if strings.Contains(e.comments[7], "removed") {
		t.Errorf("the comment says removed, and an object is left:\n%s", e.comments[7])
	}
	e.want("while its removal fails", "7 READY", "", 0)
	e.start(e.p.Settings)
	e.failing = false
	e.now = e.now.Add(removeAgain)
	e.pass()
	if !strings.Contains(e.comments[7], "### Preview: removed") {
		t.Errorf("the comment says\n%s", e.comments[7])
	}
	e.want("removed", "", "", 0)
	items, err := e.store.Inventory(t.Context(), deploy.ApplicationID(deploy.GitPath{RepoID: "apps", Dir: "web", ConfigFile: "app.pipecd.yaml", PullRequest: 7}))
	e.must(err)
	if len(items) > 0 {
		t.Errorf("left: %v", items)
	}
}

// TestFailedRemovalsAreFew: a removal that fails is requested again once a minute, and not at each pass.
func TestFailedRemovalsAreFew(t *testing.T) {
	e := newEnv(t)
	e.app("web", "{}")
	e.branchConfig(routed("    ttl: 1h\n"))
	e.open(7, nil, "web")
	e.pass()
	e.applied()
	e.failing = true
	e.now = e.now.Add(2 * time.Hour)
	for range 3 {
		e.pass()
	}
	first := e.removals
	if first == 0 || first > 2 {
		t.Errorf("%d removals were requested at one time", first)
	}
	e.now = e.now.Add(removeAgain)
	e.pass()
	e.pass()
	if got := e.removals - first; got != 1 {
		t.Errorf("%d removals were requested after a minute", got)
	}
	if strings.Contains(e.comments[7], "removed") {
		t.Errorf("the comment says\n%s", e.comments[7])
	}
}

// TestPreviewChangesItsMode: when the branch changes the mode, the earlier preview is removed before the new
// one exists, and nothing of it is left.
func TestPreviewChangesItsMode(t *testing.T) {
	e := newEnv(t)
	e.app("web", "{}")
	e.open(7, nil, "web")
	e.pass()
	e.want("in a namespace", "7 READY", "web-pr-7", 1)
	e.branchConfig(routed(""))
	e.pass()
	e.pass()
	e.want("next to the application", "7 READY", "web-pr-7", 0)
	e.applied()
	e.branchConfig(webConfig(""))
	e.pass()
	e.pass()
	e.want("in a namespace again", "7 READY", "web-pr-7", 1)
}

// TestRoutedPreviewNeedsTheApplication: a pull request that adds an application gets no preview next to it,
// and a commit that the loader refuses is not deployed.
func TestRoutedPreviewNeedsTheApplication(t *testing.T) {
	e := newEnv(t)
	e.app("web", "{}")
	e.branchConfig(routed(""))
	e.refuse = deploy.Errorf(deploy.Invalid, "web uses Secret database of the branch")
	e.open(7, nil, "web")
	e.pass()
	if got := e.stored(7); got.Phase != deploy.PreviewFailed || !strings.Contains(got.Reason, "uses Secret database") || len(e.deployments()) != 0 {
		t.Errorf("stored: %+v, %d deployments", got, len(e.deployments()))
	}
	e.refuse = deploy.Errorf(deploy.Unavailable, "the chart cannot be fetched")
	e.open(7, nil, "web")
	if err := e.p.repository(t.Context(), envRepositories{e}.Hosted()[0], true); !deploy.IsKind(err, deploy.Unavailable) {
		t.Errorf("a plan that cannot be made now: %v", err)
	}
	e.refuse = nil
	e.pass()
	e.want("after the fix", "7 READY", "web-pr-7", 0)

	pr := e.requests[7]
	pr.Number, pr.Head = 8, "pr-8"
	pr.Commit = e.upstream.PushOn(t, "pr-8", "a new application", map[string]string{"api/app.pipecd.yaml": strings.Replace(routed(""), "name: web", "name: api", 1)})
	e.requests[8] = pr
	at := deploy.GitPath{RepoID: "apps", Dir: "api", ConfigFile: "app.pipecd.yaml"}
	_, err := e.store.PutApplication(t.Context(), deploy.Application{ID: deploy.ApplicationID(at), Name: "api", Kind: "KUBERNETES", Git: at, Provider: "local"})
	e.must(err)
	e.pass()
	if got := e.stored(8); got.Phase != deploy.PreviewFailed || !strings.Contains(got.Reason, "merge it first, or use mode: namespace") {
		t.Errorf("stored: %+v", got)
	}
	e.want("the new application", "7 READY, 8 FAILED", "web-pr-7", 0)
}

// envRoute is the loader of previews next to their application.
func (e *env) envRoute(context.Context, deploy.GitPath, string) (Route, error) {
	return e.route, e.refuse
}

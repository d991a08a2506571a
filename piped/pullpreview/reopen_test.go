package pullpreview

import (
	"strings"
	"testing"
	"time"

	"github.com/c785c783/piped/piped/deploy"
)

// branchConfig pushes another configuration of web to the branch.
func (e *env) branchConfig(text string) {
	e.t.Helper()
	e.upstream.Push(e.t, "configuration", map[string]string{"web/app.pipecd.yaml": text})
	_, _, err := e.repo.Sync(e.t.Context())
	e.must(err)
}

// TestApprovalOutlivesPreview: an approved pull request of a fork that loses its preview while the
// label stays has no other head deployed afterwards, until the label is set anew.
func TestApprovalOutlivesPreview(t *testing.T) {
	const config = "apiVersion: pipecd.dev/v1beta1\nkind: KubernetesApp\nspec:\n  name: web\n  preview: {label: preview, allowForks: true, ttl: 1h}\n"
	push := func(e *env) { e.fork([]string{"preview"}, map[string]string{"web/version": "evil"}) }
	for name, lose := range map[string]func(e *env){
		"closed, pushed, reopened": func(e *env) {
			delete(e.requests, 7)
			e.pass()
			e.want("closed", "", "", 0)
		},
		"pushed, closed, reopened": func(e *env) {
			push(e)
			e.pass()
			delete(e.requests, 7)
			e.pass()
		},
		"retargeted and back": func(e *env) {
			pr := e.requests[7]
			pr.Base = "other"
			e.requests[7] = pr
			e.pass()
			e.want("retargeted", "", "", 0)
		},
		"a broken configuration on the branch": func(e *env) {
			e.branchConfig("kind: [")
			e.pass()
			e.want("broken", "", "", 0)
			e.branchConfig(config)
		},
		"forks not allowed for a while": func(e *env) {
			e.branchConfig(strings.ReplaceAll(config, "allowForks: true, ", ""))
			e.pass()
			e.branchConfig(config)
		},
		"its time is over": func(e *env) {
			e.now = e.now.Add(2 * time.Hour)
			e.pass()
			e.want("over", "7 REMOVED", "", 0)
		},
		"its time is over, and closed": func(e *env) {
			e.now = e.now.Add(2 * time.Hour)
			e.pass()
			delete(e.requests, 7)
			e.pass()
		},
		"a second label replaces the first": func(e *env) {
			e.label("preview", "bug")
			e.pass()
			e.label("bug", "preview")
		},
	} {
		t.Run(name, func(t *testing.T) {
			e := newEnv(t)
			e.app("web", "{label: preview, allowForks: true, ttl: 1h}")
			e.approve(map[string]string{"web/version": "2"})
			approved := e.requests[7]
			e.want("approved", "7 READY", "web-pr-7", 1)
			lose(e)
			e.start(e.p.Settings)
			push(e)
			evil := e.requests[7].Commit
			e.pass()
			e.approvedByLabelOnly(approved.Commit, evil)
		})
	}
}

// TestLabelsOfTwoApplications: the loss of one of two labels approves no new head.
func TestLabelsOfTwoApplications(t *testing.T) {
	e := newEnv(t)
	e.app("web", "{label: preview, allowForks: true}")
	e.app("api", "{label: api, allowForks: true}")
	e.approve(map[string]string{"web/version": "2", "api/version": "2"})
	approved := e.requests[7].Commit
	e.label("preview", "api")
	e.pass()
	e.fork([]string{"api"}, map[string]string{"web/version": "evil", "api/version": "evil"})
	e.pass()
	for _, head := range e.deployed() {
		if head != approved {
			t.Fatalf("deployed %q, want only %q", head, approved)
		}
	}
	e.says(7, "removes the label and adds it again")
}

// TestReopened: an approved head has its preview again when the pull request is opened again, and one
// that a user has removed has none until the next commit.
func TestReopened(t *testing.T) {
	e := newEnv(t)
	e.app("web", "{label: preview, allowForks: true}")
	e.approve(map[string]string{"web/version": "2"})
	pr := e.requests[7]
	delete(e.requests, 7)
	e.pass()
	e.requests[7] = pr
	e.pass()
	e.want("reopened", "7 READY", "web-pr-7", 1)

	e.app("api", "{}")
	e.open(8, nil, "api")
	e.pass()
	e.must(e.store.DismissPullPreview(t.Context(), "apps", 8, e.stored(8).Head, "ann"))
	e.pass()
	e.want("removed", "7 READY, 8 REMOVED", "web-pr-7", 1)
	other := e.requests[8]
	delete(e.requests, 8)
	e.pass()
	e.want("removed and closed", "7 READY", "web-pr-7", 1)
	e.requests[8] = other
	e.pass()
	e.want("removed and reopened", "7 READY, 8 REMOVED", "web-pr-7", 1)
	e.open(8, nil, "api")
	e.pass()
	e.want("a new commit", "7 READY, 8 READY", "api-pr-8 web-pr-7", 2)
}

// TestForkOfNewApplication: an application that is registered after the head of the branch was read
// permits forks without another commit. A label that the pull request had before counts for no head.
func TestForkOfNewApplication(t *testing.T) {
	e := newEnv(t)
	e.app("api", "{}")
	e.branchConfig("apiVersion: pipecd.dev/v1beta1\nkind: KubernetesApp\nspec:\n  name: web\n  preview: {label: preview, allowForks: true}\n")
	e.approve(map[string]string{"web/version": "2"})
	e.want("before it is registered", "", "", 0)
	at := deploy.GitPath{RepoID: "apps", Dir: "web", ConfigFile: "app.pipecd.yaml"}
	_, err := e.store.PutApplication(t.Context(), deploy.Application{ID: deploy.ApplicationID(at), Name: "web", Kind: "KUBERNETES", Git: at, Provider: "local"})
	e.must(err)
	e.pass()
	e.approvedByLabelOnly("", e.requests[7].Commit)
}

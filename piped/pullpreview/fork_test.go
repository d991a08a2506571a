package pullpreview

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/c785c783/piped/piped/git/gittest"
	"github.com/c785c783/piped/piped/githost"
)

// fork pushes a change of a fork: its head is no branch of the repository, but refs/pull/NUMBER/head.
func (e *env) fork(labels []string, files map[string]string) {
	e.t.Helper()
	commit := e.upstream.PushOn(e.t, "evil", "from a fork", files)
	e.must(os.Remove(filepath.Join(e.upstream.Dir, "refs", "heads", "evil")))
	e.forkAt(commit, labels)
}

// forkAt makes a commit the head of a fork.
func (e *env) forkAt(commit string, labels []string) {
	e.t.Helper()
	ref := filepath.Join(e.upstream.Dir, "refs", "pull", "7", "head")
	e.must(os.MkdirAll(filepath.Dir(ref), 0o755))
	e.must(os.WriteFile(ref, []byte(commit+"\n"), 0o644))
	e.requests[7] = githost.OpenRequest{Number: 7, Head: "evil", Commit: commit, Base: gittest.Branch, Fork: true, Ref: "refs/pull/7/head", Labels: labels}
}

// approve opens the pull request of a fork, whose label a maintainer sets then.
func (e *env) approve(files map[string]string) {
	e.t.Helper()
	e.fork(nil, files)
	e.pass()
	e.label("preview")
	e.pass()
}

// label sets the labels of the pull request.
func (e *env) label(labels ...string) {
	pr := e.requests[7]
	pr.Labels = labels
	e.requests[7] = pr
}

// deployed returns the heads of pull request 7 that were ever deployed.
func (e *env) deployed() (heads []string) {
	e.t.Helper()
	list, err := e.store.DeploymentsByPrefix(e.t.Context(), "id-", 1000)
	e.must(err)
	for _, d := range list {
		heads = append(heads, d.Trigger.Commit.Merged)
	}
	return heads
}

const forkedApp = "apiVersion: pipecd.dev/v1beta1\nkind: KubernetesApp\nspec:\n  name: evil\n  preview: {label: preview, allowForks: true}\n"

// TestForksNeedBoth: the pull request of a fork has a preview only if the application of the branch
// allows forks and it has the label. What the fork itself says does not count.
func TestForksNeedBoth(t *testing.T) {
	for name, tc := range map[string]struct {
		preview string
		labels  []string
		files   map[string]string
		want    string
	}{
		"both":                      {"{label: preview, allowForks: true}", []string{"preview"}, map[string]string{"web/version": "2"}, "web-pr-7"},
		"no label":                  {"{label: preview, allowForks: true}", nil, map[string]string{"web/version": "2"}, ""},
		"another label":             {"{label: preview, allowForks: true}", []string{"bug"}, map[string]string{"web/version": "2"}, ""},
		"not allowed":               {"{label: preview}", []string{"preview"}, map[string]string{"web/version": "2"}, ""},
		"not allowed, no label":     {"{}", []string{"preview"}, map[string]string{"web/version": "2"}, ""},
		"allowed by the fork":       {"{label: preview}", []string{"preview"}, map[string]string{"web/app.pipecd.yaml": strings.ReplaceAll(forkedApp, "evil", "web")}, ""},
		"a new application":         {"{label: preview}", []string{"preview"}, map[string]string{"evil/app.pipecd.yaml": forkedApp}, ""},
		"a new one next to allowed": {"{label: preview, allowForks: true}", []string{"preview"}, map[string]string{"evil/app.pipecd.yaml": forkedApp, "web/version": "2"}, "web-pr-7"},
	} {
		t.Run(name, func(t *testing.T) {
			e := newEnv(t)
			e.app("web", tc.preview)
			e.fork(nil, tc.files)
			e.pass()
			e.label(tc.labels...)
			e.pass()
			if got := e.apps(); got != tc.want {
				t.Errorf("the preview applications are %q, want %q", got, tc.want)
			}
			if heads := e.deployed(); (len(heads) > 0) != (tc.want != "") {
				t.Errorf("deployed: %q", heads)
			}
		})
	}
}

// TestNewHeadOfFork: a head that a fork pushes after the label was set is not deployed, whatever was
// there before, until the label is set anew.
func TestNewHeadOfFork(t *testing.T) {
	for name, first := range map[string]map[string]string{
		"after a preview":                    {"web/version": "2"},
		"after one that touches nothing":     {"README.md": "typo"},
		"after one that cannot be merged":    {"web/conflict": "theirs"},
		"after one with a bad configuration": {"web/app.pipecd.yaml": "kind: ["},
	} {
		t.Run(name, func(t *testing.T) {
			e := newEnv(t)
			e.app("web", "{label: preview, allowForks: true}")
			e.fork(nil, first)
			if first["web/conflict"] != "" { // both sides add the file
				e.upstream.Push(t, "ours", map[string]string{"web/conflict": "ours"})
				_, _, err := e.repo.Sync(t.Context())
				e.must(err)
			}
			e.pass()
			e.label("preview")
			e.pass()
			approved := e.requests[7].Commit
			e.fork([]string{"preview"}, map[string]string{"web/version": "evil"})
			evil := e.requests[7].Commit
			e.pass()
			e.start(e.p.Settings)
			e.pass()
			e.approvedByLabelOnly(approved, evil)
		})
	}
}

// TestLabelIsOfWhatWasThere: the label counts for a head that was listed without it before. One that may have been
// pushed since a maintainer has read another one is not deployed until the label is set anew.
func TestLabelIsOfWhatWasThere(t *testing.T) {
	const config = "apiVersion: pipecd.dev/v1beta1\nkind: KubernetesApp\nspec:\n  name: web\n  preview: {label: preview}\n"
	harmless, evil := map[string]string{"web/version": "2"}, map[string]string{"web/version": "evil"}
	for name, happens := range map[string]func(e *env){
		"pushed right before the label is seen": func(e *env) {
			e.fork(nil, harmless)
			e.pass()
			e.fork([]string{"preview"}, evil)
		},
		"first seen with the label": func(e *env) { e.fork([]string{"preview"}, evil) },
		"harmless in between": func(e *env) {
			e.fork(nil, evil)
			e.pass()
			was := e.requests[7].Commit
			e.fork(nil, harmless)
			e.pass()
			e.forkAt(was, []string{"preview"})
		},
		"set while the agent was away": func(e *env) {
			e.fork(nil, evil)
			e.pass()
			e.start(e.p.Settings)
			e.label("preview")
		},
		"set before the branch permits forks": func(e *env) {
			e.branchConfig(config)
			e.fork(nil, harmless)
			e.pass()
			e.fork([]string{"preview"}, evil)
			e.pass()
			e.branchConfig(strings.Replace(config, "label: preview}", "label: preview, allowForks: true}", 1))
		},
	} {
		t.Run(name, func(t *testing.T) {
			e := newEnv(t)
			e.app("web", "{label: preview, allowForks: true}")
			happens(e)
			e.pass()
			e.approvedByLabelOnly("", e.requests[7].Commit)
		})
	}
}

// approvedByLabelOnly checks that only the approved head of pull request 7 was deployed, and that another
// one is deployed once a maintainer has removed the label and added it again.
func (e *env) approvedByLabelOnly(approved, other string) {
	e.t.Helper()
	for _, head := range e.deployed() {
		if head != approved {
			e.t.Fatalf("deployed %q, and only %q has the label", head, approved)
		}
	}
	e.says(7, "removes the label and adds it again")
	e.label()
	e.pass()
	e.want("without the label", "", "", 0)
	e.label("preview")
	e.pass()
	e.want("with the label again", "7 READY", "web-pr-7", 1)
	if heads := strings.Join(e.deployed(), " "); !strings.Contains(heads, other) {
		e.t.Errorf("deployed %q, want %q among them", heads, other)
	}
}

// TestRequires: what a preview requires is part of it, also over several steps, and a preview that
// requires what has none says so.
func TestRequires(t *testing.T) {
	e := newEnv(t)
	e.app("db", "{label: never}")
	e.app("api", "{label: never, requires: [db, web]}")
	e.app("web", "{requires: [api]}")
	e.open(7, nil, "web")
	e.pass()
	e.want("web is touched", "7 READY", "api-pr-7 db-pr-7 web-pr-7", 1)
	if got := len(e.stored(7).Applications); got != 3 {
		t.Errorf("%d applications are stored, want 3", got)
	}
	e.open(8, nil, "db")
	e.pass()
	e.want("db is touched without its label", "7 READY", "api-pr-7 db-pr-7 web-pr-7", 1)

	e.app("lonely", "{requires: [nothing]}")
	e.open(9, nil, "lonely")
	e.pass()
	if got := e.stored(9); got.Phase != "FAILED" || !strings.Contains(got.Reason, `requires "nothing"`) {
		t.Errorf("stored: %+v", got)
	}
	delete(e.requests, 7)
	e.pass()
	if got := e.apps(); strings.Contains(got, "-pr-7") {
		t.Errorf("after the end of #7: %s", got)
	}
}

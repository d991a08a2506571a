package source

import (
	"context"
	"io/fs"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/c785c783/piped/piped/config"
	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/source/kubernetes"
	"github.com/c785c783/piped/piped/source/kubernetes/helm"
	"github.com/c785c783/piped/piped/source/render"
)

// noRemotes fails the test if anything is fetched.
type noRemotes struct{ t *testing.T }

func (n noRemotes) At(_ context.Context, remote, _ string) (fs.FS, string, error) {
	n.t.Errorf("%s is fetched", remote)
	return nil, "", deploy.Errorf(deploy.Invalid, "it is fetched")
}

func (n noRemotes) File(_ context.Context, address string, _ int64) ([]byte, error) {
	n.t.Errorf("%s is fetched", address)
	return nil, deploy.Errorf(deploy.Invalid, "it is fetched")
}

// TestForksFetchNothing: the preview of a fork is rendered from its commit alone. The network and the credentials
// of the agent are not for those who write it.
func TestForksFetchNothing(t *testing.T) {
	app := func(input string, files ...string) fstest.MapFS {
		tree := fstest.MapFS{
			"apps/web/app.pipecd.yaml": {Data: []byte("apiVersion: pipecd.dev/v1beta1\nkind: KubernetesApp\nspec:\n  name: web\n  input: {" + input + "}\n  preview: {label: preview, allowForks: true}\n")},
		}
		for i := 0; i < len(files); i += 2 {
			tree["apps/web/"+files[i]] = &fstest.MapFile{Data: []byte(files[i+1])}
		}
		return tree
	}
	const chart = "apiVersion: v2\nname: web\nversion: 1.0.0\n"
	for name, tree := range map[string]fstest.MapFS{
		"a base":                     app("", "kustomization.yaml", "resources: ['https://127.0.0.1/org/repo']\n"),
		"a base below another":       app("", "kustomization.yaml", "resources: [base]\n", "base/kustomization.yaml", "resources: ['https://127.0.0.1/org/repo//dir?ref=v1']\n"),
		"a component":                app("", "kustomization.yaml", "components: ['https://127.0.0.1/org/repo']\n"),
		"a file":                     app("", "kustomization.yaml", "resources: ['https://127.0.0.1/a.yaml']\n"),
		"a chart of a kustomization": app("kustomizeOptions: {enable-helm: ''}", "kustomization.yaml", "helmCharts: [{name: web, repo: 'https://127.0.0.1', version: 1.0.0}]\n"),
		"a chart of a repository":    app("helmChart: {repository: 'https://127.0.0.1', name: web, version: 1.0.0}"),
		"a chart of a registry":      app("helmChart: {repository: 'oci://127.0.0.1/charts', name: web, version: 1.0.0}"),
		"a chart of Git":             app("helmChart: {gitRemote: 'https://127.0.0.1/org/repo', ref: v1, path: web}"),
		"a dependency":               app("helmChart: {path: chart}", "chart/Chart.yaml", chart+"dependencies: [{name: db, version: 1.0.0, repository: 'https://127.0.0.1'}]\n"),
		"values":                     app("helmChart: {path: chart}, helmOptions: {valueFiles: ['https://127.0.0.1/values.yaml']}", "chart/Chart.yaml", chart),
	} {
		charts, err := helm.New(helm.Config{Git: noRemotes{t}, AllowedHosts: []string{"127.0.0.1"}})
		if err != nil {
			t.Fatal(err)
		}
		l := &Loader{
			Kinds: kinds, Previews: &config.Previews{NamespacePrefix: "preview-"},
			Renderers: map[string]render.Renderer{deploy.KindKubernetes: kubernetes.New(kubernetes.Config{Charts: charts, Remotes: noRemotes{t}})},
			Tree:      func(string, string) (fs.FS, error) { return tree, nil },
			Fork:      func(_ context.Context, at deploy.GitPath) (bool, error) { return at.PullRequest == 7, nil },
		}
		at := at
		at.PullRequest = 7
		if _, err := l.Load(t.Context(), at, "merge"); !deploy.IsKind(err, deploy.Invalid) || !strings.Contains(err.Error(), "for the pull request of a fork") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestForkIsNotKnown: a preview is not rendered while it is not known whether it is of a fork.
func TestForkIsNotKnown(t *testing.T) {
	tree := application("  input: {namespace: shop}\n  preview: {label: preview}\n", object("ConfigMap", "web"))
	l := &Loader{
		Kinds: kinds, Renderers: renderers(), Previews: &config.Previews{NamespacePrefix: "preview-"}, Tree: func(string, string) (fs.FS, error) { return tree, nil },
		Fork: func(context.Context, deploy.GitPath) (bool, error) {
			return false, deploy.Errorf(deploy.Unavailable, "no database")
		},
	}
	at := at
	at.PullRequest = 7
	if _, err := l.Load(t.Context(), at, "merge"); !deploy.IsKind(err, deploy.Unavailable) {
		t.Errorf("got %v", err)
	}
}

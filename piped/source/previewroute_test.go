package source

import (
	"io/fs"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"

	"github.com/c785c783/piped/piped/config"
	"github.com/c785c783/piped/piped/config/kubernetes"
	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/manifest"
)

// routed loads the preview of pull request 7 at commit "merge", which merges it into commit "branch". The
// objects of the preview are those that make returns.
func routed(t *testing.T, branch, merge fstest.MapFS, make func(RoutePreview, []manifest.Object, []manifest.Object) (Routed, error)) (*Source, error) {
	t.Helper()
	l := &Loader{
		Kinds: kinds, Renderers: renderers(), Previews: &config.Previews{NamespacePrefix: "preview-", Hosts: []string{"preview.example.com"}},
		Tree: func(_, commit string) (fs.FS, error) {
			switch commit {
			case "branch":
				return branch, nil
			case "merge":
				return merge, nil
			}
			return nil, deploy.Errorf(deploy.NotFound, "no commit %s", commit)
		},
		Base: func(_, commit string) (string, error) {
			if commit != "merge" {
				return "", deploy.Errorf(deploy.NotFound, "no commit %s", commit)
			}
			return "branch", nil
		},
		RoutePreview: make,
	}
	at := at
	at.PullRequest = 7
	return l.Load(t.Context(), at, "merge")
}

func application(spec, objects string) fstest.MapFS {
	return fstest.MapFS{
		"apps/web/app.pipecd.yaml": {Data: []byte("apiVersion: pipecd.dev/v1beta1\nkind: KubernetesApp\nspec:\n  name: web\n" + spec)},
		"apps/web/app.yaml":        {Data: []byte(objects)},
	}
}

const routeSpec = `  input: {namespace: shop}
  pruneKinds: [PersistentVolume]
  quickSync: {addVariantLabelToSelector: true}
  workloads: [{kind: Deployment, name: web}]
  preview: {mode: route, header: X-Preview, host: 'pr-{{ .PullRequest.Number }}.preview.example.com', secrets: [database]}
`

// TestRoutePreviewIsOfBothCommits: the objects of a preview with mode route are made of those of the branch
// and of the merge, in the namespace of the application. Its deployments prune.
func TestRoutePreviewIsOfBothCommits(t *testing.T) {
	var got RoutePreview
	src, err := routed(t, application(routeSpec, object("ConfigMap", "old")), application(routeSpec, object("ConfigMap", "new")),
		func(p RoutePreview, branch, merged []manifest.Object) (Routed, error) {
			got = p
			if len(branch) != 1 || branch[0].GetName() != "old" || len(merged) != 1 || merged[0].GetName() != "new" {
				t.Errorf("branch %v, merge %v", branch, merged)
			}
			return Routed{Objects: merged, Hostnames: []string{"shop.example.com"}, Shared: []string{"a reason"}}, nil
		})
	if err != nil {
		t.Fatal(err)
	}
	want := RoutePreview{
		Name: "pr-7-repo", Suffix: "pr-7", Namespace: "shop", Header: "X-Preview", Host: "pr-7.preview.example.com",
		Workloads: []kubernetes.Reference{{Kind: "Deployment", Name: "web"}}, Secrets: []string{"database"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if len(src.Objects) != 1 || src.Objects[0].GetName() != "new" || len(src.Hostnames) != 1 || len(src.Shared) != 1 {
		t.Errorf("loaded %+v", src)
	}
	spec := kubernetes.SpecOf(src.Config.Platform)
	if spec.Input.Namespace != "shop" || !spec.QuickSync.Prune || spec.QuickSync.AddVariantLabelToSelector || len(spec.PruneKinds) > 0 || src.Config.Pipeline != nil {
		t.Errorf("the configuration is %+v", spec)
	}
}

// TestRoutePreviewIsRefused: a pull request can neither choose the namespace nor add an application, and the
// host has to be an allowed one.
func TestRoutePreviewIsRefused(t *testing.T) {
	never := func(RoutePreview, []manifest.Object, []manifest.Object) (Routed, error) {
		t.Error("objects were made")
		return Routed{}, nil
	}
	objects := object("ConfigMap", "web")
	for name, c := range map[string]struct {
		branch, merge fstest.MapFS
		says          string
	}{
		"another namespace": {application(routeSpec, objects), application(strings.Replace(routeSpec, "namespace: shop", "namespace: bank", 1), objects), `changes spec.input.namespace from "shop" to "bank", which counts when it is merged`},
		"a new application": {fstest.MapFS{}, application(routeSpec, objects), "merge it first, or use mode: namespace"},
		"no namespace":      {application(routeSpec, objects), application(strings.Replace(routeSpec, "  input: {namespace: shop}\n", "", 1), objects), "needs spec.input.namespace"},
		"a prod host":       {application(routeSpec, objects), application(strings.Replace(routeSpec, ".preview.example.com", ".shop.example.com", 1), objects), "not below a domain"},
		"a broken branch":   {application(routeSpec, "kind: ["), application(routeSpec, objects), "render the application on the branch"},
	} {
		if _, err := routed(t, c.branch, c.merge, never); !deploy.IsKind(err, deploy.Invalid) || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v, want %q", name, err, c.says)
		}
	}
}

package kustomize

import (
	"context"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/c785c783/piped/piped/config/kubernetes"
	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/manifest"
	"github.com/c785c783/piped/piped/source/kubernetes/helm"
)

// asked remembers what it is to render.
type asked struct{ requests []helm.Request }

func (a *asked) Render(_ context.Context, req helm.Request) (helm.Result, error) {
	a.requests = append(a.requests, req)
	objects, err := manifest.Parse("chart.yaml", []byte(service))
	return helm.Result{Objects: objects, Remote: true}, err
}

func withCharts(fsys string, charts Charts) Request {
	return Request{Tree: tree("app/kustomization.yaml", fsys), Dir: "app", Options: kubernetes.KustomizeBuild{Helm: true}, Charts: charts}
}

// TestChartsOfRepositories: a chart that is not at hand is asked for in its
// repository, or its registry.
func TestChartsOfRepositories(t *testing.T) {
	for entry, want := range map[string]kubernetes.HelmChart{
		`{name: web, repo: "https://charts.example.com", version: 1.2.3}`:            {Repository: "https://charts.example.com", Name: "web", Version: "1.2.3"},
		`{name: web, repo: "oci://registry.example.com/charts", version: "~1.2"}`:    {Repository: "oci://registry.example.com/charts", Name: "web", Version: "~1.2"},
		`{name: web, repo: "https://charts.example.com", devel: true}`:               {Repository: "https://charts.example.com", Name: "web", Version: ">0.0.0-0"},
		`{name: web, repo: "https://charts.example.com", namespace: a, debug: true}`: {Repository: "https://charts.example.com", Name: "web"},
	} {
		var a asked
		r, err := New(nil, DefaultLimits()).Build(t.Context(), withCharts("helmCharts: ["+entry+"]\n", &a))
		if err != nil || len(r.Objects) != 1 || !r.Remote {
			t.Fatalf("%s: got %v, %v", entry, r, err)
		}
		if diff := cmp.Diff(want, a.requests[0].Chart); diff != "" {
			t.Errorf("%s: -want +got:\n%s", entry, diff)
		}
	}
}

func TestChartsThatAreRefused(t *testing.T) {
	const local = "name: web, repo: \"https://charts.example.com\""
	for entry, want := range map[string]string{
		"{" + local + ", valuesMerge: both}":               `helmCharts[0]: valuesMerge: expected merge, override or replace, found "both"`,
		"{" + local + ", releaseName: a, nameTemplate: b}": "expected one of releaseName and nameTemplate",
		"{repo: \"https://charts.example.com\"}":           "name is required",
		"{name: ../../../web}":                             `"../../web" leads out of the repository`,
		strings.Repeat("{"+local+"}, ", 51):                "the build has more than 50 charts",
	} {
		_, err := New(nil, DefaultLimits()).Build(t.Context(), withCharts("helmCharts: ["+entry+"]\n", &asked{}))
		if err == nil || !strings.Contains(err.Error(), want) || !deploy.IsKind(err, deploy.Invalid) {
			t.Errorf("%s: got %v, want %s", entry, err, want)
		}
	}
}

// TestVersionOfKustomize: the label of buildMetadata names the release that the
// library belongs to; v5.8 came with v0.21 of it.
func TestVersionOfKustomize(t *testing.T) {
	mod, err := os.ReadFile("../../../../go.mod")
	if err != nil {
		t.Fatal(err)
	}
	library := regexp.MustCompile(`kustomize/api v0\.21(\.\d+)`).FindSubmatch(mod)
	if library == nil || "v5.8"+string(library[1]) != kustomizeVersion {
		t.Errorf("the library in go.mod is not that of Kustomize %s: correct kustomizeVersion", kustomizeVersion)
	}
}

func TestRemoteFiles(t *testing.T) {
	const address = "https://host/org/repo/releases/download/v1/install.yaml"
	remotes := bases{"file": tree(strings.TrimPrefix(address, "https://"), service+"---\n"+strings.ReplaceAll(service, "web", "other"))}
	fsys := tree("app/kustomization.yaml", "resources: [\""+address+"\"]\nnamePrefix: a-\nbuildMetadata: [originAnnotations]\n")
	r, err := build(t, New(remotes, DefaultLimits()), fsys, "app")
	if err != nil || len(r.Objects) != 2 || r.Objects[0].GetName() != "a-other" || !r.Remote {
		t.Fatalf("got %v, %v", r, err)
	}
	if diff := cmp.Diff(map[string]string{"config.kubernetes.io/origin": "repo: " + address + "\n"}, r.Objects[0].GetAnnotations()); diff != "" {
		t.Errorf("annotations, -want +got:\n%s", diff)
	}
	limits := DefaultLimits()
	limits.Fetched = 0
	for name, c := range map[string]struct {
		b    *Builder
		kind deploy.Kind
		want string
	}{
		"without remotes": {New(nil, DefaultLimits()), deploy.Invalid, "remote file " + address + ": remote files are not available here; commit the file"},
		"not there":       {New(bases{}, DefaultLimits()), deploy.Unavailable, "is not there"},
		"too many":        {New(remotes, limits), deploy.Invalid, "the build names more than 0 remote files"},
		"is no YAML":      {New(bases{"file": tree(strings.TrimPrefix(address, "https://"), "<html>\n")}, DefaultLimits()), deploy.Invalid, "Kustomize cannot build it"},
	} {
		if _, err := build(t, c.b, fsys, "app"); err == nil || !strings.Contains(err.Error(), c.want) || deploy.KindOf(err) != c.kind {
			t.Errorf("%s: got %v, want %s", name, err, c.want)
		}
	}
}

// hanging are Remotes whose files do not come before the caller's time is over.
type hanging struct {
	bases
	over context.CancelCauseFunc
	most int64 // that was asked for
}

func (h *hanging) File(ctx context.Context, _ string, limit int64) ([]byte, error) {
	h.most = max(h.most, limit)
	h.over(deploy.Errorf(deploy.Unavailable, "the time is over"))
	<-ctx.Done()
	return nil, context.Cause(ctx)
}

// chartThatReadsValues asks for the values of what it is to render.
type chartThatReadsValues struct{}

func (chartThatReadsValues) Render(_ context.Context, req helm.Request) (helm.Result, error) {
	_, err := req.Values(nil)
	return helm.Result{}, err
}

// TestRemoteFilesHaveBounds: a file ends with the caller's time, whatever names it, a
// file of values is no larger than one of the commit, and no message shows the query of
// an address, which may hold a token.
func TestRemoteFilesHaveBounds(t *testing.T) {
	limits := DefaultLimits()
	const address = "https://host/values.yaml?token=swordfish"
	for name, c := range map[string]struct {
		text string
		most int64
	}{
		"values":    {"helmCharts: [{name: web, repo: \"https://charts.example.com\", valuesFile: \"" + address + "\"}]\n", maxValues},
		"resources": {"resources: [\"" + address + "\"]\n", limits.Bytes},
	} {
		ctx, over := context.WithCancelCause(t.Context())
		h := &hanging{over: over}
		_, err := New(h, limits).Build(ctx, withCharts(c.text, chartThatReadsValues{}))
		if err == nil || !deploy.IsKind(err, deploy.Unavailable) || !strings.Contains(err.Error(), "the time is over") || strings.Contains(err.Error(), "swordfish") {
			t.Errorf("%s: got %v", name, err)
		}
		if h.most == 0 || h.most > c.most {
			t.Errorf("%s: at most %d bytes were asked for, want %d", name, h.most, c.most)
		}
	}
}

// TestGeneratorsThatAreReadOften count each time.
func TestGeneratorsThatAreReadOften(t *testing.T) {
	limits := DefaultLimits()
	limits.Bytes = 10 << 10
	fsys := tree("app/kustomization.yaml", "generators: ["+strings.Repeat("g.yaml, ", 500)+"]\n", "app/g.yaml", "kind: ConfigMapGenerator\nmetadata: {name: a}\n# "+strings.Repeat("x", 1000)+"\n")
	if _, err := build(t, New(nil, limits), fsys, "app"); err == nil || !deploy.IsKind(err, deploy.Invalid) || !strings.Contains(err.Error(), "split the application") {
		t.Errorf("got %v", err)
	}
}

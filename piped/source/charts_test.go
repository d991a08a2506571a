package source

import (
	"context"
	"io/fs"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/c785c783/piped/piped/config"
	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/manifest"
	"github.com/c785c783/piped/piped/source/kubernetes/helm"
)

// counted counts what is rendered.
type counted struct {
	*helm.Renderer
	renderings int
}

func (c *counted) Render(ctx context.Context, req helm.Request) (helm.Result, error) {
	c.renderings++
	return c.Renderer.Render(ctx, req)
}

// chartLoader serves an application with a chart that has the templates.
func chartLoader(t *testing.T, spec, templates string) (*Loader, *counted) {
	t.Helper()
	r, err := helm.New(helm.Config{})
	if err != nil {
		t.Fatal(err)
	}
	l, _ := loader(files(
		"apps/web/app.pipecd.yaml", head+"  name: web\n"+spec,
		"apps/web/ignored.yaml", "broken: {",
		"charts/web/Chart.yaml", "apiVersion: v2\nname: chart\nversion: 1.0.0\n",
		"charts/web/templates/all.yaml", templates,
	), 1<<20)
	charts := &counted{Renderer: r}
	kubernetesOf(l).Charts = charts
	return l, charts
}

const chartSpec = "  input: {namespace: shop, helmChart: {path: ../../charts/web}}\n"

func TestChartsAreRendered(t *testing.T) {
	const hook = "apiVersion: batch/v1\nkind: Job\nmetadata: {name: both, annotations: {helm.sh/hook: \"post-install,pre-upgrade\"}}\n"
	l, charts := chartLoader(t, chartSpec, hook+"---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: \"{{ .Release.Name }}-{{ .Release.Namespace }}\"}\n")
	for range 2 {
		s, err := l.Load(t.Context(), at, "c1")
		if err != nil {
			t.Fatal(err)
		}
		want := []string{"ConfigMap web-shop @ chart/templates/all.yaml", "Job both @ chart/templates/all.yaml", "Job both @ chart/templates/all.yaml"}
		if diff := cmp.Diff(want, names(s)); diff != "" {
			t.Errorf("-want +got:\n%s", diff)
		}
		var phases []manifest.HookPhase
		for _, o := range s.Objects {
			phases = append(phases, o.Hook.Phase)
		}
		if diff := cmp.Diff([]manifest.HookPhase{manifest.HookNone, manifest.HookPre, manifest.HookPost}, phases); diff != "" {
			t.Errorf("-want +got:\n%s", diff)
		}
	}
	if charts.renderings != 1 {
		t.Errorf("%d renderings of one commit", charts.renderings)
	}
}

// TestReleaseWithoutAName: a release is called as its application, which is called as it
// was registered, or as its directory.
func TestReleaseWithoutAName(t *testing.T) {
	l, charts := chartLoader(t, chartSpec, "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: \"{{ .Release.Name }}\"}\n")
	tree := files(
		"apps/web/app.pipecd.yaml", head+chartSpec,
		"charts/web/Chart.yaml", "apiVersion: v2\nname: chart\nversion: 1.0.0\n",
		"charts/web/templates/all.yaml", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: \"{{ .Release.Name }}\"}\n",
	)
	l.Tree = func(string, string) (fs.FS, error) { return tree, nil }
	load := func(want string) {
		t.Helper()
		s, err := l.Load(t.Context(), at, "c1")
		if err != nil || s.Objects[0].GetName() != want {
			t.Errorf("got %v, %v, want %s", s, err, want)
		}
	}
	load("web")
	name := "shop"
	l.Name = func(context.Context, deploy.GitPath) string { return name }
	load("shop")
	load("shop")
	name = "store"
	load("store")
	if charts.renderings != 3 {
		t.Errorf("%d renderings for three names", charts.renderings)
	}
}

// TestChartsFollowTheirCluster: what a chart sees of the cluster may change while
// the commit stays the same.
func TestChartsFollowTheirCluster(t *testing.T) {
	l, charts := chartLoader(t, chartSpec, "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: on-{{ .Capabilities.KubeVersion.Minor }}}\n")
	seen := helm.Capabilities{KubeVersion: "v1.30.0"}
	kubernetesOf(l).Capabilities = func(context.Context, deploy.GitPath, *config.Application) helm.Capabilities { return seen }
	for i, want := range []string{"on-30", "on-30", "on-31"} {
		if i == 2 {
			seen.KubeVersion = "v1.31.0"
		}
		s, err := l.Load(t.Context(), at, "c1")
		if err != nil || s.Objects[0].GetName() != want {
			t.Errorf("load %d: got %v, %v, want %s", i, s, err, want)
		}
	}
	if charts.renderings != 2 {
		t.Errorf("%d renderings for two clusters", charts.renderings)
	}
}

// TestBrokenChartsAreRenderedOnce: the failure of a commit is cached as long as
// the cluster is the same, unless a retry may succeed.
func TestBrokenChartsAreRenderedOnce(t *testing.T) {
	for name, c := range map[string]struct {
		template string
		limit    time.Duration
		want     int // renderings of three loads, of which the last sees another cluster
	}{
		"fails":          {`{{ fail "set the region" }}`, time.Hour, 2},
		"takes too long": {`{{ range 1000000000000000 }}{{ end }}`, 20 * time.Millisecond, 3},
	} {
		limited, err := helm.New(helm.Config{Limits: helm.Limits{Time: c.limit}})
		if err != nil {
			t.Fatal(err)
		}
		l, charts := chartLoader(t, chartSpec, c.template)
		charts.Renderer = limited
		seen := helm.Capabilities{KubeVersion: "v1.30.0"}
		kubernetesOf(l).Capabilities = func(context.Context, deploy.GitPath, *config.Application) helm.Capabilities { return seen }
		for i := range 3 {
			if i == 2 {
				seen.KubeVersion = "v1.31.0"
			}
			if _, err := l.Load(t.Context(), at, "c1"); !deploy.IsKind(err, deploy.Invalid) {
				t.Errorf("%s: got %v", name, err)
			}
		}
		if charts.renderings != c.want {
			t.Errorf("%s: %d renderings, want %d", name, charts.renderings, c.want)
		}
	}
}

func TestChartsThatAreRefused(t *testing.T) {
	const ok = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n"
	for name, c := range map[string]struct {
		spec, templates string
		without         bool
		want            string
	}{
		"no charts here":      {chartSpec, ok, true, "apps/web/app.pipecd.yaml: input.helmChart: charts are not rendered here"},
		"out of the tree":     {"  input: {helmChart: {path: ../../../charts/web}}\n", ok, false, `apps/web/app.pipecd.yaml: input.helmChart.path: "../../../charts/web" leads out of the repository`},
		"fails":               {chartSpec, `{{ fail "set the region" }}`, false, "apps/web/app.pipecd.yaml: render Helm chart chart 1.0.0: chart/templates/all.yaml:1:3: set the region"},
		"one object twice":    {chartSpec, ok + "---\n" + ok, false, "chart/templates/all.yaml: ConfigMap a is declared already at chart/templates/all.yaml; an application declares each object once"},
		"an object as a hook": {chartSpec, ok + "---\n" + strings.Replace(ok, "name: a", "name: a, annotations: {helm.sh/hook: pre-install}", 1), false, "ConfigMap a is declared already"},
	} {
		t.Run(name, func(t *testing.T) {
			l, _ := chartLoader(t, c.spec, c.templates)
			if c.without {
				kubernetesOf(l).Charts = nil
			}
			_, err := l.Load(t.Context(), at, "c1")
			if !deploy.IsKind(err, deploy.Invalid) || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %s", err, c.want)
			}
		})
	}
}

// TestChartsOfKustomizations: what a chart in a kustomization sees of the cluster may
// change while the commit stays the same.
func TestChartsOfKustomizations(t *testing.T) {
	r, err := helm.New(helm.Config{})
	if err != nil {
		t.Fatal(err)
	}
	l, _ := loader(files(
		"apps/web/app.pipecd.yaml", head+"  name: web\n  input: {kustomizeOptions: {enable-helm: \"\"}}\n",
		"apps/web/kustomization.yaml", "namespace: shop\nhelmCharts: [{name: web, releaseName: one}]\n",
		"apps/web/charts/web/Chart.yaml", "apiVersion: v2\nname: chart\nversion: 1.0.0\n",
		"apps/web/charts/web/templates/all.yaml", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: \"{{ .Release.Namespace }}-on-{{ .Capabilities.KubeVersion.Minor }}\"}\n",
	), 1<<20)
	charts := &counted{Renderer: r}
	kubernetesOf(l).Charts = charts
	seen := helm.Capabilities{KubeVersion: "v1.30.0"}
	kubernetesOf(l).Capabilities = func(context.Context, deploy.GitPath, *config.Application) helm.Capabilities { return seen }
	for i, want := range []string{"shop-on-30", "shop-on-30", "shop-on-31"} {
		if i == 2 {
			seen.KubeVersion = "v1.31.0"
		}
		s, err := l.Load(t.Context(), at, "c1")
		if err != nil || s.Objects[0].GetName() != want {
			t.Errorf("load %d: got %v, %v, want %s", i, s, err, want)
		}
	}
	if charts.renderings != 2 {
		t.Errorf("%d renderings for two clusters", charts.renderings)
	}
}

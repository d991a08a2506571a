package config

import (
	"os"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/c785c783/piped/piped/config/kubernetes"
	"github.com/c785c783/piped/piped/config/opentofu"
	"github.com/c785c783/piped/piped/config/strict"
	"github.com/c785c783/piped/piped/deploy"
)

func caseOf(t *testing.T, file string) []byte {
	t.Helper()
	data, err := os.ReadFile("testdata/" + file + ".yaml")
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// TestPluginsOfTheAgent: what v1 keeps below plugins is what v0 has at the top.
func TestPluginsOfTheAgent(t *testing.T) {
	p, _, err := kinds.ParsePiped("/etc/piped/piped.yaml", caseOf(t, "pipecd-agent/valid-v1-plugins"))
	if err != nil {
		t.Fatal(err)
	}
	providers := []PlatformProvider{
		{Name: "dev", Type: "KUBERNETES", Labels: map[string]string{"env": "dev"}, Config: &kubernetes.Provider{KubeConfigPath: "/etc/piped/dev.kubeconfig"}},
		{Name: "here", Type: "KUBERNETES", Config: &kubernetes.Provider{}},
		{Name: "infra", Type: "TERRAFORM", Config: &opentofu.Provider{Vars: []string{"a=b"}, DriftInterval: time.Hour}},
	}
	if diff := cmp.Diff(providers, p.Providers); diff != "" {
		t.Errorf("providers (-want +got):\n%s", diff)
	}
	repositories := []ChartRepository{
		{Type: ChartRepositoryHTTP, Name: "own", Address: "https://own.example.com"},
		{Type: ChartRepositoryHTTP, Name: "stable", Address: "https://charts.example.com"},
	}
	if diff := cmp.Diff(repositories, p.ChartRepositories); diff != "" {
		t.Errorf("chart repositories (-want +got):\n%s", diff)
	}
	registries := []ChartRegistry{{Type: ChartRegistryOCI, Address: "registry.example.com", Username: "user", Password: strict.NewSecret("hunter2")}}
	if diff := cmp.Diff(registries, p.ChartRegistries); diff != "" {
		t.Errorf("chart registries (-want +got):\n%s", diff)
	}
	analysis := []AnalysisProvider{{Name: "prometheus", Type: AnalysisPrometheus, Config: &Prometheus{Address: "http://prometheus:9090"}}}
	if diff := cmp.Diff(analysis, p.AnalysisProviders); diff != "" {
		t.Errorf("analysis providers (-want +got):\n%s", diff)
	}
}

// TestPluginsOfAnApplication: options of the platform and of analyses are read,
// skipOn is that of the stage.
func TestPluginsOfAnApplication(t *testing.T) {
	app, err := kinds.ParseApplication("app.pipecd.yaml", caseOf(t, "application/valid-v1-with-the-plugins-of-its-stages"))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(kubernetes.Input{Manifests: []string{"deployment.yaml"}}, kubernetes.SpecOf(app.Platform).Input); diff != "" {
		t.Errorf("input (-want +got):\n%s", diff)
	}
	stages := app.Pipeline.Stages
	if diff := cmp.Diff([]string{"hotfix:"}, stages[0].SkipOn.CommitMessagePrefixes); diff != "" || !stages[1].SkipOn.IsZero() || len(stages[3].SkipOn.Paths) != 1 {
		t.Errorf("skipOn: %+v, %+v, %+v", stages[0].SkipOn, stages[1].SkipOn, stages[3].SkipOn)
	}
	args := stages[3].With.(*AnalysisOptions).Metrics[0].Template.AppArgs
	if diff := cmp.Diff(map[string]string{"region": "eu", "zone": "a"}, args); diff != "" {
		t.Errorf("arguments of the template (-want +got):\n%s", diff)
	}
}

func TestKubernetesAppWithAPlugin(t *testing.T) {
	app, err := kinds.ParseApplication("app.pipecd.yaml", caseOf(t, "application/valid-kubernetes-app-merges-the-plugin"))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(kubernetes.Input{Namespace: "shop", Manifests: []string{"a.yaml"}}, kubernetes.SpecOf(app.Platform).Input); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func TestCommitMatcherOfThePlanner(t *testing.T) {
	app, err := kinds.ParseApplication("app.pipecd.yaml", caseOf(t, "pipecd/valid-commit-matcher-of-the-planner"))
	if err != nil {
		t.Fatal(err)
	}
	m := app.CommitMatcher
	if !m.QuickSync.MatchString("docs: typo") || m.QuickSync.MatchString("feat: x") || !m.Pipeline.MatchString("feat: x") {
		t.Errorf("it matches otherwise: %+v", m)
	}
}

func TestKeysInAnotherCase(t *testing.T) {
	app, err := kinds.ParseApplication("app.pipecd.yaml", caseOf(t, "pipecd/valid-keys-in-another-case"))
	if err != nil {
		t.Fatal(err)
	}
	_, touched := app.Trigger.OnCommit.Touched("web", []string{"charts/a.yaml"})
	if app.Name != "web" || !touched || !app.Pipeline.Stages[0].With.(*kubernetes.SyncStageOptions).Prune {
		t.Errorf("it is %+v", app)
	}
}

// TestProviderOf: the file's word is the strongest, and an application that is assigned
// to a provider keeps it.
func TestProviderOf(t *testing.T) {
	tests := map[string]struct {
		file, registered, assigned string
		configured                 []string
		want                       string // "" is an error
	}{
		"the only one":                         {configured: []string{"a"}, want: "a"},
		"several, none named":                  {configured: []string{"a", "b"}},
		"assigned before there was another":    {assigned: "a", configured: []string{"a", "b"}, want: "a"},
		"the file moves it":                    {file: "b", assigned: "a", configured: []string{"a", "b"}, want: "b"},
		"the registration moves it":            {registered: "b", assigned: "a", configured: []string{"a", "b"}, want: "b"},
		"the registered one is gone":           {registered: "c", assigned: "a", configured: []string{"a", "b"}},
		"the only one has another name":        {assigned: "a", configured: []string{"b"}, want: "b"},
		"the assigned one is gone of several":  {assigned: "a", configured: []string{"b", "c"}},
		"the file names one that is not there": {file: "c", assigned: "a", configured: []string{"a"}},
	}
	for name, c := range tests {
		g := Generic{PlatformProvider: c.file}
		got, err := g.ProviderOf(deploy.Application{Provider: c.assigned, Registration: deploy.Registration{Provider: c.registered}}, c.configured)
		if got != c.want || (err == nil) != (c.want != "") || err != nil && !deploy.IsKind(err, deploy.Invalid) {
			t.Errorf("%s: got %q, %v, want %q", name, got, err, c.want)
		}
	}
}

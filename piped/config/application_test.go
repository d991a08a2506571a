package config

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/c785c783/piped/piped/config/kubernetes"
)

func parseCase(t *testing.T, name string) *Application {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("testdata", "application", name+".yaml"))
	if err != nil {
		t.Fatal(err)
	}
	app, err := kinds.ParseApplication("app.pipecd.yaml", data)
	if err != nil {
		t.Fatal(err)
	}
	return app
}

func patterns(t *testing.T, texts ...string) Patterns {
	t.Helper()
	ps := make(Patterns, len(texts))
	for i, text := range texts {
		if err := ps[i].UnmarshalText([]byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	return ps
}

func defaults() Application {
	return Application{
		Generic: Generic{
			Name: "web",
			Trigger: Trigger{
				OnOutOfSync: OnOutOfSync{Disabled: true, MinWindow: 5 * time.Minute},
				OnChain:     Switch{Disabled: true},
				Queue:       QueueNewest,
			},
			Timeout:  6 * time.Hour,
			Rollback: Rollback{Timeout: 6 * time.Hour},
		},
		Kind: "KUBERNETES",
		Platform: &kubernetes.Spec{
			VariantLabel: kubernetes.VariantLabel{
				Key: "pipecd.dev/variant", PrimaryValue: "primary", CanaryValue: "canary", BaselineValue: "baseline",
			},
			ReadyThreshold: 100,
			FailFast:       true,
			TrafficRouting: kubernetes.TrafficRouting{Method: kubernetes.PodSelector},
		},
	}
}

func TestApplicationDefaults(t *testing.T) {
	want := defaults()
	if diff := cmp.Diff(&want, parseCase(t, "valid-minimal")); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func TestApplicationEveryField(t *testing.T) {
	yes := true
	want := &Application{
		Generic: Generic{
			Name:             "web",
			Labels:           map[string]string{"env": "dev", "team": "42"},
			Description:      "serves pages",
			PlatformProvider: "dev",
			Planner:          Planner{AlwaysUsePipeline: true, AutoRollback: &yes},
			Pipeline: &Pipeline{Stages: []Stage{
				{ID: "stage-0", Name: "K8S_SYNC", With: &kubernetes.SyncStageOptions{
					SyncOptions: kubernetes.SyncOptions{AddVariantLabelToSelector: true}, ReadyThreshold: 80,
				}},
			}},
			Trigger: Trigger{
				OnCommit:    OnCommit{Paths: patterns(t, "charts/web"), Ignores: patterns(t, "**/*.md", "!docs")},
				OnCommand:   Switch{Disabled: true},
				OnOutOfSync: OnOutOfSync{MinWindow: 10 * time.Minute},
				Queue:       QueueAll,
			},
			Timeout:        600 * time.Second,
			Rollback:       Rollback{Timeout: 90 * time.Second},
			DriftDetection: DriftDetection{IgnoreFields: []string{"apps/v1:Deployment:default:web#spec.replicas"}},
			Notification: Notification{Mentions: []Mention{
				{Event: "DEPLOYMENT_FAILED", Slack: []string{"U2"}, SlackUsers: []string{"U1"}, SlackGroups: []string{"G1"}, Email: []string{"a@example.com"}},
				{Event: "*"},
			}},
		},
		Kind: "KUBERNETES",
		Platform: &kubernetes.Spec{
			Input: kubernetes.Input{
				Manifests: []string{"deployment.yaml", "more/service.yaml"}, Namespace: "web",
				AutoRollback: &yes, AutoCreateNamespace: true,
			},
			QuickSync: kubernetes.SyncOptions{Prune: true, AddVariantLabelToSelector: true},
			Workloads: []kubernetes.Reference{{Kind: "Deployment", Name: "web"}, {Kind: "StatefulSet"}},
			Service:   kubernetes.Reference{Kind: "Service", Name: "web"},
			VariantLabel: kubernetes.VariantLabel{
				Key: "example.com/variant", PrimaryValue: "primary", CanaryValue: "c", BaselineValue: "baseline",
			},
			ReadyThreshold: 80,
			TrafficRouting: kubernetes.TrafficRouting{Method: kubernetes.PodSelector},
			Strict:         true, WaitTermination: true,
			PruneKinds: []string{"Namespace"},
			TakeOver:   true,
		},
	}
	got := parseCase(t, "valid-every-field")
	got.Warnings = nil // in the golden file
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func TestKindApplicationTakesThePluginsKeysAsAWhole(t *testing.T) {
	want := defaults()
	kubernetes.SpecOf(want.Platform).Input.Manifests = []string{"a.yaml"} // and no namespace
	kubernetes.SpecOf(want.Platform).QuickSync.Prune = true
	if diff := cmp.Diff(&want, parseCase(t, "valid-kind-application-merges-the-plugin")); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func TestAnchorsAndMergeKeys(t *testing.T) {
	want := defaults()
	want.Labels = map[string]string{"a": "x", "b": "y"}
	want.Trigger.OnCommit.Disabled = true
	want.Trigger.OnCommand.Disabled = true
	want.Trigger.OnOutOfSync.MinWindow = 0
	if diff := cmp.Diff(&want, parseCase(t, "valid-anchors-and-merge-keys")); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func TestNullMeansNotWritten(t *testing.T) {
	want := defaults()
	if diff := cmp.Diff(&want, parseCase(t, "valid-null-means-not-written")); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func TestAutoRollbackIsOnUnlessWrittenOtherwise(t *testing.T) {
	const head = "apiVersion: pipecd.dev/v1beta1\nkind: KubernetesApp\nspec:\n  name: web\n"
	tests := []struct {
		name, spec string
		want       bool
	}{
		{"nothing written", "", true},
		{"planner off", "  planner: {autoRollback: false}\n", false},
		{"input off", "  input: {autoRollback: false}\n", false},
		{"both off", "  planner: {autoRollback: false}\n  input: {autoRollback: false}\n", false},
		{"input on", "  input: {autoRollback: true}\n", true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			app, err := kinds.ParseApplication("app.pipecd.yaml", []byte(head+tt.spec))
			if err != nil {
				t.Fatal(err)
			}
			if got := app.AutoRollback(); got != tt.want {
				t.Errorf("got %t, want %t", got, tt.want)
			}
		})
	}
}

func TestIsApplicationConfig(t *testing.T) {
	want := map[string]bool{
		"app.pipecd.yaml": true, "web.pipecd.yaml": true,
		"app.pipecd.yml": false, "deployment.yaml": false, "x.pipe.yaml": false, "pipecd.yaml": false,
	}
	for name, is := range want {
		if got := IsApplicationConfig(name); got != is {
			t.Errorf("%s: got %t, want %t", name, got, is)
		}
	}
}

func FuzzParseApplication(f *testing.F) {
	seed(f, "application")
	seed(f, "whole")
	f.Fuzz(func(t *testing.T, data []byte) {
		app, err := kinds.ParseApplication("app.pipecd.yaml", data)
		if (app == nil) == (err == nil) {
			t.Fatalf("got %v and %v, want one of them", app, err)
		}
		whole, wholeErr := readWhole(data)
		if err == nil && wholeErr != nil {
			t.Fatalf("this version takes what the language does not have: %v", wholeErr)
		}
		if wholeErr == nil {
			checkComplete(t, whole)
		}
	})
}

// checkComplete reports what no valid application lacks.
func checkComplete(t *testing.T, app *Application) {
	if app.Timeout <= 0 {
		t.Fatalf("an incomplete application was accepted: %+v", app)
	}
	app.SyncWindows.Hold(time.Date(2026, 3, 29, 1, 59, 59, 0, time.UTC), false)
	if app.Pipeline == nil {
		return
	}
	ids := map[string]bool{}
	for _, s := range app.Pipeline.Stages {
		if ids[s.ID] || s.ID == "" || s.Timeout < 0 {
			t.Fatalf("an incomplete stage was accepted: %+v", s)
		}
		ids[s.ID] = true
		if _, err := json.Marshal(s.With); err != nil || s.With == nil {
			t.Fatalf("the options of %s: %+v, %v", s.Name, s.With, err)
		}
		if o, ok := s.With.(*TrafficRoutingOptions); ok && o.Primary+o.Canary+o.Baseline != 100 {
			t.Fatalf("traffic that does not make 100 was accepted: %+v", o)
		}
	}
}

func seed(f *testing.F, folder string) {
	for _, file := range cases(f, folder) {
		data, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
}

package config

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/c785c783/piped/piped/config/kubernetes"
)

// These fields are read and checked, though this version refuses them.

func TestEveryFieldOfLaterVersions(t *testing.T) {
	want := defaults()
	want.Encryption = &Encryption{EncryptedSecrets: map[string]string{"password": "AbC"}, DecryptionTargets: []string{"secret.yaml"}, Position: "app.pipecd.yaml:5"}
	want.Attachment = &Attachment{Sources: map[string]string{"conf": "files/app.conf"}, Targets: []string{"config.yaml"}, Position: "app.pipecd.yaml:6"}
	want.EventWatcher = []EventRule{
		{
			Matcher: EventMatcher{Name: "image", Labels: map[string]string{"app": "web"}},
			Handler: EventHandler{Type: HandlerGitUpdate, Config: GitUpdate{
				CommitMessage: "Update {{ .Value }}", MakePullRequest: true,
				Replacements: []Replacement{
					{File: "d.yaml", YAMLField: "$.spec.image"}, {File: "d.json", JSONField: "$.image"},
					{File: "d.tf", HCLField: "image"}, {File: "d.txt", Regex: "image:(.*)"},
				},
			}},
		},
		{
			Matcher: EventMatcher{Name: "other"},
			Handler: EventHandler{Type: HandlerGitUpdate, Config: GitUpdate{Replacements: []Replacement{{File: "a.txt", Regex: "(x)"}}}},
		},
	}
	kubernetes.SpecOf(want.Platform).ResourceRoutes = []kubernetes.ResourceRoute{
		{Provider: kubernetes.RouteProvider{Name: "eu"}, Match: kubernetes.Reference{Kind: "Ingress", Name: "web"}},
		{Provider: kubernetes.RouteProvider{Labels: map[string]string{"zone": "eu"}}},
	}
	kubernetes.SpecOf(want.Platform).ConfigPropagation = &kubernetes.ConfigPropagation{
		Mode: kubernetes.PropagateNudge, Scope: kubernetes.ScopeNamed,
		Named: []kubernetes.Reference{{Kind: "Secret", Name: "tls"}, {Kind: "ConfigMap", Name: "flags"}},
		Nudge: kubernetes.PropagationNudge{MaxPods: 10, RatePerSecond: 1},
	}
	kubernetes.SpecOf(want.Platform).HealthChecks = []kubernetes.HealthCheck{{
		APIVersion: "example.com/v1", Kind: "Queue",
		Healthy: []kubernetes.Condition{{Type: "Ready", Status: "True"}},
		Failed:  []kubernetes.Condition{{Type: "Stalled", Status: "True"}, {Type: "Ready", Status: "False"}},
	}}
	want.DriftDetection.IgnoreRules = []IgnoreRule{
		{Kind: "Deployment", Name: "web", Paths: []string{"/spec/template/spec/containers[name=web]/image"}, Mode: IgnoreYield},
		{Managers: []string{"hpa"}, Mode: IgnoreObserve},
	}
	if diff := cmp.Diff(&want, wholeCase(t, "valid-every-other-field")); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func TestTrafficRouting(t *testing.T) {
	tests := map[string]kubernetes.TrafficRouting{
		"valid-canary": {Method: kubernetes.PodSelector},
		"valid-istio-with-baseline-and-analysis": {
			Method: kubernetes.IstioMethod,
			Istio: &kubernetes.Istio{
				Host: "web", EditableRoutes: []string{"main"}, VirtualService: kubernetes.Reference{Kind: "VirtualService", Name: "web"},
			},
		},
		"valid-httproute-in-steps": {
			Method: kubernetes.HTTPRouteMethod,
			HTTPRoute: &kubernetes.HTTPRoute{
				Refs: []kubernetes.RouteRef{{Name: "web", Namespace: "edge"}}, EditableRules: []string{"main"}, StableService: "web",
				ABMatches: []kubernetes.ABMatch{
					{Headers: map[string]string{"x-canary": "1"}},
					{QueryParams: map[string]string{"canary": "1"}, Cookies: map[string]string{"canary": "1"}},
				},
				Mirror: kubernetes.Mirror{Percent: 10}, Verify: kubernetes.RouteVerify{Timeout: time.Minute},
			},
		},
		"valid-helm-options-without-a-chart": {
			Method: kubernetes.PodSelector, Istio: &kubernetes.Istio{Host: "web"},
			HTTPRoute: &kubernetes.HTTPRoute{Verify: kubernetes.RouteVerify{Timeout: 30 * time.Second, Settle: 5 * time.Second}},
		},
	}
	for name, want := range tests {
		if diff := cmp.Diff(want, kubernetes.SpecOf(wholeCase(t, name).Platform).TrafficRouting); diff != "" {
			t.Errorf("%s: -want +got:\n%s", name, diff)
		}
	}
}

func TestHelmAndKustomize(t *testing.T) {
	tests := map[string]kubernetes.Input{
		"valid-helm-chart-of-a-repository": {HelmChart: &kubernetes.HelmChart{Repository: "stable", Name: "web", Version: "1.2.3"}},
		"valid-helm-chart-in-git": {
			HelmChart: &kubernetes.HelmChart{GitRemote: "git@example.com:charts.git", Ref: "v1", Path: "web"},
			HelmOptions: &kubernetes.HelmOptions{
				ReleaseName: "web", SetValues: map[string]string{"a": "1"}, ValueFiles: []string{"values.yaml", "https://example.com/v.yaml"},
				SetFiles: map[string]string{"b": "b.txt"}, APIVersions: []string{"v1"}, KubeVersion: "1.30",
			},
			KustomizeOptions: map[string]string{"reorder": "none"},
		},
	}
	for name, want := range tests {
		if diff := cmp.Diff(want, kubernetes.SpecOf(wholeCase(t, name).Platform).Input); diff != "" {
			t.Errorf("%s: -want +got:\n%s", name, diff)
		}
	}
}

func TestConfigPropagationDefaults(t *testing.T) {
	app, err := readWhole([]byte("apiVersion: pipecd.dev/v1beta1\nkind: KubernetesApp\nspec: {name: web, configPropagation: {}}\n"))
	if err != nil {
		t.Fatal(err)
	}
	want := &kubernetes.ConfigPropagation{
		Mode: kubernetes.PropagateAuto, Scope: kubernetes.ScopeManaged,
		Nudge: kubernetes.PropagationNudge{RepeatAfter: 5 * time.Second, MaxPods: 5000, RatePerSecond: 50},
	}
	if diff := cmp.Diff(want, kubernetes.SpecOf(app.Platform).ConfigPropagation); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

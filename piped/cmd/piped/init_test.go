package main

import (
	"bytes"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/c785c783/piped/piped/app"
	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/starter"
)

// TestInit writes a configuration for each form of manifests and each pipeline, and the agent reads
// each as it is meant.
func TestInit(t *testing.T) {
	stages := map[string][]string{
		"quick":     nil,
		"approval":  {deploy.StageWaitApproval, deploy.StageK8sSync},
		"canary":    {"K8S_CANARY_ROLLOUT", "WAIT_APPROVAL", "K8S_PRIMARY_ROLLOUT", "K8S_CANARY_CLEAN"},
		"bluegreen": {"K8S_CANARY_ROLLOUT", "K8S_TRAFFIC_ROUTING", "WAIT_APPROVAL", "K8S_PRIMARY_ROLLOUT", "K8S_TRAFFIC_ROUTING", "K8S_CANARY_CLEAN"},
	}
	if len(stages) != len(starter.Pipelines) {
		t.Fatalf("pipelines %q, tested are %q", slices.Sorted(maps.Keys(starter.Pipelines)), slices.Sorted(maps.Keys(stages)))
	}
	for _, form := range []string{"simple", "kustomize", "helm", "helm/chart", "bluegreen"} {
		for pipeline, want := range stages {
			t.Run(form+" "+pipeline, func(t *testing.T) {
				dir := filepath.Join(t.TempDir(), "web")
				if err := os.CopyFS(dir, os.DirFS("../../../examples/apps/"+form)); err != nil {
					t.Fatal(err)
				}
				_ = os.Remove(filepath.Join(dir, starter.ApplicationFile)) // a chart has none
				args := []string{"init", dir, "--pipeline", pipeline, "--namespace", "shop"}
				if form != "bluegreen" {
					args = append(args, "--service", "web")
				}
				var stdout, stderr bytes.Buffer
				if code := run(t.Context(), args, &stdout, &stderr); code != 0 {
					t.Fatalf("exit code %d\n%s%s", code, stdout.String(), stderr.String())
				}
				data, err := os.ReadFile(filepath.Join(dir, starter.ApplicationFile))
				if err != nil {
					t.Fatal(err)
				}
				read, err := app.Kinds().ParseApplication(starter.ApplicationFile, data)
				if err != nil {
					t.Fatal(err)
				}
				var got []string
				if read.Pipeline != nil {
					for _, s := range read.Pipeline.Stages {
						got = append(got, s.Name)
					}
				}
				if read.Name != "web" || !slices.Equal(got, want) {
					t.Errorf("%s has the stages %q, want %q", read.Name, got, want)
				}
			})
		}
	}
}

// TestInitRefuses what it cannot do, and leaves no file then.
func TestInitRefuses(t *testing.T) {
	service := "apiVersion: v1\nkind: Service\nmetadata: {name: %}\n"
	for problem, c := range map[string]struct {
		files map[string]string
		args  []string
	}{
		"there are no manifests":                        {map[string]string{"README.md": "# Web\n"}, nil},
		"use one of approval, bluegreen, canary, quick": {map[string]string{"a.yaml": service}, []string{"--pipeline", "fast"}},
		"declares a, b: name it with --service": {
			map[string]string{"app.yaml": strings.ReplaceAll(service, "%", "a") + "---\n" + strings.ReplaceAll(service, "%", "b")}, []string{"--pipeline", "bluegreen"},
		},
		"declares none in plain manifests": {map[string]string{"kustomization.yaml": "kind: Kustomization\nresources: []\n"}, []string{"--pipeline", "bluegreen"}},
	} {
		dir := t.TempDir()
		for name, text := range c.files {
			if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		var stdout, stderr bytes.Buffer
		if code := run(t.Context(), append([]string{"init", dir}, c.args...), &stdout, &stderr); code != 1 || !strings.Contains(stderr.String(), problem) {
			t.Errorf("exit code %d, %q; want %q", code, stderr.String(), problem)
		}
		if _, err := os.Stat(filepath.Join(dir, starter.ApplicationFile)); err == nil {
			t.Errorf("%q: a file is left", problem)
		}
	}
}

// TestInitKeepsAFile: a file that exists is not overwritten.
func TestInitKeepsAFile(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, starter.ApplicationFile)
	if err := os.WriteFile(path, []byte("kind: KubernetesApp\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	var stdout, stderr bytes.Buffer
	if code := run(t.Context(), []string{"init", dir}, &stdout, &stderr); code != 1 || !strings.Contains(stderr.String(), "exists, and is not overwritten") {
		t.Errorf("exit code %d, %q", code, stderr.String())
	}
	if data, err := os.ReadFile(path); err != nil || string(data) != "kind: KubernetesApp\n" {
		t.Errorf("the file contains %q, %v", data, err)
	}
}

// TestInitNamesProblems of the manifests, and fails.
func TestInitNamesProblems(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "web.yaml"), []byte("apiVersion: v1\nkind: ConfigMap\nmetadata: {}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	var stdout, stderr bytes.Buffer
	if code := run(t.Context(), []string{"init", dir}, &stdout, &stderr); code != 1 || !strings.Contains(stdout.String(), "web.yaml") || !strings.Contains(stderr.String(), "1 problem to correct") {
		t.Errorf("exit code %d, %q, %q", code, stdout.String(), stderr.String())
	}
}

// TestAsk: an empty answer is the default.
func TestAsk(t *testing.T) {
	for answer, want := range map[string]string{"\n": "quick", "": "quick", " canary \n": "canary", "bluegreen": "bluegreen"} {
		var out bytes.Buffer
		if got := ask(strings.NewReader(answer), &out); got != want || !strings.Contains(out.String(), "canary     try a change") {
			t.Errorf("%q: %q, asked %q", answer, got, out.String())
		}
	}
}

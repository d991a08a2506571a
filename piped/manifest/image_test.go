package manifest

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/c785c783/piped/piped/deploy"
)

func TestParseImage(t *testing.T) {
	tests := []struct {
		reference     string
		want          Image
		name, version string
	}{
		{"nginx", Image{Repository: "nginx"}, "nginx", "latest"},
		{"nginx:1.27", Image{Repository: "nginx", Tag: "1.27"}, "nginx", "1.27"},
		{"a/b/foo:v1", Image{Repository: "a/b/foo", Tag: "v1"}, "foo", "v1"},
		{"registry:5000/foo", Image{Repository: "registry:5000/foo"}, "foo", "latest"},
		{"registry:5000/a/foo:v2", Image{Repository: "registry:5000/a/foo", Tag: "v2"}, "foo", "v2"},
		{"foo@sha256:abc", Image{Repository: "foo", Digest: "sha256:abc"}, "foo", "sha256:abc"},
		{"registry:5000/foo:v3@sha256:abc", Image{Repository: "registry:5000/foo", Tag: "v3", Digest: "sha256:abc"}, "foo", "v3"},
	}
	for _, tt := range tests {
		got := ParseImage(tt.reference)
		if diff := cmp.Diff(tt.want, got); diff != "" {
			t.Errorf("%s: -want +got:\n%s", tt.reference, diff)
		}
		if got.Name() != tt.name || got.Version() != tt.version {
			t.Errorf("%s: got %s %s, want %s %s", tt.reference, got.Name(), got.Version(), tt.name, tt.version)
		}
	}
}

func TestVersions(t *testing.T) {
	objects := parse(t, `
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  template:
    spec:
      containers: [{name: web, image: "x/app:v3"}, {name: proxy, image: "registry:5000/proxy@sha256:abc"}]
      initContainers: [{name: init, image: "x/init:v1"}]
---
apiVersion: batch/v1
kind: CronJob
metadata: {name: job}
spec: {jobTemplate: {spec: {template: {spec: {containers: [{image: "x/app:v3"}, {image: "x/app:v4"}]}}}}}
---
apiVersion: v1
kind: Pod
metadata: {name: pod}
spec: {containers: [{image: busybox}, {name: broken}, text]}
---
apiVersion: example.com/v1
kind: Other
metadata: {name: other}
spec: {template: {spec: {containers: [{image: not/counted}]}}}
---
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: broken}
spec: text
`)
	want := []deploy.ArtifactVersion{
		{Kind: "CONTAINER_IMAGE", Version: "v1", Name: "init", URL: "x/init:v1"},
		{Kind: "CONTAINER_IMAGE", Version: "v3", Name: "app", URL: "x/app:v3"},
		{Kind: "CONTAINER_IMAGE", Version: "sha256:abc", Name: "proxy", URL: "registry:5000/proxy@sha256:abc"},
		{Kind: "CONTAINER_IMAGE", Version: "v4", Name: "app", URL: "x/app:v4"},
		{Kind: "CONTAINER_IMAGE", Version: "latest", Name: "busybox", URL: "busybox"},
	}
	if diff := cmp.Diff(want, Versions(objects, nil)); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func TestVersionsWithoutImages(t *testing.T) {
	want := []deploy.ArtifactVersion{{Kind: "UNKNOWN", Version: "unknown"}}
	if diff := cmp.Diff(want, Versions(parse(t, "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}"), nil)); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// TestNoPartOfASecretIsAVersion: a secret may be the tag, the whole reference, or span
// several parts.
func TestNoPartOfASecretIsAVersion(t *testing.T) {
	const reference = "registry.example.com/team/web:v1-s3cr3t@sha256:abcdef"
	objects := parse(t, "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: a}\nspec: {template: {spec: {containers: [{name: a, image: \""+reference+"\"}]}}}")
	for secret, want := range map[string]deploy.ArtifactVersion{
		"s3cr3t":      {Name: "web", Version: "v1-[redacted]", URL: "registry.example.com/team/web:v1-[redacted]@sha256:abcdef"},
		"b:v1-s3cr3t": {Name: "we[redacted]", Version: "[redacted]", URL: "registry.example.com/team/we[redacted]@sha256:abcdef"},
		reference:     {Name: "[redacted]", Version: "[redacted]", URL: "[redacted]"},
		"elsewhere":   {Name: "web", Version: "v1-s3cr3t", URL: reference},
	} {
		redact := func(text string) string { return strings.ReplaceAll(text, secret, "[redacted]") }
		want.Kind = "CONTAINER_IMAGE"
		if diff := cmp.Diff([]deploy.ArtifactVersion{want}, Versions(objects, redact)); diff != "" {
			t.Errorf("%s: -want +got:\n%s", secret, diff)
		}
	}
}

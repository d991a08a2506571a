package manifest

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const everyReference = `{
  containers: [
    {name: a, env: [{name: X, valueFrom: {configMapKeyRef: {name: env-map, key: k}}}, {name: Y, valueFrom: {secretKeyRef: {name: env-secret, key: k}}}, {name: Z, value: z}],
     envFrom: [{configMapRef: {name: from-map}}, {secretRef: {name: from-secret}}]}],
  initContainers: [{name: i, envFrom: [{configMapRef: {name: init-map}}, {configMapRef: {name: from-map}}]}],
  ephemeralContainers: [{name: e, envFrom: [{secretRef: {name: debug-secret}}]}],
  volumes: [
    {name: v1, configMap: {name: volume-map}}, {name: v2, secret: {secretName: volume-secret}}, {name: v3, emptyDir: {}},
    {name: v4, projected: {sources: [{configMap: {name: projected-map}}, {secret: {name: projected-secret}}, {serviceAccountToken: {path: t}}]}},
    {name: v5, csi: {nodePublishSecretRef: {name: csi-secret}}}, text],
  imagePullSecrets: [{name: pull-secret}]}`

func TestReferences(t *testing.T) {
	want := []Reference{
		{"ConfigMap", "env-map"}, {"ConfigMap", "from-map"}, {"ConfigMap", "init-map"}, {"ConfigMap", "projected-map"}, {"ConfigMap", "volume-map"},
		{"Secret", "csi-secret"}, {"Secret", "debug-secret"}, {"Secret", "env-secret"}, {"Secret", "from-secret"}, {"Secret", "projected-secret"}, {"Secret", "pull-secret"}, {"Secret", "volume-secret"},
	}
	texts := map[string]string{
		"Pod":     "{apiVersion: v1, kind: Pod, spec: " + everyReference + "}",
		"CronJob": "{apiVersion: batch/v1, kind: CronJob, spec: {jobTemplate: {spec: {template: {spec: " + everyReference + "}}}}}",
	}
	for _, kind := range []string{"Deployment", "StatefulSet", "DaemonSet", "ReplicaSet", "ReplicationController", "Job"} {
		texts[kind] = "{apiVersion: x/v1, kind: " + kind + ", spec: {template: {spec: " + everyReference + "}}}"
	}
	for kind, text := range texts {
		if diff := cmp.Diff(want, References(fromYAML(t, text))); diff != "" {
			t.Errorf("%s: -want +got:\n%s", kind, diff)
		}
	}
	for _, text := range []string{
		"{apiVersion: v1, kind: ConfigMap, data: {a: b}}", pod("text"), pod("{volumes: {a: b}, containers: [{envFrom: x}]}"),
		"{apiVersion: example.com/v1, kind: Other, spec: {template: {spec: " + everyReference + "}}}",
	} {
		if got := References(fromYAML(t, text)); len(got) != 0 {
			t.Errorf("%s: refers to %v", text, got)
		}
	}
}

// TestRenameReferences: every reference is renamed, and everything else is unchanged.
func TestRenameReferences(t *testing.T) {
	u := fromYAML(t, pod(everyReference))
	before := u.DeepCopy()
	RenameReferences(u, func(r Reference) string { return r.Kind + "-" + r.Name })
	var want []Reference
	for _, r := range References(before) {
		want = append(want, Reference{r.Kind, r.Kind + "-" + r.Name})
	}
	if diff := cmp.Diff(want, References(u)); diff != "" {
		t.Errorf("references (-want +got):\n%s", diff)
	}
	RenameReferences(u, func(r Reference) string { return strings.TrimPrefix(r.Name, r.Kind+"-") })
	if diff := cmp.Diff(before.Object, u.Object); diff != "" {
		t.Errorf("renamed back (-before +after):\n%s", diff)
	}
}

func TestContainers(t *testing.T) {
	got := Containers(fromYAML(t, pod(`{initContainers: [{name: i, image: x}], containers: [{name: a, image: "y:1"}, {name: b}, text]}`)))
	want := []Container{{"i", true, "x"}, {"a", false, "y:1"}, {"b", false, ""}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

package main

import (
	"bytes"
	"encoding/json"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/google/go-cmp/cmp"
	"gopkg.in/yaml.v3"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/c785c783/piped/piped/cluster/clustertest"
	config "github.com/c785c783/piped/piped/config/kubernetes"
	"github.com/c785c783/piped/piped/manifest"
	"github.com/c785c783/piped/piped/source/kubernetes/helm"
)

// theChartInstalls installs a variant by the chart, with secrets of piped install: the cluster then
// has the same objects, piped install check says the same, and nothing is left after their removal.
func (i *installing) theChartInstalls(v variantCase, installed map[string]map[string]any) {
	i.Helper()
	i.volume("chart-" + volumeName(v.name))
	existing := i.everything()
	i.install(0, slices.Concat(v.args, []string{"--only", "secrets"})...)
	values := maps.Clone(v.values)
	if values["repo"] == nil {
		values["repo"] = i.repo
	}
	values["image"] = "registry.example/piped:v1"
	objects := i.chart(values)
	for _, o := range objects {
		i.applyLikeHelm(o)
	}
	clustertest.Eventually(i, "the agent of the chart answers", func() bool {
		d, err := i.client.AppsV1().Deployments("piped").Get(i.Context(), "piped", metav1.GetOptions{})
		return err == nil && d.Status.ObservedGeneration >= d.Generation && d.Status.AvailableReplicas == *d.Spec.Replicas
	})
	i.contains(i.piped(0, "install", "check"), v.checks...)
	if diff := cmp.Diff(installed, i.live(objects)); diff != "" {
		i.Errorf("-piped install +chart:\n%s", diff)
	}
	i.removeLikeHelm(objects)
	i.piped(0, "uninstall", "--yes", "--data")
	i.nothingIsLeft(existing)
}

// chart renders the chart as the agent does.
func (i *installing) chart(values map[string]any) (objects []*unstructured.Unstructured) {
	i.Helper()
	renderer, err := helm.New(helm.Config{})
	if err != nil {
		i.Fatal(err)
	}
	text, err := yaml.Marshal(values)
	if err != nil {
		i.Fatal(err)
	}
	result, err := renderer.Render(i.Context(), helm.Request{
		Tree: os.DirFS("../../../examples/install"), Dir: ".", Chart: config.HelmChart{Path: "chart"}, ReleaseName: "piped", Namespace: "piped",
		Values: func([]byte) ([][]byte, error) { return [][]byte{text}, nil },
	})
	if err != nil {
		i.Fatal(err)
	}
	for _, o := range result.Objects {
		objects = append(objects, o.Unstructured)
	}
	return objects
}

// applyLikeHelm applies an object on the server's side, with strict validation of its fields.
func (i *installing) applyLikeHelm(o *unstructured.Unstructured) {
	i.Helper()
	data, err := json.Marshal(o)
	if err != nil {
		i.Fatal(err)
	}
	force := true
	_, err = i.resource(o).Patch(i.Context(), o.GetName(), types.ApplyPatchType, data, metav1.PatchOptions{FieldManager: "helm", Force: &force, FieldValidation: metav1.FieldValidationStrict})
	if err != nil {
		i.Fatalf("apply %s: %v", manifest.Ref(o), err)
	}
}

// removeLikeHelm deletes objects one by one: the agent first, and an aggregated ClusterRole before its
// parts, because its controller writes it when one of them changes.
func (i *installing) removeLikeHelm(objects []*unstructured.Unstructured) {
	i.Helper()
	foreground := metav1.DeletePropagationForeground
	isAgent := func(o *unstructured.Unstructured) bool { return o.GetKind() == "Deployment" }
	agent, others := slices.IndexFunc(objects, isAgent), slices.DeleteFunc(slices.Clone(objects), isAgent)
	for _, o := range slices.Insert(others, 0, objects[agent]) {
		if err := i.resource(o).Delete(i.Context(), o.GetName(), metav1.DeleteOptions{PropagationPolicy: &foreground}); err != nil {
			i.Fatal(err)
		}
		clustertest.Eventually(i, o.GetKind()+" "+o.GetName()+" is gone", func() bool {
			_, err := i.resource(o).Get(i.Context(), o.GetName(), metav1.GetOptions{})
			return apierrors.IsNotFound(err)
		})
	}
}

// resource returns the client for an object.
func (i *installing) resource(o *unstructured.Unstructured) dynamic.ResourceInterface {
	i.Helper()
	kind, err := i.access.Resource(i.Context(), o.GroupVersionKind())
	if err != nil {
		i.Fatal(err)
	}
	return i.access.ResourceClient(kind, o.GetNamespace())
}

// printed returns the objects that piped install prints for a variant, without secrets.
func (i *installing) printed(args ...string) (objects []*unstructured.Unstructured) {
	i.Helper()
	var out, messages bytes.Buffer
	args = slices.Concat([]string{"install", "--repo", i.repo, "--image", "registry.example/piped:v1"}, args, []string{"--only", "permissions,agent"})
	if code := run(i.Context(), args, &out, &messages); code != 0 {
		i.Fatalf("piped %q: exit code %d\n%s", args, code, messages.String())
	}
	parsed, err := manifest.Parse("stdout", out.Bytes())
	if err != nil {
		i.Fatal(err)
	}
	for _, o := range parsed {
		objects = append(objects, o.Unstructured)
	}
	return objects
}

// live returns objects as they are in the cluster, in the form in which those of the chart and those
// of piped install are to be equal: without what the API server and controllers write, who manages
// them, and the comments of the configuration.
func (i *installing) live(objects []*unstructured.Unstructured) map[string]map[string]any {
	i.Helper()
	out := map[string]map[string]any{}
	for _, o := range objects {
		live, err := i.resource(o).Get(i.Context(), o.GetName(), metav1.GetOptions{})
		if err != nil {
			i.Fatal(err)
		}
		labels, annotations := live.GetLabels(), live.GetAnnotations()
		delete(labels, "app.kubernetes.io/managed-by")
		maps.DeleteFunc(annotations, func(key, _ string) bool {
			return strings.Contains(key, "kubernetes.io/") || strings.HasPrefix(key, "pipecd.dev/installed-")
		})
		fields := live.Object
		fields["metadata"] = map[string]any{"labels": labels, "annotations": slices.Sorted(maps.Keys(annotations)), "scope": annotations["pipecd.dev/install-scope"]}
		delete(fields, "status")
		for _, path := range [][]string{{"spec", "clusterIP"}, {"spec", "clusterIPs"}, {"spec", "volumeName"}} {
			unstructured.RemoveNestedField(fields, path...)
		}
		if text, is, _ := unstructured.NestedString(fields, "data", "piped.yaml"); is {
			var cfg map[string]any
			if err := yaml.Unmarshal([]byte(text), &cfg); err != nil {
				i.Fatal(err)
			}
			fields["data"] = cfg
		}
		out[manifest.Ref(o).String()] = fields
	}
	return out
}

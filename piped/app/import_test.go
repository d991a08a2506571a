package app

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"gopkg.in/yaml.v3"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	"github.com/c785c783/piped/piped/cluster/clustertest"
)

// runImport runs piped import, which must succeed.
func runImport(t *testing.T, program string, args ...string) (stdout, stderr string) {
	t.Helper()
	var out, errors bytes.Buffer
	cmd := exec.CommandContext(t.Context(), program, append([]string{"import"}, args...)...)
	cmd.Stdout, cmd.Stderr = &out, &errors
	if err := cmd.Run(); err != nil {
		t.Fatalf("%v\n%s%s", err, out.String(), errors.String())
	}
	return out.String(), errors.String()
}

// writeFiles writes files below a directory.
func writeFiles(t *testing.T, dir string, files map[string]string) {
	t.Helper()
	for name, text := range files {
		to := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(to), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(to, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// filesBelow returns the files below a directory by their path.
func filesBelow(t *testing.T, dir string) map[string]string {
	t.Helper()
	out := map[string]string{}
	err := fs.WalkDir(os.DirFS(dir), ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		data, err := os.ReadFile(filepath.Join(dir, name))
		out[name] = string(data)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// define makes the cluster serve kinds of other tools: group, version, kind and plural of each.
func define(t *testing.T, cluster *clustertest.Cluster, kinds ...[4]string) {
	t.Helper()
	for _, k := range kinds {
		cluster.Define(t, fmt.Appendf(nil, `apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: %[4]s.%[1]s}
spec:
  group: %[1]s
  scope: Namespaced
  names: {kind: %[3]s, plural: %[4]s}
  versions: [{name: %[2]s, served: true, storage: true, schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}]
`, k[0], k[1], k[2], k[3]))
	}
}

// create creates the objects of a text.
func create(t *testing.T, client dynamic.Interface, resource schema.GroupVersionResource, text, kind string) {
	t.Helper()
	for document := range strings.SplitSeq(text, "---\n") {
		var object map[string]any
		if err := yaml.Unmarshal([]byte(document), &object); err != nil {
			t.Fatal(err)
		}
		if u := (&unstructured.Unstructured{Object: object}); u.GetKind() == kind {
			u.SetManagedFields(nil)
			if _, err := client.Resource(resource).Namespace(u.GetNamespace()).Create(t.Context(), u, metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// TestImportFromCluster: what is live of both tools is imported, values of ConfigMaps included, and
// objects that a tool still manages are named.
func TestImportFromCluster(t *testing.T) {
	t.Parallel()
	cluster := clustertest.Shared(t)
	client, err := dynamic.NewForConfig(cluster.RESTConfig(t))
	if err != nil {
		t.Fatal(err)
	}
	ns := cluster.Namespace(t)
	repo, output := t.TempDir(), t.TempDir()
	writeFiles(t, repo, map[string]string{
		"web/web.yaml": "{apiVersion: v1, kind: ConfigMap, metadata: {name: web}}\n", "api/api.yaml": "{apiVersion: v1, kind: ConfigMap, metadata: {name: api}}\n",
	})
	live := strings.ReplaceAll(`apiVersion: argoproj.io/v1alpha1
kind: Application
metadata: {name: web, namespace: NS, ownerReferences: [{apiVersion: argoproj.io/v1alpha1, kind: ApplicationSet, name: shop, uid: "1"}]}
spec:
  project: default
  source: {repoURL: "https://git.example.com/team/apps.git", targetRevision: main, path: web}
  destination: {server: "https://kubernetes.default.svc", namespace: NS}
  syncPolicy: {automated: {}}
---
apiVersion: kustomize.toolkit.fluxcd.io/v1
kind: Kustomization
metadata: {name: api, namespace: NS}
spec: {interval: 10m, path: api, prune: true, targetNamespace: NS, sourceRef: {kind: GitRepository, name: apps}}
---
apiVersion: source.toolkit.fluxcd.io/v1
kind: GitRepository
metadata: {name: apps, namespace: NS}
spec: {interval: 1m, url: "https://git.example.com/team/apps.git", ref: {branch: main}}
---
apiVersion: source.toolkit.fluxcd.io/v1
kind: HelmRepository
metadata: {name: charts, namespace: NS}
spec: {interval: 1h, url: "https://charts.example.com"}
---
apiVersion: helm.toolkit.fluxcd.io/v2
kind: HelmRelease
metadata: {name: cache, namespace: NS}
spec:
  interval: 10m
  chart: {spec: {chart: redis, version: 19.0.1, sourceRef: {kind: HelmRepository, name: charts}}}
  valuesFrom: [{kind: ConfigMap, name: values}]
status:
  inventory: {entries: [{id: NS_cache__ConfigMap, v: v1}]}
`, "NS", ns)
	kinds := [][4]string{
		{"argoproj.io", "v1alpha1", "Application", "applications"}, {"kustomize.toolkit.fluxcd.io", "v1", "Kustomization", "kustomizations"},
		{"source.toolkit.fluxcd.io", "v1", "GitRepository", "gitrepositories"}, {"source.toolkit.fluxcd.io", "v1", "HelmRepository", "helmrepositories"},
		{"helm.toolkit.fluxcd.io", "v2", "HelmRelease", "helmreleases"},
	}
	define(t, cluster, kinds...)
	for _, k := range kinds {
		create(t, client, schema.GroupVersionResource{Group: k[0], Version: k[1], Resource: k[3]}, live, k[2])
	}
	kube := cluster.Client(t).CoreV1().ConfigMaps(ns)
	for _, cm := range []corev1.ConfigMap{
		{ObjectMeta: metav1.ObjectMeta{Name: "values"}, Data: map[string]string{"values.yaml": "architecture: standalone\n"}},
		{ObjectMeta: metav1.ObjectMeta{Name: "web", Annotations: map[string]string{"argocd.argoproj.io/tracking-id": "web:/ConfigMap:" + ns + "/web"}}},
		{ObjectMeta: metav1.ObjectMeta{Name: "api", Labels: map[string]string{"kustomize.toolkit.fluxcd.io/name": "api", "kustomize.toolkit.fluxcd.io/namespace": ns}}},
		{ObjectMeta: metav1.ObjectMeta{Name: "cache", Labels: map[string]string{"helm.toolkit.fluxcd.io/name": "cache", "helm.toolkit.fluxcd.io/namespace": ns}}},
	} {
		if _, err := kube.Create(t.Context(), &cm, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	stdout, stderr := runImport(t, buildAgent(t), "--from-cluster", "--kubeconfig", cluster.Kubeconfig(), "--namespace", ns, "--repo-dir", repo, "--output", output)
	written := filesBelow(t, output)
	for _, name := range []string{"web/app.pipecd.yaml", "api/app.pipecd.yaml", "piped/cache/app.pipecd.yaml", "piped/cache/cache.values.yaml"} {
		if written[name] == "" {
			t.Errorf("%s is not written\n%s", name, stdout)
		}
	}
	if text := written["piped/cache/cache.values.yaml"]; text != "architecture: standalone\n" {
		t.Errorf("the values are %q", text)
	}
	for _, want := range []string{
		"warning: Argo CD (Application web) still manages 1 object of Application " + ns + "/web: ConfigMap " + ns + "/web\n",
		"warning: Flux (Kustomization " + ns + "/api) still manages 1 object of Kustomization " + ns + "/api: ConfigMap " + ns + "/api\n",
		"warning: Flux (HelmRelease " + ns + "/cache) still manages 1 object of HelmRelease " + ns + "/cache: ConfigMap " + ns + "/cache\n",
	} {
		if !strings.Contains(stderr, want) {
			t.Errorf("%q is not among\n%s", want, stderr)
		}
	}
	set, app := strings.Index(stdout, "delete applicationset shop --cascade=orphan"), strings.Index(stdout, "delete application ")
	if set < 0 || app >= 0 && app < set {
		t.Errorf("the plan does not delete the ApplicationSet before its Applications:\n%s", stdout)
	}
}

package app

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/c785c783/piped/piped/cluster/clustertest"
	"github.com/c785c783/piped/piped/git/gittest"
	"github.com/c785c783/piped/piped/manifest"
)

// importLand is the cluster in which Argo CD and Flux have applied samples.
type importLand struct {
	cluster   *clustertest.Cluster
	client    dynamic.Interface
	charts    string // address of chartRepo
	chartRepo *gittest.Repo
	samples   []*imported
}

func newImportLand(t *testing.T, cluster *clustertest.Cluster, charts string, repo *gittest.Repo) *importLand {
	t.Helper()
	client, err := dynamic.NewForConfig(cluster.RESTConfig(t))
	if err != nil {
		t.Fatal(err)
	}
	return &importLand{cluster: cluster, client: client, charts: charts, chartRepo: repo}
}

// toolKinds are the kinds of both tools that apply something: group, version, kind and plural.
var toolKinds = [][4]string{
	{"argoproj.io", "v1alpha1", "Application", "applications"}, {"kustomize.toolkit.fluxcd.io", "v1", "Kustomization", "kustomizations"},
	{"helm.toolkit.fluxcd.io", "v2", "HelmRelease", "helmreleases"},
}

// importKinds are the kinds of the objects that are compared.
func importKinds() map[string]schema.GroupVersionResource {
	kinds := fleetKinds()
	maps.Copy(kinds, map[string]schema.GroupVersionResource{
		"StatefulSet":        {Group: "apps", Version: "v1", Resource: "statefulsets"},
		"DaemonSet":          {Group: "apps", Version: "v1", Resource: "daemonsets"},
		"ControllerRevision": {Group: "apps", Version: "v1", Resource: "controllerrevisions"},
		"ServiceAccount":     {Version: "v1", Resource: "serviceaccounts"},
		"Namespace":          {Version: "v1", Resource: "namespaces"},
		"ClusterRoleBinding": {Group: "rbac.authorization.k8s.io", Version: "v1", Resource: "clusterrolebindings"},
	})
	for _, k := range toolKinds {
		kinds[k[2]] = schema.GroupVersionResource{Group: k[0], Version: k[1], Resource: k[3]}
	}
	return kinds
}

// resource returns the client of an object's kind and namespace.
func (l *importLand) resource(o *unstructured.Unstructured) dynamic.ResourceInterface {
	all := l.client.Resource(importKinds()[o.GetKind()])
	if o.GetNamespace() == "" {
		return all
	}
	return all.Namespace(o.GetNamespace())
}

// applyAs applies objects as a controller does: Argo CD as kubectl apply, unless it is asked for a
// server-side apply, helm-controller by creating them, and the others server-side.
func (s *imported) applyAs(t *testing.T, manager, text string) {
	t.Helper()
	objects, err := manifest.Parse("live.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range objects {
		switch {
		case manager == "argocd-controller" && !s.serverSide && !strings.Contains(o.GetAnnotations()["argocd.argoproj.io/sync-options"], serverSideOption):
			setLastApplied(t, o.Unstructured)
			s.create(t, o.Unstructured, manager)
		case manager == "helm-controller":
			s.create(t, o.Unstructured, manager)
		default:
			if _, err = s.resource(o.Unstructured).Apply(t.Context(), o.GetName(), o.Unstructured, metav1.ApplyOptions{FieldManager: manager, Force: true}); err != nil {
				t.Fatal(err)
			}
		}
		if !strings.HasSuffix(manager, "-controller") {
			continue // it changes what is there
		}
		s.live = append(s.live, o)
		if o.GetKind() == "ClusterRoleBinding" {
			t.Cleanup(func() {
				if err := s.resource(o.Unstructured).Delete(context.Background(), o.GetName(), metav1.DeleteOptions{}); err != nil {
					t.Error(err)
				}
			})
		}
	}
}

const serverSideOption = "ServerSideApply=true"

// setLastApplied gives an object the annotation of kubectl apply.
func setLastApplied(t *testing.T, u *unstructured.Unstructured) {
	t.Helper()
	last, err := json.Marshal(u.Object)
	if err != nil {
		t.Fatal(err)
	}
	annotations := map[string]string{"kubectl.kubernetes.io/last-applied-configuration": string(last)}
	maps.Copy(annotations, u.GetAnnotations())
	u.SetAnnotations(annotations)
}

// create creates an object, or patches one that exists.
func (s *imported) create(t *testing.T, u *unstructured.Unstructured, manager string) {
	t.Helper()
	_, err := s.resource(u).Create(t.Context(), u, metav1.CreateOptions{FieldManager: manager})
	if apierrors.IsAlreadyExists(err) {
		var patch []byte
		if patch, err = json.Marshal(u.Object); err == nil {
			_, err = s.resource(u).Patch(t.Context(), u.GetName(), types.MergePatchType, patch, metav1.PatchOptions{FieldManager: manager})
		}
	}
	if err != nil {
		t.Fatal(err)
	}
}

// declare creates what makes the other tool apply the live objects, with its record of them.
func (s *imported) declare(t *testing.T, text string) {
	t.Helper()
	documents, err := manifest.Parse("documents.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range documents {
		name := d.GetNamespace() + "/" + d.GetName()
		switch d.GetKind() {
		case "Application":
			name = d.GetName()
		case "HelmRelease":
			s.create(t, helmRecord(d), "helm-controller")
		case "Kustomization":
		default:
			continue
		}
		var resources, entries []any
		for _, o := range s.live {
			if !strings.HasSuffix(toolOf(o), "("+d.GetKind()+" "+name+")") {
				continue
			}
			group, version := o.GroupVersionKind().Group, o.GroupVersionKind().Version
			resources = append(resources, map[string]any{"group": group, "version": version, "kind": o.GetKind(), "namespace": o.GetNamespace(), "name": o.GetName()})
			entries = append(entries, map[string]any{"id": strings.Join([]string{o.GetNamespace(), o.GetName(), group, o.GetKind()}, "_"), "v": version})
		}
		d.Object["status"] = map[string]any{"inventory": map[string]any{"entries": entries}}
		if d.GetKind() == "Application" {
			d.Object["status"] = map[string]any{"resources": resources}
		}
		d.SetFinalizers(nil) // nothing of the other tool runs that could remove them
		s.create(t, d.Unstructured, "kubectl-create")
	}
}

// helmRecord returns Helm's record of a release.
func helmRecord(release manifest.Object) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "Secret", "type": "helm.sh/release.v1", "stringData": map[string]any{"release": "H4sIAAAAAAAA"},
		"metadata": map[string]any{
			"name": "sh.helm.release.v1." + release.GetName() + ".v1", "namespace": release.GetNamespace(),
			"labels": map[string]any{"name": release.GetName(), "owner": "helm", "status": "deployed", "version": "1"},
		},
	}}
}

// everything returns the live objects of the cluster by kind, namespace and name, without those
// that Kubernetes makes for every namespace.
func (l *importLand) everything(t *testing.T) map[string]*unstructured.Unstructured {
	t.Helper()
	out := map[string]*unstructured.Unstructured{}
	for kind, resource := range importKinds() {
		list, err := l.client.Resource(resource).List(context.Background(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		for i, u := range list.Items {
			if u.GetName() != "kube-root-ca.crt" && (kind != "ServiceAccount" || u.GetName() != "default") {
				out[kind+" "+u.GetNamespace()+"/"+u.GetName()] = &list.Items[i]
			}
		}
	}
	return out
}

// own returns the objects of a sample: those of its namespaces, and those without a namespace that
// the other tool has applied.
func (s *imported) own(all map[string]*unstructured.Unstructured) map[string]*unstructured.Unstructured {
	out := map[string]*unstructured.Unstructured{}
	for key, u := range all {
		for _, ns := range s.spaces {
			if u.GetNamespace() == ns {
				out[key] = u
			}
		}
		if u.GetNamespace() == "" && slices.ContainsFunc(s.live, func(o manifest.Object) bool {
			return o.GetNamespace() == "" && o.GetKind() == u.GetKind() && o.GetName() == u.GetName()
		}) {
			out[key] = u
		}
	}
	return out
}

// awaitQuiet waits until every workload of the samples has rolled out, and each sample has pods.
func (l *importLand) awaitQuiet(t *testing.T) {
	t.Helper()
	for end := time.Now().Add(patience); ; time.Sleep(100 * time.Millisecond) {
		open := l.unfinished(t)
		if len(open) == 0 {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("after %s these are not rolled out: %v", patience, open)
		}
	}
}

// unfinished returns the workloads that are rolling out, and the samples without pods.
func (l *importLand) unfinished(t *testing.T) (open []string) {
	t.Helper()
	all := l.everything(t)
	for _, s := range l.samples {
		pods := 0
		for key, u := range s.own(all) {
			if !rolledOut(u) {
				open = append(open, key)
			}
			if u.GetKind() == "Pod" {
				pods++
			}
		}
		if pods == 0 {
			open = append(open, "sample "+s.name)
		}
	}
	return open
}

// rolledOut reports whether an object is no workload whose pods change.
func rolledOut(u *unstructured.Unstructured) bool {
	number := func(path ...string) int64 {
		n, _, _ := unstructured.NestedInt64(u.Object, path...)
		return n
	}
	want := number("spec", "replicas")
	switch u.GetKind() {
	case "Deployment":
		return number("status", "observedGeneration") == u.GetGeneration() && number("status", "replicas") == want &&
			number("status", "updatedReplicas") == want && number("status", "availableReplicas") == want
	case "StatefulSet":
		return number("status", "observedGeneration") == u.GetGeneration() && number("status", "replicas") == want &&
			number("status", "updatedReplicas") == want && number("status", "readyReplicas") == want
	case "DaemonSet":
		nodes := number("status", "desiredNumberScheduled")
		return number("status", "observedGeneration") == u.GetGeneration() && nodes > 0 &&
			number("status", "updatedNumberScheduled") == nodes && number("status", "numberReady") == nodes
	}
	return true
}

// compare fails the test if the takeover has changed more than ownership.
func (s *imported) compare(t *testing.T, before, after map[string]*unstructured.Unstructured) {
	if diff := cmp.Diff(substance(before), substance(after)); diff != "" {
		t.Errorf("taking over changed (-before +after):\n%s", diff)
	}
	if diff := cmp.Diff(lives(before), lives(after)); diff != "" {
		t.Errorf("generations, revisions and restarts (-before +after):\n%s", diff)
	}
	for _, o := range s.live {
		key := o.GetKind() + " " + o.GetNamespace() + "/" + o.GetName()
		was, is := before[key], after[key]
		if was == nil || is == nil {
			t.Errorf("%s is not among the live objects", key)
			continue
		}
		if diff := cmp.Diff(ownLabels(was.GetLabels()), ownLabels(is.GetLabels())); diff != "" {
			t.Errorf("labels of %s (-before +after):\n%s", key, diff)
		}
		if diff := cmp.Diff(ownLabels(was.GetAnnotations()), ownLabels(is.GetAnnotations())); diff != "" {
			t.Errorf("annotations of %s (-before +after):\n%s", key, diff)
		}
		if tool := manifest.OtherTool(is); tool != "" || !slices.ContainsFunc(s.configs, func(c string) bool { return is.GetLabels()[manifest.LabelApplication] == s.id(c) }) {
			t.Errorf("%s is still known to %q, or not marked: %v, %v", key, tool, is.GetLabels(), is.GetAnnotations())
		}
	}
}

// lives returns what a rollout, a scaling or a restart would change of each object. An object whose
// kind has no generation has 0, and so has a Deployment here: that of a Deployment counts the changes
// of annotations, too, which marks of ownership are. Its spec is compared with the rest.
func lives(all map[string]*unstructured.Unstructured) map[string]string {
	out := map[string]string{}
	for key, u := range all {
		started, _, _ := unstructured.NestedString(u.Object, "status", "startTime")
		containers, _, _ := unstructured.NestedSlice(u.Object, "status", "containerStatuses")
		var restarts []any
		for _, c := range containers {
			if c, ok := c.(map[string]any); ok {
				restarts = append(restarts, c["restartCount"], c["containerID"])
			}
		}
		generation := u.GetGeneration()
		if u.GetKind() == "Deployment" {
			generation = 0
		}
		out[key] = fmt.Sprint(generation, u.GetAnnotations()["deployment.kubernetes.io/revision"], started, restarts, u.GetDeletionTimestamp())
	}
	return out
}

// ownLabels returns labels or annotations without marks of ownership.
func ownLabels(all map[string]string) map[string]string {
	out := map[string]string{}
	for key, value := range all {
		prefix, _, _ := strings.Cut(key, "/")
		switch {
		case prefix == "pipecd.dev" && key != manifest.AnnotationOrder, prefix == "meta.helm.sh", prefix == "deployment.kubernetes.io", prefix == "kubectl.kubernetes.io":
		case strings.HasSuffix(prefix, ".toolkit.fluxcd.io") && strings.HasSuffix(key, "name"), strings.HasSuffix(prefix, ".toolkit.fluxcd.io") && strings.HasSuffix(key, "namespace"):
		case key == "argocd.argoproj.io/tracking-id", key == "app.kubernetes.io/instance", key == "app.kubernetes.io/managed-by":
		default:
			out[key] = value
		}
	}
	return out
}

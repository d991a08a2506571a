package app

import (
	"context"
	"maps"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/tools/txtar"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"

	"github.com/c785c783/piped/piped/cluster/clustertest"
	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/manifest"
	modelv1 "github.com/c785c783/piped/proto/piped/model/v1"
)

// imported is a sample of the importer's testdata whose objects are live.
type imported struct {
	ns     string
	client dynamic.Interface
	sample string
	tool   string // as warnings name it
	id     string // of the application
	before map[string]*unstructured.Unstructured
}

// TestImportedApplicationsAreTakenOver: what Argo CD and Flux have applied of some samples is taken
// over by an agent that reads the imported configurations: no pod restarts, and nothing changes but
// marks of ownership. A stage's log warns of the other tool.
func TestImportedApplicationsAreTakenOver(t *testing.T) {
	t.Parallel()
	cluster := clustertest.Shared(t)
	client, err := dynamic.NewForConfig(cluster.RESTConfig(t))
	if err != nil {
		t.Fatal(err)
	}
	repo, all, program := newRepo(t), map[string]string{}, buildAgent(t)
	samples := []*imported{
		{sample: "argocd/directory-automated", tool: "Argo CD (Application web)", id: "shop/web"},
		{sample: "argocd/kustomize-overrides", tool: "Argo CD (Application web)", id: "piped/web"},
		{sample: "argocd/helm-git", tool: "Argo CD (Application web)", id: "charts/web"},
		{sample: "flux/target-namespace", tool: "Flux (Kustomization flux-system/web)", id: "web"},
		{sample: "flux/patches-and-images", tool: "Flux (Kustomization flux-system/web)", id: "piped/web"},
		{sample: "flux/release-git", tool: "Flux (HelmRelease cache/cache)", id: "charts/web"},
	}
	for _, s := range samples {
		s.ns, s.client = cluster.Namespace(t), client
		s.tool = strings.Replace(s.tool, " cache/", " "+s.ns+"/", 1)
		maps.Copy(all, s.prepare(t, program))
		s.id = deploy.ApplicationID(deploy.GitPath{RepoID: "apps", Dir: s.sample + "/" + s.id, ConfigFile: "app.pipecd.yaml"})
	}
	for _, s := range samples {
		s.awaitQuiet(t)
		s.before = s.everything(t)
	}
	commit := repo.Push(t, "import", all)
	agent := runAgent(t, settings{dataDir: t.TempDir(), remote: repo.Dir, kubeconfig: cluster.Kubeconfig()})
	for _, s := range samples {
		d := agent.mustEnd(s.id, commit, modelv1.DeploymentStatus_DEPLOYMENT_SUCCESS)
		mustContain(t, agent.logs(d.GetId()), "warning: "+s.tool+" manages 2 of the objects, too: ", "nothing to roll out")
	}
	for _, s := range samples {
		t.Run(s.sample, func(t *testing.T) {
			s.awaitQuiet(t)
			s.compare(t)
		})
	}
}

// prepare applies what is live as the other tool does, imports the sample, and returns the files of
// its checkout below a directory of its own.
func (s *imported) prepare(t *testing.T, program string) map[string]string {
	t.Helper()
	archive, err := txtar.ParseFile("../importer/testdata/" + s.sample + ".txtar")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	args, inputs := []string{"--repo-dir", filepath.Join(dir, "repo")}, map[string]string{}
	for _, f := range archive.Files {
		text := s.here(string(f.Data))
		manager, isLive := strings.CutPrefix(f.Name, "live/")
		switch {
		case isLive:
			s.applyAsTool(t, manager, text)
		case strings.HasPrefix(f.Name, "repo/"):
			inputs[f.Name] = text
		case !strings.HasPrefix(f.Name, "want/") && f.Name != "findings":
			inputs[f.Name] = text
			args = append(args, filepath.Join(dir, f.Name))
		}
	}
	writeFiles(t, dir, inputs)
	runImport(t, program, args...)
	out := map[string]string{}
	for name, text := range filesBelow(t, filepath.Join(dir, "repo")) {
		out[s.sample+"/"+name] = text
	}
	return out
}

// here replaces the namespaces of a sample by that of the test.
func (s *imported) here(text string) string {
	for _, ns := range []string{"shop", "cache"} {
		text = strings.ReplaceAll(text, "amespace: "+ns, "amespace: "+s.ns) // also of labels and annotations
		text = strings.ReplaceAll(text, ":"+ns+"/", ":"+s.ns+"/")           // of tracking IDs
	}
	return text
}

// applyAsTool applies objects as a controller does: Flux's for Kustomizations server-side, the
// others client-side.
func (s *imported) applyAsTool(t *testing.T, manager, text string) {
	t.Helper()
	objects, err := manifest.Parse("live.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range objects {
		resource := s.client.Resource(fleetKinds()[o.GetKind()]).Namespace(s.ns)
		if manager == "kustomize-controller" {
			_, err = resource.Apply(t.Context(), o.GetName(), o.Unstructured, metav1.ApplyOptions{FieldManager: manager, Force: true})
		} else {
			_, err = resource.Create(t.Context(), o.Unstructured, metav1.CreateOptions{FieldManager: manager})
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// everything returns the live objects of the namespace, by kind and name, without those that
// Kubernetes makes for every namespace.
func (s *imported) everything(t *testing.T) map[string]*unstructured.Unstructured {
	t.Helper()
	out := map[string]*unstructured.Unstructured{}
	for kind, resource := range fleetKinds() {
		list, err := s.client.Resource(resource).Namespace(s.ns).List(context.Background(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		for i, u := range list.Items {
			if u.GetName() != "kube-root-ca.crt" {
				out[kind+" "+u.GetName()] = &list.Items[i]
			}
		}
	}
	return out
}

// awaitQuiet waits until every Deployment has rolled out.
func (s *imported) awaitQuiet(t *testing.T) {
	t.Helper()
	clustertest.Eventually(t, "the Deployments of "+s.ns+" are rolled out", func() bool {
		deployments := 0
		for _, u := range s.everything(t) {
			if u.GetKind() != "Deployment" {
				continue
			}
			deployments++
			number := func(path ...string) int64 {
				n, _, _ := unstructured.NestedInt64(u.Object, path...)
				return n
			}
			want := number("spec", "replicas")
			if number("status", "observedGeneration") != u.GetGeneration() || number("status", "replicas") != want || number("status", "availableReplicas") != want {
				return false
			}
		}
		return deployments == 1
	})
}

// compare fails the test if the takeover has changed more than ownership.
func (s *imported) compare(t *testing.T) {
	after := s.everything(t)
	if diff := cmp.Diff(substance(s.before), substance(after)); diff != "" {
		t.Errorf("taking over changed (-before +after):\n%s", diff)
	}
	for key, u := range after {
		if kind := u.GetKind(); kind != "ConfigMap" && kind != "Deployment" || s.before[key] == nil {
			continue
		}
		if diff := cmp.Diff(ownLabels(s.before[key].GetLabels()), ownLabels(u.GetLabels())); diff != "" {
			t.Errorf("labels of %s (-before +after):\n%s", key, diff)
		}
		if diff := cmp.Diff(ownLabels(s.before[key].GetAnnotations()), ownLabels(u.GetAnnotations())); diff != "" {
			t.Errorf("annotations of %s (-before +after):\n%s", key, diff)
		}
		if tool := manifest.OtherTool(u); tool != "" || u.GetLabels()[manifest.LabelApplication] != s.id {
			t.Errorf("%s is still known to %q, or not marked: %v, %v", key, tool, u.GetLabels(), u.GetAnnotations())
		}
	}
}

// ownLabels returns labels or annotations without marks of ownership.
func ownLabels(all map[string]string) map[string]string {
	out := map[string]string{}
	for key, value := range all {
		prefix, _, _ := strings.Cut(key, "/")
		switch {
		case prefix == "pipecd.dev", strings.HasSuffix(prefix, ".toolkit.fluxcd.io"), prefix == "argocd.argoproj.io", prefix == "meta.helm.sh", prefix == "deployment.kubernetes.io":
		case key == "app.kubernetes.io/instance", key == "app.kubernetes.io/managed-by":
		default:
			out[key] = value
		}
	}
	return out
}

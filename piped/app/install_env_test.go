package app

import (
	"context"
	"encoding/json"
	"fmt"
	"io/fs"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/fstest"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"

	"github.com/c785c783/piped/piped/app/agenttest"
	"github.com/c785c783/piped/piped/cluster"
	"github.com/c785c783/piped/piped/cluster/clustertest"
	"github.com/c785c783/piped/piped/source/kubernetes/kustomize"
)

// installAccount is the account of examples/install, and its namespace.
const installAccount = "piped"

// installManifests builds a kustomization of examples/install, with another namespace in
// place of demo.
func installManifests(t *testing.T, variant, namespace string) (objects []*unstructured.Unstructured) {
	t.Helper()
	tree, root := fstest.MapFS{}, os.DirFS("../../examples")
	err := fs.WalkDir(root, "install", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		text, err := fs.ReadFile(root, name)
		tree[name] = &fstest.MapFile{Data: []byte(strings.ReplaceAll(string(text), "namespace: demo\n", "namespace: "+namespace+"\n"))}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	built, err := kustomize.New(nil, kustomize.DefaultLimits()).Build(t.Context(), kustomize.Request{Tree: tree, Dir: "install/" + variant})
	if err != nil {
		t.Fatal(err)
	}
	if len(built.Warnings) > 0 {
		t.Errorf("kustomize: %q", built.Warnings)
	}
	for _, o := range built.Objects {
		objects = append(objects, o.Unstructured)
	}
	return objects
}

// installed creates objects as an administrator who installs the agent. It removes cluster-scoped
// objects after the parent test.
func installed(t, parent *testing.T, c *clustertest.Cluster, objects []*unstructured.Unstructured) {
	t.Helper()
	access := installer(t, parent, c)
	for _, o := range objects {
		client, namespaced := install(t, access, o)
		if !namespaced {
			parent.Cleanup(func() {
				if err := client.Delete(context.Background(), o.GetName(), metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
					t.Errorf("remove %s %s: %v", o.GetKind(), o.GetName(), err)
				}
			})
		}
	}
}

// installDryRun lets the API server check the objects.
func installDryRun(t *testing.T, c *clustertest.Cluster, objects []*unstructured.Unstructured) {
	t.Helper()
	access := installer(t, t, c)
	namespace := c.Namespace(t) // that of the agent is not created by a dry run
	for _, o := range objects {
		if o.GetNamespace() == installAccount {
			o = o.DeepCopy()
			o.SetNamespace(namespace)
		}
		install(t, access, o, metav1.DryRunAll)
	}
}

// installer is the administrator's access to a cluster until the end of the parent test.
func installer(t, parent *testing.T, c *clustertest.Cluster) *cluster.Cluster {
	t.Helper()
	access, err := cluster.NewCluster(cluster.ClusterConfig{Name: "admin", KubeConfigPath: c.Kubeconfig()})
	if err != nil {
		t.Fatal(err)
	}
	parent.Cleanup(access.Close)
	return access
}

// install applies an object with strict field validation, and returns the client of its kind.
func install(t *testing.T, access *cluster.Cluster, o *unstructured.Unstructured, dryRun ...string) (client dynamic.ResourceInterface, namespaced bool) {
	t.Helper()
	kind, err := access.Resource(t.Context(), o.GroupVersionKind())
	if err != nil {
		t.Fatal(err)
	}
	data, err := json.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	client = access.Dynamic().Resource(kind.GroupVersionResource)
	if kind.Namespaced {
		client = access.Dynamic().Resource(kind.GroupVersionResource).Namespace(o.GetNamespace())
	}
	force := true
	_, err = client.Patch(t.Context(), o.GetName(), types.ApplyPatchType, data, metav1.PatchOptions{
		FieldManager: "kubectl", Force: &force, FieldValidation: metav1.FieldValidationStrict, DryRun: dryRun,
	})
	if err != nil {
		t.Fatalf("install %s %s: %v", o.GetKind(), o.GetName(), err)
	}
	return client, kind.Namespaced
}

// installation is an agent that acts as the account of examples/install.
type installation struct {
	*reloading
	requests *rights
}

// startInstalled runs an agent that has only a token of that account.
func startInstalled(t *testing.T, c *clustertest.Cluster, s spec) *installation {
	t.Helper()
	admin, dir := c.Client(t), t.TempDir()
	hour := int64(3600)
	token, err := admin.CoreV1().ServiceAccounts(installAccount).CreateToken(t.Context(), installAccount,
		&authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: &hour}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	// A Lease of an earlier part of the test would leave the right to create a Lease unused.
	err = admin.CoordinationV1().Leases(cluster.LeaseNamespace).Delete(t.Context(), cluster.LeaseName(testID(t.Name())), metav1.DeleteOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		t.Fatal(err)
	}
	config, err := clientcmd.LoadFromFile(c.Kubeconfig())
	if err != nil {
		t.Fatal(err)
	}
	for name := range config.AuthInfos {
		config.AuthInfos[name] = &api.AuthInfo{Token: token.Status.Token}
	}
	kubeconfig := filepath.Join(dir, "kubeconfig")
	if err := clientcmd.WriteToFile(*config, kubeconfig); err != nil {
		t.Fatal(err)
	}
	requests := &rights{used: map[right]bool{}, refused: map[string]bool{}}
	proxy, err := agenttest.ServeAPIAnswers(kubeconfig, nil, requests.answered)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := proxy.Close(); err != nil {
			t.Error(err)
		}
	})
	proxied, err := proxy.Kubeconfig(dir)
	if err != nil {
		t.Fatal(err)
	}
	s.providers = map[string]string{"local": proxied}
	return &installation{runReloadingWith(t, s, Options{ReloadEvery: time.Hour, LeaseEvery: time.Second}), requests}
}

// right is the permission of a rule: a verb on a resource of a group.
type right struct{ group, resource, verb string }

func (r right) String() string { return r.verb + " " + r.resource + "." + r.group }

// rights records the rights that requests needed, and the refused requests.
type rights struct {
	mu      sync.Mutex
	used    map[right]bool
	refused map[string]bool // by right and where
}

// answered records the rights that a request needed, as the API server checks them.
func (r *rights) answered(resp *http.Response) {
	need, namespace, ok := neededRight(resp.Request)
	if !ok {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if resp.StatusCode == http.StatusForbidden {
		r.refused[strings.TrimSpace(need.String()+" "+namespace)] = true
		return
	}
	r.used[need] = true
	switch {
	case need.verb == "patch" && resp.StatusCode == http.StatusCreated:
		r.used[right{need.group, need.resource, "create"}] = true
	case need.verb == "watch": // the list is asked of servers that do not stream it
		r.used[right{need.group, need.resource, "list"}] = true
	}
}

// neededRight returns the right that a request needs, and the namespace; ok is false if
// the request is not about objects.
func neededRight(req *http.Request) (need right, namespace string, ok bool) {
	parts := strings.Split(strings.Trim(req.URL.Path, "/"), "/")
	switch {
	case len(parts) > 2 && parts[0] == "api":
		parts = parts[2:]
	case len(parts) > 3 && parts[0] == "apis":
		need.group, parts = parts[1], parts[3:]
	default:
		return need, "", false
	}
	if parts[0] == "namespaces" && len(parts) > 1 {
		if namespace = parts[1]; len(parts) > 2 {
			parts = parts[2:]
		}
	}
	need.resource = parts[0]
	if len(parts) > 2 {
		need.resource += "/" + parts[2]
	}
	named := len(parts) > 1
	switch req.Method {
	case http.MethodGet:
		need.verb = "list"
		if named {
			need.verb = "get"
		} else if watch := req.URL.Query().Get("watch"); watch == "true" || watch == "1" {
			need.verb = "watch"
		}
	case http.MethodDelete:
		need.verb = "deletecollection"
		if named {
			need.verb = "delete"
		}
	default:
		need.verb = map[string]string{http.MethodPost: "create", http.MethodPut: "update", http.MethodPatch: "patch"}[req.Method]
	}
	return need, namespace, true
}

// unused returns the rights that the roles in objects grant but no request needed.
func (r *rights) unused(t *testing.T, objects []*unstructured.Unstructured) (out []string) {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, o := range objects {
		if o.GetKind() != "Role" && o.GetKind() != "ClusterRole" {
			continue
		}
		var role rbacv1.Role
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, &role); err != nil {
			t.Fatal(err)
		}
		for _, rule := range role.Rules {
			for _, group := range rule.APIGroups {
				for _, resource := range rule.Resources {
					for _, verb := range rule.Verbs {
						if need := (right{group, resource, verb}); !r.used[need] {
							out = append(out, need.String())
						}
					}
				}
			}
		}
	}
	slices.Sort(out)
	return out
}

// forbidden returns the refused requests without duplicates.
func (r *rights) forbidden() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Sorted(maps.Keys(r.refused))
}

// ownKinds returns the files of an application with an object of each kind that the roles
// of examples/install name, except for routes. class is the storage class of its claim.
func ownKinds(namespace, class, version string) map[string]string {
	kinds := `apiVersion: v1
kind: Secret
metadata: {name: own}
stringData: {password: V}
---
apiVersion: v1
kind: Service
metadata: {name: own, annotations: {version: V}}
spec: {selector: {app: own}, ports: [{port: 80}]}
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: own, annotations: {version: V}}
---
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: own, annotations: {version: V}}
spec:
  selector: {matchLabels: {app: own-daemon}}
  template:
    metadata: {labels: {app: own-daemon}}
    spec:
      containers: [{name: own, image: "registry.example/own:v1", volumeMounts: [{name: settings, mountPath: /settings}]}]
      volumes: [{name: settings, configMap: {name: own-settings}}]
---
apiVersion: v1
kind: ConfigMap
metadata: {name: own-settings}
data: {version: V}
---
apiVersion: batch/v1
kind: Job
metadata: {name: own}
spec: {template: {spec: {restartPolicy: Never, containers: [{name: own, image: "registry.example/own:V"}]}}}
---
apiVersion: batch/v1
kind: CronJob
metadata: {name: own, annotations: {version: V}}
spec: {schedule: "0 6 * * *", jobTemplate: {spec: {template: {spec: {restartPolicy: Never, containers: [{name: own, image: "registry.example/own:v1"}]}}}}}
`
	policies := `apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata: {name: own, annotations: {version: V}}
spec: {scaleTargetRef: {apiVersion: apps/v1, kind: StatefulSet, name: own}, minReplicas: 1, maxReplicas: 2}
---
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata: {name: own, annotations: {version: V}}
spec: {selector: {matchLabels: {app: own}}, minAvailable: 1}
---
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata: {name: own, annotations: {version: V}}
spec: {defaultBackend: {service: {name: own, port: {number: 80}}}}
---
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: own, annotations: {version: V}}
spec: {podSelector: {matchLabels: {app: own}}, policyTypes: [Ingress]}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: own-7b5c4d2h9k}
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: own, annotations: {version: V}}
spec: {storageClassName: CLASS, accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}
`
	at := strings.NewReplacer("V}", version+"}", ":V\"", ":"+version+"\"", "CLASS", class)
	return map[string]string{
		"own/app.pipecd.yaml": fmt.Sprintf(`apiVersion: pipecd.dev/v1beta1
kind: KubernetesApp
spec:
  name: own
  input: {namespace: %s}
  quickSync: {prune: true}
  pruneKinds: [PersistentVolumeClaim]
`, namespace),
		"own/set.yaml": fmt.Sprintf(`apiVersion: apps/v1
kind: StatefulSet
metadata: {name: own}
spec:
  serviceName: own
  replicas: 1
  selector: {matchLabels: {app: own}}
  template: {metadata: {labels: {app: own}}, spec: {containers: [{name: own, image: "registry.example/own:%s"}]}}
`, version),
		"own/kinds.yaml": at.Replace(kinds), "own/policies.yaml": at.Replace(policies),
	}
}

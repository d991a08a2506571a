package variant

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation"

	appsv1 "k8s.io/api/apps/v1"
	networkingv1 "k8s.io/api/networking/v1"

	"github.com/c785c783/piped/piped/config/kubernetes"
	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/manifest"
)

// shopOf is an application with much of what applications have. Its changes are in the image, in
// ConfigMap settings, and in what TAG is in.
const shopOf = `apiVersion: apps/v1
kind: Deployment
metadata: {name: web, labels: {app: web}, annotations: {helm.sh/resource-policy: keep, external-dns.alpha.kubernetes.io/hostname: shop.example.com}}
spec:
  replicas: 2
  selector: {matchLabels: {app: web}, matchExpressions: [{key: tier, operator: In, values: [front]}, {key: track, operator: Exists}]}
  template:
    metadata: {labels: {app: web, tier: front, track: "", sidecar.istio.io/inject: "true", istio.io/rev: stable}}
    spec:
      serviceAccountName: web
      affinity:
        podAntiAffinity:
          requiredDuringSchedulingIgnoredDuringExecution: [{topologyKey: host, labelSelector: {matchLabels: {app: web}}}]
        podAffinity:
          requiredDuringSchedulingIgnoredDuringExecution: [{topologyKey: host, labelSelector: {matchLabels: {app: cache}}}]
      topologySpreadConstraints: [{maxSkew: 1, topologyKey: zone, whenUnsatisfiable: DoNotSchedule, labelSelector: {matchExpressions: [{key: app, operator: In, values: [web]}]}}]
      containers:
        - name: web
          image: web:TAG
          envFrom: [{configMapRef: {name: settings}}, {configMapRef: {name: common}}, {secretRef: {name: token}}]
      volumes: [{name: more, projected: {sources: [{configMap: {name: settings}}]}}]
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: worker}
spec:
  selector: {matchLabels: {app: worker}}
  template: {metadata: {labels: {app: worker}}, spec: {containers: [{name: worker, image: worker:TAG}]}}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: settings}
data: {greeting: TAG}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: common}
data: {a: b}
---
apiVersion: v1
kind: Service
metadata: {name: web, labels: {app: web}}
spec: {type: LoadBalancer, loadBalancerIP: 192.0.2.1, selector: {app: web}, ports: [{port: 80, nodePort: 30080}]}
---
apiVersion: v1
kind: Service
metadata: {name: front}
spec: {selector: {tier: front, istio.io/rev: stable}, ports: [{port: 80}]}
---
apiVersion: v1
kind: Service
metadata: {name: other}
spec: {selector: {app: other}, ports: [{port: 80}]}
---
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: web}
spec: {podSelector: {matchLabels: {app: web}}, policyTypes: [Egress], egress: [{to: [{podSelector: {matchLabels: {app: db}}}]}]}
---
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: all}
spec: {podSelector: {}, policyTypes: [Ingress]}
---
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata: {name: web}
spec: {minAvailable: 1, selector: {matchLabels: {app: web}}}
---
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata: {name: web}
spec: {maxReplicas: 9, scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: web}}
---
apiVersion: batch/v1
kind: Job
metadata: {name: migrate}
spec: {template: {spec: {containers: [{name: migrate, image: web:TAG}]}}}
---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: things.example.com, annotations: {a: TAG}}
---
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: web}
spec:
  parentRefs: [{name: public, namespace: gateways}]
  hostnames: [shop.example.com]
  rules:
    - matches: [{path: {type: PathPrefix, value: /}}, {path: {type: Exact, value: /beta}, headers: [{name: beta, value: "1"}]}]
      filters: [{type: RequestMirror, requestMirror: {backendRef: {name: front, port: 80}}}]
      backendRefs: [{name: web, port: 80, weight: 9}, {name: other, port: 80, weight: 1}]
    - backendRefs: [{name: other, port: 80}]
`

func parsed(t *testing.T, text string) []manifest.Object {
	t.Helper()
	objects, err := manifest.Parse("app.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return objects
}

var previewOf12 = Preview{Name: "pr-12-apps", Suffix: "pr-12", Namespace: "shop", Header: "X-Preview", Host: "pr-12.preview.example.com", Secrets: []string{"token"}}

func typed[T any](t *testing.T, objects []manifest.Object, kind, name string) *T {
	t.Helper()
	out := new(T)
	for _, o := range objects {
		if o.GetKind() == kind && o.GetName() == name {
			if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, out); err != nil {
				t.Fatal(err)
			}
			return out
		}
	}
	t.Fatalf("there is no %s %s", kind, name)
	return nil
}

// TestPreviewIsApart: the objects of a preview are as Kubernetes' own types and selectors say: its
// Services and workloads select its pods and no others, nothing of the branch selects them, references
// lead to its own ConfigMaps where these have changed, and nothing else is copied.
func TestPreviewIsApart(t *testing.T) {
	branch, merged := parsed(t, strings.ReplaceAll(shopOf, "TAG", "v1")), parsed(t, strings.ReplaceAll(shopOf, "TAG", "v2"))
	before := manifest.Clone(merged)
	got, err := previewOf12.Make(branch, merged)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(before, merged); diff != "" {
		t.Errorf("the given objects were changed:\n%s", diff)
	}
	var refs []string
	for _, o := range got.Objects {
		refs = append(refs, o.GetKind()+" "+o.GetNamespace()+"/"+o.GetName())
		if text := strings.Join(validation.IsDNS1123Label(o.GetName()), ""); text != "" {
			t.Errorf("%s: %s", o.GetName(), text)
		}
		if a := o.GetAnnotations(); len(a) > 0 {
			t.Errorf("%s has annotations %v", o.GetName(), a)
		}
	}
	if diff := cmp.Diff([]string{
		"ConfigMap shop/settings-pr-12", "Service shop/web-pr-12", "Service shop/front-pr-12", "Deployment shop/web-pr-12", "NetworkPolicy shop/web-pr-12",
		"HTTPRoute shop/web-pr-12", "HTTPRoute shop/web-host-pr-12",
	}, refs); diff != "" {
		t.Errorf("objects, -want +got:\n%s", diff)
	}

	was, is := typed[appsv1.Deployment](t, branch, "Deployment", "web"), typed[appsv1.Deployment](t, got.Objects, "Deployment", "web-pr-12")
	old, fresh := labels.Set(was.Spec.Template.Labels), labels.Set(is.Spec.Template.Labels)
	selector := func(s *metav1.LabelSelector) labels.Selector {
		parsed, err := metav1.LabelSelectorAsSelector(s)
		if err != nil {
			t.Fatal(err)
		}
		return parsed
	}
	for key, value := range fresh {
		if why := validation.IsValidLabelValue(value); why != nil {
			t.Errorf("label %s: %v", key, why)
		}
	}
	if s := selector(is.Spec.Selector); !s.Matches(fresh) || s.Matches(old) {
		t.Errorf("the copy selects its own pods: %t, those of the branch: %t", s.Matches(fresh), s.Matches(old))
	}
	if s := selector(was.Spec.Selector); s.Matches(fresh) {
		t.Error("the workload of the branch selects pods of the preview")
	}
	for _, name := range []string{"web", "front"} {
		shared, copied := typed[corev1.Service](t, branch, "Service", name), typed[corev1.Service](t, got.Objects, "Service", name+"-pr-12")
		if labels.SelectorFromSet(shared.Spec.Selector).Matches(fresh) {
			t.Errorf("Service %s of the branch selects pods of the preview", name)
		}
		if s := labels.SelectorFromSet(copied.Spec.Selector); !s.Matches(fresh) || s.Matches(old) {
			t.Errorf("Service %s of the preview selects its pods: %t, those of the branch: %t", name, s.Matches(fresh), s.Matches(old))
		}
		if copied.Spec.Type != corev1.ServiceTypeClusterIP || copied.Spec.LoadBalancerIP != "" || copied.Spec.Ports[0].NodePort != 0 || copied.Spec.Ports[0].Port != 80 {
			t.Errorf("Service %s: %+v", name, copied.Spec)
		}
	}
	if fresh["sidecar.istio.io/inject"] != "true" {
		t.Errorf("the label of the mesh is %q", fresh["sidecar.istio.io/inject"])
	}

	pod := is.Spec.Template.Spec
	if pod.Containers[0].Image != "web:v2" || *is.Spec.Replicas != 2 {
		t.Errorf("image %s, %d replicas", pod.Containers[0].Image, *is.Spec.Replicas)
	}
	env := pod.Containers[0].EnvFrom
	if env[0].ConfigMapRef.Name != "settings-pr-12" || env[1].ConfigMapRef.Name != "common" || env[2].SecretRef.Name != "token" || pod.Volumes[0].Projected.Sources[0].ConfigMap.Name != "settings-pr-12" {
		t.Errorf("references: %+v, %+v", env, pod.Volumes)
	}
	if typed[corev1.ConfigMap](t, got.Objects, "ConfigMap", "settings-pr-12").Data["greeting"] != "v2" {
		t.Error("the ConfigMap is not that of the pull request")
	}
	if s := selector(pod.Affinity.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution[0].LabelSelector); !s.Matches(fresh) || s.Matches(old) {
		t.Error("the anti-affinity is not about the pods of the preview")
	}
	if s := selector(pod.Affinity.PodAffinity.RequiredDuringSchedulingIgnoredDuringExecution[0].LabelSelector); !s.Matches(labels.Set{"app": "cache"}) {
		t.Error("the affinity to the shared cache was changed")
	}
	if s := selector(pod.TopologySpreadConstraints[0].LabelSelector); !s.Matches(fresh) || s.Matches(old) {
		t.Error("the spread is not about the pods of the preview")
	}

	policy := typed[networkingv1.NetworkPolicy](t, got.Objects, "NetworkPolicy", "web-pr-12")
	if s := selector(&policy.Spec.PodSelector); !s.Matches(fresh) || s.Matches(old) || !selector(policy.Spec.Egress[0].To[0].PodSelector).Matches(labels.Set{"app": "db"}) {
		t.Errorf("the NetworkPolicy limits %+v", policy.Spec)
	}
	wantShared := []string{
		"Deployment worker: no Service selects its pods, and spec.workloads does not name it", "Job migrate: it is not run for a preview",
		"CustomResourceDefinition things.example.com: it is shared with the branch, and changes when the pull request is merged",
	}
	if diff := cmp.Diff(wantShared, got.Shared); diff != "" {
		t.Errorf("shared, -want +got:\n%s", diff)
	}
	if diff := cmp.Diff([]string{"shop.example.com"}, got.Hostnames); diff != "" {
		t.Error(diff)
	}
}

// TestPreviewOfLongNames: names and label values of any length become ones that Kubernetes accepts, and
// that differ where the originals do.
func TestPreviewOfLongNames(t *testing.T) {
	long := strings.Repeat("a", 60)
	text := strings.NewReplacer("name: web", "name: "+long, "app: web", "app: "+long, "values: [web]", "values: ["+long+"]").Replace(strings.ReplaceAll(shopOf, "TAG", "v1"))
	got, err := previewOf12.Make(parsed(t, text), parsed(t, text))
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range got.Objects {
		if why := validation.IsDNS1123Label(o.GetName()); why != nil || !strings.HasSuffix(o.GetName(), "-pr-12") {
			t.Errorf("%s: %v", o.GetName(), why)
		}
	}
	copied := typed[appsv1.Deployment](t, got.Objects, "Deployment", Bounded(long, "pr-12", 63))
	service := typed[corev1.Service](t, got.Objects, "Service", Bounded(long, "pr-12", 63))
	for _, value := range copied.Spec.Template.Labels {
		if why := validation.IsValidLabelValue(value); why != nil {
			t.Errorf("%s: %v", value, why)
		}
	}
	if !labels.SelectorFromSet(service.Spec.Selector).Matches(labels.Set(copied.Spec.Template.Labels)) {
		t.Error("the Service does not select the pods")
	}
	if a, b := Bounded(long+"b", "pr-12", 63), Bounded(long+"c", "pr-12", 63); a == b {
		t.Errorf("two names become %s", a)
	}
}

// TestNetworkPolicyCannotBeEscaped: what the pull request does to the policy, or to the labels that it
// selects, does not widen the limits of its pods.
func TestNetworkPolicyCannotBeEscaped(t *testing.T) {
	branch := strings.ReplaceAll(shopOf, "TAG", "v1")
	for name, merged := range map[string]string{
		"another policy": strings.Replace(branch, "egress: [{to: [{podSelector: {matchLabels: {app: db}}}]}]", "egress: [{}]", 1),
		"other labels":   strings.ReplaceAll(strings.ReplaceAll(branch, "{app: web}", "{app: free}"), "{app: web,", "{app: free,"),
	} {
		got, err := previewOf12.Make(parsed(t, branch), parsed(t, merged))
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		policy := typed[networkingv1.NetworkPolicy](t, got.Objects, "NetworkPolicy", "web-pr-12")
		s, err := metav1.LabelSelectorAsSelector(&policy.Spec.PodSelector)
		if err != nil {
			t.Fatal(err)
		}
		pods := typed[appsv1.Deployment](t, got.Objects, "Deployment", "web-pr-12").Spec.Template.Labels
		if !s.Matches(labels.Set(pods)) || len(policy.Spec.Egress) != 1 || len(policy.Spec.Egress[0].To) != 1 {
			t.Errorf("%s: pods %v, policy %+v", name, pods, policy.Spec)
		}
	}
}

// TestPreviewTakesNoOtherRequests: the routes of a preview have the gateways and hostnames of the branch,
// whatever the pull request says, or the host of the preview.
func TestPreviewTakesNoOtherRequests(t *testing.T) {
	branch := strings.ReplaceAll(shopOf, "TAG", "v1")
	merged := strings.ReplaceAll(strings.ReplaceAll(branch, "hostnames: [shop.example.com]", "hostnames: [bank.example.com]"), "name: public, namespace: gateways", "name: private")
	merged += "---\napiVersion: gateway.networking.k8s.io/v1\nkind: HTTPRoute\nmetadata: {name: more}\nspec: {rules: [{backendRefs: [{name: web, port: 80}]}]}\n"
	got, err := previewOf12.Make(parsed(t, branch), parsed(t, merged))
	if err != nil {
		t.Fatal(err)
	}
	hosts := map[string]string{"web-pr-12": "shop.example.com", "web-host-pr-12": "pr-12.preview.example.com"}
	for _, o := range got.Objects {
		if !isRoute(o) {
			continue
		}
		found, _, _ := unstructured.NestedStringSlice(o.Object, "spec", "hostnames")
		parents, _, _ := unstructured.NestedSlice(o.Object, "spec", "parentRefs")
		if len(found) != 1 || found[0] != hosts[o.GetName()] || len(parents) != 1 || parents[0].(map[string]any)["name"] != "public" {
			t.Errorf("route %s: %v at %v", o.GetName(), found, parents)
		}
		delete(hosts, o.GetName())
	}
	if len(hosts) > 0 {
		t.Errorf("missing: %v", hosts)
	}
	for _, want := range []string{"HTTPRoute more: a new route counts", "HTTPRoute web: its gateways and hosts are those of the branch"} {
		if !strings.Contains(strings.Join(got.Shared, "\n"), want) {
			t.Errorf("%q does not say %q", got.Shared, want)
		}
	}
}

// TestPreviewNextToOthersIsRefused: the messages say what to do.
func TestPreviewNextToOthersIsRefused(t *testing.T) {
	text := strings.ReplaceAll(shopOf, "TAG", "v1")
	replace := func(old, next string) string {
		if !strings.Contains(text, old) {
			t.Fatalf("%q is not in the manifest", old)
		}
		return strings.Replace(text, old, next, 1)
	}
	for name, c := range map[string]struct {
		edit   func(*Preview)
		merged string
		says   string
	}{
		"a Secret":       {func(p *Preview) { p.Secrets = nil }, text, "name it in spec.preview.secrets on the branch"},
		"an account":     {nil, replace("serviceAccountName: web", "serviceAccountName: admin"), "ServiceAccount admin, which the branch does not use: merge that first"},
		"a volume":       {nil, replace("volumes: [", "volumes: [{name: data, persistentVolumeClaim: {claimName: data}}, "), "make the volume readOnly, or use mode: namespace"},
		"no Service":     {nil, strings.ReplaceAll(text, "kind: Service\n", "kind: Thing\n"), "add a Service, or use mode: namespace"},
		"no route":       {nil, strings.ReplaceAll(text, "kind: HTTPRoute", "kind: TCPRoute"), "declare one"},
		"the header":     {nil, replace(`{name: beta, value: "1"}`, `{name: x-preview, value: "1"}`), "choose another spec.preview.header"},
		"a taken name":   {nil, text + "---\napiVersion: v1\nkind: Service\nmetadata: {name: web-pr-12}\nspec: {selector: {app: x}}\n", "choose another name"},
		"a namespace":    {nil, replace("metadata: {name: web, labels: {app: web}, annotations", "metadata: {name: web, namespace: bank, labels: {app: web}, annotations"), "no Service of the application selects"},
		"workloads":      {func(p *Preview) { p.Workloads = []kubernetes.Reference{{Kind: "Deployment", Name: "api"}} }, text, "spec.workloads"},
		"a named one":    {func(p *Preview) { p.Workloads = []kubernetes.Reference{{Kind: "Deployment", Name: "worker"}} }, text, "no HTTPRoute, GRPCRoute or VirtualService"},
		"several things": {func(p *Preview) { p.Secrets = nil }, replace("serviceAccountName: web", "serviceAccountName: admin"), "ServiceAccount admin"},
	} {
		p := previewOf12
		if c.edit != nil {
			c.edit(&p)
		}
		if _, err := p.Make(parsed(t, text), parsed(t, c.merged)); !deploy.IsKind(err, deploy.Invalid) || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v, want %q", name, err, c.says)
		}
	}
}

// TestPreviewHasItsSecret: a Secret that the pull request changes is copied and needs no name.
func TestPreviewHasItsSecret(t *testing.T) {
	const secret = "---\napiVersion: v1\nkind: Secret\nmetadata: {name: token}\nstringData: {token: TAG}\n"
	p := previewOf12
	p.Secrets = nil
	got, err := p.Make(parsed(t, strings.ReplaceAll(shopOf+secret, "TAG", "v1")), parsed(t, strings.ReplaceAll(shopOf+secret, "TAG", "v2")))
	if err != nil {
		t.Fatal(err)
	}
	if name := typed[appsv1.Deployment](t, got.Objects, "Deployment", "web-pr-12").Spec.Template.Spec.Containers[0].EnvFrom[2].SecretRef.Name; name != "token-pr-12" {
		t.Errorf("the pods use %s", name)
	}
	if typed[corev1.Secret](t, got.Objects, "Secret", "token-pr-12").StringData["token"] != "v2" {
		t.Error("the Secret is not that of the pull request")
	}
	if _, err := p.Make(parsed(t, strings.ReplaceAll(shopOf+secret, "TAG", "v1")), parsed(t, strings.ReplaceAll(shopOf+secret, "TAG", "v1"))); err == nil {
		t.Error("a pull request gets the Secret of the branch without a name")
	}
}

// TestPreviewOfStatefulSet: a named StatefulSet has volumes and a governing Service of its own.
func TestPreviewOfStatefulSet(t *testing.T) {
	const text = `apiVersion: apps/v1
kind: StatefulSet
metadata: {name: db}
spec:
  serviceName: db
  selector: {matchLabels: {app: db}}
  template: {metadata: {labels: {app: db}}, spec: {containers: [{name: db, image: db}]}}
  volumeClaimTemplates: [{metadata: {name: data}}]
---
apiVersion: v1
kind: Service
metadata: {name: db}
spec: {clusterIP: None, selector: {app: db}, ports: [{port: 80}]}
---
apiVersion: gateway.networking.k8s.io/v1
kind: GRPCRoute
metadata: {name: db}
spec: {parentRefs: [{name: db, kind: Service, group: ""}], rules: [{backendRefs: [{name: db, port: 80}]}]}
`
	p := previewOf12
	p.Host, p.Workloads = "", []kubernetes.Reference{{Kind: "StatefulSet", Name: "db"}}
	got, err := p.Make(parsed(t, text), parsed(t, text))
	if err != nil {
		t.Fatal(err)
	}
	set := typed[appsv1.StatefulSet](t, got.Objects, "StatefulSet", "db-pr-12")
	if set.Spec.ServiceName != "db-pr-12" || set.Spec.PersistentVolumeClaimRetentionPolicy == nil || set.Spec.PersistentVolumeClaimRetentionPolicy.WhenDeleted != appsv1.DeletePersistentVolumeClaimRetentionPolicyType {
		t.Errorf("%+v", set.Spec)
	}
	if s := typed[corev1.Service](t, got.Objects, "Service", "db-pr-12"); s.Spec.ClusterIP != "None" {
		t.Errorf("the Service is not headless: %+v", s.Spec)
	}
	if got.Hostnames != nil {
		t.Errorf("hostnames %v", got.Hostnames)
	}
}

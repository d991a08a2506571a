package apply

import (
	"crypto/tls"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/c785c783/piped/piped/cluster/clustertest"
	"github.com/c785c783/piped/piped/manifest"
)

const gadgets = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: gadgets.calm.example.com}
spec:
  group: calm.example.com
  names: {kind: Gadget, listKind: GadgetList, plural: gadgets, singular: gadget}
  scope: Namespaced
  versions:
  - name: v1
    served: true
    storage: true
    subresources: {status: {}}
    schema:
      openAPIV3Schema:
        type: object
        properties:
          status: {type: object, x-kubernetes-preserve-unknown-fields: true}
          spec:
            type: object
            properties:
              size: {type: integer, default: 3}
              mode: {type: string, default: auto}
              port: {x-kubernetes-int-or-string: true}
              note: {type: string, nullable: true}
              tags: {type: array, items: {type: string}, x-kubernetes-list-type: set}
              parts:
                type: array
                x-kubernetes-list-type: map
                x-kubernetes-list-map-keys: [type]
                items: {type: object, required: [type], properties: {type: {type: string}, count: {type: integer, default: 1}}}
`

const scaledObjects = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: scaledobjects.keda.sh}
spec:
  group: keda.sh
  names: {kind: ScaledObject, listKind: ScaledObjectList, plural: scaledobjects, singular: scaledobject}
  scope: Namespaced
  versions: [{name: v1alpha1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}]
`

// calm holds objects in notations that differ from what the API server returns.
const calm = `
apiVersion: v1
kind: ServiceAccount
metadata: {name: robot, creationTimestamp: null, labels: {}, annotations: null}
---
apiVersion: v1
kind: Secret
metadata: {name: keys}
stringData: {password: hunter2}
data: {token: aHVudGVyMg==}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: empty, annotations: {}}
data: {}
---
apiVersion: v1
kind: Service
metadata: {name: web}
spec: {selector: {app: web}, ports: [{name: http, port: 80, targetPort: http}, {name: probe, port: 81, targetPort: 8081, protocol: TCP}]}
---
apiVersion: v1
kind: ResourceQuota
metadata: {name: bound}
spec: {hard: {requests.cpu: 1000m, requests.memory: 1024Mi, pods: "10"}}
---
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: web}
spec: {podSelector: {}, policyTypes: [Ingress], ingress: [{ports: [{port: 80}, {port: http}], from: []}]}
---
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata: {name: web}
spec: {maxUnavailable: 50%, selector: {matchLabels: {app: web}}}
---
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata: {name: web}
spec:
  minReplicas: 1
  maxReplicas: 9
  scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: web}
  metrics:
  - {type: Resource, resource: {name: memory, target: {type: AverageValue, averageValue: 1024Mi}}}
  - {type: Resource, resource: {name: cpu, target: {type: Utilization, averageUtilization: 80}}}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, creationTimestamp: null}
spec:
  replicas: 1
  strategy: {}
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}, creationTimestamp: null}
    spec:
      securityContext: {}
      volumes: [{name: tmp, emptyDir: {sizeLimit: 1024Mi}}, {name: conf, configMap: {name: empty, defaultMode: 0644}}, {name: none, emptyDir: {}}]
      containers:
      - name: web
        image: web:1
        args: []
        env: [{name: EMPTY, value: ""}, {name: NODE, valueFrom: {fieldRef: {fieldPath: spec.nodeName}}}]
        resources: {requests: {cpu: 1000m, memory: 1024Mi}, limits: {cpu: 2, memory: 2G}}
        ports: [{name: http, containerPort: 80}, {name: probe, containerPort: 8081, protocol: TCP}]
        livenessProbe: {httpGet: {port: probe}}
status: {}
---
apiVersion: calm.example.com/v1
kind: Gadget
metadata: {name: plain, creationTimestamp: null}
spec: {port: 80, note: null, tags: [b, a], parts: [{type: a}, {type: b, count: 2}]}
status: {phase: Ready}
---
apiVersion: calm.example.com/v1
kind: Gadget
metadata: {name: bare}
`

// TestWhatIsNoDrift: differences between Git and the live state that are not drift. A
// comparison must report none, also when the API server confirms every object.
func TestWhatIsNoDrift(t *testing.T) {
	clustertest.Shared(t).Define(t, []byte(gadgets), []byte(scaledObjects))
	for name, c := range map[string]struct {
		manifests string
		then      func(t *testing.T, l *env)
	}{
		"ways of writing it": {calm, nil},
		"status, and annotations of controllers": {calm, func(t *testing.T, l *env) {
			l.as("controller").patch(t, "calm.example.com/v1", "Gadget", "plain", `{"status":{"phase":"Failed"}}`, "status")
			l.as("controller").patch(t, "apps/v1", "Deployment", "web", `{"metadata":{"annotations":{"deployment.kubernetes.io/revision":"7"}}}`)
			l.as("controller").patch(t, "v1", "Service", "web", `{"metadata":{"annotations":{"example.com/endpoint":"up"},"finalizers":["example.com/lb"]}}`)
			t.Cleanup(func() { l.as("controller").patch(t, "v1", "Service", "web", `{"metadata":{"finalizers":null}}`) })
		}},
		"certificates that are injected": {`
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata: {name: NS}
webhooks:
- name: a.example.com
  clientConfig: {caBundle: "", service: {name: web, namespace: NS}}
  rules: [{apiGroups: [nobody.example.com], apiVersions: [v1], operations: [CREATE], resources: [things]}]
  sideEffects: None
  admissionReviewVersions: [v1]
- name: b.example.com
  clientConfig: {caBundle: Cg==, service: {name: web, namespace: NS}}
  rules: [{apiGroups: [nobody.example.com], apiVersions: [v1], operations: [CREATE], resources: [things]}]
  sideEffects: None
  admissionReviewVersions: [v1]
`, func(t *testing.T, l *env) {
			server := httptest.NewTLSServer(http.NotFoundHandler())
			defer server.Close()
			l.as("cainjector").patch(t, "admissionregistration.k8s.io/v1", "ValidatingWebhookConfiguration", "NS",
				`[{"op":"add","path":"/webhooks/0/clientConfig/caBundle","value":"`+bundleOf(server)+`"},{"op":"add","path":"/webhooks/1/clientConfig/caBundle","value":"`+bundleOf(server)+`"}]`)
		}},
		"rules of an aggregated role": {`
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: NS}
aggregationRule: {clusterRoleSelectors: [{matchLabels: {for: NS}}]}
rules: []
`, func(t *testing.T, l *env) {
			l.as("clusterrole-aggregation-controller").apply(t, l.named("apiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRole\nmetadata: {name: NS}\nrules: [{apiGroups: [\"\"], resources: [pods], verbs: [get]}]\n"))
		}},
		"secrets of a service account": {calm, func(t *testing.T, l *env) {
			l.as("token-controller").patch(t, "v1", "ServiceAccount", "robot", `{"secrets":[{"name":"robot-token"}],"imagePullSecrets":[{"name":"pull"}]}`)
		}},
		"a co-owner of the same value": {shop, func(t *testing.T, l *env) {
			l.as("somebody").apply(t, "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: settings}\ndata: {color: blue}\n")
		}},
		"replicas by an autoscaler of the set": {calm, func(t *testing.T, l *env) {
			l.as("kube-controller-manager").patch(t, "apps/v1", "Deployment", "web", `{"spec":{"replicas":4}}`, "scale")
		}},
		"replicas by an autoscaler that is live": {shop, func(t *testing.T, l *env) {
			l.as("somebody").apply(t, "apiVersion: autoscaling/v2\nkind: HorizontalPodAutoscaler\nmetadata: {name: web}\n"+
				"spec: {minReplicas: 1, maxReplicas: 9, scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: web}}\n")
			l.as("kube-controller-manager").patch(t, "apps/v1", "Deployment", "web", `{"spec":{"replicas":4}}`, "scale")
		}},
		"replicas by KEDA, with what it acts on in another place": {shop, func(t *testing.T, l *env) {
			l.as("keda-operator").patch(t, "apps/v1", "Deployment", "web", `{"spec":{"replicas":4}}`, "scale")
		}},
		"no replicas by KEDA": {shop + "---\napiVersion: keda.sh/v1alpha1\nkind: ScaledObject\nmetadata: {name: web}\nspec: {scaleTargetRef: {name: web}}\n",
			func(t *testing.T, l *env) {
				l.as("keda-operator").patch(t, "apps/v1", "Deployment", "web", `{"spec":{"replicas":0}}`, "scale")
			}},
		"what kubectl notes of its last apply": {shop, func(t *testing.T, l *env) {
			l.as("kubectl-client-side-apply").patch(t, "v1", "ConfigMap", "settings", `{"metadata":{"annotations":{"kubectl.kubernetes.io/last-applied-configuration":"{}"}}}`)
		}},
		"a restart by kubectl": {shop, func(t *testing.T, l *env) {
			l.as("kubectl-rollout").patch(t, "apps/v1", "Deployment", "web", `{"spec":{"template":{"metadata":{"annotations":{"kubectl.kubernetes.io/restartedAt":"2026-01-01T00:00:00Z"}}}}}`)
		}},
		"a restart for changed configuration": {strings.Replace(shop, `image: "proxy:1"`, `image: "proxy:1", envFrom: [{configMapRef: {name: settings}}]`, 1), func(t *testing.T, l *env) {
			l.as("somebody").patch(t, "apps/v1", "Deployment", "web", `{"spec":{"template":{"metadata":{"annotations":{"`+manifest.AnnotationConfigHash+`":"other"}}}}}`)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newEnv(t)
			l.removeAfter(t, c.manifests)
			l.apply(t, l.named(c.manifests))
			if c.then != nil {
				c.then(t, l)
			}
			l.isCalm(t, c.manifests)
		})
	}
}

// isCalm fails the test if any comparison method reports a difference from the manifests.
func (l *env) isCalm(t *testing.T, manifests string) {
	t.Helper()
	forget := func(r *CompareRequest) { r.Inventory = nil }
	for how, change := range map[string][]func(*CompareRequest){
		"as usual": nil, "confirmed": {confirmed}, "without a record": {forget},
	} {
		if got := l.found(l.compare(t, manifests, change...)); len(got) > 0 {
			t.Errorf("%s, the comparison finds %q", how, got)
		}
	}
}

func bundleOf(s *httptest.Server) string {
	return base64.StdEncoding.EncodeToString(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw}))
}

// TestWebhooksThatRewriteWhatIsApplied: changes by a mutating webhook to writes of ours
// and of others are not drift. The webhook changes a dry run in the same way.
func TestWebhooksThatRewriteWhatIsApplied(t *testing.T) {
	l := newEnv(t)
	refused := l.refusing(t, metav1.Status{Code: http.StatusBadRequest, Reason: metav1.StatusReasonBadRequest, Message: "a webhook does not support dry run"})
	server := httptest.NewUnstartedServer(http.HandlerFunc(rewrite))
	server.TLS = &tls.Config{}
	server.StartTLS()
	t.Cleanup(server.Close)
	hook := l.named(`
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingWebhookConfiguration
metadata: {name: NS}
webhooks:
- name: rewrite.example.com
  clientConfig: {caBundle: CABUNDLE, url: "` + server.URL + `"}
  rules: [{apiGroups: ["", apps], apiVersions: [v1], operations: [CREATE, UPDATE], resources: [configmaps, deployments]}]
  namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: NS}}
  failurePolicy: Fail
  sideEffects: None
  admissionReviewVersions: [v1]
`)
	l.removeAfter(t, hook)
	l.as("admin").apply(t, strings.Replace(hook, "CABUNDLE", bundleOf(server), 1))
	clustertest.Eventually(t, "the API server calls the webhook", func() bool {
		l.as("admin").apply(t, "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: trial}\ndata: {color: blue}\n")
		return l.get(t, "ConfigMap", "trial").Object["data"].(map[string]any)["color"] == "BLUE"
	})

	l.apply(t, shop)
	l.isCalm(t, shop)
	l.as("somebody").patch(t, "v1", "ConfigMap", "settings", `{"data":{"more":"yes"}}`)
	l.as("somebody").patch(t, "apps/v1", "Deployment", "web", `{"spec":{"paused":true}}`)
	l.isCalm(t, shop)

	refused.Store(true) // a sweep whose dry runs are refused must find nothing
	if got := l.found(l.compare(t, shop, confirmed)); len(got) > 0 {
		t.Errorf("while dry runs are refused, the comparison finds %q", got)
	}
	refused.Store(false)

	want := []string{`ConfigMap settings data.size: "LARGE" -> "SMALL" by kubectl-edit`}
	l.as("kubectl-edit").patch(t, "v1", "ConfigMap", "settings", `{"data":{"size":"small"}}`)
	if diff := cmp.Diff(want, l.found(l.compare(t, shop))); diff != "" {
		t.Errorf("found (-want +got):\n%s", diff)
	}
}

// rewrite is a mutating webhook that upper-cases the data of ConfigMaps, and gives
// Deployments a sidecar and every container another image.
func rewrite(w http.ResponseWriter, r *http.Request) {
	var review map[string]any
	if err := json.NewDecoder(r.Body).Decode(&review); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	request := review["request"].(map[string]any)
	object := request["object"].(map[string]any)
	type op map[string]any
	ops := []op{}
	if data, ok := object["data"].(map[string]any); ok {
		for key, value := range data {
			ops = append(ops, op{"op": "replace", "path": "/data/" + key, "value": strings.ToUpper(value.(string))})
		}
	}
	if containers, ok, _ := unstructured.NestedSlice(object, "spec", "template", "spec", "containers"); ok {
		var out []any
		injected := false
		for _, c := range containers {
			container := c.(map[string]any)
			if container["name"] != "sidecar" {
				container["image"] = "mirror.example.com/" + strings.TrimPrefix(container["image"].(string), "mirror.example.com/")
			}
			injected = injected || container["name"] == "sidecar"
			out = append(out, container)
		}
		if !injected {
			out = append(out, map[string]any{"name": "sidecar", "image": "sidecar:1"})
		}
		ops = append(ops, op{"op": "replace", "path": "/spec/template/spec/containers", "value": out})
	}
	patch, err := json.Marshal(ops)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(map[string]any{
		"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
		"response": map[string]any{"uid": request["uid"], "allowed": true, "patchType": "JSONPatch", "patch": patch},
	})
}

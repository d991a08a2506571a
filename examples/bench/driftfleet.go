package main

import (
	"fmt"
	"maps"
	"path/filepath"
	"strings"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// objectsPerApplication is how many objects driftObjects and driftScaled hold.
const objectsPerApplication = 10

// driftCommon is the template of what the applications of the part drift have in
// common: eight objects of eight kinds.
const driftCommon = `apiVersion: v1
kind: ServiceAccount
metadata: {name: %[1]s, namespace: %[2]s}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: %[1]s, namespace: %[2]s}
rules: [{apiGroups: [""], resources: [configmaps], verbs: [get, list, watch]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: %[1]s, namespace: %[2]s}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: %[1]s}
subjects: [{kind: ServiceAccount, name: %[1]s, namespace: %[2]s}]
---
apiVersion: v1
kind: ConfigMap
metadata: {name: %[1]s, namespace: %[2]s}
data: {greeting: hello, settings.ini: "[server]\nport = 8080\nworkers = 4\n"}
---
apiVersion: v1
kind: Secret
metadata: {name: %[1]s, namespace: %[2]s}
stringData: {password: example}
---
apiVersion: v1
kind: Service
metadata: {name: %[1]s, namespace: %[2]s}
spec: {selector: {app: %[1]s}, ports: [{port: 80, targetPort: http}]}
---
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata: {name: %[1]s, namespace: %[2]s}
spec:
  rules:
    - host: %[1]s.example.com
      http: {paths: [{path: /, pathType: Prefix, backend: {service: {name: %[1]s, port: {number: 80}}}}]}
---
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: %[1]s, namespace: %[2]s}
spec:
  podSelector: {matchLabels: {app: %[1]s}}
  ingress: [{ports: [{port: 8080}]}]
---
`

// driftWorkload is the template of a Deployment.
const driftWorkload = `apiVersion: apps/v1
kind: Deployment
metadata: {name: %[1]s, namespace: %[2]s}
spec:
  replicas: %[3]d
  selector: {matchLabels: {app: %[1]s}}
  template:
    metadata: {labels: {app: %[1]s}}
    spec:
      serviceAccountName: %[1]s
      containers:
        - name: web
          image: registry.example/web:%[4]s
          ports: [{name: http, containerPort: 8080}]
          envFrom: [{configMapRef: {name: %[1]s}}]
          resources: {requests: {cpu: 1000m, memory: 64Mi}, limits: {memory: 128Mi}}
---
`

// driftObjects is the template of most applications.
const driftObjects = driftCommon + driftWorkload + `apiVersion: policy/v1
kind: PodDisruptionBudget
metadata: {name: %[1]s, namespace: %[2]s}
spec: {maxUnavailable: 1, selector: {matchLabels: {app: %[1]s}}}
`

// driftScaled is that of the ones with an autoscaler.
const driftScaled = driftCommon + driftWorkload + `apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata: {name: %[1]s, namespace: %[2]s}
spec:
  scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: %[1]s}
  minReplicas: 1
  maxReplicas: 3
  metrics: [{type: Resource, resource: {name: cpu, target: {type: Utilization, averageUtilization: 80}}}]
`

// healingConfig is the configuration of an application that is healed at once.
const healingConfig = `apiVersion: pipecd.dev/v1beta1
kind: KubernetesApp
spec: {name: %s, trigger: {onOutOfSync: {disabled: false, minWindow: 0s}}}
`

// driftFleet is the fleet of the part drift. The first of its applications have an
// autoscaler, the next ones are changed by hand, the last ones heal themselves.
type driftFleet struct {
	fleet
	scaled, changed, healed int
}

func newDriftFleet(n int) driftFleet {
	return driftFleet{
		fleet:  fleet{dir: "apps", namespace: "bench-drift", count: n, template: driftObjects},
		scaled: n / 20, changed: n / 5, healed: max(1, n/100),
	}
}

// files returns the files of all applications.
func (f driftFleet) files() map[string]string {
	all := f.fleet.files("v1", "one")
	scaled := f.fleet
	scaled.template, scaled.replicas = driftScaled, 1
	for i := range f.scaled {
		maps.Copy(all, scaled.filesOf(i, "v1", "one"))
	}
	for i := f.count - f.healed; i < f.count; i++ {
		all[filepath.Join(f.dir, f.name(i), "app.pipecd.yaml")] = fmt.Sprintf(healingConfig, f.name(i))
	}
	return all
}

// id returns the ID of an application.
func (f fleet) id(i int) string { return appID(filepath.Join(f.dir, f.name(i))) }

// edit is a change of an owned field of an object that is named as its application.
type edit struct {
	schema.GroupVersionResource
	kind, path string
	was        string // with %s for the name
}

// edits are the changes that are made by hand. None of them starts a pod.
func edits() []edit {
	return []edit{
		{corev1.SchemeGroupVersion.WithResource("configmaps"), "ConfigMap", "/data/greeting", "hello"},
		{resources["Deployment"].GroupVersionResource, "Deployment", "/spec/template/spec/containers/0/image", "registry.example/web:v1"},
		{corev1.SchemeGroupVersion.WithResource("services"), "Service", "/spec/selector/app", "%s"},
		{networkingv1.SchemeGroupVersion.WithResource("ingresses"), "Ingress", "/spec/rules/0/host", "%s.example.com"},
	}
}

// value returns what stands in Git for an application, or what the edit puts there.
func (e edit) value(name string, changed bool) string {
	was := strings.ReplaceAll(e.was, "%s", name)
	if changed {
		return was + "-by-hand"
	}
	return was
}

package apply

import (
	"context"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/c785c783/piped/piped/deploy"
)

const shop = `
apiVersion: v1
kind: ConfigMap
metadata: {name: settings, labels: {team: shop}, annotations: {example.com/owner: shop}}
data: {color: blue, size: large}
---
apiVersion: v1
kind: Service
metadata: {name: web}
spec: {selector: {app: web}, ports: [{name: http, port: 80, targetPort: 8080}, {name: admin, port: 81}]}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 2
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      containers:
      - {name: web, image: "web:1", env: [{name: A, value: "1"}, {name: B, value: "2"}], resources: {requests: {cpu: 1000m}}}
      - {name: proxy, image: "proxy:1"}
`

// TestDriftIsFound: a change of a field that Git declares must be reported with its path,
// both values and the user who made it.
func TestDriftIsFound(t *testing.T) {
	for name, c := range map[string]struct {
		change func(t *testing.T, l *env)
		want   []string
	}{
		"no changes": {func(*testing.T, *env) {}, nil},
		"an image": {func(t *testing.T, l *env) {
			l.as("kubectl-set").patch(t, "apps/v1", "Deployment", "web", `[{"op":"replace","path":"/spec/template/spec/containers/1/image","value":"proxy:2"}]`)
		}, []string{`Deployment web spec.template.spec.containers[name=proxy].image: "proxy:1" -> "proxy:2" by kubectl-set`}},
		"replicas, by hand and without an autoscaler": {func(t *testing.T, l *env) {
			l.as("kubectl").patch(t, "apps/v1", "Deployment", "web", `{"spec":{"replicas":5}}`, "scale")
		}, []string{`Deployment web spec.replicas: 2 -> 5 by kubectl (scale)`}},
		"a value that is a quantity": {func(t *testing.T, l *env) {
			l.as("kubectl-edit").patch(t, "apps/v1", "Deployment", "web", `[{"op":"replace","path":"/spec/template/spec/containers/0/resources/requests/cpu","value":"2"}]`)
		}, []string{`Deployment web spec.template.spec.containers[name=web].resources.requests.cpu: "1" -> "2" by kubectl-edit`}},
		"an item of a list removed": {func(t *testing.T, l *env) {
			l.as("kubectl-edit").patch(t, "apps/v1", "Deployment", "web", `[{"op":"remove","path":"/spec/template/spec/containers/0/env/0"}]`)
		}, []string{`Deployment web spec.template.spec.containers[name=web].env[name=A]: {"name":"A","value":"1"} -> `}},
		"a container removed": {func(t *testing.T, l *env) {
			l.as("kubectl-edit").patch(t, "apps/v1", "Deployment", "web", `[{"op":"remove","path":"/spec/template/spec/containers/1"}]`)
		}, []string{`Deployment web spec.template.spec.containers[name=proxy]: {"image":"proxy:1","name":"proxy"} -> `}},
		"a port removed": {func(t *testing.T, l *env) {
			l.as("kubectl-edit").patch(t, "v1", "Service", "web", `[{"op":"remove","path":"/spec/ports/1"}]`)
		}, []string{`Service web spec.ports[port=81,protocol=TCP]: {"name":"admin","port":81,"protocol":"TCP"} -> `}},
		"a map that is one value": {func(t *testing.T, l *env) {
			l.as("kubectl-edit").patch(t, "v1", "Service", "web", `{"spec":{"selector":{"app":"other","more":"yes"}}}`)
		}, []string{
			`Service web spec.selector.app: "web" -> "other" by kubectl-edit`,
			`Service web spec.selector.more:  -> "yes" by kubectl-edit`,
		}},
		"a label and an annotation removed": {func(t *testing.T, l *env) {
			l.as("kubectl-label").patch(t, "v1", "ConfigMap", "settings", `{"metadata":{"labels":{"team":null},"annotations":{"example.com/owner":null}}}`)
		}, []string{
			`ConfigMap settings metadata.annotations["example.com/owner"]: "shop" -> `,
			`ConfigMap settings metadata.labels.team: "shop" -> `,
		}},
		"all data removed": {func(t *testing.T, l *env) {
			l.as("kubectl-edit").patch(t, "v1", "ConfigMap", "settings", `{"data":null}`)
		}, []string{`ConfigMap settings data: {"color":"blue","size":"large"} -> `}},
		"changed and changed back": {func(t *testing.T, l *env) {
			l.as("kubectl-edit").patch(t, "v1", "ConfigMap", "settings", `{"data":{"color":"red"}}`)
			l.as("kubectl-edit").patch(t, "v1", "ConfigMap", "settings", `{"data":{"color":"blue"}}`)
		}, nil},
		"deleted": {func(t *testing.T, l *env) { l.drop(t, "v1", "ConfigMap", "settings") }, []string{"ConfigMap settings MISSING"}},
		"being deleted": {func(t *testing.T, l *env) {
			l.as("somebody").patch(t, "v1", "ConfigMap", "settings", `{"metadata":{"finalizers":["example.com/hold"]}}`)
			l.drop(t, "v1", "ConfigMap", "settings")
			t.Cleanup(func() {
				l.as("somebody").patch(t, "v1", "ConfigMap", "settings", `{"metadata":{"finalizers":null}}`)
			})
		}, []string{"ConfigMap settings MISSING"}},
		"deleted and created by another client": {func(t *testing.T, l *env) {
			l.drop(t, "v1", "ConfigMap", "settings")
			l.as("somebody").apply(t, "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: settings}\ndata: {color: blue}\n")
		}, []string{
			`ConfigMap settings data.size: "large" -> `,
			`ConfigMap settings metadata.annotations: ANNOTATIONS -> `,
			`ConfigMap settings metadata.labels: {"pipecd.dev/application":"app-1","team":"shop"} -> `,
		}},
		"added by another manager": {func(t *testing.T, l *env) {
			l.as("somebody").patch(t, "v1", "ConfigMap", "settings", `{"data":{"more":"yes"},"metadata":{"labels":{"more":"yes"},"annotations":{"more":"yes"}}}`)
			l.as("injector").patch(t, "apps/v1", "Deployment", "web", `[{"op":"add","path":"/spec/template/spec/containers/-","value":{"name":"sidecar","image":"sidecar:1"}},
				{"op":"add","path":"/spec/template/spec/containers/0/env/-","value":{"name":"C","value":"3"}}]`)
			l.as("kubectl-rollout").patch(t, "apps/v1", "Deployment", "web", `{"spec":{"template":{"metadata":{"annotations":{"kubectl.kubernetes.io/restartedAt":"2026-01-01T00:00:00Z"}}}}}`)
		}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newEnv(t)
			l.apply(t, shop)
			c.change(t, l)
			got := l.found(l.compare(t, shop))
			for i := range got {
				if before, after, ok := strings.Cut(got[i], "metadata.annotations: {"); ok {
					got[i] = before + "metadata.annotations: ANNOTATIONS" + after[strings.LastIndex(after, "}")+1:]
				}
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("found (-want +got):\n%s", diff)
			}
			again, sure := l.found(l.compare(t, shop)), l.found(l.compare(t, shop, confirmed))
			if len(again) != len(got) || len(sure) != len(got) {
				t.Errorf("a second comparison found %q, and one that the API server confirms %q", again, sure)
			}
		})
	}
}

func (l *env) drop(t *testing.T, apiVersion, kind, name string) {
	t.Helper()
	if err := l.as("somebody").object(t, apiVersion, kind).Delete(context.Background(), name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
}

// TestWhatAnObjectCosts: an object that was written but not changed is only read. One
// that was changed back gets one dry run per version.
func TestWhatAnObjectCosts(t *testing.T) {
	l := newEnv(t)
	l.apply(t, shop)
	only := func(r *CompareRequest) {
		r.Only = []deploy.ObjectRef{{Kind: "ConfigMap", Namespace: l.ns, Name: "settings"}}
	}
	compare := func(want Compared, dry, all int, change ...func(*CompareRequest)) Compared {
		t.Helper()
		l.requests.Take()
		got := l.compare(t, shop, append(change, only)...)
		if len(got) != 1 || got[0].Unchanged != want.Unchanged || got[0].Missing != want.Missing || !got[0].InSync() {
			t.Fatalf("got %+v", got)
		}
		if d, a := l.countDryRuns(); d != dry || a > all {
			t.Errorf("%d dry runs of %d requests, want %d of at most %d", d, a, dry, all)
		}
		return got[0]
	}
	l.compare(t, shop) // discovery

	compare(Compared{Unchanged: true}, 0, 1)
	compare(Compared{Unchanged: true}, 1, 2, confirmed)
	l.as("somebody").patch(t, "v1", "ConfigMap", "settings", `{"data":{"more":"yes"}}`)
	touched := compare(Compared{Unchanged: true}, 0, 1)
	if item := l.inventory["/ConfigMap/"+l.ns+"/settings"]; item.Mark == touched.Mark {
		t.Error("the mark does not show the write")
	}
	for _, color := range []string{"red", "blue"} {
		l.as("kubectl-edit").patch(t, "v1", "ConfigMap", "settings", `{"data":{"color":"`+color+`"}}`)
	}
	compare(Compared{}, 1, 2)
	compare(Compared{}, 0, 1)
	l.as("kubectl-edit").patch(t, "v1", "ConfigMap", "settings", `{"data":{"more":"no"}}`)
	compare(Compared{}, 1, 2)
}

// TestAnApplyWouldChangeNothing: an object is in sync if others have taken over only
// fields that are left to them. Its record may be updated.
func TestAnApplyWouldChangeNothing(t *testing.T) {
	l := newEnv(t)
	hpa := shop + `---
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata: {name: web}
spec: {minReplicas: 1, maxReplicas: 9, scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: web}}
`
	l.apply(t, hpa)
	l.as("kube-controller-manager").patch(t, "apps/v1", "Deployment", "web", `{"spec":{"replicas":7}}`, "scale")
	for _, c := range l.compare(t, hpa) {
		if !c.InSync() || !c.Unchanged {
			t.Errorf("%s: %+v", c.Object, c)
		}
	}
}

package apply

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/manifest"
)

const ported = `apiVersion: v1
kind: Service
metadata: {name: web}
spec:
  type: ClusterIP
  selector: {app: web}
  ports: [{name: http, port: 80, targetPort: http}, {name: dns, port: 53}]
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 1
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      initContainers: [{name: init, image: "init:1"}]
      containers:
      - {name: proxy, image: "proxy:1", ports: [{name: http, containerPort: 8080}]}
      - {name: web, image: "web:1", ports: [{name: http-web, containerPort: 80, hostPort: 8000}, {name: metrics, containerPort: 9090, protocol: UDP}]}
`

// portsOf returns the ports of the Service and of the second container, as name:port/protocol.
func (l *env) portsOf(t *testing.T) (service, container []string) {
	t.Helper()
	say := func(list any, number string) (out []string) {
		for _, item := range list.([]any) {
			p := item.(map[string]any)
			out = append(out, strings.Join([]string{p["name"].(string), fmt.Sprint(p[number]), fmt.Sprint(p["protocol"])}, " "))
		}
		slices.Sort(out)
		return out
	}
	service = say(l.get(t, "Service", "web").Object["spec"].(map[string]any)["ports"], "port")
	containers, _, _ := unstructured.NestedSlice(l.get(t, "Deployment", "web").Object, "spec", "template", "spec", "containers")
	return service, say(containers[1].(map[string]any)["ports"], "containerPort")
}

// TestRenumberedPorts: a user who changes the number of a port and keeps its name creates
// another list item, with which Git's item conflicts. One write must replace that item by
// Git's; all other items that Git does not declare stay.
func TestRenumberedPorts(t *testing.T) {
	const containers = "/spec/template/spec/containers"
	for name, c := range map[string]struct {
		kind    string
		patch   string
		found   []string
		log     string
		service []string // the final ports other than Git's
		pods    []string
	}{
		"of a Service": {
			kind:  "Service",
			patch: `[{"op":"replace","path":"/spec/ports/0/port","value":81},{"op":"add","path":"/spec/ports/-","value":{"name":"extra","port":99}}]`,
			found: []string{`Service web spec.ports[port=80,protocol=TCP]`},
			log: "removed spec.ports[port=81,protocol=TCP] of Service NS/web, which kubectl-edit added: " +
				"it has the same name as spec.ports[port=80,protocol=TCP] in Git",
			service: []string{"extra 99 TCP"},
		},
		"of a Service, the protocol": {
			kind:  "Service",
			patch: `[{"op":"replace","path":"/spec/ports/1/protocol","value":"UDP"}]`,
			found: []string{`Service web spec.ports[port=53,protocol=TCP]`},
			log: "removed spec.ports[port=53,protocol=UDP] of Service NS/web, which kubectl-edit added: " +
				"it has the same name as spec.ports[port=53,protocol=TCP] in Git",
		},
		"of a container": {
			kind: "Deployment",
			patch: `[{"op":"replace","path":"` + containers + `/1/ports/0/containerPort","value":81},
				{"op":"add","path":"` + containers + `/1/ports/-","value":{"name":"extra","containerPort":99}}]`,
			found: []string{`Deployment web spec.template.spec.containers[name=web].ports[containerPort=80,protocol=TCP]`},
			log: "removed spec.template.spec.containers[name=web].ports[containerPort=81,protocol=TCP] of Deployment NS/web, which kubectl-edit added: " +
				"it has the same hostPort and name as spec.template.spec.containers[name=web].ports[containerPort=80,protocol=TCP] in Git",
			pods: []string{"extra 99 TCP"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			l := newEnv(t)
			l.apply(t, ported)
			service, pods := l.portsOf(t)
			l.as("kubectl-edit").patch(t, apiVersions()[c.kind], c.kind, "web", c.patch)
			generation := l.get(t, c.kind, "web").GetGeneration()

			results := l.compare(t, ported)
			var found []string
			for _, r := range results {
				if r.Drift == nil {
					continue
				}
				if r.Drift.Note != "" {
					t.Errorf("the drift has a note: %s", r.Drift.Note)
				}
				for _, f := range r.Drift.Fields {
					found = append(found, r.Object.Kind+" "+r.Object.Name+" "+f.Path)
				}
			}
			if diff := cmp.Diff(c.found, found); diff != "" {
				t.Errorf("found (-want +got):\n%s", diff)
			}

			var planned, result *unstructured.Unstructured
			l.apply(t, ported, func(r *Request) {
				j := journalOf(r)
				j.beforeWrite = func(_ manifest.Object, _, p *unstructured.Unstructured) error {
					planned = p
					return nil
				}
				record := j.afterWrite
				j.afterWrite = func(answer *unstructured.Unstructured, item deploy.InventoryItem) error {
					if answer != nil {
						result = answer
					}
					return record(answer, item)
				}
			})
			if lines := l.logged(); !slices.Contains(lines, c.log) {
				t.Errorf("the log lacks %q:\n%s", c.log, strings.Join(lines, "\n"))
			}
			if got := l.get(t, c.kind, "web").GetGeneration(); c.kind == "Deployment" && got != generation+1 {
				t.Errorf("the generation goes from %d to %d", generation, got)
			}
			if c.kind == "Deployment" {
				if diff := cmp.Diff(planned.Object["spec"], result.Object["spec"]); diff != "" {
					t.Errorf("the result is not what was planned (-planned +applied):\n%s", diff)
				}
			}
			service, pods = append(service, c.service...), append(pods, c.pods...)
			slices.Sort(service)
			slices.Sort(pods)
			gotService, gotPods := l.portsOf(t)
			if diff := cmp.Diff([][]string{service, pods}, [][]string{gotService, gotPods}); diff != "" {
				t.Errorf("ports (-want +got):\n%s", diff)
			}
			if got := l.found(l.compare(t, ported, confirmed)); len(got) > 0 {
				t.Errorf("after the apply the comparison finds %q", got)
			}
			if result := l.apply(t, ported); result.Written != 0 {
				t.Errorf("the next apply writes %v", l.writes())
			}
		})
	}
}

// TestAPortThatAnotherApplied: a port that another manager applied is not a mistake, and
// must not be removed.
func TestAPortThatAnotherApplied(t *testing.T) {
	l := newEnv(t)
	l.apply(t, ported)
	l.as("kubectl-edit").patch(t, "v1", "Service", "web", `[{"op":"remove","path":"/spec/ports/0"}]`)
	l.as("flux").apply(t, "apiVersion: v1\nkind: Service\nmetadata: {name: web}\nspec: {ports: [{name: http, port: 81, protocol: TCP}]}\n")
	_, err := l.tryApply(t, ported)
	const want = "flux applied spec.ports[port=81,protocol=TCP], which has the same name as spec.ports[port=80,protocol=TCP] in Git: have it removed there, or change Git"
	if !deploy.IsKind(err, deploy.Invalid) || !strings.HasPrefix(err.Error(), "nothing was changed: ") || !strings.HasSuffix(err.Error(), want) {
		t.Errorf("error: %v", err)
	}
	if got := l.writes(); len(got) > 0 {
		t.Errorf("writes: %v", got)
	}
	drift := l.compare(t, ported)[0].Drift
	if drift == nil || !strings.Contains(drift.Note, "refuses to try an apply") {
		t.Errorf("drift: %+v", drift)
	}
}

// TestMakingWayThatWasInterrupted: the agent is killed between claiming the conflicting
// item and applying. The next run applies; the spec is written once.
func TestMakingWayThatWasInterrupted(t *testing.T) {
	l := newEnv(t)
	l.apply(t, ported)
	l.as("kubectl-edit").patch(t, "apps/v1", "Deployment", "web", `[{"op":"replace","path":"/spec/template/spec/containers/1/ports/0/containerPort","value":81}]`)
	before := l.get(t, "Deployment", "web")
	ctx, cancel := context.WithCancelCause(context.Background())
	killed := errors.New("killed")
	l.requests.Fail = func(r *http.Request) error {
		if r.Method == http.MethodPatch && !r.URL.Query().Has("dryRun") && strings.Contains(r.Header.Get("Content-Type"), "apply-patch") {
			cancel(killed)
			return killed
		}
		return nil
	}
	if _, err := l.Apply(ctx, l.request(t, ported)); !errors.Is(err, killed) {
		t.Fatalf("error: %v", err)
	}
	l.requests.Fail = nil
	between := l.get(t, "Deployment", "web")
	if between.GetGeneration() != before.GetGeneration() || between.GetResourceVersion() == before.GetResourceVersion() {
		t.Errorf("between: generation %d and version %s, before: %d and %s",
			between.GetGeneration(), between.GetResourceVersion(), before.GetGeneration(), before.GetResourceVersion())
	}
	if got := l.found(l.compare(t, ported)); len(got) != 1 || !strings.Contains(got[0], "containers[name=web].ports[containerPort=80,protocol=TCP]") {
		t.Errorf("between, the comparison finds %q", got)
	}
	l.apply(t, ported)
	if _, pods := l.portsOf(t); !slices.Equal(pods, []string{"http-web 80 TCP", "metrics 9090 UDP"}) {
		t.Errorf("ports: %q", pods)
	}
	if got := l.get(t, "Deployment", "web").GetGeneration(); got != before.GetGeneration()+1 {
		t.Errorf("the generation goes from %d to %d", before.GetGeneration(), got)
	}
}

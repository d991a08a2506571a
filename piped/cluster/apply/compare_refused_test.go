package apply

import (
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/c785c783/piped/piped/cluster/apply/applytest"
	"github.com/c785c783/piped/piped/cluster/clustertest"
	"github.com/c785c783/piped/piped/deploy"
)

// refusing makes the cluster answer dry runs with the status once the returned flag is
// set.
func (l *env) refusing(t *testing.T, answer metav1.Status) *atomic.Bool {
	t.Helper()
	var on atomic.Bool
	l.requests.Answer = func(r *http.Request) *http.Response {
		if !on.Load() || r.Method != http.MethodPatch || !r.URL.Query().Has("dryRun") {
			return nil
		}
		return clustertest.Refusal(r, answer)
	}
	return &on
}

// TestRefusedDryRuns: a refused dry run must neither hide a difference nor create one.
// The report says that it is not confirmed, and why.
func TestRefusedDryRuns(t *testing.T) {
	forbidden := metav1.Status{Code: http.StatusForbidden, Reason: metav1.StatusReasonForbidden, Message: "admission webhook \"w.example.com\" denied the request: not today"}
	l := newEnv(t)
	on := l.refusing(t, forbidden)
	l.apply(t, shop+"---\n"+calmDeployment)
	on.Store(true)
	forget := func(r *CompareRequest) { r.Inventory = nil }
	if got := l.found(l.compare(t, shop+"---\n"+calmDeployment, forget)); len(got) > 0 {
		t.Errorf("without any change the comparison finds %q", got)
	}
	l.as("kubectl-edit").patch(t, "apps/v1", "Deployment", "web", `[{"op":"replace","path":"/spec/template/spec/containers/1/image","value":"proxy:2"},
		{"op":"remove","path":"/spec/template/spec/containers/0/env/0"},
		{"op":"add","path":"/spec/template/spec/containers/-","value":{"name":"sidecar","image":"sidecar:1"}}]`)
	results := l.compare(t, shop, func(r *CompareRequest) { r.Diff = true })
	want := []string{
		`Deployment web spec.template.spec.containers[name=proxy].image: "proxy:1" -> "proxy:2" by kubectl-edit`,
		`Deployment web spec.template.spec.containers[name=web].env[name=A]: {"name":"A","value":"1"} -> `,
	}
	if diff := cmp.Diff(want, l.found(results)); diff != "" {
		t.Errorf("found (-want +got):\n%s", diff)
	}
	drift := results[2].Drift
	if !strings.Contains(drift.Note, "refuses to try an apply") || !strings.Contains(drift.Note, "not today") {
		t.Errorf("the note is %q", drift.Note)
	}
	if !strings.Contains(drift.Diff, "+        name: proxy") && !strings.Contains(drift.Diff, "image: proxy:2") || strings.Contains(drift.Diff, "sidecar") {
		t.Errorf("the diff is\n%s", drift.Diff)
	}
}

// calmDeployment is written in a notation that differs from what the API server returns.
const calmDeployment = `
apiVersion: apps/v1
kind: Deployment
metadata: {name: calm}
spec:
  replicas: 1
  strategy: {}
  selector: {matchLabels: {app: calm}}
  template:
    metadata: {labels: {app: calm}}
    spec:
      securityContext: {}
      containers: [{name: web, image: "web:1", args: [], env: [{name: EMPTY, value: ""}], resources: {requests: {cpu: 1000m, memory: 1024Mi}, limits: {cpu: 2}}}]
`

// TestAFieldThatCannotBeChanged: a live value of an immutable field is drift, although
// the API server refuses the dry run.
func TestAFieldThatCannotBeChanged(t *testing.T) {
	const config = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: fixed}\ndata: {color: blue}\n"
	l := newEnv(t)
	l.apply(t, config)
	l.as("kubectl-edit").patch(t, "v1", "ConfigMap", "fixed", `{"data":{"color":"red"},"immutable":true}`)
	results := l.compare(t, config)
	if diff := cmp.Diff([]string{`ConfigMap fixed data.color: "blue" -> "red" by kubectl-edit`}, l.found(results)); diff != "" {
		t.Errorf("found (-want +got):\n%s", diff)
	}
	if note := results[0].Drift.Note; !strings.Contains(note, "immutable") {
		t.Errorf("the note is %q", note)
	}
}

// TestObjectsThatCannotBeCompared: an object that cannot be read is reported as such and does not
// affect the others; an unreachable cluster is an error.
func TestObjectsThatCannotBeCompared(t *testing.T) {
	l := newEnv(t)
	l.apply(t, shop)
	l.requests.Answer = func(r *http.Request) *http.Response {
		if r.Method == http.MethodGet && strings.HasSuffix(r.URL.Path, "/services/web") {
			return clustertest.Refusal(r, metav1.Status{Code: http.StatusForbidden, Reason: metav1.StatusReasonForbidden, Message: "services is forbidden"})
		}
		return nil
	}
	l.as("somebody").patch(t, "v1", "ConfigMap", "settings", `{"data":{"color":"red"}}`)
	want := []string{
		`ConfigMap settings data.color: "blue" -> "red" by somebody`,
		`Service web cannot be compared: read Service NS/web (app.yaml:7): services is forbidden`,
	}
	if diff := cmp.Diff(want, l.found(l.compare(t, shop))); diff != "" {
		t.Errorf("found (-want +got):\n%s", diff)
	}

	down := New(applytest.Unreachable(t))
	_, err := down.Compare(t.Context(), CompareRequest{ApplicationID: "app-1", PipedID: "piped-1", Objects: parse(t, "app.yaml", shop)})
	if !deploy.IsKind(err, deploy.Unavailable) || !strings.Contains(err.Error(), "cannot be reached") {
		t.Errorf("got %v", err)
	}
}

package apply

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/c785c783/piped/piped/cluster/clustertest"
)

// TestApplyHonorsRetryAfter: a request to a busy API server is retried after its
// Retry-After.
func TestApplyHonorsRetryAfter(t *testing.T) {
	l := newEnv(t)
	var mu sync.Mutex
	var asked []time.Time // times of the requests for the Service that are no dry runs
	l.requests.Answer = func(r *http.Request) *http.Response {
		if r.Method != http.MethodPatch || r.URL.Query().Has("dryRun") || !strings.HasSuffix(r.URL.Path, "/services/web") {
			return nil
		}
		mu.Lock()
		defer mu.Unlock()
		if asked = append(asked, time.Now()); len(asked) > 1 {
			return nil
		}
		return clustertest.Refusal(r, metav1.Status{Code: http.StatusTooManyRequests, Reason: metav1.StatusReasonTooManyRequests, Message: "busy"}, "Retry-After", "1")
	}
	if result := l.apply(t, web); result.Written != 3 {
		t.Errorf("%d written", result.Written)
	}
	if len(asked) != 2 || asked[1].Sub(asked[0]) < time.Second {
		t.Errorf("asked at %v, want twice with a second between", asked)
	}
}

// TestWebhookThatRefusesDryRuns: an object whose admission refuses dry runs is applied
// without one, which is logged. The others get their dry runs.
func TestWebhookThatRefusesDryRuns(t *testing.T) {
	l := newEnv(t)
	const reason = `admission webhook "audit.example.com" does not support dry run`
	l.requests.Answer = func(r *http.Request) *http.Response {
		if r.URL.Query().Has("dryRun") && strings.HasSuffix(r.URL.Path, "/services/web") {
			return clustertest.Refusal(r, metav1.Status{Code: http.StatusBadRequest, Reason: metav1.StatusReasonBadRequest, Message: reason})
		}
		return nil
	}
	l.apply(t, web)
	if lines, want := l.logged(), "Service NS/web is not tried before it is applied: "+reason; !slices.Contains(lines, want) {
		t.Errorf("the log lacks %q: %q", want, lines)
	}
	l.get(t, "Service", "web")
	if _, err := l.tryApply(t, strings.Replace(web, "replicas: 1", "replicsa: 1", 1)); err == nil || !strings.HasPrefix(err.Error(), "nothing was changed: ") {
		t.Errorf("with another object that is bad: %v", err)
	}
}

// TestFieldsOfAnotherManager: Git's values win over values that another manager applied,
// and that manager's other fields stay unchanged.
func TestFieldsOfAnotherManager(t *testing.T) {
	l := newEnv(t)
	l.apply(t, web)
	resource, err := l.Resource(context.Background(), l.get(t, "ConfigMap", "settings").GroupVersionKind())
	if err != nil {
		t.Fatal(err)
	}
	theirs := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": "settings"}, "data": map[string]any{"color": "red", "size": "big"},
	}}
	if _, err := l.ResourceClient(resource, l.ns).Apply(context.Background(), "settings", theirs, metav1.ApplyOptions{FieldManager: "flux", Force: true}); err != nil {
		t.Fatal(err)
	}
	l.apply(t, web)
	if got := l.writes(); !slices.Equal(got, []string{"PATCH /api/v1/namespaces/NS/configmaps/settings"}) {
		t.Errorf("writes: %v", got)
	}
	data, _, err := unstructured.NestedStringMap(l.get(t, "ConfigMap", "settings").Object, "data")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[string]string{"color": "blue", "size": "big"}, data); diff != "" {
		t.Errorf("data (-want +got):\n%s", diff)
	}
}

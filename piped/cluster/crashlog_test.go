package cluster

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/c785c783/piped/piped/cluster/clustertest"
	"github.com/c785c783/piped/piped/cluster/rollout"
	"github.com/c785c783/piped/piped/deploy"
)

// TestCrashLogAsks: checks the requests to the API server, and how their responses are
// used.
func TestCrashLogAsks(t *testing.T) {
	crash := rollout.Crash{Namespace: "shop", Pod: "web-1", Container: "app", Previous: true}
	long := strings.Repeat("x", crashBytes)
	cases := []struct {
		name   string
		answer http.HandlerFunc
		want   []string
		err    string
		kind   deploy.Kind
	}{
		{name: "lines", answer: text("one\ntwo\n"), want: []string{"one", "two"}},
		{name: "a last line without an end", answer: text("one\ntwo"), want: []string{"one", "two"}},
		{name: "nothing", answer: text("")},
		{name: "more than was asked for", answer: text(strings.Repeat("line\n", 30)), want: strings.Split(strings.TrimSuffix(strings.Repeat("line\n", 20), "\n"), "\n")},
		{name: "a line that is cut", answer: text("one\n" + long), want: []string{"one"}},
		{name: "only a line that is cut", answer: text(long)},
		{name: "not permitted", answer: status(http.StatusForbidden, "Forbidden", "no logs for you"), kind: deploy.Invalid,
			err: "read the log of pod shop/web-1, container app: no logs for you (it needs get on pods/log)"},
		{name: "the node is away", answer: status(http.StatusInternalServerError, "InternalError", "dial tcp: connection refused"), kind: deploy.Unavailable,
			err: "does not answer now: read the log of pod shop/web-1, container app: dial tcp: connection refused"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			var asked *url.URL
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				asked = r.URL
				c.answer(w, r)
			}))
			defer server.Close()
			cl, err := NewCluster(ClusterConfig{Name: "test", MasterURL: server.URL})
			if err != nil {
				t.Fatal(err)
			}
			defer cl.Close()
			lines, err := cl.CrashLog(t.Context(), crash)
			if diff := cmp.Diff(c.want, lines); diff != "" {
				t.Errorf("lines (-want +got):\n%s", diff)
			}
			if c.err == "" && err != nil || c.err != "" && (err == nil || !strings.HasSuffix(err.Error(), c.err) || deploy.KindOf(err) != c.kind) {
				t.Errorf("error %v (%s), want %q (%s)", err, deploy.KindOf(err), c.err, c.kind)
			}
			if got, want := asked.String(), "/api/v1/namespaces/shop/pods/web-1/log?container=app&limitBytes=65536&previous=true&tailLines=20"; got != want {
				t.Errorf("asked for %s, want %s", got, want)
			}
		})
	}
}

func text(answer string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, answer) }
}

func status(code int, reason, message string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(code)
		fmt.Fprintf(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":%q,"message":%q,"code":%d}`, reason, message, code)
	}
}

// TestPodsOfWhatRunsToItsEnd finds the pods whose logs show why a Job or Pod failed.
func TestPodsOfWhatRunsToItsEnd(t *testing.T) {
	shared := clustertest.Shared(t)
	ns := shared.Namespace(t)
	c, err := NewCluster(ClusterConfig{Name: "test", KubeConfigPath: shared.Kubeconfig()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	const pod = `{restartPolicy: Never, containers: [{name: c, image: "registry.example/job:crash"}]}`
	for _, obj := range parse(t, "app.yaml", `{apiVersion: batch/v1, kind: Job, metadata: {name: fails}, spec: {backoffLimit: 0, template: {spec: `+pod+`}}}
---
{apiVersion: v1, kind: Pod, metadata: {name: lone}, spec: `+pod+`}
---
{apiVersion: v1, kind: ConfigMap, metadata: {name: none}}
`) {
		kind, err := c.Lookup(t.Context(), obj.GroupVersionKind())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.ResourceClient(kind, ns).Create(t.Context(), obj.Unstructured, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	ref := func(group, kind, name string) deploy.ObjectRef {
		return deploy.ObjectRef{Group: group, Version: "v1", Kind: kind, Namespace: ns, Name: name}
	}
	for _, of := range []deploy.ObjectRef{ref("batch", "Job", "fails"), ref("", "Pod", "lone")} {
		var crashes []rollout.Crash
		clustertest.Eventually(t, of.String()+" has crashed", func() bool {
			pods, err := c.PodsOf(t.Context(), of)
			if err != nil {
				t.Fatal(err)
			}
			crashes = rollout.Crashes(pods)
			return len(crashes) == 1
		})
		lines, err := c.CrashLog(t.Context(), crashes[0])
		if want := fmt.Sprintf("c of pod %s, this instance: line 30 of 30", crashes[0].Pod); err != nil || len(lines) != 20 || lines[19] != want {
			t.Errorf("log of %s: %q, %v; want 20 lines, the last one %q", of, lines, err, want)
		}
	}
	if pods, err := c.PodsOf(t.Context(), ref("", "ConfigMap", "none")); err != nil || len(pods) > 0 {
		t.Errorf("a ConfigMap has the pods %v, %v", pods, err)
	}
	all, err := c.Typed().CoreV1().Pods(ns).List(t.Context(), metav1.ListOptions{})
	if err != nil || len(all.Items) != 2 {
		t.Errorf("%d pods, %v; want the 2 that were inspected", len(all.Items), err)
	}
}

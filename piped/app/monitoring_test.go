package app

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	"google.golang.org/grpc"

	"github.com/c785c783/piped/executor/analysis/prometheustest"
	"github.com/c785c783/piped/piped/cluster/clustertest"
	modelv1 "github.com/c785c783/piped/proto/piped/model/v1"
)

const monitoring = "../../examples/monitoring/"

// promtool runs Prometheus' own tool on the examples and must succeed.
func promtool(t *testing.T, input io.Reader, args ...string) {
	t.Helper()
	cmd := exec.Command("promtool", args...)
	cmd.Stdin, cmd.Dir = input, monitoring
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("promtool %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}

// TestAlertRules: the rules are valid, and fire exactly when they should.
func TestAlertRules(t *testing.T) {
	t.Parallel()
	promtool(t, nil, "check", "rules", "rules.yaml")
	promtool(t, nil, "test", "rules", "rules_test.yaml")
}

// TestMonitoring lets an agent deploy something while a Prometheus scrapes it and a
// collector takes its traces: every query of the dashboard and of the rules is answered.
func TestMonitoring(t *testing.T) {
	t.Parallel()
	cluster := clustertest.Shared(t)
	ns, repo := cluster.Namespace(t), newRepo(t)
	traces := receiveTraces(t)
	s := spec{dataDir: t.TempDir(), repositories: map[string]string{"apps": repo.Dir}, providers: map[string]string{"local": cluster.Kubeconfig()}}
	s.more = fmt.Sprintf("  telemetry: {otlpEndpoint: %q, insecure: true}\n  debug: {pprofAddress: \"127.0.0.1:0\"}\n", traces.addr)
	agent := runReloading(t, s, time.Second)
	rules, err := filepath.Abs(monitoring + "rules.yaml")
	if err != nil {
		t.Fatal(err)
	}
	server := prometheustest.StartFor(t, prometheustest.Job{Name: "piped", Target: agent.app.WebAddr(), Rules: []string{rules}, Every: 3 * time.Second})
	d := agent.mustEnd(appID("web"), repo.Push(t, "add web", webApp(ns, "v1", "")), modelv1.DeploymentStatus_DEPLOYMENT_SUCCESS)

	query := func(expr string) (n int, err error) {
		var answer struct{ Result []json.RawMessage }
		err = ask(server, "/api/v1/query?"+url.Values{"query": {expr}}.Encode(), &answer)
		return len(answer.Result), err
	}
	for end := time.Now().Add(patience); ; time.Sleep(50 * time.Millisecond) {
		if n, err := query(`piped_deployments_ended_total{status="SUCCESS"} == 1 and on() count_over_time(up[1m]) > 2`); n == 1 {
			break
		} else if time.Now().After(end) {
			t.Fatalf("Prometheus does not know that a deployment has succeeded: %v", err)
		}
	}
	quiet := func() (titles []string) { // queries without any events
		for title, expr := range dashboardQueries(t) {
			n, err := query(expr)
			if err != nil {
				t.Errorf("%s: %s: %v", title, expr, err)
			} else if n == 0 {
				titles = append(titles, title)
			}
		}
		slices.Sort(titles)
		return titles
	}
	want := []string{"Notifications per second A", "Notifications per second B", "Notifications that wait A", "Stages that failed, per hour A", "Webhook deliveries per minute A"}
	for end := time.Now().Add(patience); ; time.Sleep(50 * time.Millisecond) { // on a busy machine a scrape may fail, and instant values are then unknown
		diff := cmp.Diff(want, quiet())
		if diff == "" {
			break
		} else if time.Now().After(end) {
			t.Fatalf("queries of the dashboard without an answer (-want +got):\n%s", diff)
		}
	}
	wantRulesEvaluated(t, server)
	resp, err := http.Get("http://" + agent.app.WebAddr() + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	promtool(t, resp.Body, "check", "metrics")

	if names := traces.of(t, d.GetId()); !slices.Contains(names, "deploy web") || !slices.Contains(names, "K8S_SYNC") || !slices.Contains(names, "rollout Deployment web") {
		t.Errorf("the trace of the deployment has the spans %q", names)
	}
}

// wantRulesEvaluated waits until every rule has been evaluated without an error.
func wantRulesEvaluated(t *testing.T, server *prometheustest.Server) {
	t.Helper()
	for end := time.Now().Add(patience); ; time.Sleep(50 * time.Millisecond) {
		var answer struct {
			Groups []struct {
				Rules []struct{ Name, Health, LastError, State string }
			}
		}
		err := ask(server, "/api/v1/rules", &answer)
		left := 0
		for _, g := range answer.Groups {
			for _, r := range g.Rules {
				if r.Health != "ok" {
					left++
				}
				if r.LastError != "" || r.State == "firing" {
					t.Errorf("rule %s: %s, %s", r.Name, r.State, r.LastError)
				}
			}
		}
		if err == nil && left == 0 && len(answer.Groups) == 1 {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("the rules are not evaluated: %v, %+v", err, answer)
		}
	}
}

// ask asks a Prometheus and decodes the data of its answer.
func ask(server *prometheustest.Server, path string, into any) error {
	req, err := http.NewRequest(http.MethodGet, server.URL+path, nil)
	if err != nil {
		return err
	}
	req.SetBasicAuth(prometheustest.Username, prometheustest.Password)
	req.Close = true
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	var answer struct {
		Error string
		Data  json.RawMessage
	}
	if err := json.NewDecoder(resp.Body).Decode(&answer); err != nil || answer.Error != "" {
		return errors.Join(err, errors.New(answer.Error))
	}
	return json.Unmarshal(answer.Data, into)
}

// dashboardQueries returns the queries of the dashboard by their panel's title and their
// letter, with its variables filled in.
func dashboardQueries(t *testing.T) map[string]string {
	t.Helper()
	data, err := os.ReadFile(monitoring + "dashboard.json")
	if err != nil {
		t.Fatal(err)
	}
	var dashboard struct {
		Panels []struct {
			Title   string
			Targets []struct{ RefID, Expr string }
		}
	}
	if err := json.NewDecoder(bytes.NewReader(data)).Decode(&dashboard); err != nil {
		t.Fatal(err)
	}
	variables := strings.NewReplacer("$job", "piped", "$instance", ".+", "$__rate_interval", "1m")
	out := map[string]string{}
	for _, p := range dashboard.Panels {
		for _, target := range p.Targets {
			out[p.Title+" "+target.RefID] = variables.Replace(target.Expr)
		}
	}
	if len(out) < 20 {
		t.Fatalf("the dashboard has only %d queries", len(out))
	}
	return out
}

// traceReceiver is a collector of traces.
type traceReceiver struct {
	collector.UnimplementedTraceServiceServer
	addr string

	mu    sync.Mutex
	names map[string][]string // of spans, by deployment
}

func receiveTraces(t *testing.T) *traceReceiver {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r, server := &traceReceiver{addr: l.Addr().String(), names: map[string][]string{}}, grpc.NewServer()
	collector.RegisterTraceServiceServer(server, r)
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = server.Serve(l) // it is stopped
	}()
	t.Cleanup(func() { server.Stop(); <-done })
	return r
}

// Export implements the collector's service.
func (r *traceReceiver) Export(_ context.Context, req *collector.ExportTraceServiceRequest) (*collector.ExportTraceServiceResponse, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, resource := range req.GetResourceSpans() {
		for _, scope := range resource.GetScopeSpans() {
			for _, span := range scope.GetSpans() {
				id := uuid.UUID(span.GetTraceId()).String()
				r.names[id] = append(r.names[id], span.GetName())
			}
		}
	}
	return &collector.ExportTraceServiceResponse{}, nil
}

// of returns the names of the spans of a deployment, once they have come.
func (r *traceReceiver) of(t *testing.T, deployment string) []string {
	t.Helper()
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		r.mu.Lock()
		names := slices.Clone(r.names[deployment])
		r.mu.Unlock()
		if len(names) > 0 {
			return names
		}
	}
	t.Fatalf("no trace of deployment %s has come", deployment)
	return nil
}

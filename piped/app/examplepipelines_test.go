package app

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/c785c783/piped/executor/analysis/prometheustest"
	"github.com/c785c783/piped/piped/cluster/clustertest"
	modelv1 "github.com/c785c783/piped/proto/piped/model/v1"
)

// examplePipeline is the expected course of an example's deployments.
type examplePipeline struct {
	approved string   // the stage that needs an approval, "" for none
	success  []string // the stages of a deployment that succeeds
	failure  []string // the stages of a deployment with an image that does not exist
}

// through returns the stages of a deployment: the first ones end as given; the more
// stages after them and the rollback do not run.
func through(more int, ended ...string) (out []string) {
	for i, status := range ended {
		out = append(out, fmt.Sprintf("stage-%d %s", i, status))
	}
	for i := range more {
		out = append(out, fmt.Sprintf("stage-%d NOT_STARTED_YET", len(ended)+i))
	}
	return out
}

// examplePipelines are the pipelines of examples/apps.
var examplePipelines = map[string]examplePipeline{
	"canary":    canaryExample("stage-1", 4),
	"bluegreen": canaryExample("stage-2", 6),
	"httproute": canaryExample("stage-2", 6),
	"istio":     canaryExample("stage-2", 6),
	"analysis":  canaryExample("", 6),
	"approval": {
		approved: "stage-1",
		success:  append(through(0, "SUCCESS", "SUCCESS", "SUCCESS", "SUCCESS", "SUCCESS"), "Rollback NOT_STARTED_YET", "ScriptRunRollback-stage-4 NOT_STARTED_YET"),
		failure:  append(through(2, "SUCCESS", "SUCCESS", "FAILURE"), "Rollback SUCCESS", "ScriptRunRollback-stage-4 SKIPPED"),
	},
	"script-run": {
		success: append(through(0, "SUCCESS", "SUCCESS", "SUCCESS"), "Rollback NOT_STARTED_YET", "ScriptRunRollback-stage-0 NOT_STARTED_YET"),
		failure: append(through(1, "SUCCESS", "FAILURE"), "Rollback SUCCESS", "ScriptRunRollback-stage-0 SUCCESS"),
	},
}

// canaryExample is a pipeline with the given number of stages that begins with a canary.
func canaryExample(approved string, stages int) examplePipeline {
	return examplePipeline{
		approved: approved,
		success:  append(through(0, slices.Repeat([]string{"SUCCESS"}, stages)...), "Rollback NOT_STARTED_YET"),
		failure:  append(through(stages-1, "FAILURE"), "Rollback SUCCESS"),
	}
}

// TestExamplesGoThroughTheirPipelines: a new image must pass every pipeline of
// examples/apps; an image that does not exist must leave everything unchanged.
func TestExamplesGoThroughTheirPipelines(t *testing.T) {
	t.Parallel()
	cluster := clustertest.Shared(t)
	cluster.InstallGatewayAPI(t)
	cluster.InstallIstio(t)
	ns := cluster.Namespace(t)
	repo := newRepo(t)
	metrics := prometheustest.NewExporter(t)
	metrics.Set(`app_variant:http_errors:ratio_rate1m{app="analysis",variant="canary"}`, 0.001)
	for _, variant := range []string{"canary", "baseline"} {
		metrics.Set(fmt.Sprintf(`app_variant:http_latency_seconds:p99{app="analysis",variant=%q}`, variant), 0.2)
	}
	prometheus := prometheustest.StartSlow(t, metrics)
	agent := runReloading(t, spec{
		dataDir: t.TempDir(), repositories: map[string]string{"apps": repo.Dir}, providers: map[string]string{"local": cluster.Kubeconfig()},
		more: fmt.Sprintf("  analysisProviders: [{name: prometheus, type: PROMETHEUS, config: {address: %q, usernameFile: %q, passwordFile: %q}}]\n",
			prometheus.URL, prometheus.UsernameFile, prometheus.PasswordFile),
	}, time.Hour)
	all, _ := exampleApps(t, ns)
	names := slices.Sorted(maps.Keys(examplePipelines))
	at := func(tag string) map[string]string { return examplesAt(all, names, tag) }

	commit := repo.Push(t, "the examples", at("v1.0.0"))
	for _, app := range names {
		agent.mustEnd(appID(app), commit, modelv1.DeploymentStatus_DEPLOYMENT_SUCCESS)
	}
	acceptRoute(t, cluster, ns, "httproute")

	commit = repo.Push(t, "a new version", at("v1.1.0"))
	for _, app := range names {
		if p := examplePipelines[app]; p.approved != "" {
			agent.approve(agent.awaitStage(appID(app), commit, p.approved))
		}
	}
	for _, app := range names {
		d := agent.mustEnd(appID(app), commit, modelv1.DeploymentStatus_DEPLOYMENT_SUCCESS)
		mustHaveStages(t, d, examplePipelines[app].success...)
		if app == "analysis" {
			mustContain(t, agent.logs(d.GetId()), "errors: 0.001 (expected at most 0.01)", "latency: canary 0.2, baseline 0.2")
		}
	}
	deployments, err := cluster.Client(t).AppsV1().Deployments(ns).List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	running := map[string]string{}
	for _, d := range deployments.Items {
		running[d.Name] = d.Spec.Template.Spec.Containers[0].Image
	}
	want := map[string]string{}
	for _, app := range names {
		want[app] = "registry.example/web:v1.1.0"
	}
	if diff := cmp.Diff(want, running); diff != "" {
		t.Errorf("Deployments and their images (-want +got):\n%s", diff)
	}

	good := clustertest.TakeLastGood(t, cluster.Kubeconfig(), ns)
	commit = repo.Push(t, "an image that does not exist", at("does-not-exist"))
	for _, app := range names {
		if p := examplePipelines[app]; slices.Contains(p.failure, p.approved+" SUCCESS") {
			agent.approve(agent.awaitStage(appID(app), commit, p.approved))
		}
	}
	for _, app := range names {
		d := agent.mustEnd(appID(app), commit, modelv1.DeploymentStatus_DEPLOYMENT_FAILURE)
		mustHaveStages(t, d, examplePipelines[app].failure...)
		mustContain(t, d.GetStatusReason(), "does-not-exist", "rolled back to commit")
	}
	good.Assert(t)
}

// acceptRoute has the simulated gateways accept an HTTPRoute.
func acceptRoute(t *testing.T, cluster *clustertest.Cluster, ns, name string) {
	t.Helper()
	client, err := dynamic.NewForConfig(cluster.RESTConfig(t))
	if err != nil {
		t.Fatal(err)
	}
	routes := client.Resource(schema.GroupVersionResource{Group: "gateway.networking.k8s.io", Version: "v1", Resource: "httproutes"}).Namespace(ns)
	accept := []byte(`{"metadata":{"annotations":{"devcluster.piped.dev/route-status":"accept"}}}`)
	if _, err := routes.Patch(t.Context(), name, types.MergePatchType, accept, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
}

// hurried replaces the durations of the examples by those of the test: what always lasts as long is
// shorter, and gateways may take longer.
var hurried = strings.NewReplacer("duration: 10m", "duration: 6s", "interval: 1m", "interval: 1s", "interval: 5m", "interval: 1s", "settle: 5s", "settle: 1s",
	"timeout: 30s", "timeout: 10m")

// examplesAt returns the files of some examples with another image tag and other durations. The rollout
// of an image that does not exist has half a minute.
func examplesAt(all map[string]string, apps []string, tag string) map[string]string {
	files := map[string]string{}
	for name, text := range all {
		if app, _, _ := strings.Cut(name, "/"); slices.Contains(apps, app) {
			if tag == "does-not-exist" {
				text = strings.ReplaceAll(text, patientDeadline, "progressDeadlineSeconds: 30\n")
			}
			files[name] = hurried.Replace(strings.ReplaceAll(text, "registry.example/web:v1.0.0", "registry.example/web:"+tag))
		}
	}
	return files
}

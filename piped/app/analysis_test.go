package app

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/c785c783/piped/executor/analysis/prometheustest"
	"github.com/c785c783/piped/piped/cluster/clustertest"
	"github.com/c785c783/piped/piped/config"
	"github.com/c785c783/piped/piped/config/strict"
	controlv1 "github.com/c785c783/piped/proto/piped/control/v1"
	modelv1 "github.com/c785c783/piped/proto/piped/model/v1"
)

// analysedApp returns the files of an application whose canary is compared with a
// baseline, by a template of its repository, for the given number of seconds.
func analysedApp(namespace, image string, seconds int) map[string]string {
	files := webApp(namespace, image, "")
	files["web/app.pipecd.yaml"] += fmt.Sprintf(`  planner: {alwaysUsePipeline: true}
  pipeline:
    stages:
      - {id: canary, name: K8S_CANARY_ROLLOUT}
      - {id: baseline, name: K8S_BASELINE_ROLLOUT}
      - id: analysis
        name: ANALYSIS
        with:
          duration: %ds
          metrics: [{template: {name: errors, appArgs: {metric: http_errors}}}]
      - {id: primary, name: K8S_PRIMARY_ROLLOUT}
      - {id: clean-canary, name: K8S_CANARY_CLEAN}
      - {id: clean-baseline, name: K8S_BASELINE_CLEAN}
`, seconds)
	files[".pipe/analysis.yaml"] = `apiVersion: pipecd.dev/v1beta1
kind: AnalysisTemplate
spec:
  metrics:
    errors:
      provider: prometheus
      interval: 1s
      failureLimit: 3600
      expected: {max: 0.01}
      query: 'last_over_time({{ .AppCustomArgs.metric }}{app="{{ .App.Name }}"}[10m])' # a scrape may fail on a busy machine
`
	return files
}

// awaitStageLog waits until a stage's log contains a text.
func (c *client) awaitStageLog(deployment, text string) {
	c.t.Helper()
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		if strings.Contains(c.logs(deployment), text) {
			return
		}
	}
	c.t.Fatalf("no log contains %q:\n%s", text, c.logs(deployment))
}

// mustSample fails the test unless the series of an analysis says what was expected and has
// samples with these verdicts and values, and of the other verdicts.
func (c *client) mustSample(deployment string, limit int32, values map[controlv1.AnalysisVerdict]float64, others ...controlv1.AnalysisVerdict) {
	c.t.Helper()
	resp, err := c.control.GetAnalysisSeries(c.ctx, &controlv1.GetAnalysisSeriesRequest{DeploymentId: deployment, StageId: "analysis"})
	if err != nil || len(resp.GetSeries()) != 1 {
		c.t.Errorf("series: %v, %v", resp, err)
		return
	}
	s := resp.Series[0]
	if s.Name != "errors" || s.Provider != "prometheus" || s.ExpectedMax == nil || s.GetExpectedMax() != 0.01 || s.FailureLimit != limit || s.IntervalMs != 1000 ||
		s.Query != `last_over_time(http_errors{app="web"}[10m])` {
		c.t.Errorf("the series is of %v", s)
	}
	got, counted := map[controlv1.AnalysisVerdict][]float64{}, int32(0)
	for _, sample := range s.Samples {
		got[sample.Verdict] = append(got[sample.Verdict], sample.Values...)
		if sample.Counted {
			counted++
		}
	}
	for verdict, value := range values {
		if !slices.Contains(got[verdict], value) {
			c.t.Errorf("no sample with the value %g is %s: %v", value, verdict, got)
		}
	}
	for _, verdict := range others {
		if _, ok := got[verdict]; !ok {
			c.t.Errorf("no sample is %s: %v", verdict, got)
		}
	}
	if counted != s.Failures {
		c.t.Errorf("%d samples count as failures, the series says %d", counted, s.Failures)
	}
}

// TestAnalysis runs an analysis that is skipped, one that passes once the provider is
// configured, and one that fails in the middle. After a failure the rollback must
// complete within 5 s of the verdict.
func TestAnalysis(t *testing.T) {
	t.Parallel()
	cluster := clustertest.Shared(t)
	ns := cluster.Namespace(t)
	repo := newRepo(t)
	metrics := prometheustest.NewExporter(t)
	const series = `http_errors{app="web"}`
	metrics.Set(series, 0.001)
	prometheus := prometheustest.Start(t, metrics)
	s := spec{dataDir: t.TempDir(), repositories: map[string]string{"apps": repo.Dir}, providers: map[string]string{"local": cluster.Kubeconfig()}}
	agent := runReloading(t, s, 10*time.Millisecond)
	web := appID("web")

	files := webApp(ns, "v0", "")
	agent.mustEnd(web, repo.Push(t, "web without a pipeline", files), modelv1.DeploymentStatus_DEPLOYMENT_SUCCESS)

	first := repo.Push(t, "web v1", analysedApp(ns, "v1", 3600))
	d := agent.awaitStage(web, first, "analysis")
	resp, err := agent.control.SkipStage(agent.ctx, &controlv1.SkipStageRequest{DeploymentId: d.GetId(), StageId: "analysis", Reason: "seen enough"})
	if err != nil {
		t.Fatal(err)
	}
	if answer := agent.answer(resp.GetCommandId()); answer.GetStatus() != modelv1.CommandStatus_COMMAND_SUCCEEDED {
		t.Fatalf("skip: %v", answer)
	}
	d = agent.mustEnd(web, first, modelv1.DeploymentStatus_DEPLOYMENT_SUCCESS)
	mustHaveStages(t, d, "canary SUCCESS", "baseline SUCCESS", "analysis SKIPPED", "primary SUCCESS", "clean-canary SUCCESS", "clean-baseline SUCCESS", "Rollback NOT_STARTED_YET")

	second := repo.Push(t, "web v2", analysedApp(ns, "v2", 60)) // the provider is configured meanwhile
	d = agent.awaitStage(web, second, "analysis")
	agent.awaitStageLog(d.GetId(), `errors: the agent has no provider of metrics named "prometheus" (it has none)`)
	s.more = fmt.Sprintf("  analysisProviders: [{name: prometheus, type: PROMETHEUS, config: {address: %q, usernameFile: %q, passwordFile: %q}}]\n",
		prometheus.URL, prometheus.UsernameFile, prometheus.PasswordFile)
	agent.write(s, inEffect, "changed=analysisProviders")
	d = agent.mustEnd(web, second, modelv1.DeploymentStatus_DEPLOYMENT_SUCCESS)
	mustContain(t, agent.logs(d.GetId()), "errors: 0.001 (expected at most 0.01", "ok, ", "The analysis of 1m0s passed")
	agent.mustSample(d.GetId(), 3600, map[controlv1.AnalysisVerdict]float64{controlv1.AnalysisVerdict_ANALYSIS_VERDICT_OK: 0.001}, controlv1.AnalysisVerdict_ANALYSIS_VERDICT_ERROR)

	good := clustertest.TakeLastGood(t, cluster.Kubeconfig(), ns)
	third := repo.Push(t, "web v3", strictly(analysedApp(ns, "v3", 3600)))
	d = agent.awaitStage(web, third, "analysis")
	agent.awaitStageLog(d.GetId(), "errors: 0.001 (expected at most 0.01")
	metrics.Set(series, 0.25)
	d = agent.mustEnd(web, third, modelv1.DeploymentStatus_DEPLOYMENT_FAILURE)
	mustHaveStages(t, d, "canary SUCCESS", "baseline SUCCESS", "analysis FAILURE", "primary NOT_STARTED_YET", "clean-canary NOT_STARTED_YET", "clean-baseline NOT_STARTED_YET", "Rollback SUCCESS")
	mustContain(t, d.GetStatusReason(), "errors has failed once, and no failure is tolerated (failureLimit: 0); the last time: 0.25 (expected at most 0.01", "rolled back to commit "+second[:7])
	agent.mustSample(d.GetId(), 0, map[controlv1.AnalysisVerdict]float64{
		controlv1.AnalysisVerdict_ANALYSIS_VERDICT_OK: 0.001, controlv1.AnalysisVerdict_ANALYSIS_VERDICT_FAILED: 0.25,
	})
	good.Assert(t)
	if took := time.Duration(d.GetCompletedAt()-stageOf(t, d, "analysis").GetCompletedAt()) * time.Second; took > time.Minute { // the whole analysis takes an hour
		t.Errorf("the rollback took %s from the verdict", took)
	}
}

// strictly removes the tolerated failures.
func strictly(files map[string]string) map[string]string {
	files[".pipe/analysis.yaml"] = strings.Replace(files[".pipe/analysis.yaml"], "      failureLimit: 3600\n", "", 1)
	return files
}

// TestSameAnalysisProviders: a change of any field makes providers different.
func TestSameAnalysisProviders(t *testing.T) {
	t.Parallel()
	one := func(c any) []config.AnalysisProvider { return []config.AnalysisProvider{{Name: "p", Config: c}} }
	datadog := func(key string) *config.Datadog {
		return &config.Datadog{Address: "datadoghq.com", APIKeyData: strict.NewSecret(key), ApplicationKeyFile: "f"}
	}
	for _, same := range []struct{ a, b any }{
		{&config.Prometheus{Address: "http://p"}, &config.Prometheus{Address: "http://p"}},
		{&config.Loki{Tenant: "t"}, &config.Loki{Tenant: "t"}},
		{datadog("k"), datadog("k")},
	} {
		if !sameAnalysisProviders(one(same.a), one(same.b)) {
			t.Errorf("%+v is different", same.a)
		}
	}
	for _, other := range []struct{ a, b any }{
		{&config.Prometheus{Address: "http://p"}, &config.Prometheus{Address: "http://q"}},
		{&config.Prometheus{}, &config.Loki{}},
		{&config.Loki{Tenant: "t"}, &config.Loki{}},
		{datadog("k"), datadog("l")},
		{datadog("k"), &config.Datadog{Address: "datadoghq.com", APIKeyData: strict.NewSecret("k"), ApplicationKeyFile: "g"}},
	} {
		if sameAnalysisProviders(one(other.a), one(other.b)) {
			t.Errorf("%+v and %+v are the same", other.a, other.b)
		}
	}
	if sameAnalysisProviders(one(&config.Loki{}), nil) {
		t.Error("one and none are the same")
	}
}

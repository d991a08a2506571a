package kubernetes

import (
	"context"
	"encoding/json"
	"maps"
	"strings"
	"testing"

	"github.com/c785c783/piped/piped/cluster/clustertest"
	stages "github.com/c785c783/piped/piped/config/kubernetes"
	"github.com/c785c783/piped/piped/deploy"
)

// pipelineEnv runs the stages of pipelines one after another, as the scheduler does.
type pipelineEnv struct {
	*rolloutEnv
	deployment deploy.Deployment // "now"
}

// newPipelineEnv has a last success of manifests, in which NS stands for the
// namespace, of an application with a pipeline: the stages as YAML flow entries.
func newPipelineEnv(t *testing.T, spec, manifests string, pipeline ...string) *pipelineEnv {
	t.Helper()
	l := &pipelineEnv{rolloutEnv: newRolloutEnv(t)}
	l.spec += spec + "  pipeline:\n    stages:\n"
	for _, s := range pipeline {
		l.spec += "    - " + s + "\n"
	}
	l.succeed(t, strings.ReplaceAll(manifests, "NS", l.ns))
	l.nudging(t) // stages wait for it
	l.plan(t, deploy.StrategyPipeline)
	return l
}

// plan makes the deployment "now" of what the environment's Git declares.
func (l *pipelineEnv) plan(t *testing.T, strategy deploy.Strategy) {
	t.Helper()
	l.deployment = l.stageEnv.deployment("now").Deployment
	l.deployment.Strategy, l.deployment.Stages = strategy, nil
	for _, s := range application(t, l.spec).Pipeline.Stages {
		options, err := json.Marshal(s.With)
		if err != nil {
			t.Fatal(err)
		}
		l.deployment.Stages = append(l.deployment.Stages, deploy.Stage{ID: s.ID, Name: s.Name, Options: options, Status: deploy.StageNotStarted, Metadata: map[string]string{}})
	}
	l.deployment.Stages = append(l.deployment.Stages, deploy.Stage{
		ID: deploy.RollbackID, Name: deploy.StageRollback, Rollback: true, Status: deploy.StageNotStarted, Metadata: map[string]string{},
	})
}

// executors are the stages by name.
func (l *pipelineEnv) executors() map[string]Stage {
	return map[string]Stage{
		stages.StageSync: l.Sync(), stages.StagePrimaryRollout: l.Primary(), stages.StageTrafficRouting: l.TrafficRouting(),
		stages.StageCanaryRollout: l.Canary(), stages.StageCanaryClean: l.CleanCanary(),
		stages.StageBaselineRollout: l.Baseline(), stages.StageBaselineClean: l.CleanBaseline(), deploy.StageRollback: l.Rollback(),
	}
}

// stage runs the n-th stage of the deployment.
func (l *pipelineEnv) stage(ctx context.Context, n int, resumed bool) deploy.StageResult {
	s := &l.deployment.Stages[n]
	s.Status = deploy.StageRunning
	result := l.executors()[s.Name].Execute(ctx, deploy.StageRun{
		Application: l.app, Deployment: l.deployment, Stage: *s, Resumed: resumed, Log: l.log,
		SaveMetadata: func(_ context.Context, kv map[string]string) error {
			maps.Copy(s.Metadata, kv)
			return nil
		},
	})
	s.Status = result.Status
	return result
}

// forward runs the stages until one fails, and returns how the last of them ended.
func (l *pipelineEnv) forward(t *testing.T) (result deploy.StageResult) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for n := range l.deployment.ForwardStages() {
		if result = l.stage(ctx, n, false); result.Status != deploy.StageSuccess {
			return result
		}
	}
	return result
}

// mustGoForward runs the stages, which succeed.
func (l *pipelineEnv) mustGoForward(t *testing.T) {
	t.Helper()
	if result := l.forward(t); result.Status != deploy.StageSuccess {
		t.Fatalf("the pipeline ended %s: %s\n%s", result.Status, result.Reason, l.said())
	}
}

// mustGoBack runs the ROLLBACK, which succeeds.
func (l *pipelineEnv) mustGoBack(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if result := l.stage(ctx, len(l.deployment.Stages)-1, false); result.Status != deploy.StageSuccess {
		t.Fatalf("the rollback ended %s: %s\n%s", result.Status, result.Reason, l.said())
	}
}

// lastGood notes what is live now.
func (l *pipelineEnv) lastGood(t *testing.T) *clustertest.LastGood {
	t.Helper()
	return clustertest.TakeLastGood(t, l.shared.Kubeconfig(), l.ns)
}

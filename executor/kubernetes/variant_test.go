package kubernetes

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/c785c783/piped/piped/config"
	"github.com/c785c783/piped/piped/config/kubernetes"
	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/manifest"
)

const (
	canaryRollout   = "{name: K8S_CANARY_ROLLOUT, with: {replicas: 50%, createService: true}}"
	canaryClean     = "{name: K8S_CANARY_CLEAN}"
	baselineRollout = "{name: K8S_BASELINE_ROLLOUT, with: {replicas: 1}}"
	baselineClean   = "{name: K8S_BASELINE_CLEAN}"
	primaryRollout  = "{name: K8S_PRIMARY_ROLLOUT, with: {prune: true}}"
)

// shop is the application "web" with what its pods use, and what they do not.
func shop(image, greeting string) string {
	return web(image, "replicas: 3", `volumes: [{name: v, configMap: {name: greeting}}]`) +
		"---\n{apiVersion: v1, kind: ConfigMap, metadata: {name: greeting}, data: {text: " + greeting + "}}\n" +
		"---\n{apiVersion: v1, kind: ConfigMap, metadata: {name: unused}}\n" +
		"---\n{apiVersion: v1, kind: Service, metadata: {name: web}, spec: {selector: {app: web}, ports: [{port: 80}]}}\n"
}

// variants returns the inventory's objects by variant, as Kind/name.
func (l *pipelineEnv) variants(t *testing.T) map[string][]string {
	t.Helper()
	items, err := l.Store.Inventory(t.Context(), l.app.ID)
	if err != nil {
		t.Fatal(err)
	}
	out := map[string][]string{}
	for _, i := range items {
		out[i.Variant] = append(out[i.Variant], i.Object.Kind+"/"+i.Object.Name)
	}
	return out
}

// TestCanaryThatSucceeds: the canary has its pods and its configuration while the
// primary is what it was, and nothing of it is there in the end. A concurrent
// prune leaves it alone.
func TestCanaryThatSucceeds(t *testing.T) {
	t.Parallel()
	l := newPipelineEnv(t, "", shop("1", "hello")+newManifest, canaryRollout, primaryRollout, canaryClean)
	l.manifests = shop("2", "welcome")
	if result := l.stage(t.Context(), 0, false); result.Status != deploy.StageSuccess {
		t.Fatalf("the canary ended %s: %s\n%s", result.Status, result.Reason, l.said())
	}
	want := map[string][]string{
		"primary": {"ConfigMap/greeting", "ConfigMap/new", "ConfigMap/unused", "Service/web", "Deployment/web"},
		"canary":  {"ConfigMap/greeting-canary", "Service/web-canary", "Deployment/web-canary"},
	}
	if diff := gocmp.Diff(want, l.variants(t)); diff != "" {
		t.Errorf("inventory with a canary (-want +got):\n%s", diff)
	}
	canary, err := l.client.AppsV1().Deployments(l.ns).Get(t.Context(), "web-canary", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if canary.Status.AvailableReplicas != 2 || canary.Annotations["pipecd.dev/variant"] != "canary" || canary.Annotations[manifest.AnnotationCommitHash] != "commit-now" {
		t.Errorf("canary: %d pods, %v", canary.Status.AvailableReplicas, canary.Annotations)
	}
	greeting, err := l.client.CoreV1().ConfigMaps(l.ns).Get(t.Context(), "greeting", metav1.GetOptions{})
	if err != nil || greeting.Data["text"] != "hello" {
		t.Errorf("the primary's configuration: %v %v", greeting.Data, err)
	}
	if result := l.stage(t.Context(), 1, false); result.Status != deploy.StageSuccess {
		t.Fatalf("the primary ended %s: %s\n%s", result.Status, result.Reason, l.said())
	}
	if got := l.variants(t); !gocmp.Equal(got["canary"], want["canary"]) || strings.Contains(strings.Join(got["primary"], " "), "ConfigMap/new") {
		t.Errorf("after the prune: %v", got)
	}
	l.awaitAvailable(t, 3)
	if result := l.stage(t.Context(), 2, false); result.Status != deploy.StageSuccess {
		t.Fatalf("the removal ended %s: %s\n%s", result.Status, result.Reason, l.said())
	}
	if got := l.variants(t); got["canary"] != nil {
		t.Errorf("after the removal: %v", got)
	}
	if pods, err := l.client.CoreV1().Pods(l.ns).List(t.Context(), metav1.ListOptions{LabelSelector: "pipecd.dev/variant=canary"}); err != nil || len(pods.Items) > 0 {
		t.Errorf("%d pods of the canary are left, %v", len(pods.Items), err)
	}
	if kept, err := l.Store.AppliedSet(t.Context(), "now"); err != nil || kept.Commit != "commit-now" {
		t.Errorf("kept: %q %v", kept.Commit, err)
	}
}

// TestVariantsThatFail: after a failure of any stage the last success runs, and nothing
// else.
func TestVariantsThatFail(t *testing.T) {
	good := shop("1", "hello")
	pipeline := []string{canaryRollout, baselineRollout, primaryRollout, canaryClean, baselineClean}
	for _, c := range []struct {
		name     string
		pipeline []string
		change   string
		failed   string // the beginning of the reason
	}{
		{"a canary with a bad image", pipeline, shop("bad-image", "welcome"), "Deployment NS/web-canary: new pods do not start"},
		{"a canary that crashes", pipeline, shop("crash", "welcome"), "Deployment NS/web-canary: new pods do not start"},
		{"a primary with a bad image", []string{baselineRollout, primaryRollout}, shop("bad-image", "welcome") + newManifest, "Deployment NS/web: new pods do not start"},
		{"a primary next to a canary", []string{
			"{name: K8S_CANARY_ROLLOUT, with: {patches: [{target: {kind: Deployment, name: web}, ops: [{path: '$.spec.template.spec.containers[0].image', value: 'web:2'}]}]}}",
			primaryRollout,
		}, shop("bad-image", "welcome"), "Deployment NS/web: new pods do not start"},
		{"a sync next to a canary", []string{
			"{name: K8S_CANARY_ROLLOUT, with: {patches: [{target: {kind: Deployment, name: web}, ops: [{path: '$.spec.template.spec.containers[0].image', value: 'web:2'}]}]}}",
			"{name: K8S_SYNC, with: {prune: true}}",
		}, strings.Replace(shop("bad-image", "welcome"), "replicas: 3", "replicas: 2", 1), "Deployment NS/web: new pods do not start"},
		{"a patch of nothing", []string{"{name: K8S_CANARY_ROLLOUT, with: {patches: [{target: {kind: Deployment, name: other}, ops: [{path: $.a, value: b}]}]}}"},
			shop("2", "hello"), "patches[0] is for Deployment other, which the application does not have"},
		{"an invalid object", []string{primaryRollout}, strings.Replace(shop("2", "hello"), "image:", "imago:", 1), "nothing was changed"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			l := newPipelineEnv(t, "", good, c.pipeline...)
			before := l.lastGood(t)
			l.manifests = c.change
			result := l.forward(t)
			if result.Status != deploy.StageFailure || !strings.HasPrefix(strings.ReplaceAll(result.Reason, l.ns, "NS"), c.failed) {
				t.Fatalf("it ended %s: %s", result.Status, result.Reason)
			}
			if !result.NoRollback {
				l.mustGoBack(t)
			}
			before.Assert(t)
			if got := l.variants(t); len(got) != 1 || len(got["primary"]) != 4 {
				t.Errorf("inventory: %v", got)
			}
		})
	}
}

// TestBaseline: the baseline is of the last success, with the configuration that one
// had, and is named so.
func TestBaseline(t *testing.T) {
	t.Parallel()
	l := newPipelineEnv(t, "", shop("1", "hello"), baselineRollout, primaryRollout, baselineClean)
	l.manifests = shop("2", "welcome")
	if result := l.stage(t.Context(), 0, false); result.Status != deploy.StageSuccess {
		t.Fatalf("the baseline ended %s: %s\n%s", result.Status, result.Reason, l.said())
	}
	d, err := l.client.AppsV1().Deployments(l.ns).Get(t.Context(), "web-baseline", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if got := d.Spec.Template.Spec.Containers[0].Image; got != "web:1" || d.Annotations[manifest.AnnotationCommitHash] != "commit-before" {
		t.Errorf("the baseline runs %s of %s", got, d.Annotations[manifest.AnnotationCommitHash])
	}
	greeting, err := l.client.CoreV1().ConfigMaps(l.ns).Get(t.Context(), "greeting-baseline", metav1.GetOptions{})
	if err != nil || greeting.Data["text"] != "hello" {
		t.Errorf("its configuration: %v %v", greeting.Data, err)
	}
	for n := 1; n < 3; n++ {
		if result := l.stage(t.Context(), n, false); result.Status != deploy.StageSuccess {
			t.Fatalf("stage %d ended %s: %s\n%s", n, result.Status, result.Reason, l.said())
		}
	}
	if got := l.variants(t); len(got) != 1 {
		t.Errorf("inventory: %v", got)
	}
}

// TestBaselineOfAFirstDeployment: there is nothing to make it of.
func TestBaselineOfAFirstDeployment(t *testing.T) {
	t.Parallel()
	l := newPipelineEnv(t, "", shop("1", "hello"), baselineRollout, primaryRollout)
	l.deployment.RunningCommit, l.deployment.RunningDeploymentID = "", ""
	result := l.stage(t.Context(), 0, false)
	if result.Status != deploy.StageFailure || !result.NoRollback || !strings.HasPrefix(result.Reason, "there is no earlier success to make a baseline of") {
		t.Errorf("it ended %+v", result)
	}
}

// TestRollbackOfAFirstDeployment removes the canary and leaves the rest.
func TestRollbackOfAFirstDeployment(t *testing.T) {
	t.Parallel()
	l := newPipelineEnv(t, "", shop("1", "hello"), primaryRollout, canaryRollout)
	l.deployment.RunningCommit, l.deployment.RunningDeploymentID = "", ""
	l.manifests = shop("2", "hello")
	l.mustGoForward(t)
	l.mustGoBack(t)
	if got := l.variants(t); len(got) != 1 || len(got["primary"]) != 4 {
		t.Errorf("inventory: %v", got)
	}
}

// TestStatefulSetCanary: it has pods, volumes and a Service of its own, and they go
// with it.
func TestStatefulSetCanary(t *testing.T) {
	t.Parallel()
	service := "---\n{apiVersion: v1, kind: Service, metadata: {name: web}, spec: {clusterIP: None, selector: {app: web}, ports: [{port: 80}]}}\n"
	l := newPipelineEnv(t, "  workloads: [{kind: StatefulSet}]\n", statefulSet("1", "replicas: 2")+service, canaryRollout, canaryClean)
	before := l.lastGood(t)
	l.manifests = statefulSet("2", "replicas: 2") + service
	if result := l.stage(t.Context(), 0, false); result.Status != deploy.StageSuccess {
		t.Fatalf("the canary ended %s: %s\n%s", result.Status, result.Reason, l.said())
	}
	set, err := l.client.AppsV1().StatefulSets(l.ns).Get(t.Context(), "web-canary", metav1.GetOptions{})
	if err != nil || set.Status.AvailableReplicas != 1 || set.Spec.ServiceName != "web-canary" {
		t.Errorf("canary: %+v %v", set.Status, err)
	}
	if result := l.stage(t.Context(), 1, false); result.Status != deploy.StageSuccess {
		t.Fatalf("the removal ended %s: %s\n%s", result.Status, result.Reason, l.said())
	}
	before.Assert(t)
}

// TestCanaryOfWhatAnAutoscalerScales: a percentage is of the live number.
func TestCanaryOfWhatAnAutoscalerScales(t *testing.T) {
	t.Parallel()
	l := newPipelineEnv(t, "", web("1", "replicas: 2"), "{name: K8S_CANARY_ROLLOUT, with: {replicas: 50%}}")
	_, err := l.client.AutoscalingV2().HorizontalPodAutoscalers(l.ns).Create(t.Context(), &autoscalingv2.HorizontalPodAutoscaler{
		ObjectMeta: metav1.ObjectMeta{Name: "web"},
		Spec: autoscalingv2.HorizontalPodAutoscalerSpec{
			MaxReplicas: 9, ScaleTargetRef: autoscalingv2.CrossVersionObjectReference{APIVersion: "apps/v1", Kind: "Deployment", Name: "web"},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	l.scaleTo(t, 5)
	l.manifests = web("2", "replicas: 2")
	l.mustGoForward(t)
	canary, err := l.client.AppsV1().Deployments(l.ns).Get(t.Context(), "web-canary", metav1.GetOptions{})
	if err != nil || *canary.Spec.Replicas != 3 {
		t.Errorf("the canary has %d pods, want 3 (%v)", *canary.Spec.Replicas, err)
	}
	l.mustGoBack(t)
	l.awaitAvailable(t, 5)
}

// TestVariantsAcrossRestarts interrupts each stage again and again, as restarts of the agent
// do, and resumes from the stored state; then the same with a rollback.
func TestVariantsAcrossRestarts(t *testing.T) {
	t.Parallel()
	l := newPipelineEnv(t, "", shop("1", "hello"), canaryRollout, baselineRollout, primaryRollout, canaryClean, baselineClean)
	before := l.lastGood(t)
	l.manifests = slowly(shop("2", "welcome"))
	for n := range 3 {
		l.interrupted(t, n)
	}
	want := map[string][]string{
		"primary":  {"ConfigMap/greeting", "ConfigMap/unused", "Service/web", "Deployment/web"},
		"canary":   {"ConfigMap/greeting-canary", "Service/web-canary", "Deployment/web-canary"},
		"baseline": {"ConfigMap/greeting-baseline", "Deployment/web-baseline"},
	}
	if diff := gocmp.Diff(want, l.variants(t)); diff != "" {
		t.Errorf("inventory (-want +got):\n%s", diff)
	}
	l.interrupted(t, 3)
	l.interrupted(t, len(l.deployment.Stages)-1) // the rollback, before the baseline is removed
	before.Assert(t)
}

// interrupted runs a stage to its success, with an end of the agent every 300 ms, and
// on a busy machine ever more rarely.
func (l *pipelineEnv) interrupted(t *testing.T, n int) {
	t.Helper()
	for tries := 0; ; tries++ {
		ctx, cancel := context.WithTimeoutCause(t.Context(), 300*time.Millisecond+time.Duration(tries)*20*time.Millisecond, deploy.StopShutdown)
		result := l.stage(ctx, n, tries > 0)
		stopped := ctx.Err() != nil
		cancel()
		switch {
		case result.Status == deploy.StageSuccess:
			return
		case !stopped || tries > 200:
			t.Fatalf("%s ended %s after %d ends: %s\n%s", l.deployment.Stages[n].Name, result.Status, tries, result.Reason, l.said())
		}
	}
}

// TestCancelBetweenRequestAndAnswer: a canary that is cancelled while the API server
// creates something of it is removed all the same.
func TestCancelBetweenRequestAndAnswer(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"greeting-canary", "web-canary"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newPipelineEnv(t, "", shop("1", "hello"), canaryRollout)
			before := l.lastGood(t)
			l.manifests = shop("2", "welcome")
			ctx, cancel := context.WithCancelCause(t.Context())
			l.answered = func(r *http.Request) error {
				if r.Method != http.MethodPatch || r.URL.Query().Has("dryRun") || !strings.HasSuffix(r.URL.Path, "/"+name) {
					return nil
				}
				cancel(deploy.StopCancelled)
				return context.Canceled
			}
			if result := l.stage(ctx, 0, false); result.Status == deploy.StageSuccess {
				t.Fatal("the stage that was cancelled succeeded")
			}
			l.answered = nil
			l.mustGoBack(t)
			before.Assert(t)
		})
	}
}

// TestQuickSyncRemovesLeftovers: the next quick sync removes what a pipeline left behind,
// with and without prune, and logs it.
func TestQuickSyncRemovesLeftovers(t *testing.T) {
	t.Parallel()
	l := newPipelineEnv(t, "", shop("1", "hello"), canaryRollout, baselineRollout)
	before := l.lastGood(t)
	l.manifests = shop("2", "welcome")
	l.mustGoForward(t)
	l.manifests = shop("1", "hello")
	run := l.stageEnv.deployment("later")
	run.Deployment.Strategy = deploy.StrategyQuickSync
	l.mustSucceed(t, l.Sync(), run)
	l.wantLogged(t, "Removing the canary and the baseline: ")
	before.Assert(t)
}

// TestLeftoversThatCannotBeRemoved: they do not fail a quick sync that has succeeded; the
// next run removes them.
func TestLeftoversThatCannotBeRemoved(t *testing.T) {
	t.Parallel()
	l := newPipelineEnv(t, "", shop("1", "hello"), canaryRollout)
	before := l.lastGood(t)
	l.manifests = shop("2", "welcome")
	l.mustGoForward(t)
	l.manifests = shop("1", "hello")
	goOn := l.giveUpSoon()
	l.answered = func(r *http.Request) error {
		if strings.HasSuffix(r.URL.Path, "/deployments/web-canary") {
			return errors.New("it cannot be reached")
		}
		return nil
	}
	run := l.stageEnv.deployment("later")
	run.Deployment.Strategy = deploy.StrategyQuickSync
	l.mustSucceed(t, l.Sync(), run)
	l.wantLogged(t, "Not everything left of the canary and the baseline could be removed; the next quick sync tries again: ")
	l.answered = func(*http.Request) error { return nil }
	goOn()
	run.Resumed = true
	l.mustSucceed(t, l.Sync(), run)
	before.Assert(t)
}

// TestPipelineWithoutThePrimary: rollbacks still restore the set of the success before.
func TestPipelineWithoutThePrimary(t *testing.T) {
	t.Parallel()
	l := newPipelineEnv(t, "", shop("1", "hello"), canaryRollout, canaryClean)
	l.manifests = shop("2", "welcome")
	l.mustGoForward(t)
	kept, err := l.Store.AppliedSet(t.Context(), "now")
	if err != nil || kept.Commit != "commit-before" || !strings.Contains(string(kept.Objects), "web:1") {
		t.Errorf("kept of commit %q: %v", kept.Commit, err)
	}
}

// TestLabelOnlyByTheStage: a rollback restores the label that the stage put into selectors,
// with a stored set and without.
func TestLabelOnlyByTheStage(t *testing.T) {
	t.Parallel()
	for name, lost := range map[string]bool{"kept": false, "lost": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := &pipelineEnv{rolloutEnv: newRolloutEnv(t)}
			l.spec += "  pipeline: {stages: [{name: K8S_PRIMARY_ROLLOUT, with: {addVariantLabelToSelector: true}}]}\n"
			l.manifests = shop("1", "hello")
			l.plan(t, deploy.StrategyPipeline)
			l.deployment.RunningCommit, l.deployment.RunningDeploymentID = "", ""
			l.mustGoForward(t)
			before := l.lastGood(t)

			l.plan(t, deploy.StrategyPipeline)
			l.deployment.ID, l.deployment.RunningCommit, l.deployment.RunningDeploymentID = "later", "commit-now", "now"
			if lost {
				l.deployment.RunningDeploymentID = "unknown"
			}
			l.manifests = shop("bad-image", "hello")
			if result := l.forward(t); result.Status != deploy.StageFailure {
				t.Fatalf("it ended %s", result.Status)
			}
			l.manifests = shop("1", "hello") // what Git has at that commit
			l.mustGoBack(t)
			before.Assert(t)
			d, err := l.client.AppsV1().Deployments(l.ns).Get(t.Context(), "web", metav1.GetOptions{})
			if err != nil || d.Spec.Selector.MatchLabels["pipecd.dev/variant"] != "primary" {
				t.Errorf("the selector is %v, %v", d.Spec.Selector, err)
			}
		})
	}
}

// TestPrimaryService: the extra Service is the application's, so that a quick sync that
// prunes leaves it; variants have no copy of it. One that would select nothing is
// refused, and a sync does without.
func TestPrimaryService(t *testing.T) {
	t.Parallel()
	l := newPipelineEnv(t, "  quickSync: {prune: true}\n", shop("1", "hello"),
		"{name: K8S_PRIMARY_ROLLOUT, with: {createService: true, prune: true}}", canaryRollout, "{name: K8S_BASELINE_ROLLOUT, with: {createService: true}}")
	result := l.stage(t.Context(), 0, false)
	if want := "createService: Service web-primary would select no pods, for no workload gives its pods the label pipecd.dev/variant: primary; "; !strings.HasPrefix(result.Reason, want) {
		t.Fatalf("without the label it ended %s: %s", result.Status, result.Reason)
	}

	labelled := strings.Replace(shop("1", "hello"), "labels: {app: web}}, spec", "labels: {app: web, pipecd.dev/variant: primary}}, spec", 1)
	l.manifests = labelled
	l.mustSucceed(t, l.Sync(), l.stageEnv.deployment("later"))
	l.deployment.RunningDeploymentID = "later"
	l.mustGoForward(t)
	want := map[string][]string{
		"primary":  {"ConfigMap/greeting", "ConfigMap/unused", "Service/web", "Service/web-primary", "Deployment/web"},
		"canary":   {"ConfigMap/greeting-canary", "Service/web-canary", "Deployment/web-canary"},
		"baseline": {"ConfigMap/greeting-baseline", "Service/web-baseline", "Deployment/web-baseline"},
	}
	if diff := gocmp.Diff(want, l.variants(t)); diff != "" {
		t.Errorf("inventory (-want +got):\n%s", diff)
	}
	s, err := l.client.CoreV1().Services(l.ns).Get(t.Context(), "web-primary", metav1.GetOptions{})
	if err != nil || s.Spec.Selector["pipecd.dev/variant"] != "primary" {
		t.Errorf("it selects %v, %v", s.Spec.Selector, err)
	}
}

// TestUnlabelledIsRefused: where the selector of a Service moves the traffic, what
// lacks the label is named before anything is applied.
func TestUnlabelledIsRefused(t *testing.T) {
	stage := func(name string, with any) config.Stage { return config.Stage{Name: name, With: with} }
	shift, label := stage(kubernetes.StageTrafficRouting, nil), &kubernetes.PrimaryRolloutOptions{AddVariantLabelToSelector: true}
	labelled := strings.ReplaceAll(shop("1", "hello"), "app: web}", "app: web, pipecd.dev/variant: primary}")
	const (
		noService = "web/app.yaml:8: Service web does not select pipecd.dev/variant: primary; add that to its spec.selector"
		noLabel   = "web/app.yaml:2: Deployment web has no label pipecd.dev/variant: primary in its selector and in its pod template; add it to both, " +
			"or set addVariantLabelToSelector for K8S_PRIMARY_ROLLOUT and for spec.quickSync"
		head = "trafficRouting.method podselector moves traffic between variants by their label: "
	)
	for _, c := range []struct {
		name, manifests string
		method          kubernetes.Method
		stages          []config.Stage
		want            string
	}{
		{"no traffic is moved", shop("1", "hello"), kubernetes.PodSelector, []config.Stage{stage(kubernetes.StageCanaryRollout, nil)}, ""},
		{"it is moved by weights", shop("1", "hello"), kubernetes.IstioMethod, []config.Stage{shift}, ""},
		{"labelled", labelled, kubernetes.PodSelector, []config.Stage{shift}, ""},
		{"nothing is labelled", shop("1", "hello"), kubernetes.PodSelector, []config.Stage{shift}, head + noLabel + "\n" + noService},
		{"only the workload will be", shop("1", "hello"), kubernetes.PodSelector, []config.Stage{shift, stage(kubernetes.StagePrimaryRollout, label)}, head + noService},
		{"there is no workload", newManifest, kubernetes.PodSelector, []config.Stage{shift}, "the application has no Deployment to make a variant of: see spec.workloads"},
	} {
		t.Run(c.name, func(t *testing.T) {
			w, _, _ := newWork(t)
			w.config = application(t, "")
			kubernetes.SpecOf(w.config.Platform).TrafficRouting.Method = c.method
			w.config.Pipeline = &config.Pipeline{Stages: c.stages}
			w.set.Objects = objects(t, c.manifests)
			got := ""
			if err := refuseUnlabelled(t.Context(), w); err != nil {
				got = err.Error()
			}
			if diff := gocmp.Diff(c.want, got); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

// TestRemovalThatFails names what is still there, and leaves it in the inventory.
func TestRemovalThatFails(t *testing.T) {
	t.Parallel()
	l := newPipelineEnv(t, "", web("1", "replicas: 1"), "{name: K8S_CANARY_ROLLOUT}")
	l.manifests = web("bad-image", "replicas: 1")
	if result := l.forward(t); result.Status != deploy.StageFailure {
		t.Fatalf("it ended %s", result.Status)
	}
	l.giveUpSoon()
	l.answered = func(r *http.Request) error {
		if strings.HasSuffix(r.URL.Path, "/deployments/web-canary") {
			return errors.New("it cannot be reached")
		}
		return nil
	}
	result := l.stage(t.Context(), 1, false)
	if result.Status != deploy.StageFailure || !strings.Contains(result.Reason, "web-canary") {
		t.Errorf("the rollback ended %s: %s", result.Status, result.Reason)
	}
	if d, err := l.client.AppsV1().Deployments(l.ns).Get(t.Context(), "web", metav1.GetOptions{}); err != nil || d.Spec.Template.Spec.Containers[0].Image != "web:1" {
		t.Errorf("the primary: %v", err)
	}
	if got := l.variants(t); got["canary"] == nil {
		t.Errorf("inventory: %v", got)
	}
}

package kubernetes

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/c785c783/piped/piped/cluster/rollout"
	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/store"
)

// rolling is in the log when the rollout of "web" has begun.
const rolling = "new pods available"

// autoscaler is a HorizontalPodAutoscaler of "web"; the annotation says what its
// metrics would.
func autoscaler(annotation string) string {
	return fmt.Sprintf("---\n{apiVersion: autoscaling/v2, kind: HorizontalPodAutoscaler, metadata: {name: web, annotations: {devcluster.piped.dev/%s}}, "+
		"spec: {minReplicas: 1, maxReplicas: 10, scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: web}}}\n", annotation)
}

// TestRolloutsAndAutoscalers: scaling neither makes, delays nor fails a rollout.
func TestRolloutsAndAutoscalers(t *testing.T) {
	// The new pods become ready after it was scaled: a rollout that goes on by itself can be over before.
	first, second := web("1", "replicas: 3"), web("never-ready", "replicas: 3")
	flapping := autoscaler(`scale-flap: "2,6,400ms"`)
	scale := func(replicas int) func(*testing.T, *rolloutEnv, deploy.StageRun) {
		return func(t *testing.T, l *rolloutEnv, _ deploy.StageRun) {
			l.scaleTo(t, replicas)
			l.keepReady(t)
		}
	}
	// Either all pods are there already, or the end says why fewer are enough.
	scaledUp := `re:SUCCESS\nComplete: web: (6 of 6 pods available in ReplicaSet web#2, no old pod left|` +
		`[3-5] of 6 pods available in ReplicaSet web#2, no old pod left \(3 wanted when it was applied; it does not wait for pods that scaling added since\))`
	anyCount := func(set string) string {
		return "re:" + available("[2-6] of [2-6]", set) + `( \([2-6] wanted when it was applied; .*\))?`
	}
	runRollouts(t, []rolloutCase{
		{name: "scaled up during the rollout", before: first, change: second, at: rolling, during: scale(6), want: scaledUp, sets: 2},
		{name: "scaled down during the rollout", before: first, change: second, at: rolling, during: scale(1), want: "re:" + available("1 of 1", "web#2"), sets: 2},
		{name: "scaled to zero during the rollout", before: first, change: second, at: rolling, during: scale(0), want: available("0 of 0", "web#2"), sets: 2},
		{name: "scaled up afterwards", before: first, change: web("2", "replicas: 3"), after: scaledTo(6), want: available("3 of 3", "web#2"), sets: 2},
		{name: "scaled down afterwards", before: first, change: web("2", "replicas: 3"), after: scaledTo(1), want: available("3 of 3", "web#2"), sets: 2},
		{name: "an autoscaler flaps during the rollout and afterwards", before: web("1", "") + flapping, change: slowly(web("2", "")) + flapping,
			prepare: awaitScaled, after: func(t *testing.T, l *rolloutEnv, _ deploy.Rollout) { awaitScaled(t, l) }, want: anyCount("web#2"), sets: 2},
		{name: "an autoscaler scales to what cannot be scheduled", before: web("1", "replicas: 1"), change: web("2", "replicas: 1, strategy: {rollingUpdate: {maxUnavailable: 100%}}", onePodOnly),
			after: func(t *testing.T, l *rolloutEnv, _ deploy.Rollout) { l.scaleTo(t, 4) }, want: available("1 of 1", "web#2"), sets: 2},
	})
}

// awaitScaled waits until the autoscaler has scaled twice.
func awaitScaled(t *testing.T, l *rolloutEnv) {
	var seen []int32
	eventually(t, func() string {
		d, err := l.client.AppsV1().Deployments(l.ns).Get(t.Context(), "web", metav1.GetOptions{})
		if err != nil {
			return err.Error()
		}
		if n := *d.Spec.Replicas; len(seen) == 0 || seen[len(seen)-1] != n {
			seen = append(seen, n)
		}
		if len(seen) < 3 {
			return fmt.Sprintf("scaled to %v so far", seen)
		}
		return ""
	})
}

// TestRolloutsThatOthersInterfereWith: a stage follows restarts, and reports every
// other change to the workload by another client.
func TestRolloutsThatOthersInterfereWith(t *testing.T) {
	// What is done in the middle comes before the end, because stuck does not end until keepReady.
	first, second, stuck := web("1", "replicas: 3"), web("2", "replicas: 3"), web("never-ready", "replicas: 3")
	pause := func(paused bool) func(*testing.T, *rolloutEnv) {
		return func(t *testing.T, l *rolloutEnv) {
			l.patch(t, "kubectl", fmt.Sprintf(`{"spec":{"paused":%t}}`, paused))
		}
	}
	resume := func(t *testing.T, l *rolloutEnv, _ deploy.StageRun) { pause(false)(t, l) }
	var hold func()
	runRollouts(t, []rolloutCase{
		{name: "paused before, and resumed", before: first, prepare: pause(true), change: second, at: "web: paused, waiting until it is resumed", during: resume,
			want: available("3 of 3", "web#2"), sets: 2},
		{name: "paused in the middle, and resumed", before: first, change: stuck, at: rolling, during: func(t *testing.T, l *rolloutEnv, _ deploy.StageRun) {
			pause(true)(t, l)
			eventually(t, func() string {
				if strings.Contains(l.said(), "web: paused, waiting until it is resumed") {
					return ""
				}
				return "it is not held:\n" + l.said()
			})
			pause(false)(t, l)
			l.keepReady(t)
		}, want: available("3 of 3", "web#2"), sets: 2},
		{name: "paused by Git, and resumed by the next commit", before: first, change: web("2", "replicas: 3, paused: true"), taken: true,
			after: func(t *testing.T, l *rolloutEnv, _ deploy.Rollout) {
				l.manifests = web("2", "replicas: 3")
				later := l.deployment("later")
				l.check(t, available("3 of 3", "web#2"), l.outcome(t, later, l.run(t, l.Sync(), later, "", nil)))
			}, want: "SUCCESS\nNoRollout: web: paused by Git: nothing rolls until it is resumed", sets: 2},
		{name: "Recreate waits for a pod that stops slowly", before: recreate("1"), prepare: holdPods(true), change: recreate("2"), at: "web: waiting for 1 old pod to stop",
			during: func(t *testing.T, l *rolloutEnv, _ deploy.StageRun) { holdPods(false)(t, l) }, want: available("1 of 1", "web#2"), sets: 2},
		{name: "deleted in the middle", before: first, change: stuck, at: rolling, taken: true, during: func(t *testing.T, l *rolloutEnv, _ deploy.StageRun) {
			if err := l.client.AppsV1().Deployments(l.ns).Delete(t.Context(), "web", metav1.DeleteOptions{}); err != nil {
				t.Error(err)
			}
		}, want: "FAILURE, no rollback: Deployment NS/web: Deployment NS/web was deleted while it rolled out\nGone: Deployment NS/web was deleted while it rolled out"},
		{name: "its namespace deleted in the middle", before: first, change: stuck, at: rolling, taken: true, during: func(t *testing.T, l *rolloutEnv, _ deploy.StageRun) {
			if err := l.client.CoreV1().Namespaces().Delete(t.Context(), l.ns, metav1.DeleteOptions{}); err != nil {
				t.Error(err)
			}
			eventually(t, func() string {
				ns, err := l.client.CoreV1().Namespaces().Get(t.Context(), l.ns, metav1.GetOptions{})
				if apierrors.IsNotFound(err) {
					return ""
				}
				return fmt.Sprintf("the namespace is there: %v, %v", ns.Status, err)
			})
		}, want: "re:FAILURE, no rollback: Deployment NS/web: Deployment NS/web (was deleted while it rolled out|is being deleted): its namespace was deleted" +
			"\nGone: Deployment NS/web (was deleted while it rolled out|is being deleted): its namespace was deleted"},
		{name: "another image by hand", before: first, change: stuck, at: rolling, taken: true, during: func(t *testing.T, l *rolloutEnv, _ deploy.StageRun) {
			l.patch(t, "kubectl-set", `{"spec":{"template":{"spec":{"containers":[{"name":"app","image":"web:9"}]}}}}`)
			l.awaitSets(t, 3)
		}, want: `FAILURE, no rollback: Deployment NS/web: field manager "kubectl-set" changed the pod template of Deployment NS/web before the rollout ended` +
			"\n" + `Superseded: field manager "kubectl-set" changed the pod template of Deployment NS/web before the rollout ended`, sets: 3},
		{name: "superseded by the next commit", before: first, change: stuck, at: rolling, taken: true, during: func(t *testing.T, l *rolloutEnv, _ deploy.StageRun) {
			l.manifests = web("3", "replicas: 3")
			later := l.deployment("later")
			l.check(t, available("3 of 3", "web#3"), l.outcome(t, later, l.run(t, l.Sync(), later, "", nil)))
		}, want: "FAILURE, no rollback: Deployment NS/web: Deployment NS/web was given a newer template by this agent before the rollout ended\n" +
			"Superseded: Deployment NS/web was given a newer template by this agent before the rollout ended", sets: 3},
		{name: "back to the old template by the next commit", before: first, change: stuck, at: rolling, taken: true, during: func(t *testing.T, l *rolloutEnv, _ deploy.StageRun) {
			l.manifests = first
			later := l.deployment("later")
			l.check(t, available("3 of 3", "web#3"), l.outcome(t, later, l.run(t, l.Sync(), later, "", nil)))
		}, want: "FAILURE, no rollback: Deployment NS/web: Deployment NS/web was given a newer template by this agent before the rollout ended\n" +
			"Superseded: Deployment NS/web was given a newer template by this agent before the rollout ended", sets: 2},
		{name: "restarted by hand in the middle", before: first, change: stuck, at: rolling, during: func(t *testing.T, l *rolloutEnv, _ deploy.StageRun) {
			l.restart(t)
			l.keepReady(t)
		}, want: available("3 of 3", "web#3") + `, after a restart by field manager "kubectl-rollout"`, sets: 3},
		{name: "an annotation of ours undone in the middle", before: checksum("1", stuck), change: checksum("2", stuck), at: rolling, taken: true,
			begin:   func(t *testing.T, l *rolloutEnv) { hold = l.keepReady(t) },
			prepare: func(*testing.T, *rolloutEnv) { hold() },
			during: func(t *testing.T, l *rolloutEnv, _ deploy.StageRun) {
				l.patch(t, "kubectl-rollout", `{"spec":{"template":{"metadata":{"annotations":{"checksum/config":"1"}}}}}`)
			}, want: "FAILURE, no rollback: Deployment NS/web: " + undone + "\nSuperseded: " + undone},
		{name: "restarted by hand afterwards", before: first, change: web("2", "replicas: 3"), after: func(t *testing.T, l *rolloutEnv, _ deploy.Rollout) {
			l.restart(t)
			l.awaitSets(t, 3)
		}, want: available("3 of 3", "web#2"), sets: 3},
		{name: "the agent's label removed in the middle", before: first, change: stuck, at: rolling, during: func(t *testing.T, l *rolloutEnv, _ deploy.StageRun) {
			l.patch(t, "kubectl-label", `{"metadata":{"labels":{"pipecd.dev/application":null}}}`)
			l.keepReady(t)
		}, want: available("3 of 3", "web#2"), sets: 2},
		{name: "the new ReplicaSet deleted in the middle", before: first, change: stuck, at: rolling, during: func(t *testing.T, l *rolloutEnv, _ deploy.StageRun) {
			l.deleteSet(t, "2")
			l.keepReady(t)
		}, want: "re:" + available("3 of 3", "web#[23]"), sets: 2},
		{name: "the old ReplicaSet deleted in the middle", before: first, change: stuck, at: rolling, during: func(t *testing.T, l *rolloutEnv, _ deploy.StageRun) {
			l.deleteSet(t, "1")
			l.keepReady(t)
		}, want: available("3 of 3", "web#2"), sets: 1},
		{name: "a sidecar is put into each pod", before: first, prepare: injectSidecar, change: second, after: wantSidecar, want: available("3 of 3", "web#2"), sets: 2},
	})
}

func recreate(image string) string {
	return web(image, "replicas: 1, strategy: {type: Recreate}")
}

// holdPods gives the pods of "web" a finalizer, or takes it from them.
func holdPods(hold bool) func(*testing.T, *rolloutEnv) {
	patch := `{"metadata":{"finalizers":null}}`
	if hold {
		patch = `{"metadata":{"finalizers":["example.test/hold"]}}`
	}
	return func(t *testing.T, l *rolloutEnv) {
		pods, err := l.client.CoreV1().Pods(l.ns).List(t.Context(), metav1.ListOptions{LabelSelector: "app=web"})
		if err != nil {
			t.Error(err)
			return
		}
		for _, pod := range pods.Items {
			if _, err := l.client.CoreV1().Pods(l.ns).Patch(t.Context(), pod.Name, types.MergePatchType, []byte(patch), metav1.PatchOptions{}); err != nil {
				t.Error(err)
			}
		}
	}
}

// checksum gives the pod template of manifests an annotation.
func checksum(value, manifests string) string {
	return strings.ReplaceAll(manifests, "template: {metadata: {", `template: {metadata: {annotations: {checksum/config: "`+value+`"}, `)
}

const undone = `field manager "kubectl-rollout" changed annotation checksum/config of the pod template of Deployment NS/web before the rollout ended`

// deleteSet deletes the ReplicaSet of a revision.
func (l *rolloutEnv) deleteSet(t *testing.T, revision string) {
	for _, rs := range l.sets(t) {
		if rs.Annotations[rollout.RevisionAnnotation] != revision {
			continue
		}
		if err := l.client.AppsV1().ReplicaSets(l.ns).Delete(t.Context(), rs.Name, metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
		return
	}
	t.Errorf("there is no revision %s", revision)
}

// injectSidecar has the API server put a container into each pod of the environment's
// namespace, and waits until it does.
func injectSidecar(t *testing.T, l *rolloutEnv) {
	pods := admissionv1.NamedRuleWithOperations{RuleWithOperations: admissionv1.RuleWithOperations{
		Operations: []admissionv1.OperationType{admissionv1.Create},
		Rule:       admissionv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"pods"}},
	}}
	mutateBy(t, l, "sidecar", pods, `Object{spec: Object.spec{containers: [Object.spec.containers{name: "sidecar", image: "sidecar:1"}]}}`)
	eventually(t, func() string {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "probe"}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "app", Image: "web:1"}}}}
		created, err := l.client.CoreV1().Pods(l.ns).Create(t.Context(), pod, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		if err != nil {
			return err.Error()
		}
		if len(created.Spec.Containers) != 2 {
			return "no sidecar is put into pods"
		}
		return ""
	})
}

// wantSidecar checks that the new pods have one.
func wantSidecar(t *testing.T, l *rolloutEnv, _ deploy.Rollout) {
	pods, err := l.client.CoreV1().Pods(l.ns).List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, pod := range pods.Items {
		if pod.DeletionTimestamp == nil && len(pod.Spec.Containers) != 2 {
			t.Errorf("pod %s has %d containers, want 2", pod.Name, len(pod.Spec.Containers))
		}
	}
}

// mutateBy has the API server apply a CEL expression to what rules match in the environment's
// namespace.
func mutateBy(t *testing.T, l *rolloutEnv, name string, rules admissionv1.NamedRuleWithOperations, expression string) {
	t.Helper()
	name = l.ns + "-" + name
	own := &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: l.ns}}
	admission := l.client.AdmissionregistrationV1()
	_, err := admission.MutatingAdmissionPolicies().Create(t.Context(), &admissionv1.MutatingAdmissionPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: admissionv1.MutatingAdmissionPolicySpec{
			MatchConstraints:   &admissionv1.MatchResources{NamespaceSelector: own, ResourceRules: []admissionv1.NamedRuleWithOperations{rules}},
			ReinvocationPolicy: admissionv1.NeverReinvocationPolicy,
			Mutations: []admissionv1.Mutation{{PatchType: admissionv1.PatchTypeApplyConfiguration, ApplyConfiguration: &admissionv1.ApplyConfiguration{
				Expression: expression,
			}}},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	_, err = admission.MutatingAdmissionPolicyBindings().Create(t.Context(), &admissionv1.MutatingAdmissionPolicyBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: admissionv1.MutatingAdmissionPolicyBindingSpec{PolicyName: name},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := admission.MutatingAdmissionPolicies().Delete(context.Background(), name, metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
		if err := admission.MutatingAdmissionPolicyBindings().Delete(context.Background(), name, metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	})
}

// rewriteTemplates has the API server annotate the pod template of each Deployment of the
// environment's namespace with the value of a CEL expression, and waits until it does.
func rewriteTemplates(t *testing.T, l *rolloutEnv, value string) {
	t.Helper()
	deployments := admissionv1.NamedRuleWithOperations{RuleWithOperations: admissionv1.RuleWithOperations{
		Operations: []admissionv1.OperationType{admissionv1.Create, admissionv1.Update},
		Rule:       admissionv1.Rule{APIGroups: []string{"apps"}, APIVersions: []string{"v1"}, Resources: []string{"deployments"}},
	}}
	mutateBy(t, l, "rewrite", deployments,
		`Object{spec: Object.spec{template: Object.spec.template{metadata: Object.spec.template.metadata{annotations: Object.spec.template.metadata.annotations{written: `+value+`}}}}}`)
	eventually(t, func() string {
		probe := `{"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "probe"}, "spec": {"selector": {"matchLabels": {"a": "b"}}, ` +
			`"template": {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "web:1"}]}}}}`
		var d appsv1.Deployment
		if err := json.Unmarshal([]byte(probe), &d); err != nil {
			t.Fatal(err)
		}
		created, err := l.client.AppsV1().Deployments(l.ns).Create(t.Context(), &d, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		if err != nil {
			return err.Error()
		}
		if created.Spec.Template.Annotations["written"] == "" {
			return "no template is annotated"
		}
		return ""
	})
}

// TestRewrittenTemplatesAreWarnedOf: at the third apply of which the API server makes
// another template than of the one before, and never of a value that stays.
func TestRewrittenTemplatesAreWarnedOf(t *testing.T) {
	t.Parallel()
	const warning = "Warning: a mutating webhook or admission policy has rewritten the pod template of Deployment NS/web on each of the last 3 applies"
	for _, c := range []struct {
		name, value string
		images      []string
		warns       bool
	}{
		{"another value each time", `request.dryRun ? "tried" : oldObject == null ? "0" : string(oldObject.metadata.generation)`, []string{"web:1", "web:2", "web:3"}, true},
		{"another value, and Git is the same", `oldObject == null ? "0" : string(oldObject.metadata.generation)`, []string{"web:1", "web:1", "web:1", "web:1"}, true},
		{"the same value", `"stays"`, []string{"web:1", "web:2", "web:3"}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			l := newRolloutEnv(t)
			rewriteTemplates(t, l, c.value)
			ids := []string{success, "now", "later", "last"}
			last := deploy.Deployment{ID: "last", ApplicationID: l.app.ID, Status: deploy.Pending, Trigger: deploy.Trigger{Kind: deploy.OnCommit, At: time.Now()}}
			if _, err := l.Store.CreateDeployment(t.Context(), store.NewDeployment{Deployment: last}); err != nil {
				t.Fatal(err)
			}
			for i, image := range c.images {
				l.manifests = fmt.Sprintf(`{apiVersion: apps/v1, kind: Deployment, metadata: {name: web, labels: {own: "1"}}, spec: {replicas: 1, selector: {matchLabels: {app: web}}, `+
					`template: {metadata: {labels: {app: web}}, spec: {containers: [{name: app, image: "%s"}]}}}}`, image)
				l.mustSucceed(t, l.Sync(), l.deployment(ids[i]))
				if i == 0 {
					l.complete(t)
				}
				if i < len(c.images)-1 && strings.Contains(l.said(), "Warning") {
					t.Errorf("warned at apply %d:\n%s", i+1, l.said())
				}
				foreign := []byte(`{"metadata":{"labels":{"own":"theirs"}}}`) // so that it is applied again
				if _, err := l.client.AppsV1().Deployments(l.ns).Patch(t.Context(), "web", types.MergePatchType, foreign, metav1.PatchOptions{FieldManager: "kubectl"}); err != nil {
					t.Fatal(err)
				}
			}
			if strings.Contains(l.said(), warning) != c.warns {
				t.Errorf("want a warning: %t\n%s", c.warns, l.said())
			}
		})
	}
}

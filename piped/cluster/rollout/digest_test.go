package rollout

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

// withTemplate is a Deployment with a pod template.
func withTemplate(t *testing.T, template string) *unstructured.Unstructured {
	t.Helper()
	u := &unstructured.Unstructured{}
	text := "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web, namespace: shop}\nspec: {selector: {matchLabels: {app: web}}, template: " + template + "}"
	if err := yaml.Unmarshal([]byte(text), &u.Object); err != nil {
		t.Fatal(err)
	}
	return u
}

func TestTemplateIdentity(t *testing.T) {
	const base = `{metadata: {labels: {app: web}}, spec: {containers: [{name: app, image: "web:1"}]}}`
	for _, c := range []struct {
		name, template       string
		sameDigest, sameBase bool
	}{
		{"itself", base, true, true},
		{"pod-template-hash", `{metadata: {labels: {app: web, pod-template-hash: abc}}, spec: {containers: [{name: app, image: "web:1"}]}}`, true, true},
		{"another order", `{spec: {containers: [{image: "web:1", name: app}]}, metadata: {labels: {app: web}}}`, true, true},
		{"empties", `{metadata: {creationTimestamp: null, labels: {app: web}, annotations: {}}, spec: {volumes: [], nodeSelector: {}, containers: [{name: app, image: "web:1", resources: {}, args: [], env: null}]}}`, true, true},
		{"another image", `{metadata: {labels: {app: web}}, spec: {containers: [{name: app, image: "web:2"}]}}`, false, false},
		{"another label", `{metadata: {labels: {app: web, tier: front}}, spec: {containers: [{name: app, image: "web:1"}]}}`, false, false},
		{"an annotation", `{metadata: {labels: {app: web}, annotations: {kubectl.kubernetes.io/restartedAt: now}}, spec: {containers: [{name: app, image: "web:1"}]}}`, false, true},
		{"an empty value that means something", `{metadata: {labels: {app: web}}, spec: {volumes: [{name: tmp, emptyDir: {}}], containers: [{name: app, image: "web:1"}]}}`, false, false},
		{"a field of a later API version", `{metadata: {labels: {app: web}}, spec: {futureField: 1, containers: [{name: app, image: "web:1"}]}}`, false, false},
		{"another order of containers", `{metadata: {labels: {app: web}}, spec: {containers: [{name: b}, {name: app, image: "web:1"}]}}`, false, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			want, got := ObjectTemplate(withTemplate(t, base)), ObjectTemplate(withTemplate(t, c.template))
			if (want.Digest == got.Digest) != c.sameDigest || (want.Base == got.Base) != c.sameBase {
				t.Errorf("same digest %v, same base %v; want %v, %v", want.Digest == got.Digest, want.Base == got.Base, c.sameDigest, c.sameBase)
			}
		})
	}
	if id := ObjectTemplate(&unstructured.Unstructured{Object: map[string]any{"kind": "ConfigMap"}}); id != (Template{}) {
		t.Errorf("an object without template has %+v", id)
	}
}

func TestTypedAndUntypedTemplatesAreOne(t *testing.T) {
	template := corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "web"}},
		Spec: corev1.PodSpec{
			Containers: []corev1.Container{{Name: "app", Image: "web:1", Resources: corev1.ResourceRequirements{
				Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1000m"), corev1.ResourceMemory: resource.MustParse("1024Mi")},
			}}},
			Volumes: []corev1.Volume{{Name: "tmp", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}},
		},
	}
	d := &appsv1.Deployment{TypeMeta: metav1.TypeMeta{APIVersion: "apps/v1", Kind: "Deployment"}, Spec: appsv1.DeploymentSpec{Template: template}}
	data, err := json.Marshal(d)
	if err != nil {
		t.Fatal(err)
	}
	u := &unstructured.Unstructured{}
	if err := json.Unmarshal(data, &u.Object); err != nil {
		t.Fatal(err)
	}
	if typed, untyped := TemplateDigest(&template), ObjectTemplate(u).Digest; typed != untyped {
		t.Errorf("typed %s, untyped %s", typed, untyped)
	}
	other := *template.DeepCopy()
	other.Spec.Containers[0].Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1"), corev1.ResourceMemory: resource.MustParse("1Gi")}
	if TemplateDigest(&template) != TemplateDigest(&other) {
		t.Error("1000m and 1, 1024Mi and 1Gi are the same quantities")
	}
}

const deploymentText = `
apiVersion: apps/v1
kind: Deployment
metadata:
  name: web
  namespace: shop
  uid: u1
  generation: 7
  deletionTimestamp: "2026-03-01T12:00:09Z"
  managedFields:
  - {manager: piped, operation: Apply, time: "2026-03-01T12:00:01Z", fieldsV1: {"f:spec": {"f:paused": {}, "f:replicas": {}, "f:template": {"f:metadata": {"f:annotations": {".": {}, "f:checksum/config": {}}}, "f:spec": {}}}}}
  - {manager: kubectl-rollout, operation: Update, time: "2026-03-01T12:00:01Z", fieldsV1: {"f:spec": {"f:template": {"f:metadata": {}}}}}
  - {manager: scaler, operation: Update, subresource: scale, time: "2026-03-01T12:00:04Z", fieldsV1: {"f:spec": {"f:replicas": {}}}}
  - {manager: kube-controller-manager, operation: Update, subresource: status, time: "2026-03-01T12:00:05Z", fieldsV1: {"f:status": {}}}
spec:
  replicas: 4
  paused: true
  minReadySeconds: 5
  progressDeadlineSeconds: 60
  strategy: {type: Recreate}
  selector: {matchLabels: {app: web}, matchExpressions: [{key: tier, operator: In, values: [a, b]}]}
  template: {metadata: {labels: {app: web}, annotations: {checksum/config: "1", note: x}}, spec: {containers: [{name: app, image: "web:1"}, {name: log, image: "log:2"}]}}
status:
  observedGeneration: 6
  replicas: 4
  updatedReplicas: 3
  readyReplicas: 2
  availableReplicas: 1
  terminatingReplicas: 5
  conditions:
  - {type: Progressing, status: "False", reason: ProgressDeadlineExceeded, message: late, lastUpdateTime: "2026-03-01T12:00:03Z", lastTransitionTime: "2026-03-01T12:00:02Z"}
  - {type: ReplicaFailure, status: "True", reason: FailedCreate, message: quota, lastUpdateTime: "2026-03-01T12:00:04Z"}
`

func TestWorkloadFromADeployment(t *testing.T) {
	var u unstructured.Unstructured
	if err := yaml.Unmarshal([]byte(deploymentText), &u.Object); err != nil {
		t.Fatal(err)
	}
	got, err := WorkloadFrom(&u)
	if err != nil {
		t.Fatal(err)
	}
	want := Workload{
		Kind: KindDeployment, Name: "web", UID: "u1", Generation: 7, ObservedGeneration: 6, Deleting: true, Paused: true,
		Template: ObjectTemplate(&u), Images: "web:1 log:2", Selector: "app=web,tier in (a,b)",
		Annotations: map[string]string{"checksum/config": "6b86b273ff34fce1", "note": "2d711642b726b044"}, OwnAnnotations: []string{"checksum/config"}, OwnPaused: true,
		TemplateManager: "kubectl-rollout", TemplateManagedAt: epoch.Add(time.Second), ManagedAt: epoch.Add(5 * time.Second),
		ScaledBy: "scaler", ScaledAt: epoch.Add(4 * time.Second),
		Replicas: 4, Strategy: "Recreate", Deadline: time.Minute, MinReady: 5 * time.Second,
		Total: 4, Updated: 3, Ready: 2, Available: 1, Terminating: 5,
		Progressing: Condition{Status: "False", Reason: "ProgressDeadlineExceeded", Message: "late", Updated: epoch.Add(3 * time.Second)},
		Failure:     Condition{Status: "True", Reason: "FailedCreate", Message: "quota", Updated: epoch.Add(4 * time.Second)},
	}
	if diff := cmp.Diff(want, got, cmp.Comparer(time.Time.Equal)); diff != "" {
		t.Errorf("workload (-want +got):\n%s", diff)
	}
	if got.Template.Digest == "" || u.Object["spec"].(map[string]any)["template"] == nil {
		t.Error("the template was taken from the object instead of read")
	}
}

func TestWorkloadFromOtherKinds(t *testing.T) {
	for _, c := range []struct {
		text string
		want Workload
	}{
		{`{kind: StatefulSet, metadata: {name: db, uid: u}, spec: {replicas: 5, minReadySeconds: 3, selector: {matchLabels: {app: db}}, updateStrategy: {type: RollingUpdate, rollingUpdate: {partition: 2}}},
			status: {observedGeneration: 2, replicas: 5, updatedReplicas: 4, readyReplicas: 3, availableReplicas: 2, currentRevision: a, updateRevision: b}}`,
			Workload{Kind: KindStatefulSet, Name: "db", UID: "u", Selector: "app=db", ObservedGeneration: 2, Replicas: 5, Strategy: "RollingUpdate", Partition: 2, Ordered: true,
				MinReady: 3 * time.Second, Total: 5, Updated: 4, Ready: 3, Available: 2, CurrentRevision: "a", UpdateRevision: "b"}},
		{`{kind: DaemonSet, metadata: {name: agent, uid: u}, spec: {selector: {matchLabels: {app: agent}}, updateStrategy: {type: OnDelete}},
			status: {observedGeneration: 2, desiredNumberScheduled: 5, currentNumberScheduled: 4, updatedNumberScheduled: 3, numberReady: 2, numberAvailable: 1}}`,
			Workload{Kind: KindDaemonSet, Name: "agent", UID: "u", Selector: "app=agent", ObservedGeneration: 2, Replicas: 5, Strategy: "OnDelete", Total: 4, Updated: 3, Ready: 2, Available: 1}},
		{`{kind: Deployment, metadata: {name: web, uid: u}, spec: {selector: {matchLabels: {app: web}}, progressDeadlineSeconds: 2147483647}}`,
			Workload{Kind: KindDeployment, Name: "web", UID: "u", Selector: "app=web", Replicas: 1, Uncounted: true}},
	} {
		t.Run(c.want.Kind, func(t *testing.T) {
			var u unstructured.Unstructured
			if err := yaml.Unmarshal([]byte(c.text), &u.Object); err != nil {
				t.Fatal(err)
			}
			got, err := WorkloadFrom(&u)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("workload (-want +got):\n%s", diff)
			}
		})
	}
	if _, err := WorkloadFrom(&unstructured.Unstructured{Object: map[string]any{"kind": "Job", "metadata": map[string]any{"name": "j"}}}); err == nil || err.Error() != "Job j has no rollout" {
		t.Errorf("a Job: %v", err)
	}
}

func TestRevisionFromAReplicaSet(t *testing.T) {
	text := `{kind: ReplicaSet, metadata: {name: web-1, uid: r, generation: 3, creationTimestamp: "2026-03-01T12:00:00Z", annotations: {deployment.kubernetes.io/revision: "12"},
		ownerReferences: [{apiVersion: apps/v1, kind: Deployment, name: web, uid: u, controller: true}]},
		spec: {replicas: 4, template: {metadata: {labels: {app: web, pod-template-hash: x}}, spec: {containers: [{name: app, image: "web:1"}]}}},
		status: {observedGeneration: 2, replicas: 3, readyReplicas: 2, availableReplicas: 1, conditions: [{type: ReplicaFailure, status: "True", reason: FailedCreate, message: quota, lastTransitionTime: "2026-03-01T12:00:04Z"}]}}`
	var u unstructured.Unstructured
	if err := yaml.Unmarshal([]byte(text), &u.Object); err != nil {
		t.Fatal(err)
	}
	got, err := RevisionFrom(&u)
	if err != nil {
		t.Fatal(err)
	}
	deployment := withTemplate(t, `{metadata: {labels: {app: web}}, spec: {containers: [{name: app, image: "web:1"}]}}`)
	want := Revision{UID: "r", Name: "web-1", OwnerUID: "u", Number: 12, Created: epoch, Template: ObjectTemplate(deployment), Generation: 3, ObservedGeneration: 2,
		Images: "web:1", Desired: 4, Total: 3, Ready: 2, Available: 1, Failure: Condition{Status: "True", Reason: "FailedCreate", Message: "quota", Updated: epoch.Add(4 * time.Second)}}
	if diff := cmp.Diff(want, got, cmp.Comparer(time.Time.Equal)); diff != "" {
		t.Errorf("revision (-want +got):\n%s", diff)
	}
}

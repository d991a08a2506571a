package live

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/c785c783/piped/piped/cluster/apply/applytest"
	"github.com/c785c783/piped/piped/cluster/clustertest"
	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/manifest"
)

const liveManifests = `
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 2
  selector: {matchLabels: {app: web}}
  template: {metadata: {labels: {app: web}}, spec: {containers: [{name: app, image: "example.com/web:v1"}, {name: log, image: "example.com/log:v1"}]}}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: bad}
spec:
  selector: {matchLabels: {app: bad}}
  template: {metadata: {labels: {app: bad}}, spec: {containers: [{name: app, image: "example.com/bad:crash"}]}}
---
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: db}
spec:
  serviceName: db
  selector: {matchLabels: {app: db}}
  template: {metadata: {labels: {app: db}}, spec: {containers: [{name: db, image: "example.com/db:v1"}]}}
  volumeClaimTemplates:
  - metadata: {name: data}
    spec: {accessModes: [ReadWriteOnce], storageClassName: nobody-makes-these, resources: {requests: {storage: 1Gi}}}
---
apiVersion: batch/v1
kind: CronJob
metadata: {name: report}
spec:
  schedule: "0 0 31 2 *"
  jobTemplate: {spec: {template: {spec: {restartPolicy: Never, containers: [{name: report, image: "example.com/report:v1"}]}}}}
---
{apiVersion: v1, kind: Secret, metadata: {name: key}, stringData: {key: hidden-from-everybody}}
---
{apiVersion: v1, kind: ConfigMap, metadata: {name: gone}}
---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: caches.NS.example.com}
spec:
  group: NS.example.com
  scope: Namespaced
  names: {plural: caches, singular: cache, kind: Cache}
  versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}]
---
apiVersion: NS.example.com/v1
kind: Cache
metadata: {name: main}
`

// TestLiveState: returns the objects with the objects that they created, each with its
// health, and makes one request for each kind in the namespace.
func TestLiveState(t *testing.T) {
	t.Parallel()
	l := newEnv(t)
	l.requests.Answer = func(r *http.Request) *http.Response {
		if strings.HasSuffix(r.URL.Path, "/secrets") && !strings.Contains(r.Header.Get("Accept"), "as=PartialObjectMetadata") {
			t.Errorf("%s asks for the content of Secrets", r.URL)
		}
		return nil
	}
	l.apply(t, strings.ReplaceAll(liveManifests, "NS", l.ns))
	definitions := l.Dynamic().Resource(schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"})
	t.Cleanup(func() {
		if err := definitions.Delete(context.Background(), "caches."+l.ns+".example.com", metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	})
	if err := l.Typed().CoreV1().ConfigMaps(l.ns).Delete(t.Context(), "gone", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	starting := []byte(`{"status":{"conditions":[{"type":"Ready","status":"False","reason":"Starting","message":"waits for its first replica"}]}}`)
	caches := l.Dynamic().Resource(schema.GroupVersionResource{Group: l.ns + ".example.com", Version: "v1", Resource: "caches"}).Namespace(l.ns)
	if _, err := caches.Patch(t.Context(), "main", types.MergePatchType, starting, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	l.runNow(t, "report")
	want := `
Cache main PROGRESSING: waits for its first replica
ConfigMap gone MISSING: it is not in the cluster
CronJob report HEALTHY example.com/report:v1
  Job report-now HEALTHY example.com/report:v1
    Pod report-now-* HEALTHY example.com/report:v1
CustomResourceDefinition caches.NS.example.com HEALTHY
Deployment bad DEGRADED 0/1 example.com/bad:crash: 0 of 1 pod is available; pod bad-*: container app: CrashLoopBackOff: crashes again and again (* restart), last exit code 1
  ReplicaSet bad-* DEGRADED 0/1 example.com/bad:crash: 0 of 1 pod is available; pod bad-*: container app: CrashLoopBackOff: crashes again and again (* restart), last exit code 1
    Pod bad-* DEGRADED example.com/bad:crash: container app: CrashLoopBackOff: crashes again and again (* restart), last exit code 1
Deployment web HEALTHY 2/2 example.com/web:v1 example.com/log:v1
  ReplicaSet web-* HEALTHY 2/2 example.com/web:v1 example.com/log:v1
    Pod web-* HEALTHY example.com/web:v1 example.com/log:v1
    Pod web-* HEALTHY example.com/web:v1 example.com/log:v1
Secret key HEALTHY
StatefulSet db PROGRESSING 0/1 example.com/db:v1: 0 of 1 pod is available; pod db-0: cannot be scheduled
  PersistentVolumeClaim data-db-0 PROGRESSING: it is not bound to a volume; some classes bind a claim when the first pod uses it
  Pod db-0 PROGRESSING example.com/db:v1: cannot be scheduled
`
	req := Request{ApplicationID: l.app, Items: l.items(), Children: true}
	objects := l.awaitLive(t, req, want)
	if text, err := json.Marshal(objects); err != nil || strings.Contains(string(text), "hidden") || strings.Contains(string(text), "aGlkZGVu") {
		t.Errorf("the content of a Secret is returned (%v): %s", err, text)
	}

	l.requests.Take()
	if _, _, err := Read(t.Context(), l.Cluster, req); err != nil {
		t.Fatal(err)
	}
	asked := l.requests.Take()
	for i, r := range asked {
		asked[i] = l.anonymous(r)
	}
	slices.Sort(asked)
	wantAsked := []string{
		"GET /api/v1/namespaces/NS/configmaps", "GET /api/v1/namespaces/NS/configmaps/gone", "GET /api/v1/namespaces/NS/persistentvolumeclaims",
		"GET /api/v1/namespaces/NS/pods", "GET /api/v1/namespaces/NS/pods", "GET /api/v1/namespaces/NS/secrets",
		"GET /apis/NS.example.com/v1/namespaces/NS/caches", "GET /apis/apiextensions.k8s.io/v1/customresourcedefinitions",
		"GET /apis/apps/v1/namespaces/NS/deployments", "GET /apis/apps/v1/namespaces/NS/replicasets", "GET /apis/apps/v1/namespaces/NS/statefulsets",
		"GET /apis/batch/v1/namespaces/NS/cronjobs", "GET /apis/batch/v1/namespaces/NS/jobs",
	}
	if diff := cmp.Diff(wantAsked, asked); diff != "" {
		t.Errorf("requests (-want +got):\n%s", diff)
	}

	// Without children, other objects are read only where they explain a health.
	req.Children = false
	var lines []string
	for line := range strings.Lines(want) {
		if !strings.HasPrefix(line, " ") {
			lines = append(lines, line)
		}
	}
	l.awaitLive(t, req, strings.Join(lines, ""))
}

// runNow starts a Job as a CronJob would.
func (l *env) runNow(t *testing.T, name string) {
	t.Helper()
	cron, err := l.Typed().BatchV1().CronJobs(l.ns).Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	job := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: name + "-now"}, Spec: cron.Spec.JobTemplate.Spec}
	job.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(cron, batchv1.SchemeGroupVersion.WithKind("CronJob"))}
	if _, err := l.Typed().BatchV1().Jobs(l.ns).Create(t.Context(), job, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// awaitLive reads the live state until it equals want.
func (l *env) awaitLive(t *testing.T, req Request, want string) []deploy.LiveObject {
	t.Helper()
	want = strings.TrimPrefix(want, "\n")
	var got string
	for deadline := time.Now().Add(10 * time.Minute); time.Now().Before(deadline); time.Sleep(100 * time.Millisecond) {
		objects, problems, err := Read(t.Context(), l.Cluster, req)
		if err != nil || len(problems) > 0 {
			if err != nil && !deploy.IsKind(err, deploy.Unavailable) {
				t.Fatal(err)
			}
			got = fmt.Sprintf("it cannot be read: %v, %v\n", problems, err) // now
			continue
		}
		if got = l.tree(objects); got == want {
			return objects
		}
	}
	t.Fatalf("live state (-want +got):\n%s", cmp.Diff(want, got))
	return nil
}

// Parts of names and reasons that differ between runs.
var (
	generated  = regexp.MustCompile(`\b([a-z-]+?)(-[bcdf-hj-np-tv-z0-9]{8,10})?-[bcdf-hj-np-tv-z0-9]{5}\b|\b([a-z]+)-[bcdf-hj-np-tv-z0-9]{8,10}\b`)
	restarts   = regexp.MustCompile(`\(\d+ restarts?\)`)
	scheduling = regexp.MustCompile(`(cannot be scheduled): .*`)
)

// tree writes one line per object, with the objects that it created indented.
func (l *env) tree(objects []deploy.LiveObject) string {
	var b strings.Builder
	var write func(indent string, o deploy.LiveObject)
	write = func(indent string, o deploy.LiveObject) {
		fmt.Fprintf(&b, "%s%s %s %s", indent, o.Object.Kind, o.Object.Name, o.Health)
		if o.Replicas > 0 {
			fmt.Fprintf(&b, " %d/%d", o.Available, o.Replicas)
		}
		for _, image := range o.Images {
			fmt.Fprintf(&b, " %s", image)
		}
		if o.Reason != "" {
			fmt.Fprintf(&b, ": %s", scheduling.ReplaceAllString(o.Reason, "$1"))
		}
		b.WriteString("\n")
		for _, child := range o.Children {
			write(indent+"  ", child)
		}
	}
	for _, o := range objects {
		write("", o)
	}
	text := restarts.ReplaceAllString(l.anonymous(b.String()), "(* restart)")
	return generated.ReplaceAllString(text, "$1$3-*")
}

// TestLiveStateWithoutTheLabel: an object that lost the application's label is found by
// its name, as the only one and as one of many.
func TestLiveStateWithoutTheLabel(t *testing.T) {
	t.Parallel()
	l := newEnv(t)
	var manifests []string
	for i := range 6 {
		manifests = append(manifests, fmt.Sprintf("{apiVersion: v1, kind: ConfigMap, metadata: {name: c%d}}\n", i))
	}
	l.apply(t, strings.Join(append(manifests, "{apiVersion: v1, kind: Service, metadata: {name: s}, spec: {ports: [{port: 80}]}}\n"), "---\n"))
	unlabel := []byte(`{"metadata":{"labels":{"` + manifest.LabelApplication + `":null}}}`)
	for i := range 5 {
		if _, err := l.Typed().CoreV1().ConfigMaps(l.ns).Patch(t.Context(), fmt.Sprintf("c%d", i), types.MergePatchType, unlabel, metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := l.Typed().CoreV1().Services(l.ns).Patch(t.Context(), "s", types.MergePatchType, unlabel, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	l.requests.Take()
	objects, problems, err := Read(t.Context(), l.Cluster, Request{ApplicationID: l.app, Items: l.items(), Children: true})
	asked := l.requests.Take()
	for _, o := range objects {
		if o.Health != deploy.Healthy || o.UID == "" || o.CreatedAt.IsZero() || o.Variant != "primary" || o.Cluster != "test" {
			t.Errorf("%+v", o)
		}
	}
	if err != nil || len(problems) > 0 || len(objects) != 7 || len(asked) != 4 {
		t.Errorf("%d objects, %v, %v, after %q", len(objects), problems, err, asked)
	}
}

// TestLiveStateOfAClusterThatDoesNotAnswer: an unreachable cluster is an error; one
// unreachable API is not.
func TestLiveStateOfAClusterThatDoesNotAnswer(t *testing.T) {
	t.Parallel()
	item := deploy.InventoryItem{Object: deploy.ObjectRef{Version: "v1", Kind: "ConfigMap", Namespace: "shop", Name: "web"}}
	down := applytest.Unreachable(t)
	if _, _, err := Read(t.Context(), down, Request{Items: []deploy.InventoryItem{item}}); !deploy.IsKind(err, deploy.Unavailable) {
		t.Errorf("error %v, want one of kind Unavailable", err)
	}

	l := newEnv(t)
	l.apply(t, "{apiVersion: v1, kind: ConfigMap, metadata: {name: web}}\n---\n{apiVersion: v1, kind: Service, metadata: {name: web}, spec: {ports: [{port: 80}]}}\n")
	l.requests.Answer = func(r *http.Request) *http.Response {
		if strings.HasSuffix(r.URL.Path, "/services") {
			return clustertest.Refusal(r, metav1.Status{Code: http.StatusServiceUnavailable, Reason: metav1.StatusReasonServiceUnavailable, Message: "no server for it"})
		}
		return nil
	}
	items := append(l.items(), deploy.InventoryItem{Object: deploy.ObjectRef{Group: "never.example.com", Version: "v1", Kind: "Nothing", Namespace: l.ns, Name: "web"}})
	objects, problems, err := Read(t.Context(), l.Cluster, Request{ApplicationID: l.app, Items: items})
	if err != nil || len(problems) != 1 || !strings.Contains(problems[0], "list services in namespace "+l.ns) || !strings.Contains(problems[0], "no server for it") {
		t.Errorf("problems %q, %v", problems, err)
	}
	var got []deploy.Health
	for _, o := range objects {
		got = append(got, o.Health)
	}
	if !slices.Equal(got, []deploy.Health{deploy.Healthy, deploy.HealthMissing, ""}) || objects[1].Reason != "the cluster does not know its kind" || !strings.Contains(objects[2].Reason, "no server") {
		t.Errorf("objects %+v", objects)
	}
}

// TestLiveStateThatAnAccountMayNotSee: objects that the application's account may not
// read are unknown, and the result says what to do.
func TestLiveStateThatAnAccountMayNotSee(t *testing.T) {
	t.Parallel()
	l := newEnv(t)
	l.apply(t, "{apiVersion: v1, kind: ConfigMap, metadata: {name: web}}")
	view, err := l.As("system:serviceaccount:" + l.ns + ":nobody")
	if err != nil {
		t.Fatal(err)
	}
	objects, problems, err := Read(t.Context(), view, Request{ApplicationID: l.app, Items: l.items()})
	if err != nil || len(objects) != 1 || objects[0].Health != "" || len(problems) != 1 || !strings.Contains(problems[0], "give that account the right") {
		t.Errorf("objects %+v, problems %q, %v", objects, problems, err)
	}
}

// TestIdleReplicaSets: ReplicaSets of earlier revisions without pods are returned only with all
// children, and are marked.
func TestIdleReplicaSets(t *testing.T) {
	t.Parallel()
	l := newEnv(t)
	for _, version := range []string{"v1", "v2"} {
		l.apply(t, "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web}\nspec:\n  selector: {matchLabels: {app: web}}\n  template: {metadata: {labels: {app: web}}, spec: {containers: [{name: app, image: 'example.com/web:"+version+"'}]}}\n")
		image := " example.com/web:" + version
		l.awaitLive(t, Request{ApplicationID: l.app, Items: l.items(), Children: true},
			"Deployment web HEALTHY 1/1"+image+"\n  ReplicaSet web-* HEALTHY 1/1"+image+"\n    Pod web-* HEALTHY"+image+"\n")
	}
	objects, problems, err := Read(t.Context(), l.Cluster, Request{ApplicationID: l.app, Items: l.items(), Children: true, All: true})
	if err != nil || len(problems) > 0 || len(objects) != 1 || len(objects[0].Children) != 2 {
		t.Fatalf("%+v, %v, %v", objects, problems, err)
	}
	for _, set := range objects[0].Children {
		if old := set.Images[0] == "example.com/web:v1"; set.Idle != old || old != (len(set.Children) == 0) {
			t.Errorf("ReplicaSet of %s: idle %t, %d pods", set.Images[0], set.Idle, len(set.Children))
		}
	}
}

// TestLiveStateOfManyPods: of too many children, the unhealthy ones are returned, with
// the number of children left out.
func TestLiveStateOfManyPods(t *testing.T) {
	t.Parallel()
	l := newEnv(t)
	l.apply(t, "apiVersion: apps/v1\nkind: DaemonSet\nmetadata: {name: agent}\nspec:\n  selector: {matchLabels: {app: agent}}\n  template: {metadata: {labels: {app: agent}}, spec: {nodeSelector: {none: here}, containers: [{name: app, image: a}]}}\n")
	item := l.items()[0]
	const pods = 1200
	l.requests.Answer = func(r *http.Request) *http.Response {
		if !strings.HasSuffix(r.URL.Path, "/pods") {
			return nil
		}
		from := 0
		if _, err := fmt.Sscan(r.URL.Query().Get("continue"), &from); err != nil && from != 0 {
			t.Error(err)
		}
		list := corev1.PodList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "PodList"}}
		for i := from; i < min(from+pageSize, pods); i++ {
			pod := corev1.Pod{ObjectMeta: metav1.ObjectMeta{
				Name: fmt.Sprintf("agent-%04d", i), Namespace: l.ns, UID: types.UID(fmt.Sprint("pod-", i)),
				OwnerReferences: []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "DaemonSet", Name: "agent", UID: types.UID(item.UID), Controller: new(true)}},
			}}
			pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
			if i%1000 == 999 {
				pod.Status = corev1.PodStatus{Phase: corev1.PodFailed, Reason: "Evicted"}
				pod.DeletionTimestamp = &metav1.Time{Time: time.Now()}
			}
			list.Items = append(list.Items, pod)
		}
		if from+pageSize < pods {
			list.Continue = fmt.Sprint(from + pageSize)
		}
		body, err := json.Marshal(list)
		if err != nil {
			t.Error(err)
		}
		return &http.Response{StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(strings.NewReader(string(body))), Request: r}
	}
	l.requests.Take()
	objects, problems, err := Read(t.Context(), l.Cluster, Request{ApplicationID: l.app, Items: l.items(), Children: true})
	if err != nil || len(problems) > 0 || len(objects) != 1 {
		t.Fatalf("%d objects, %v, %v", len(objects), problems, err)
	}
	children := objects[0].Children
	if len(children) != maxChildren || objects[0].LeftOut != pods-maxChildren || children[0].Object.Name != "agent-0000" || children[maxChildren-1].Object.Name != "agent-0999" {
		t.Errorf("%d children from %s to %s, %d left out", len(children), children[0].Object.Name, children[len(children)-1].Object.Name, objects[0].LeftOut)
	}
	if children[0].Deleting || !children[maxChildren-1].Deleting || objects[0].Deleting {
		t.Error("not just the pod with a deletion timestamp is being deleted")
	}
	if n := len(l.requests.Take()); n != 1+3 {
		t.Errorf("%d requests, want the list and three pages", n)
	}
}

// TestOneSelector: the selector must match every object that any of the given selectors
// matches.
func TestOneSelector(t *testing.T) {
	label := func(pairs ...string) *metav1.LabelSelector {
		s := &metav1.LabelSelector{MatchLabels: map[string]string{}}
		for i := 0; i < len(pairs); i += 2 {
			s.MatchLabels[pairs[i]] = pairs[i+1]
		}
		return s
	}
	var many []*metav1.LabelSelector
	for i := range maxSelected + 1 {
		many = append(many, label("app", fmt.Sprint(i)))
	}
	for want, selectors := range map[string][]*metav1.LabelSelector{
		"app in (web),tier in (a)": {label("app", "web", "tier", "a")},
		"app in (api,web)":         {label("app", "web", "tier", "a"), label("app", "api"), label("app", "api", "tier", "b")},
		"":                         {label("app", "web"), label("name", "api")},
		"app":                      many,
	} {
		if got := oneSelector(selectors); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

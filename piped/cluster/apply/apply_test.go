package apply

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/c785c783/piped/piped/cluster"
	"github.com/c785c783/piped/piped/cluster/apply/applytest"
	"github.com/c785c783/piped/piped/cluster/clustertest"
	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/manifest"
)

const web = applytest.Web

func TestFirstApplyCreatesAndASecondSendsNothing(t *testing.T) {
	l := newEnv(t)
	first := l.apply(t, web)
	if first.Written != 3 || first.Unchanged != 0 || len(first.Items) != 3 {
		t.Errorf("first apply: %d written, %d unchanged, %d items", first.Written, first.Unchanged, len(first.Items))
	}
	wantLog := []string{
		"3 objects: 3 created, 0 configured, 0 unchanged",
		"applied ConfigMap NS/settings (created)", "applied Deployment NS/web (created)", "applied Service NS/web (created)",
	}
	if diff := cmp.Diff(wantLog, l.logged()); diff != "" {
		t.Errorf("log (-want +got):\n%s", diff)
	}
	wantWrites := []string{
		"PATCH /api/v1/namespaces/NS/configmaps/settings", "PATCH /api/v1/namespaces/NS/services/web",
		"PATCH /apis/apps/v1/namespaces/NS/deployments/web",
	}
	if diff := cmp.Diff(wantWrites, l.writes()); diff != "" {
		t.Errorf("writes (-want +got):\n%s", diff)
	}

	live := l.get(t, "Deployment", "web")
	wantAnnotations := map[string]string{
		"pipecd.dev/managed-by": "piped", "pipecd.dev/piped": "piped-1", "pipecd.dev/application": "app-1",
		"pipecd.dev/variant": "primary", "pipecd.dev/original-api-version": "apps/v1",
		"pipecd.dev/resource-key": "apps/v1:Deployment:" + l.ns + ":web", "pipecd.dev/commit-hash": "commit-1",
	}
	got := live.GetAnnotations()
	maps.DeleteFunc(got, func(k, _ string) bool { return !strings.HasPrefix(k, "pipecd.dev/") })
	if diff := cmp.Diff(wantAnnotations, got); diff != "" {
		t.Errorf("annotations (-want +got):\n%s", diff)
	}
	for _, path := range [][]string{{"spec", "selector", "matchLabels"}, {"spec", "template", "metadata", "labels"}} {
		labels, _, _ := unstructured.NestedStringMap(live.Object, path...)
		if diff := cmp.Diff(map[string]string{"app": "web"}, labels); diff != "" {
			t.Errorf("%v (-want +got):\n%s", path, diff)
		}
	}

	second := l.apply(t, web, func(r *Request) {
		r.DeploymentID, r.Commit = "deployment-2", "commit-2"
		journalOf(r).beforeWrite = func(manifest.Object, *unstructured.Unstructured, *unstructured.Unstructured) error {
			return errors.New("called for an unchanged workload")
		}
	})
	if second.Written != 0 || second.Unchanged != 3 {
		t.Errorf("second apply: %d written, %d unchanged", second.Written, second.Unchanged)
	}
	if diff := cmp.Diff(first.Items, second.Items); diff != "" {
		t.Errorf("inventory changed:\n%s", diff)
	}
	for _, r := range l.requests.Take() {
		if !strings.HasPrefix(r, "GET ") {
			t.Errorf("the second apply sent %s", r)
		}
	}
	ref := deploy.ObjectRef{Group: "apps", Version: "v1", Kind: "Deployment", Namespace: l.ns, Name: "web"}
	if u := second.Live[ref]; u == nil || u.GetUID() != live.GetUID() || len(second.Live) != 1 {
		t.Errorf("live workloads of the second apply: %v", second.Live)
	}
}

func TestOneChangedObjectIsOnePatch(t *testing.T) {
	l := newEnv(t)
	before := l.apply(t, web)
	var called []string
	after := l.apply(t, strings.ReplaceAll(web, "web:1", "web:2"), func(r *Request) {
		r.DeploymentID, r.Commit = "deployment-2", "commit-2"
		journalOf(r).beforeWrite = func(obj manifest.Object, live, planned *unstructured.Unstructured) error {
			called = append(called, fmt.Sprintf("%s %v -> %v", obj.GetName(), images(live), images(planned)))
			return nil
		}
	})
	if diff := cmp.Diff([]string{"PATCH /apis/apps/v1/namespaces/NS/deployments/web"}, l.writes()); diff != "" {
		t.Errorf("writes (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"1 unchanged"}, []string{fmt.Sprint(after.Unchanged-1, " unchanged")}); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{"web [web:1] -> [web:2]"}, called); diff != "" {
		t.Errorf("BeforeWrite (-want +got):\n%s", diff)
	}
	if got := l.get(t, "Deployment", "web").GetAnnotations()["pipecd.dev/commit-hash"]; got != "commit-2" {
		t.Errorf("commit of the changed object is %q", got)
	}
	if got := l.get(t, "Service", "web").GetAnnotations()["pipecd.dev/commit-hash"]; got != "commit-1" {
		t.Errorf("commit of the unchanged object is %q", got)
	}
	item, old := itemOf(after, "Deployment"), itemOf(before, "Deployment")
	if item.DeploymentID != "deployment-2" || item.CreatedBy != "deployment-1" || item.UID != old.UID || item.DesiredDigest == old.DesiredDigest {
		t.Errorf("inventory item of the changed object: %+v", item)
	}
}

func itemOf(r Result, kind string) deploy.InventoryItem {
	for _, item := range r.Items {
		if item.Object.Kind == kind {
			return item
		}
	}
	return deploy.InventoryItem{}
}

func TestForeignEditIsPutBack(t *testing.T) {
	l := newEnv(t)
	l.apply(t, web)
	edit := []byte(`{"spec":{"template":{"spec":{"containers":[{"name":"web","image":"evil:1"}]}}}}`)
	_, err := l.Typed().AppsV1().Deployments(l.ns).Patch(context.Background(), "web", types.StrategicMergePatchType, edit, metav1.PatchOptions{FieldManager: "kubectl-edit"})
	if err != nil {
		t.Fatal(err)
	}
	l.apply(t, web, func(r *Request) { r.Commit = "commit-2" })
	if diff := cmp.Diff([]string{"PATCH /apis/apps/v1/namespaces/NS/deployments/web"}, l.writes()); diff != "" {
		t.Errorf("writes (-want +got):\n%s", diff)
	}
	live := l.get(t, "Deployment", "web")
	if diff := cmp.Diff([]string{"web:1"}, images(live)); diff != "" {
		t.Errorf("images (-want +got):\n%s", diff)
	}
	if got := live.GetAnnotations()["pipecd.dev/commit-hash"]; got != "commit-1" {
		t.Errorf("commit is %q; commit-2 did not change the object", got)
	}
	l.apply(t, web)
	if got := l.writes(); len(got) != 0 {
		t.Errorf("the next apply wrote %v", got)
	}
}

// TestAWriteInOurNameIsPutBack: neither another writer with the agent's field manager nor
// an admission webhook takes a field from the agent.
func TestAWriteInOurNameIsPutBack(t *testing.T) {
	l := newEnv(t)
	applied := l.apply(t, web)
	sent := newApplyRun(l.Client, l.request(t, strings.ReplaceAll(web, "web:1", "evil:1"))).objects()
	for _, u := range sent {
		setCommit(u, "commit-1")
		_, err := l.as(cluster.FieldManager).object(t, u.GetAPIVersion(), u.GetKind()).Apply(context.Background(), u.GetName(), u,
			metav1.ApplyOptions{FieldManager: cluster.FieldManager, Force: true})
		if err != nil {
			t.Fatal(err)
		}
	}
	if got := OwnedHash(l.get(t, "Deployment", "web").GetManagedFields()); got != itemOf(applied, "Deployment").OwnedHash {
		t.Fatal("the write has taken fields from the agent")
	}
	l.apply(t, web)
	if diff := cmp.Diff([]string{"web:1"}, images(l.get(t, "Deployment", "web"))); diff != "" {
		t.Errorf("images (-want +got):\n%s", diff)
	}
	as := l.as("kubectl-scale")
	as.patch(t, "apps/v1", "Deployment", "web", `{"spec":{"minReadySeconds":1}}`)
	l.apply(t, web)
	if got := l.writes(); len(got) != 0 {
		t.Errorf("after a write that leaves all that was applied, the next apply wrote %v", got)
	}
}

func TestManyObjectsOfAKindAreReadAtOnce(t *testing.T) {
	l := newEnv(t)
	var many strings.Builder
	for i := range 12 {
		fmt.Fprintf(&many, "---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: c%d}\ndata: {n: \"%d\"}\n", i, i)
	}
	l.apply(t, many.String())
	l.apply(t, many.String())
	var reads []string
	for _, r := range l.requests.Take() {
		reads = append(reads, l.anonymous(r))
	}
	if diff := cmp.Diff([]string{"GET /api/v1/namespaces/NS/configmaps"}, reads); diff != "" {
		t.Errorf("requests of an apply that changes nothing (-want +got):\n%s", diff)
	}
}

func TestDefinitionAndObjectInOneSet(t *testing.T) {
	l := newEnv(t)
	group := l.ns + ".example.com"
	crd := `
apiVersion: example.com/v1
kind: Widget
metadata: {name: w}
spec: {size: 3}
---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: widgets.example.com}
spec:
  group: example.com
  scope: Namespaced
  names: {kind: Widget, plural: widgets, singular: widget, listKind: WidgetList}
  versions:
  - name: v1
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, properties: {spec: {type: object, properties: {size: {type: integer}}}}}}
`
	crd = strings.ReplaceAll(crd, "example.com", group)
	result := l.apply(t, crd)
	t.Cleanup(func() {
		if _, err := l.Delete(context.Background(), "piped-1", l.items(), l.log); err != nil {
			t.Error(err)
		}
	})
	wantLog := []string{
		"2 objects: 2 created, 0 configured, 0 unchanged",
		"applied CustomResourceDefinition widgets.NS.example.com (created)", "applied Widget NS/w (created)",
	}
	if diff := cmp.Diff(wantLog, l.logged()); diff != "" {
		t.Errorf("log (-want +got):\n%s", diff)
	}
	if result.Written != 2 {
		t.Errorf("%d written", result.Written)
	}
	// A definition and an object that needs its new field, in one commit.
	changed := strings.ReplaceAll(strings.ReplaceAll(crd, "size: 3", "size: 3, color: blue"), "{size: {type: integer}}", "{size: {type: integer}, color: {type: string}}")
	l.apply(t, changed)
	wantWrites := []string{
		"PATCH /apis/NS.example.com/v1/namespaces/NS/widgets/w", "PATCH /apis/apiextensions.k8s.io/v1/customresourcedefinitions/widgets.NS.example.com",
	}
	if diff := cmp.Diff(wantWrites, l.writes()); diff != "" {
		t.Errorf("writes (-want +got):\n%s", diff)
	}
	l.apply(t, changed)
	if got := l.writes(); len(got) != 0 {
		t.Errorf("an unchanged set wrote %v", got)
	}
}

func TestObjectsOfOthersAreNotTouched(t *testing.T) {
	l := newEnv(t)
	l.apply(t, web)
	l.inventory = map[string]deploy.InventoryItem{}
	cases := map[string]struct {
		change func(*Request)
		want   string
	}{
		"of another application": {
			change: func(r *Request) { r.ApplicationID = "app-2" },
			want: "nothing was changed, because application app-2 of piped piped-1 may not touch objects of others: " +
				"ConfigMap NS/settings belongs to application app-1; Service NS/web belongs to application app-1; Deployment NS/web belongs to application app-1; " +
				"take the objects out of one of them, or set takeOver: true",
		},
		"of an application that is known": {
			change: func(r *Request) {
				r.ApplicationID, r.Describe = "app-2", func(id string) string { return map[string]string{"app-1": "web (main:web/app.pipecd.yaml)"}[id] }
			},
			want: "nothing was changed, because application app-2 of piped piped-1 may not touch objects of others: " +
				"ConfigMap NS/settings belongs to application web (main:web/app.pipecd.yaml); Service NS/web belongs to application web (main:web/app.pipecd.yaml); " +
				"Deployment NS/web belongs to application web (main:web/app.pipecd.yaml); take the objects out of one of them, or set takeOver: true",
		},
		"of another piped": {
			change: func(r *Request) {
				r.PipedID, r.ApplicationExists = "piped-2", func(string) bool { return false }
			},
			want: "nothing was changed, because application app-1 of piped piped-2 may not touch objects of others: " +
				"ConfigMap NS/settings belongs to application app-1 of piped piped-1; Service NS/web belongs to application app-1 of piped piped-1; " +
				"Deployment NS/web belongs to application app-1 of piped piped-1; take the objects out of one of them, or set takeOver: true",
		},
		"of a removed application": {
			change: func(r *Request) {
				r.ApplicationID, r.ApplicationExists = "app-3", func(string) bool { return false }
			},
		},
		"taken over": {
			change: func(r *Request) { r.ApplicationID, r.PipedID, r.TakeOver = "app-4", "piped-2", true },
		},
	}
	for _, name := range []string{"of another application", "of an application that is known", "of another piped", "of a removed application", "taken over"} {
		t.Run(name, func(t *testing.T) {
			c := cases[name]
			result, err := l.tryApply(t, web, c.change, func(r *Request) { r.Journal = nil })
			writes := l.writes()
			if c.want == "" {
				if err != nil || len(writes) != 3 || itemOf(result, "Service").CreatedBy != "" {
					t.Fatalf("error %v, writes %v, item %+v", err, writes, itemOf(result, "Service"))
				}
				return
			}
			if err == nil || l.anonymous(err.Error()) != c.want || deploy.KindOf(err) != deploy.Invalid {
				t.Errorf("error (%v):\n%v\nwant:\n%s", deploy.KindOf(err), err, c.want)
			}
			if len(writes) != 0 {
				t.Errorf("writes: %v", writes)
			}
		})
	}
}

func TestABadManifestChangesNothing(t *testing.T) {
	l := newEnv(t)
	good := "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: good}\n---\n"
	cases := map[string]struct{ manifests, want string }{
		"unknown field": {
			manifests: good + strings.Replace(web, "replicas: 1", "replicsa: 1", 1),
			want:      "nothing was changed: apply Deployment NS/web (app.yaml:16): failed to create typed patch object (NS/web; apps/v1, Kind=Deployment): .spec.replicsa: field not declared in schema",
		},
		"invalid value": {
			manifests: good + strings.Replace(web, "port: 80", "port: 99999, targetPort: 80", 1),
			want:      "nothing was changed: apply Service NS/web (app.yaml:11): spec.ports[0].port: Invalid value: 99999: must be between 1 and 65535, inclusive: refused by the API server",
		},
		"two bad objects": {
			manifests: good + strings.NewReplacer("port: 80", "port: 99999, targetPort: 80", "app: web}}\n    spec", "app: other}}\n    spec").Replace(web),
			want: "nothing was changed: apply Service NS/web (app.yaml:11): spec.ports[0].port: Invalid value: 99999: must be between 1 and 65535, inclusive: refused by the API server; " +
				"apply Deployment NS/web (app.yaml:16): spec.template.metadata.labels: Invalid value: {\"app\":\"other\"}: `selector` does not match template `labels`: refused by the API server",
		},
		"a quantity that is none": {
			manifests: good + strings.Replace(web, "1000m", "lots", 1),
			want: "nothing was changed: apply Deployment NS/web (app.yaml:16): failed to convert new object (NS/web; apps/v1, Kind=Deployment) to proper version: " +
				"unable to convert unstructured object to apps/v1, Kind=Deployment: quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'",
		},
		"a secret that is not base64": {
			manifests: good + "apiVersion: v1\nkind: Secret\nmetadata: {name: s}\ndata: {password: not base64}\n",
			want:      "nothing was changed: apply Secret NS/s (app.yaml:5): a field is unknown, a value of stringData is not text, or one of data is not base64: refused by the API server",
		},
		"a secret that is a number": {
			manifests: good + "apiVersion: v1\nkind: Secret\nmetadata: {name: s}\nstringData: {password: 31337}\n",
			want:      "nothing was changed: apply Secret NS/s (app.yaml:5): a field is unknown, a value of stringData is not text, or one of data is not base64: refused by the API server",
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			_, err := l.tryApply(t, c.manifests)
			if err == nil || l.anonymous(err.Error()) != c.want || deploy.KindOf(err) != deploy.Invalid {
				t.Errorf("error (%v):\n%v\nwant:\n%s", deploy.KindOf(err), err, c.want)
			}
			if writes := l.writes(); len(writes) != 0 {
				t.Errorf("writes: %v", writes)
			}
		})
	}
}

func TestImmutableFieldIsExplained(t *testing.T) {
	l := newEnv(t)
	l.apply(t, web)
	_, err := l.tryApply(t, strings.ReplaceAll(web, "app: web", "app: other"))
	want := "nothing was changed: apply Deployment NS/web (app.yaml:12): spec.selector of a live Deployment cannot be changed; " +
		"undo the change, give the object a new name, have it deleted and created anew with the annotation pipecd.dev/force-sync-by-replace: \"enabled\", " +
		"or delete the live object and sync again: spec.selector: Invalid value: "
	if err == nil || !strings.HasPrefix(l.anonymous(err.Error()), want) || deploy.KindOf(err) != deploy.Invalid {
		t.Errorf("error (%v):\n%v\nwant it to begin with:\n%s", deploy.KindOf(err), err, want)
	}
	if writes := l.writes(); len(writes) != 0 {
		t.Errorf("writes: %v", writes)
	}
}

func TestClientSideAppliedObjectIsAdopted(t *testing.T) {
	l := newEnv(t)
	cm := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: "settings", Annotations: map[string]string{corev1.LastAppliedConfigAnnotation: "{}"}, Labels: map[string]string{"old": "yes"}},
		Data:       map[string]string{"color": "red", "gone": "from Git"},
	}
	client := l.Typed().CoreV1().ConfigMaps(l.ns)
	if _, err := client.Create(context.Background(), cm, metav1.CreateOptions{FieldManager: "kubectl-client-side-apply"}); err != nil {
		t.Fatal(err)
	}
	others := []byte(`{"data":{"kept":"set by another controller"}}`)
	if _, err := client.Patch(context.Background(), "settings", types.MergePatchType, others, metav1.PatchOptions{FieldManager: "controller"}); err != nil {
		t.Fatal(err)
	}
	result := l.apply(t, web)
	if got := itemOf(result, "ConfigMap").CreatedBy; got != "" {
		t.Errorf("an adopted object is said to be created by %q", got)
	}
	live, err := client.Get(context.Background(), "settings", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[string]string{"color": "blue", "kept": "set by another controller"}, live.Data); diff != "" {
		t.Errorf("data (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(map[string]string{"pipecd.dev/application": "app-1"}, live.Labels); diff != "" {
		t.Errorf("labels (-want +got):\n%s", diff)
	}
	if _, ok := live.Annotations[corev1.LastAppliedConfigAnnotation]; ok {
		t.Error("the last-applied annotation is still there")
	}
	var managers []string
	for _, e := range live.ManagedFields {
		managers = append(managers, e.Manager)
	}
	if diff := cmp.Diff([]string{"piped", "controller"}, managers); diff != "" {
		t.Errorf("field managers (-want +got):\n%s", diff)
	}
	l.apply(t, web)
	if got := l.writes(); len(got) != 0 {
		t.Errorf("the next apply wrote %v", got)
	}
}

func TestMissingNamespace(t *testing.T) {
	l := newEnv(t)
	fresh := l.ns + "-new"
	inNew := func(r *Request) {
		for i := range r.Objects {
			r.Objects[i].SetNamespace(fresh)
		}
	}
	_, err := l.tryApply(t, web, inNew)
	want := `nothing was changed: namespace "NS-new" of ConfigMap NS-new/settings (app.yaml:2) does not exist in cluster "test" (`
	if err == nil || !strings.HasPrefix(l.anonymous(err.Error()), want) || deploy.KindOf(err) != deploy.Invalid {
		t.Errorf("error (%v):\n%v\nwant it to begin with:\n%s", deploy.KindOf(err), err, want)
	}
	if writes := l.writes(); len(writes) != 0 {
		t.Errorf("writes: %v", writes)
	}
	result := l.apply(t, web, inNew, func(r *Request) { r.AutoCreateNamespace = true })
	t.Cleanup(func() {
		if err := l.Typed().CoreV1().Namespaces().Delete(context.Background(), fresh, metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	})
	if len(result.Items) != 3 {
		t.Errorf("inventory %v: the namespace is not the application's", result.Items)
	}
	if writes := l.writes(); len(writes) != 4 || writes[3] != "POST /api/v1/namespaces" {
		t.Errorf("writes: %v", writes)
	}
}

func TestNamespaceInTheSetComesFirst(t *testing.T) {
	l := newEnv(t)
	fresh := l.ns + "-own"
	manifests := fmt.Sprintf("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n---\napiVersion: v1\nkind: Namespace\nmetadata: {name: %s}\n", fresh)
	req := func(r *Request) { r.Objects[0].SetNamespace(fresh) }
	result := l.apply(t, manifests, req)
	t.Cleanup(func() {
		if _, err := l.Delete(context.Background(), "piped-1", l.items(), l.log); err != nil {
			t.Error(err)
		}
	})
	if result.Written != 2 {
		t.Errorf("%d written", result.Written)
	}
}

func TestReplicasOfAnAutoscalerAreKept(t *testing.T) {
	l := newEnv(t)
	hpa := "---\napiVersion: autoscaling/v2\nkind: HorizontalPodAutoscaler\nmetadata: {name: web}\n" +
		"spec: {minReplicas: 1, maxReplicas: 9, scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: web}}\n"
	five := strings.Replace(web, "replicas: 1", "replicas: 5", 1)
	replicas := func(want int64) {
		t.Helper()
		got, _, _ := unstructured.NestedInt64(l.get(t, "Deployment", "web").Object, "spec", "replicas")
		if got != want {
			t.Errorf("replicas are %d, want %d", got, want)
		}
	}
	scale := func(n int, manager string) {
		t.Helper()
		patch := fmt.Appendf(nil, `{"spec":{"replicas":%d}}`, n)
		_, err := l.Typed().AppsV1().Deployments(l.ns).Patch(context.Background(), "web", types.MergePatchType, patch, metav1.PatchOptions{FieldManager: manager}, "scale")
		if err != nil {
			t.Fatal(err)
		}
	}
	l.apply(t, five)
	// An autoscaler is added, and Git says 1: the live number stays.
	l.apply(t, web+hpa)
	replicas(5)
	scale(7, "kube-controller-manager")
	l.apply(t, strings.Replace(web, "web:1", "web:2", 1)+hpa)
	replicas(7)
	l.apply(t, strings.Replace(web, "web:1", "web:2", 1)+hpa)
	if got := l.writes(); len(got) != 0 {
		t.Errorf("an unchanged set wrote %v", got)
	}
	// The autoscaler is removed, and Git's number applies again.
	if err := l.Typed().AutoscalingV1().HorizontalPodAutoscalers(l.ns).Delete(context.Background(), "web", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	l.apply(t, strings.Replace(web, "web:1", "web:3", 1))
	replicas(1)
	// A user who scales by hand is no autoscaler.
	scale(4, "kubectl")
	l.apply(t, strings.Replace(web, "web:1", "web:3", 1))
	replicas(1)
}

func TestApplyRidesOutAShortOutage(t *testing.T) {
	l := newEnv(t)
	l.requests.Fail = clustertest.RefuseConnections(http.MethodPatch, 3)
	l.apply(t, web)
	var said []string
	for _, line := range l.log.take() {
		if strings.Contains(line, "trying again") {
			said = append(said, line)
		}
	}
	want := []string{fmt.Sprintf("cluster \"test\" (%s) cannot be reached: dial: connection refused; trying again for up to 1m0s", l.RESTConfig().Host)}
	if diff := cmp.Diff(want, said); diff != "" {
		t.Errorf("said about the outage (-want +got):\n%s", diff)
	}
}

func TestAdoptionReadsAgainAfterAConflict(t *testing.T) {
	l := newEnv(t)
	client := l.Typed().CoreV1().ConfigMaps(l.ns)
	cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "settings"}, Data: map[string]string{"color": "red"}}
	if _, err := client.Create(context.Background(), cm, metav1.CreateOptions{FieldManager: "kubectl-client-side-apply"}); err != nil {
		t.Fatal(err)
	}
	// Another user changes the object between our read and our takeover.
	touched := false
	l.requests.Fail = func(r *http.Request) error {
		if r.Method != http.MethodPatch || r.Header.Get("Content-Type") != string(types.JSONPatchType) || touched {
			return nil
		}
		touched = true
		return l.touch("settings")
	}
	l.apply(t, web)
	wantWrites := []string{
		"PATCH /api/v1/namespaces/NS/configmaps/settings",
		"PATCH /api/v1/namespaces/NS/configmaps/settings application/json-patch+json",
		"PATCH /api/v1/namespaces/NS/configmaps/settings application/json-patch+json",
		"PATCH /api/v1/namespaces/NS/services/web", "PATCH /apis/apps/v1/namespaces/NS/deployments/web",
	}
	if diff := cmp.Diff(wantWrites, l.writes()); diff != "" {
		t.Errorf("writes (-want +got):\n%s", diff)
	}
}

func TestTheEndOfTheContextIsSaidAsSuch(t *testing.T) {
	l := newEnv(t)
	req := l.request(t, web)
	ctx, cancel := context.WithCancelCause(context.Background())
	l.requests.Fail = func(r *http.Request) error {
		if r.Method == http.MethodPatch {
			cancel(deploy.StopTimedOut)
		}
		return nil
	}
	_, err := l.Apply(ctx, req)
	if deploy.Stopped(ctx) != deploy.StopTimedOut || !errors.Is(err, deploy.StopTimedOut) {
		t.Errorf("error: %v", err)
	}
	if strings.Contains(fmt.Sprint(err), "https://") {
		t.Errorf("a stopped apply blames the cluster: %v", err)
	}
}

func TestAnInterruptedRunIsContinued(t *testing.T) {
	l := newEnv(t)
	var creating []deploy.ObjectRef
	crash := errors.New("the agent is killed")
	_, err := l.tryApply(t, web, func(r *Request) {
		journalOf(r).begin = func(i Intent) { creating = i.Creates }
		journalOf(r).afterWrite = func(*unstructured.Unstructured, deploy.InventoryItem) error { return crash }
	})
	if !errors.Is(err, crash) || len(creating) != 3 {
		t.Fatalf("error %v, creating %v", err, creating)
	}
	result := l.apply(t, web, func(r *Request) {
		r.Created = creating
		journalOf(r).begin = func(i Intent) { creating = i.Creates }
	})
	wantCreating := []deploy.ObjectRef{{Group: "apps", Version: "v1", Kind: "Deployment", Namespace: l.ns, Name: "web"}}
	if diff := cmp.Diff(wantCreating, creating); diff != "" {
		t.Errorf("still to be created (-want +got):\n%s", diff)
	}
	for _, item := range result.Items {
		if item.CreatedBy != "deployment-1" {
			t.Errorf("%s is said to be created by %q", item.Object, item.CreatedBy)
		}
	}
}

func TestAWorkloadWhoseIntentIsNotStoredIsNotWritten(t *testing.T) {
	l := newEnv(t)
	_, err := l.tryApply(t, web, func(r *Request) {
		journalOf(r).beforeWrite = func(manifest.Object, *unstructured.Unstructured, *unstructured.Unstructured) error {
			return errors.New("disk full")
		}
	})
	if fmt.Sprint(err) != fmt.Sprintf("prepare to apply Deployment %s/web: disk full", l.ns) {
		t.Errorf("error: %v", err)
	}
	for _, w := range l.writes() {
		if strings.Contains(w, "deployments") {
			t.Errorf("wrote %s", w)
		}
	}
}

func TestApplyToAnUnreachableCluster(t *testing.T) {
	c := New(applytest.Unreachable(t))
	_, err := c.Apply(context.Background(), Request{
		ApplicationID: "app-1", PipedID: "piped-1", Log: newTestLog(),
		Objects: parse(t, "app.yaml", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a, namespace: shop}\n"),
	})
	want := `read ConfigMap shop/a (app.yaml:1): cluster "test" (https://127.0.0.1:1) cannot be reached: dial: connection refused`
	if fmt.Sprint(err) != want || deploy.KindOf(err) != deploy.Unavailable {
		t.Errorf("error (%v):\n%v\nwant (unavailable):\n%s", deploy.KindOf(err), err, want)
	}
}

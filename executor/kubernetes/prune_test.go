package kubernetes

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/c785c783/piped/piped/deploy"
)

// syncAs runs K8S_SYNC of deployment "now" with manifests.
func (l *stageEnv) syncAs(t *testing.T, manifests string, change ...func(*deploy.StageRun)) (deploy.StageResult, deploy.StageRun) {
	t.Helper()
	l.manifests = manifests
	run := l.deployment("now")
	for _, f := range change {
		f(&run)
	}
	l.writes()
	l.log.lines = nil
	return l.Sync().Execute(t.Context(), run), run
}

// stageID makes a run one of another stage of the deployment.
func stageID(id string) func(*deploy.StageRun) {
	return func(r *deploy.StageRun) { r.Stage.ID = id }
}

func (l *stageEnv) wantLogged(t *testing.T, parts ...string) {
	t.Helper()
	log := strings.Join(l.log.lines, "\n")
	for _, part := range parts {
		if !strings.Contains(log, part) {
			t.Errorf("the log lacks %q:\n%s", part, log)
		}
	}
}

// inventoried returns what the inventory holds, as Kind/name.
func (l *stageEnv) inventoried(t *testing.T) (names []string) {
	t.Helper()
	items, err := l.Store.Inventory(t.Context(), l.app.ID)
	if err != nil {
		t.Fatal(err)
	}
	for _, i := range items {
		names = append(names, i.Object.Kind+"/"+i.Object.Name)
	}
	slices.Sort(names)
	return names
}

func configMaps(n int) string {
	var out strings.Builder
	for i := range n {
		fmt.Fprintf(&out, "---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: c%02d}\n", i)
	}
	return out.String()
}

// deploymentOf is a Deployment that mounts a ConfigMap, if one is named.
func deploymentOf(name, namespace, image, configMap string) string {
	volumes := ""
	if configMap != "" {
		volumes = ", volumes: [{name: v, configMap: {name: " + configMap + "}}]"
	}
	return fmt.Sprintf(`---
apiVersion: apps/v1
kind: Deployment
metadata: {name: %s, namespace: %s}
spec: {revisionHistoryLimit: 1, selector: {matchLabels: {app: %[1]s}}, template: {metadata: {labels: {app: %[1]s}}, spec: {containers: [{name: c, image: "registry.example/web:%[3]s"}]%[4]s}}}
`, name, namespace, image, volumes)
}

// TestTooManyDeletionsWriteNothing: more than the limit ends the stage before its
// first write, names what would go, and goes once a person has permitted that.
func TestTooManyDeletionsWriteNothing(t *testing.T) {
	l := newStageEnv(t)
	l.spec += "  quickSync: {prune: true}\n"
	l.succeed(t, keptManifest+configMaps(11))

	result, run := l.syncAs(t, keptManifest+newManifest)
	if result.Status != deploy.StageFailure || !strings.Contains(result.Reason, "prune would delete 11 of 12 objects") ||
		!strings.Contains(result.Reason, "--confirm-prune") || !strings.Contains(result.Reason, "/c10") || !result.NoRollback {
		t.Fatalf("ended %+v", result)
	}
	if writes := l.writes(); len(writes) > 0 {
		t.Errorf("writes: %v", writes)
	}
	var refused []deploy.ObjectRef
	if err := json.Unmarshal([]byte(run.Stage.Metadata[deploy.MetaPruneRefused]), &refused); err != nil || len(refused) != 11 {
		t.Fatalf("recorded %v, %v", refused, err)
	}

	result, _ = l.syncAs(t, keptManifest+newManifest, func(r *deploy.StageRun) { r.Deployment.Trigger.PermitPrune = refused })
	if result.Status != deploy.StageSuccess {
		t.Fatalf("permitted, it ended %+v", result)
	}
	if diff := cmp.Diff([]string{"ConfigMap/kept", "ConfigMap/new"}, l.inventoried(t)); diff != "" {
		t.Errorf("inventory (-want +got):\n%s", diff)
	}
}

// TestRenamedAndMovedIsDeletedAfterItsSuccessor: the Deployment under the old name
// and in the old namespace goes when the new ones run.
func TestRenamedAndMovedIsDeletedAfterItsSuccessor(t *testing.T) {
	l := newStageEnv(t)
	l.spec = "  quickSync: {prune: true}\n"
	other := l.shared.Namespace(t)
	l.succeed(t, deploymentOf("old", l.ns, "v1", "")+deploymentOf("moved", l.ns, "v1", ""))

	client := l.shared.Client(t).AppsV1()
	l.answered = func(r *http.Request) error {
		if r.Method != http.MethodDelete {
			return nil
		}
		for namespace, name := range map[string]string{l.ns: "new", other: "moved"} {
			d, err := client.Deployments(namespace).Get(r.Context(), name, metav1.GetOptions{})
			if err != nil || d.Status.AvailableReplicas != 1 {
				t.Errorf("%s was called before Deployment %s runs: %v", r.URL.Path, name, err)
			}
		}
		return nil
	}
	result, _ := l.syncAs(t, deploymentOf("new", l.ns, "v1", "")+deploymentOf("moved", other, "v1", ""))
	if result.Status != deploy.StageSuccess {
		t.Fatalf("ended %+v", result)
	}
	var deleted []string
	for _, w := range l.writes() {
		if strings.HasPrefix(w, http.MethodDelete) {
			deleted = append(deleted, strings.ReplaceAll(w, l.ns, "NS"))
		}
	}
	slices.Sort(deleted)
	want := []string{"DELETE /apis/apps/v1/namespaces/NS/deployments/moved", "DELETE /apis/apps/v1/namespaces/NS/deployments/old"}
	if diff := cmp.Diff(want, deleted); diff != "" {
		t.Errorf("deletes (-want +got):\n%s", diff)
	}
	if _, err := client.Deployments(other).Get(t.Context(), "moved", metav1.GetOptions{}); err != nil {
		t.Errorf("the moved Deployment: %v", err)
	}
}

// TestGeneratedConfigStaysWhileARevisionUsesIt: a ConfigMap with a hash in its name
// goes with the last ReplicaSet that uses it, one without goes at once.
func TestGeneratedConfigStaysWhileARevisionUsesIt(t *testing.T) {
	l := newStageEnv(t)
	l.spec += "  quickSync: {prune: true}\n"
	configMap := func(name string) string {
		return "---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: " + name + "}\n"
	}
	const one, two, three, unused = "web-5f2b9tbgmk", "web-6g2b9tbgmk", "web-7h2b9tbgmk", "web-8k2b9tbgmk"
	l.succeed(t, configMap(one)+configMap(unused)+configMap("plain")+deploymentOf("web", l.ns, "v1", one))

	for _, step := range []struct {
		name string
		want []string
		log  string
	}{
		{two, []string{"ConfigMap/" + one, "ConfigMap/" + two, "Deployment/web"}, one + " is no longer in Git; it stays while ReplicaSet web-"},
		{three, []string{"ConfigMap/" + two, "ConfigMap/" + three, "Deployment/web"}, two + " is no longer in Git; it stays"},
	} {
		result, _ := l.syncAs(t, configMap(step.name)+deploymentOf("web", l.ns, "v1", step.name), stageID(step.name))
		if result.Status != deploy.StageSuccess {
			t.Fatalf("%s ended %+v", step.name, result)
		}
		l.awaitRevisions(t, 2)
		if step.name == three { // the history was cut after the rollout's end
			result, _ = l.syncAs(t, l.manifests, stageID("again"))
		}
		if diff := cmp.Diff(step.want, l.inventoried(t)); diff != "" || result.Status != deploy.StageSuccess {
			t.Errorf("after %s: %+v (-want +got):\n%s", step.name, result, diff)
		}
		l.wantLogged(t, step.log)
	}
}

// awaitRevisions waits until the Deployment keeps no more than n ReplicaSets.
func (l *stageEnv) awaitRevisions(t *testing.T, n int) {
	t.Helper()
	eventually(t, func() string {
		sets, err := l.shared.Client(t).AppsV1().ReplicaSets(l.ns).List(t.Context(), metav1.ListOptions{})
		if err != nil || len(sets.Items) > n {
			return fmt.Sprintf("%d ReplicaSets, %v", len(sets.Items), err)
		}
		return ""
	})
}

// TestWhatStaysIsSaid: without prune the leftovers are named and kept, as is what
// an application that was moved has on another cluster.
func TestWhatStaysIsSaid(t *testing.T) {
	l := newStageEnv(t)
	l.succeed(t, keptManifest+newManifest)
	far := deploy.InventoryItem{ApplicationID: l.app.ID, Cluster: "far", UID: "u", Object: deploy.ObjectRef{Version: "v1", Kind: "Secret", Namespace: "shop", Name: "far"}}
	if err := l.Store.PutInventory(t.Context(), far); err != nil {
		t.Fatal(err)
	}
	if result, _ := l.syncAs(t, keptManifest); result.Status != deploy.StageSuccess {
		t.Fatalf("ended %+v", result)
	}
	l.wantLogged(t, "No longer in Git, and left alone because prune is off: ConfigMap "+l.ns+"/new",
		"its objects on platform provider far are left there; delete them by hand if they are not needed: Secret shop/far")
	if diff := cmp.Diff([]string{"ConfigMap/kept", "ConfigMap/new", "Secret/far"}, l.inventoried(t)); diff != "" {
		t.Errorf("inventory (-want +got):\n%s", diff)
	}
}

// TestSurvivorsStayInTheInventory: the next sync tries again to delete what could not be
// deleted; deleted objects leave the inventory.
func TestSurvivorsStayInTheInventory(t *testing.T) {
	l := newStageEnv(t)
	l.spec += "  quickSync: {prune: true}\n"
	l.succeed(t, keptManifest+newManifest+configMaps(1))
	l.answered = func(r *http.Request) error {
		if r.Method == http.MethodDelete && strings.HasSuffix(r.URL.Path, "/new") {
			return &apierrors.StatusError{ErrStatus: metav1.Status{Code: http.StatusForbidden, Reason: metav1.StatusReasonForbidden, Message: "no"}}
		}
		return nil
	}
	// The request is refused before it reaches the cluster.
	client := l.shared.Client(t).CoreV1().ConfigMaps(l.ns)
	held, err := client.Get(t.Context(), "new", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	held.Finalizers = []string{"example.com/hold"}
	if _, err := client.Update(t.Context(), held, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	if result, _ := l.syncAs(t, keptManifest); result.Status != deploy.StageFailure {
		t.Fatalf("ended %+v", result)
	}
	if diff := cmp.Diff([]string{"ConfigMap/kept", "ConfigMap/new"}, l.inventoried(t)); diff != "" {
		t.Errorf("inventory (-want +got):\n%s", diff)
	}
	l.answered = nil
	if _, err := client.Patch(t.Context(), "new", "application/merge-patch+json", []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	if result, _ := l.syncAs(t, keptManifest); result.Status != deploy.StageSuccess {
		t.Fatalf("ended %+v", result)
	}
	if diff := cmp.Diff([]string{"ConfigMap/kept"}, l.inventoried(t)); diff != "" {
		t.Errorf("inventory in the end (-want +got):\n%s", diff)
	}
}

// patience is how long a test waits for what must happen, on a machine that is busy with
// other work, too.
const patience = 6 * time.Minute

// eventually waits until wrong returns "".
func eventually(t *testing.T, wrong func() string) {
	t.Helper()
	for end := time.Now().Add(patience); ; time.Sleep(50 * time.Millisecond) {
		what := wrong()
		if what == "" {
			return
		}
		if time.Now().After(end) {
			t.Fatal(what)
		}
	}
}

// TestWhatHelmKeepsStays: an object whose annotation says so is not deleted, which each
// prune says; it stays the application's.
func TestWhatHelmKeepsStays(t *testing.T) {
	l := newStageEnv(t)
	l.spec += "  quickSync: {prune: true}\n"
	valuable := "---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: valuable, annotations: {helm.sh/resource-policy: keep}}\n"
	l.succeed(t, keptManifest+valuable)
	for range 2 {
		if result, _ := l.syncAs(t, keptManifest); result.Status != deploy.StageSuccess {
			t.Fatalf("ended %+v", result)
		}
		l.wantLogged(t, "left ConfigMap "+l.ns+"/valuable alone: its annotation helm.sh/resource-policy is keep; delete it by hand if it is not needed")
		if diff := cmp.Diff([]string{"ConfigMap/kept", "ConfigMap/valuable"}, l.inventoried(t)); diff != "" {
			t.Errorf("inventory (-want +got):\n%s", diff)
		}
	}
	if _, err := l.shared.Client(t).CoreV1().ConfigMaps(l.ns).Get(t.Context(), "valuable", metav1.GetOptions{}); err != nil {
		t.Error(err)
	}
}

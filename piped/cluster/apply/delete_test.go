package apply

import (
	"context"
	"net/http"
	"path"
	"slices"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/c785c783/piped/piped/cluster/clustertest"
	"github.com/c785c783/piped/piped/deploy"
)

func TestDeleteLeavesAloneWhatIsNotOurs(t *testing.T) {
	l := newEnv(t)
	ctx := context.Background()
	client := l.Typed().CoreV1().ConfigMaps(l.ns)
	l.apply(t, `
apiVersion: v1
kind: ConfigMap
metadata: {name: ours}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: gone}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: recreated}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: taken}
`)
	items := append(l.items(), deploy.InventoryItem{
		ApplicationID: "app-1", UID: "x", Object: deploy.ObjectRef{Group: "never.example.com", Version: "v1", Kind: "Nothing", Namespace: l.ns, Name: "n"},
	})
	for _, name := range []string{"gone", "recreated"} {
		if err := client.Delete(ctx, name, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	l.inventory = map[string]deploy.InventoryItem{}
	l.apply(t, "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: recreated}\n")
	taken := []byte(`{"metadata":{"annotations":{"pipecd.dev/application":"app-2"}}}`)
	if _, err := client.Patch(ctx, "taken", types.MergePatchType, taken, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	l.log.take()

	if _, err := l.Delete(ctx, "piped-1", items, l.log); err != nil {
		t.Fatal(err)
	}
	wantLog := []string{
		"ConfigMap NS/gone is gone already", "deleted ConfigMap NS/ours",
		"left ConfigMap NS/recreated alone: another object has taken its name",
		`left ConfigMap NS/taken alone: it is not application app-1's any more (annotation pipecd.dev/application is "app-2" instead of "app-1")`,
	}
	if diff := cmp.Diff(wantLog, l.logged()); diff != "" {
		t.Errorf("log (-want +got):\n%s", diff)
	}
	for name, want := range map[string]bool{"ours": false, "recreated": true, "taken": true} {
		_, err := client.Get(ctx, name, metav1.GetOptions{})
		if exists := !apierrors.IsNotFound(err); exists != want {
			t.Errorf("%s exists: %v, want %v (%v)", name, exists, want, err)
		}
	}
}

// TestDeleteDecidesAnewOnWhatHasChanged: an object that gets another owner after it was
// read stays; one that only changes is deleted.
func TestDeleteDecidesAnewOnWhatHasChanged(t *testing.T) {
	l := newEnv(t)
	client := clustertest.Shared(t).Client(t).CoreV1().ConfigMaps(l.ns)
	l.apply(t, "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: taken}\n---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: changed}\n")
	patches := map[string]string{
		"taken":   `{"metadata":{"annotations":{"pipecd.dev/application":"app-2"}}}`,
		"changed": `{"data":{"more":"yes"}}`,
	}
	var mu sync.Mutex
	l.requests.Answer = func(r *http.Request) *http.Response {
		name := path.Base(r.URL.Path)
		mu.Lock()
		patch := patches[name]
		if r.Method == http.MethodDelete {
			delete(patches, name) // once, after the object was read
		}
		mu.Unlock()
		if r.Method == http.MethodDelete && patch != "" {
			if _, err := client.Patch(t.Context(), name, types.MergePatchType, []byte(patch), metav1.PatchOptions{}); err != nil {
				t.Error(err)
			}
		}
		return nil
	}
	ended, err := l.Delete(t.Context(), "piped-1", l.items(), l.log)
	if err != nil || len(ended) != 2 {
		t.Errorf("ended %v, %v", ended, err)
	}
	for name, want := range map[string]bool{"taken": true, "changed": false} {
		if _, err := client.Get(t.Context(), name, metav1.GetOptions{}); apierrors.IsNotFound(err) == want {
			t.Errorf("%s exists: %v, want %v (%v)", name, !want, want, err)
		}
	}
}

func TestDeleteGoesTheOtherWayRound(t *testing.T) {
	l := newEnv(t)
	l.apply(t, web)
	l.requests.Take()
	if _, err := l.Delete(context.Background(), "piped-1", l.items(), l.log); err != nil {
		t.Fatal(err)
	}
	var deletes []string
	conflicts := l.requests.Conflicts // the object had changed since it was read, so the request was repeated
	for _, r := range l.requests.Take() {
		if i := slices.Index(conflicts, r); i >= 0 {
			conflicts = slices.Delete(conflicts, i, i+1)
			continue
		}
		if r[:4] == "DELE" {
			deletes = append(deletes, l.anonymous(r))
		}
	}
	if len(deletes) != 3 || deletes[0] != "DELETE /apis/apps/v1/namespaces/NS/deployments/web" {
		t.Errorf("deletes: %v", deletes)
	}
}

func TestApplyWaitsForADeletionToEnd(t *testing.T) {
	l := newEnv(t)
	ctx := context.Background()
	client := l.Typed().CoreV1().ConfigMaps(l.ns)
	one := "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: held, finalizers: [example.com/hold]}\n"
	l.apply(t, one)
	if err := client.Delete(ctx, "held", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	// The finalizer is removed when the apply logs that it waits.
	done := make(chan error, 1)
	go func() {
		for line := range l.log.lines {
			if line == "ConfigMap "+l.ns+"/held is being deleted; waiting until it is gone" {
				_, err := client.Patch(ctx, "held", types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
				done <- err
				return
			}
		}
	}()
	before := l.items()[0]
	result, err := l.Apply(ctx, l.request(t, one))
	if err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if item := itemOf(result, "ConfigMap"); item.UID == before.UID || item.CreatedBy != "deployment-1" {
		t.Errorf("inventory: %+v, before %+v", item, before)
	}
}

package apply

import (
	"context"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/c785c783/piped/piped/config"
)

const scaledWeb = "---\napiVersion: autoscaling/v2\nkind: HorizontalPodAutoscaler\nmetadata: {name: web}\n" +
	"spec: {minReplicas: 1, maxReplicas: 9, scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: web}}\n"

// TestWhatIsCreatedAnewIsWhole: a recreated object must start with Git's values in the
// fields that are left to others, and with its former replicas if an autoscaler scales
// it. Then these fields are left to others again.
func TestWhatIsCreatedAnewIsWhole(t *testing.T) {
	permitted := strings.Replace(web, "kind: Deployment\nmetadata: {name: web}", `kind: Deployment
metadata: {name: web, annotations: {pipecd.dev/force-sync-by-replace: "enabled"}}`, 1)
	withoutReplicas := strings.Replace(permitted, "replicas: 1", "paused: false", 1)
	yielded := config.IgnoreRule{Kind: "Deployment", Paths: []string{"/spec/template/spec/containers[name=web]/image"}, Mode: config.IgnoreYield}
	for name, before := range map[string]string{
		"replicas in Git":    permitted + scaledWeb,
		"no replicas in Git": withoutReplicas + scaledWeb,
	} {
		for how, after := range map[string]func(t *testing.T, l *env) string{
			"another selector": func(*testing.T, *env) string { return strings.ReplaceAll(before, "app: web", "app: other") },
			"it is being deleted": func(t *testing.T, l *env) string {
				l.dying(t, "web")
				return before
			},
		} {
			t.Run(name+", "+how, func(t *testing.T) {
				l := newEnv(t)
				held := false
				apply := func(manifests string) {
					t.Helper()
					rules := []config.IgnoreRule{yielded}
					l.apply(t, manifests, func(r *Request) {
						r.Yield = rules
						if held {
							r.Log = releasing{l.log, func() {
								l.as("holder").patch(t, "apps/v1", "Deployment", "web", `{"metadata":{"finalizers":null}}`)
							}}
						}
					})
					if got := l.found(l.compare(t, manifests, func(r *CompareRequest) { r.Ignore.IgnoreRules = rules }, confirmed)); len(got) > 0 {
						t.Errorf("after an apply the comparison finds %q", got)
					}
				}
				state := func() (image string, replicas int64) {
					u := l.get(t, "Deployment", "web")
					replicas, _, _ = unstructured.NestedInt64(u.Object, "spec", "replicas")
					return images(u)[0], replicas
				}
				apply(before)
				l.as("updater").patch(t, "apps/v1", "Deployment", "web", `[{"op":"replace","path":"/spec/template/spec/containers/0/image","value":"web:7"}]`)
				l.as(controllerManager).patch(t, "apps/v1", "Deployment", "web", `{"spec":{"replicas":7}}`, "scale")
				first := l.get(t, "Deployment", "web")
				apply(before)
				if image, n := state(); image != "web:7" || n != 7 {
					t.Fatalf("before, %s with %d replicas", image, n)
				}
				manifests := after(t, l)
				held = manifests == before
				apply(manifests)
				held = false
				if l.get(t, "Deployment", "web").GetUID() == first.GetUID() {
					t.Fatal("the Deployment was not recreated")
				}
				if image, n := state(); image != "web:1" || n != 7 {
					t.Errorf("recreated as %s with %d replicas, want web:1 with 7", image, n)
				}
				l.as(controllerManager).patch(t, "apps/v1", "Deployment", "web", `{"spec":{"replicas":8}}`, "scale")
				apply(strings.Replace(manifests, "web:1", "web:2", 1))
				if image, n := state(); image != "web:1" || n != 8 {
					t.Errorf("later the Deployment has %s with %d replicas, want web:1 with 8", image, n)
				}
			})
		}
	}
}

// dying deletes a Deployment whose finalizer holds it until an apply waits for its
// deletion.
func (l *env) dying(t *testing.T, name string) {
	t.Helper()
	l.as("holder").patch(t, "apps/v1", "Deployment", name, `{"metadata":{"finalizers":["example.com/hold"]}}`)
	if err := l.as("holder").object(t, "apps/v1", "Deployment").Delete(context.Background(), name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
}

// releasing is a stage log that removes a Deployment's finalizer when an apply waits for
// its deletion.
type releasing struct {
	*testLog
	release func()
}

func (r releasing) Infof(format string, args ...any) {
	r.testLog.Infof(format, args...)
	if strings.Contains(format, "waiting until it is gone") {
		r.release()
	}
}

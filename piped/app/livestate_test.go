package app

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/c785c783/piped/executor/kubernetes"
	"github.com/c785c783/piped/piped/cluster/clustertest"
	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/source/secret"
	"github.com/c785c783/piped/piped/store"
	controlv1 "github.com/c785c783/piped/proto/piped/control/v1"
	modelv1 "github.com/c785c783/piped/proto/piped/model/v1"
)

// TestLiveState deploys an application, changes it in Git and by hand, and checks the
// reported live objects and rollouts.
func TestLiveState(t *testing.T) {
	t.Parallel()
	cluster := clustertest.Shared(t)
	ns, kube := cluster.Namespace(t), cluster.Client(t)
	proxy, kubeconfig := proxied(t, cluster.Kubeconfig(), nil, nil)
	repo := newRepo(t)
	agent := runAgent(t, settings{dataDir: t.TempDir(), remote: repo.Dir, kubeconfig: kubeconfig})
	t.Cleanup(proxy.Speak) // before the agent stops
	web := appID("web")
	files := webApp(ns, "v1", "")
	files["web/more.yaml"] = "{apiVersion: v1, kind: ConfigMap, metadata: {name: left}}\n---\n{apiVersion: v1, kind: ConfigMap, metadata: {name: forgotten}}\n"
	commit := repo.Push(t, "add web", files)
	agent.mustEnd(web, commit, modelv1.DeploymentStatus_DEPLOYMENT_SUCCESS)
	agent.wantLive(web, modelv1.Health_HEALTH_HEALTHY, "ConfigMap forgotten HEALTHY declared", "ConfigMap left HEALTHY declared", "ConfigMap web HEALTHY declared", "Deployment web HEALTHY declared 1")

	// Objects that are no longer in Git, but kept, are reported only if they exist.
	if err := repo.Remove("web/more.yaml"); err != nil {
		t.Fatal(err)
	}
	agent.mustEnd(web, repo.Push(t, "remove two", nil), modelv1.DeploymentStatus_DEPLOYMENT_SUCCESS)
	for _, name := range []string{"forgotten", "web"} {
		if err := kube.CoreV1().ConfigMaps(ns).Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	restart := []byte(`{"spec":{"template":{"metadata":{"annotations":{"restarted":"by hand"}}}}}`)
	if _, err := kube.AppsV1().Deployments(ns).Patch(t.Context(), "web", types.StrategicMergePatchType, restart, metav1.PatchOptions{FieldManager: "somebody"}); err != nil {
		t.Fatal(err)
	}
	agent.wantLive(web, modelv1.Health_HEALTH_MISSING, "ConfigMap left HEALTHY", "ConfigMap web MISSING declared", "Deployment web HEALTHY declared 1")
	agent.wantRollouts(web, "COMPLETE by somebody", "NO_ROLLOUT of remove two registry.example/web:v1", "COMPLETE of add web registry.example/web:v1")

	proxy.Silence()
	began := time.Now()
	_, err := agent.control.GetLiveState(agent.ctx, &controlv1.GetLiveStateRequest{ApplicationId: web})
	if took := time.Since(began); status.Code(err) != codes.Unavailable || !strings.Contains(err.Error(), "cannot be reached") || took > liveTimeout+time.Minute {
		t.Errorf("for a silent cluster after %s: %v", took, err)
	}
}

// wantLive waits until an application's live objects equal want, each with its number of
// children.
func (c *client) wantLive(app string, health modelv1.Health, want ...string) {
	c.t.Helper()
	var diff string
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		var resp *controlv1.GetLiveStateResponse
		err := whenNotBusy(func() (err error) {
			resp, err = c.control.GetLiveState(c.ctx, &controlv1.GetLiveStateRequest{ApplicationId: app, Children: true})
			return err
		})
		if err != nil {
			c.t.Fatal(err)
		}
		var got []string
		for _, o := range resp.GetLiveState().GetObjects() {
			line := o.GetObject().GetKind() + " " + o.GetObject().GetName() + " " + strings.TrimPrefix(o.GetHealth().String(), "HEALTH_")
			if o.GetDeclared() {
				line += " declared"
			}
			if n := len(o.GetChildren()); n > 0 {
				line += fmt.Sprint(" ", n)
			}
			got = append(got, line)
		}
		if diff = cmp.Diff(want, got); diff == "" && resp.GetLiveState().GetHealth() == health {
			return
		}
		diff += resp.GetLiveState().GetHealth().String() + " " + resp.GetLiveState().GetIncompleteReason()
	}
	c.t.Fatalf("live state (-want +got):\n%s", diff)
}

// wantRollouts waits until an application's rollouts equal want.
func (c *client) wantRollouts(app string, want ...string) {
	c.t.Helper()
	messages := map[string]string{}
	for _, d := range c.deployments(app) {
		messages[d.GetTrigger().GetCommit().GetHash()] = d.GetTrigger().GetCommit().GetMessage()
	}
	var diff string
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		resp, err := c.control.ListRollouts(c.ctx, &controlv1.ListRolloutsRequest{ApplicationIds: []string{app}})
		if err != nil {
			c.t.Fatal(err)
		}
		var got []string
		for _, r := range resp.GetRollouts() {
			line := strings.TrimPrefix(r.GetOutcome().String(), "ROLLOUT_OUTCOME_")
			if r.GetCommit() != "" {
				line += " of " + messages[r.GetCommit()] + " " + strings.Join(r.GetImages(), " ")
			}
			if r.GetCausedBy() != "" {
				line += " by " + r.GetCausedBy()
			}
			got = append(got, line)
		}
		if diff = cmp.Diff(want, got); diff == "" {
			return
		}
	}
	c.t.Fatalf("rollouts (-want +got):\n%s", diff)
}

// TestLiveStateIsRedacted: decrypted secrets are redacted, even if the cluster repeats
// them.
func TestLiveStateIsRedacted(t *testing.T) {
	t.Parallel()
	ref := deploy.ObjectRef{Group: "example.com", Version: "v1", Kind: "Database", Namespace: "shop", Name: "main"}
	kept := keptSets{{Objects: []deploy.ObjectRef{ref}, Redactor: secret.NewRedactor(map[string]string{"password": "correct-horse-battery"})}}
	state := deploy.LiveState{Incomplete: "refused correct-horse-battery", Objects: []deploy.LiveObject{{
		Object: ref, Variant: "primary", Health: deploy.HealthDegraded, Reason: "no user with password correct-horse-battery",
		Images:   []string{"registry/db:correct-horse-battery"},
		Children: []deploy.LiveObject{{Reason: "exit code 1: correct-horse-battery", Images: []string{"correct-horse-battery"}}},
	}}}
	kept.mark(&state)
	if text := fmt.Sprint(state); strings.Contains(text, "horse") || !state.Objects[0].Declared || state.Health != deploy.HealthDegraded {
		t.Errorf("%s, declared %t, %s", text, state.Objects[0].Declared, state.Health)
	}
}

// TestLiveStateOfAProviderThatIsGone: objects in a removed cluster do not prevent a
// report of the others.
func TestLiveStateOfAProviderThatIsGone(t *testing.T) {
	t.Parallel()
	st, err := store.Open(t.Context(), "sqlite://"+filepath.Join(t.TempDir(), "piped.db"), store.Options{Key: make([]byte, 32)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := st.Close(); err != nil {
			t.Error(err)
		}
	})
	app := deploy.Application{ID: "a", Name: "web", Kind: deploy.KindKubernetes, Provider: "new"}
	if _, err := st.PutApplication(t.Context(), app); err != nil {
		t.Fatal(err)
	}
	l := liveStates{st, newClusters(clusterConfig{}, Options{}.withDefaults()), newTenants(nil), time.Now}
	if state, err := l.LiveState(t.Context(), app, deploy.RelevantChildren); err != nil || state.Health != "" || state.Incomplete != "" {
		t.Errorf("without anything applied: %+v, %v", state, err)
	}
	if err := st.PutInventory(t.Context(), deploy.InventoryItem{ApplicationID: "a", Cluster: "old", Object: deploy.ObjectRef{Kind: "ConfigMap", Name: "c"}}); err != nil {
		t.Fatal(err)
	}
	if state, err := l.LiveState(t.Context(), app, deploy.RelevantChildren); err != nil || !strings.Contains(state.Incomplete, `"old" is not configured`) {
		t.Errorf("with something left in another cluster: %+v, %v", state, err)
	}
	app.Provider = "old"
	if _, err := l.LiveState(t.Context(), app, deploy.RelevantChildren); !deploy.IsKind(err, deploy.Unavailable) {
		t.Errorf("of a provider that is not configured: %v", err)
	}
}

// TestLiveStateOfVariants: what of a variant is missing counts, and is not declared;
// and before anything was kept everything of the primary is.
func TestLiveStateOfVariants(t *testing.T) {
	t.Parallel()
	object := func(name, variant string, health deploy.Health) deploy.LiveObject {
		return deploy.LiveObject{Object: deploy.ObjectRef{Kind: "Deployment", Name: name}, Variant: variant, Health: health}
	}
	all := []deploy.LiveObject{object("web", "primary", deploy.Healthy), object("old", "primary", deploy.HealthMissing), object("web-canary", "canary", deploy.HealthMissing)}
	for name, c := range map[string]struct {
		kept keptSets
		want string
	}{
		"nothing is kept": {nil, "web true old true web-canary false"},
		"a set is kept":   {keptSets{kubernetes.Kept{Objects: []deploy.ObjectRef{{Kind: "Deployment", Name: "web"}}}}, "web true web-canary false"},
	} {
		state := deploy.LiveState{Objects: slices.Clone(all)}
		c.kept.mark(&state)
		var got []string
		for _, o := range state.Objects {
			got = append(got, fmt.Sprint(o.Object.Name, " ", o.Declared))
		}
		if strings.Join(got, " ") != c.want || state.Health != deploy.HealthMissing {
			t.Errorf("%s: %q, %s; want %q", name, got, state.Health, c.want)
		}
	}
}

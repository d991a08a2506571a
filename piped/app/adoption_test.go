package app

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/yaml"

	"github.com/c785c783/piped/piped/cluster/clustertest"
	"github.com/c785c783/piped/proto/pipecd/apiservice"
	controlv1 "github.com/c785c783/piped/proto/piped/control/v1"
	modelv1 "github.com/c785c783/piped/proto/piped/model/v1"
)

// kubectlApply creates the objects of webApp as kubectl apply does, and waits for the
// pods. If extra is set, the Deployment has a field that Git does not declare.
func kubectlApply(t *testing.T, client kubernetes.Interface, ns string, manifests string, extra bool) {
	t.Helper()
	ctx, by := t.Context(), metav1.CreateOptions{FieldManager: "kubectl-client-side-apply"}
	for _, text := range strings.Split(manifests, "---\n") {
		annotations := map[string]string{"kubectl.kubernetes.io/last-applied-configuration": "{}"}
		var err error
		if strings.Contains(text, "kind: ConfigMap") {
			var cm corev1.ConfigMap
			if err = yaml.Unmarshal([]byte(text), &cm); err == nil {
				cm.Annotations = annotations
				_, err = client.CoreV1().ConfigMaps(ns).Create(ctx, &cm, by)
			}
		} else {
			var d appsv1.Deployment
			if err = yaml.Unmarshal([]byte(text), &d); err == nil {
				d.Annotations = annotations
				if extra {
					d.Spec.MinReadySeconds = 1
				}
				_, err = client.AppsV1().Deployments(ns).Create(ctx, &d, by)
			}
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	for end := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) {
		d, err := client.AppsV1().Deployments(ns).Get(ctx, "web", metav1.GetOptions{})
		if err == nil && d.Status.AvailableReplicas == 2 {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("the Deployment does not become available: %v", err)
		}
	}
}

// podsOf returns the names of the pods in a namespace.
func podsOf(t *testing.T, client kubernetes.Interface, ns string) (names []string) {
	t.Helper()
	list, err := client.CoreV1().Pods(ns).List(context.Background(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range list.Items {
		names = append(names, p.Name)
	}
	slices.Sort(names)
	return names
}

// adoption returns the pending takeover of an application, once it satisfies ok.
func (c *client) adoption(app string, ok func(*controlv1.Adoption) bool) *controlv1.Adoption {
	c.t.Helper()
	var last *controlv1.ListAdoptionsResponse
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		var err error
		if last, err = c.control.ListAdoptions(c.ctx, &controlv1.ListAdoptionsRequest{ApplicationId: app}); err != nil {
			c.t.Fatal(err)
		}
		if list := last.GetAdoptions(); len(list) == 1 && ok(list[0]) {
			return list[0]
		}
	}
	c.t.Fatalf("what awaits a decision is %v", last)
	return nil
}

// answerWhenNotBusy returns the answer to a command that reads live objects. It asks for another one
// while the agent had no time to read them, on a busy machine.
func (c *client) answerWhenNotBusy(ask func() (commandID string, err error)) *modelv1.Command {
	c.t.Helper()
	for end := time.Now().Add(patience); ; time.Sleep(pollInterval) {
		id, err := ask()
		if err != nil {
			c.t.Fatal(err)
		}
		command := c.answer(id)
		if !strings.Contains(command.GetMetadata()["Reason"], "could not be found out") || time.Now().After(end) {
			return command
		}
	}
}

// TestReviewedTakeOver: objects that kubectl applied are listed, and stay unchanged until
// a user permits the takeover. Then the application takes them over without a restart.
func TestReviewedTakeOver(t *testing.T) {
	t.Parallel()
	cluster := clustertest.Shared(t)
	ns, live := cluster.Namespace(t), cluster.Client(t)
	repo := newRepo(t)
	files := webApp(ns, "v1", "")
	kubectlApply(t, live, ns, files["web/app.yaml"], false)
	was := podsOf(t, live, ns)
	s := settings{dataDir: t.TempDir(), remote: repo.Dir, kubeconfig: cluster.Kubeconfig(), more: "  adopt: review\n"}
	web := appID("web")
	commit := repo.Push(t, "add web", files)

	var old string
	t.Run("listed", func(t *testing.T) {
		agent := runAgent(t, s)
		a := agent.adoption(web, func(*controlv1.Adoption) bool { return true })
		var got []string
		for _, o := range a.GetObjects() {
			got = append(got, o.GetObject().GetKind()+" "+o.GetObject().GetName()+" of "+strings.Join(o.GetManagers(), ", ")+o.GetOwnerApplicationId())
			if o.GetChanges() {
				t.Errorf("taking over %v changes it", o)
			}
		}
		want := []string{"ConfigMap web of kubectl-client-side-apply", "Deployment web of kubectl-client-side-apply"}
		if diff := cmp.Diff(want, got); diff != "" || a.GetApplicationName() != "web" || a.GetRunningCommit() != "" || a.GetSinceMs() == 0 {
			t.Errorf("listed %v (-want +got):\n%s", a, diff)
		}
		old = a.GetToken()
		command := agent.answerWhenNotBusy(func() (string, error) {
			resp, err := agent.api.SyncApplication(agent.ctx, &apiservice.SyncApplicationRequest{ApplicationId: web})
			return resp.GetCommandId(), err
		})
		if command.GetStatus() != modelv1.CommandStatus_COMMAND_FAILED {
			t.Errorf("a sync by hand was answered %v", command)
		}
		mustContain(t, command.GetMetadata()["Reason"], "pipectl application adopt --app-id="+web)
		agent.awaitNotice(web, "2 live objects are not the application's", "ConfigMap "+ns+"/web")
	})

	// Another user changes one of the objects while the agent is stopped.
	patch := []byte(`{"data":{"greeting":"good day"}}`)
	if _, err := live.CoreV1().ConfigMaps(ns).Patch(t.Context(), "web", types.MergePatchType, patch, metav1.PatchOptions{FieldManager: "kubectl-edit"}); err != nil {
		t.Fatal(err)
	}
	agent := runAgent(t, s)
	a := agent.adoption(web, func(a *controlv1.Adoption) bool { return a.GetToken() != old })
	if !a.GetObjects()[0].GetChanges() || a.GetObjects()[1].GetChanges() {
		t.Errorf("after a change in the cluster: %v", a)
	}
	_, err := agent.control.DecideAdoption(agent.ctx, &controlv1.DecideAdoptionRequest{ApplicationId: web, Accept: true, Token: old})
	if status.Code(err) != codes.FailedPrecondition {
		t.Errorf("a decision on the earlier list: %v", err)
	}
	if n := len(agent.deployments(web)); n != 0 {
		t.Fatalf("%d deployments before the decision", n)
	}
	command := agent.answerWhenNotBusy(func() (string, error) {
		decided, err := agent.control.DecideAdoption(agent.ctx, &controlv1.DecideAdoptionRequest{ApplicationId: web, Accept: true, Token: a.GetToken()})
		return decided.GetCommandId(), err
	})
	if command.GetStatus() != modelv1.CommandStatus_COMMAND_SUCCEEDED {
		t.Fatalf("the decision was answered %v", command)
	}
	agent.mustEnd(web, commit, modelv1.DeploymentStatus_DEPLOYMENT_SUCCESS)
	if diff := cmp.Diff(was, podsOf(t, live, ns)); diff != "" {
		t.Errorf("pods were replaced (-before +after):\n%s", diff)
	}
	cm, err := live.CoreV1().ConfigMaps(ns).Get(t.Context(), "web", metav1.GetOptions{})
	if err != nil || cm.Data["greeting"] != "hello" || cm.Labels["pipecd.dev/application"] != web {
		t.Errorf("the ConfigMap is %v, %v", cm, err)
	}
	if notice := agent.application(web).GetNotice(); notice != "" {
		t.Errorf("the application still says %q", notice)
	}
}

// TestRejectedTakeOver: rejected objects stay unchanged, and the application is disabled.
// When it is enabled again, the takeover needs a new decision.
func TestRejectedTakeOver(t *testing.T) {
	t.Parallel()
	cluster := clustertest.Shared(t)
	ns, live := cluster.Namespace(t), cluster.Client(t)
	repo := newRepo(t)
	files := webApp(ns, "v1", "")
	kubectlApply(t, live, ns, files["web/app.yaml"], true)
	agent := runAgent(t, settings{dataDir: t.TempDir(), remote: repo.Dir, kubeconfig: cluster.Kubeconfig(), more: "  adopt: review\n"})
	web := appID("web")
	repo.Push(t, "add web, and one that is new", map[string]string{
		"web/app.pipecd.yaml": files["web/app.pipecd.yaml"], "web/app.yaml": files["web/app.yaml"],
		"new/app.pipecd.yaml": strings.Replace(files["web/app.pipecd.yaml"], "name: web", "name: new", 1),
		"new/new.yaml":        "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: new}\n",
	})
	agent.await(appID("new"), "succeeded without a decision", func(d *modelv1.Deployment) bool {
		return d.GetStatus() == modelv1.DeploymentStatus_DEPLOYMENT_SUCCESS
	})
	first := agent.adoption(web, func(*controlv1.Adoption) bool { return true })
	if changes := first.GetObjects()[1].GetChanges(); !changes {
		t.Error("a field that kubectl wrote and Git does not have would stay")
	}
	decided, err := agent.control.DecideAdoption(agent.ctx, &controlv1.DecideAdoptionRequest{ApplicationId: web, Token: first.GetToken()})
	if err != nil {
		t.Fatal(err)
	}
	if command := agent.answer(decided.GetCommandId()); command.GetStatus() != modelv1.CommandStatus_COMMAND_SUCCEEDED {
		t.Fatalf("the decision was answered %v", command)
	}
	if app := agent.application(web); !app.GetDisabled() || app.GetNotice() != "" {
		t.Errorf("the application is %v", app)
	}
	if d, err := live.AppsV1().Deployments(ns).Get(t.Context(), "web", metav1.GetOptions{}); err != nil || d.Labels["pipecd.dev/application"] != "" {
		t.Errorf("the Deployment is %v, %v", d.Labels, err)
	}
	if _, err := agent.api.EnableApplication(agent.ctx, &apiservice.EnableApplicationRequest{ApplicationId: web}); err != nil {
		t.Fatal(err)
	}
	again := agent.adoption(web, func(*controlv1.Adoption) bool { return true })
	if again.GetToken() != first.GetToken() {
		t.Errorf("asked for anew: %v, before %v", again, first)
	}
	if n := len(agent.deployments(web)); n != 0 {
		t.Errorf("%d deployments without a permission", n)
	}
}

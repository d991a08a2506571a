package app

import (
	"context"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/c785c783/piped/piped/app/agenttest"
	"github.com/c785c783/piped/piped/cluster/clustertest"
	"github.com/c785c783/piped/proto/pipecd/apiservice"
	controlv1 "github.com/c785c783/piped/proto/piped/control/v1"
	modelv1 "github.com/c785c783/piped/proto/piped/model/v1"
)

// manyKinds holds objects of several levels in addition to those of webApp.
const manyKinds = `apiVersion: v1
kind: Service
metadata: {name: web}
spec: {selector: {app: web}, ports: [{port: 80}]}
---
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata: {name: web}
spec: {defaultBackend: {service: {name: web, port: {number: 80}}}}
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: web}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: keep, annotations: {helm.sh/resource-policy: keep}}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: taken}
---
apiVersion: v1
kind: PersistentVolume
metadata: {name: NS-data}
spec:
  accessModes: [ReadWriteOnce]
  capacity: {storage: 1Gi}
  storageClassName: manual
  hostPath: {path: /data}
  claimRef: {namespace: NS, name: data-db-0}
---
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: db}
spec:
  serviceName: db
  selector: {matchLabels: {app: db}}
  template:
    metadata: {labels: {app: db}}
    spec:
      containers: [{name: db, image: "registry.example/db:v1", volumeMounts: [{name: data, mountPath: /data}]}]
  volumeClaimTemplates:
    - metadata: {name: data}
      spec: {accessModes: [ReadWriteOnce], storageClassName: manual, resources: {requests: {storage: 1Gi}}}
`

// holdBack adds a finalizer to a Deployment; release removes it.
func holdBack(t *testing.T, client kubernetes.Interface, ns string) (release func()) {
	t.Helper()
	set := func(field string) {
		t.Helper()
		patch := []byte(`{"metadata":{"` + field + `":["example.com/hold"]}}`)
		if _, err := client.AppsV1().Deployments(ns).Patch(t.Context(), "web", types.StrategicMergePatchType, patch, metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	set("finalizers")
	return func() { set("$deleteFromPrimitiveList/finalizers") } // and leaves that of the foreground deletion
}

// awaitDeletion waits until a Deployment is being deleted.
func awaitDeletion(t *testing.T, client kubernetes.Interface, ns string) {
	t.Helper()
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		if d, err := client.AppsV1().Deployments(ns).Get(t.Context(), "web", metav1.GetOptions{}); err == nil && d.DeletionTimestamp != nil {
			return
		}
	}
	t.Fatal("the Deployment is not deleted")
}

// remaining returns the objects of the test that still exist.
func remaining(t *testing.T, client kubernetes.Interface, ns string) (found []string) {
	t.Helper()
	ctx := t.Context()
	for name, get := range map[string]func() error{
		"Service web": func() error { _, err := client.CoreV1().Services(ns).Get(ctx, "web", metav1.GetOptions{}); return err },
		"ServiceAccount web": func() error {
			_, err := client.CoreV1().ServiceAccounts(ns).Get(ctx, "web", metav1.GetOptions{})
			return err
		},
		"ConfigMap web": func() error {
			_, err := client.CoreV1().ConfigMaps(ns).Get(ctx, "web", metav1.GetOptions{})
			return err
		},
		"ConfigMap keep": func() error {
			_, err := client.CoreV1().ConfigMaps(ns).Get(ctx, "keep", metav1.GetOptions{})
			return err
		},
		"ConfigMap taken": func() error {
			_, err := client.CoreV1().ConfigMaps(ns).Get(ctx, "taken", metav1.GetOptions{})
			return err
		},
		"Ingress web": func() error {
			_, err := client.NetworkingV1().Ingresses(ns).Get(ctx, "web", metav1.GetOptions{})
			return err
		},
		"Deployment web": func() error {
			_, err := client.AppsV1().Deployments(ns).Get(ctx, "web", metav1.GetOptions{})
			return err
		},
		"StatefulSet db": func() error {
			_, err := client.AppsV1().StatefulSets(ns).Get(ctx, "db", metav1.GetOptions{})
			return err
		},
		"PersistentVolume": func() error {
			_, err := client.CoreV1().PersistentVolumes().Get(ctx, ns+"-data", metav1.GetOptions{})
			return err
		},
		"claim": func() error {
			_, err := client.CoreV1().PersistentVolumeClaims(ns).Get(ctx, "data-db-0", metav1.GetOptions{})
			return err
		},
	} {
		if err := get(); err == nil {
			found = append(found, name)
		} else if !apierrors.IsNotFound(err) {
			t.Fatal(err)
		}
	}
	slices.Sort(found)
	return found
}

func named(objects []*modelv1.ObjectRef) (names []string) {
	for _, o := range objects {
		names = append(names, o.GetKind()+" "+o.GetName())
	}
	return names
}

func (c *client) deleteApplication(req *controlv1.DeleteApplicationRequest) *controlv1.DeleteApplicationResponse {
	c.t.Helper()
	resp, err := c.control.DeleteApplication(c.ctx, req)
	if err != nil {
		c.t.Fatal(err)
	}
	return resp
}

// TestDeleteWithObjects deletes an application with its applied objects, in reverse
// order: no level is deleted before the one that uses it is gone. Only its own
// unprotected objects are deleted. Then the application can be added again.
func TestDeleteWithObjects(t *testing.T) {
	t.Parallel()
	cluster := clustertest.Shared(t)
	ns, live := cluster.Namespace(t), cluster.Client(t)
	t.Cleanup(func() { // of no namespace, and left by the agent
		if err := live.CoreV1().PersistentVolumes().Delete(context.Background(), ns+"-data", metav1.DeleteOptions{}); err != nil {
			t.Errorf("delete the volume that is left: %v", err)
		}
	})
	repo := newRepo(t)
	agent := runAgent(t, settings{dataDir: t.TempDir(), remote: repo.Dir, kubeconfig: cluster.Kubeconfig()})
	web := appID("web")
	files := webApp(ns, "v1", "")
	files["web/more.yaml"] = strings.ReplaceAll(manyKinds, "NS", ns)
	commit := repo.Push(t, "add web", files)
	agent.mustEnd(web, commit, modelv1.DeploymentStatus_DEPLOYMENT_SUCCESS)
	before := remaining(t, live, ns)
	other := []byte(`{"metadata":{"annotations":{"pipecd.dev/application":"another"},"labels":{"pipecd.dev/application":"another"}}}`)
	if _, err := live.CoreV1().ConfigMaps(ns).Patch(t.Context(), "taken", types.MergePatchType, other, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}

	would := agent.deleteApplication(&controlv1.DeleteApplicationRequest{ApplicationId: web, Cascade: true, DryRun: true})
	want := []string{"Ingress web", "Deployment web", "StatefulSet db", "ConfigMap web", "Service web", "ServiceAccount web"}
	if diff := cmp.Diff(want, named(would.GetObjects())); diff != "" || would.GetCommandId() != "" {
		t.Errorf("the dry run, with command %q (-want +got):\n%s", would.GetCommandId(), diff)
	}
	if plain := agent.deleteApplication(&controlv1.DeleteApplicationRequest{ApplicationId: web, DryRun: true}); len(plain.GetObjects()) > 0 {
		t.Errorf("without its objects the application would be deleted with %v", plain.GetObjects())
	}
	if diff := cmp.Diff(before, remaining(t, live, ns)); diff != "" || agent.application(web).GetDeleted() {
		t.Fatalf("after the dry run, application %v (-before +after):\n%s", agent.application(web), diff)
	}

	release := holdBack(t, live, ns)
	did := agent.deleteApplication(&controlv1.DeleteApplicationRequest{ApplicationId: web, Cascade: true})
	if diff := cmp.Diff(named(would.GetObjects()), named(did.GetObjects())); diff != "" {
		t.Errorf("deleted (-dry run +now):\n%s", diff)
	}
	awaitDeletion(t, live, ns)
	if got := remaining(t, live, ns); slices.Contains(got, "Ingress web") || !slices.Contains(got, "ConfigMap web") || !slices.Contains(got, "Service web") {
		t.Errorf("while the finalizer holds the Deployment, the objects are %v", got)
	}
	add := &apiservice.AddApplicationRequest{
		Name: "web", PipedId: testID(t.Name()), GitPath: &modelv1.ApplicationGitPath{Repo: &modelv1.ApplicationGitRepository{Id: "apps"}, Path: "web"},
	}
	if _, err := agent.api.AddApplication(agent.ctx, add); status.Code(err) != codes.FailedPrecondition {
		t.Errorf("added again while it is being deleted: %v", err)
	}
	if _, err := agent.control.DeleteApplication(agent.ctx, &controlv1.DeleteApplicationRequest{ApplicationId: web, Cascade: true}); status.Code(err) != codes.FailedPrecondition {
		t.Errorf("deleted again while it is being deleted: %v", err)
	}
	release()
	command := agent.answer(did.GetCommandId())
	if command.GetStatus() != modelv1.CommandStatus_COMMAND_SUCCEEDED || command.GetType() != modelv1.Command_DELETE_APPLICATION || !command.GetDeleteApplication().GetCascade() {
		t.Errorf("the command was answered %v", command)
	}
	if n := command.GetMetadata()["DeletedObjects"]; n != "6" {
		t.Errorf("%s objects were deleted, want 6: %v", n, command.GetMetadata())
	}
	left := command.GetMetadata()["LeftObjects"]
	mustContain(t, left, "ConfigMap "+ns+"/keep: its annotation helm.sh/resource-policy is keep", "ConfigMap "+ns+"/taken: it is not application", "PersistentVolume "+ns+"-data: its kind is deleted only if")
	if diff := cmp.Diff([]string{"ConfigMap keep", "ConfigMap taken", "PersistentVolume", "claim"}, remaining(t, live, ns)); diff != "" {
		t.Errorf("remaining objects (-want +got):\n%s", diff)
	}
	if pods, err := live.CoreV1().Pods(ns).List(t.Context(), metav1.ListOptions{}); err != nil || len(pods.Items) > 0 {
		t.Errorf("%d pods are left: %v", len(pods.Items), err)
	}

	undo := []byte(`{"metadata":{"annotations":{"pipecd.dev/application":null},"labels":{"pipecd.dev/application":null}}}`)
	if _, err := live.CoreV1().ConfigMaps(ns).Patch(t.Context(), "taken", types.MergePatchType, undo, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := agent.api.AddApplication(agent.ctx, add); err != nil {
		t.Fatal(err)
	}
	agent.await(web, "brings everything back", func(d *modelv1.Deployment) bool {
		return len(agent.deployments(web)) > 1 && d.GetStatus() == modelv1.DeploymentStatus_DEPLOYMENT_SUCCESS && d.GetId() == agent.deployments(web)[0].GetId()
	})
	if diff := cmp.Diff(before, remaining(t, live, ns)); diff != "" {
		t.Errorf("added again (-before +after):\n%s", diff)
	}
}

// TestDeleteWithObjectsSurvivesAKill kills the agent with SIGKILL while the objects of an
// application are being deleted. The restarted agent must continue the deletion.
func TestDeleteWithObjectsSurvivesAKill(t *testing.T) {
	t.Parallel()
	cluster := clustertest.Shared(t)
	ns, live := cluster.Namespace(t), cluster.Client(t)
	repo := newRepo(t)
	p := startProcess(t, agenttest.Options{Remote: repo.Dir, Kubeconfig: cluster.Kubeconfig()})
	agent := dial(t, p.Address, filepath.Dir(p.KeyFile))
	web := appID("web")
	agent.mustEnd(web, repo.Push(t, "add web", webApp(ns, "v1", "")), modelv1.DeploymentStatus_DEPLOYMENT_SUCCESS)
	release := holdBack(t, live, ns)
	did := agent.deleteApplication(&controlv1.DeleteApplicationRequest{ApplicationId: web, Cascade: true})
	awaitDeletion(t, live, ns)
	restart(t, p)
	repo.Push(t, "while it is deleted", webApp(ns, "v2", ""))
	if got, err := agent.api.GetCommand(agent.ctx, &apiservice.GetCommandRequest{CommandId: did.GetCommandId()}); err != nil ||
		got.GetCommand().GetStatus() != modelv1.CommandStatus_COMMAND_NOT_HANDLED_YET {
		t.Errorf("after the restart the command is %v, %v", got, err)
	}
	release()
	if command := agent.answer(did.GetCommandId()); command.GetStatus() != modelv1.CommandStatus_COMMAND_SUCCEEDED || command.GetMetadata()["DeletedObjects"] != "2" {
		t.Errorf("the command was answered %v", command)
	}
	if got := remaining(t, live, ns); len(got) > 0 {
		t.Errorf("left: %v", got)
	}
	if n := len(agent.deployments(web)); n != 1 {
		t.Errorf("%d deployments, want the first alone", n)
	}
}

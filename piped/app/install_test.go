package app

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/c785c783/piped/piped/cluster/clustertest"
	kubeconfig "github.com/c785c783/piped/piped/config/kubernetes"
	"github.com/c785c783/piped/piped/git/gittest"
	controlv1 "github.com/c785c783/piped/proto/piped/control/v1"
	modelv1 "github.com/c785c783/piped/proto/piped/model/v1"
)

// TestInstalledAgent installs examples/install and runs an agent with exactly the rights
// of its service account. It deploys examples/apps and objects of all other kinds in the
// roles. With cluster-wide rights, no request is refused and every granted right is used.
// With rights in one namespace, the same applications are deployed there.
func TestInstalledAgent(t *testing.T) {
	t.Parallel()
	cluster := progressiveCluster(t)
	t.Run("in one namespace", func(in *testing.T) { installedInOneNamespace(in, t, cluster) })
	t.Run("in the whole cluster", func(in *testing.T) { installedInTheCluster(in, t, cluster) })
}

// TestInstalledReplicas: the API server accepts the variant with replicas. Its configuration is
// valid, names only files that are mounted, and lets replicas reach each other.
func TestInstalledReplicas(t *testing.T) {
	t.Parallel()
	cluster := clustertest.Shared(t)
	objects := installManifests(t, "replicated", cluster.Namespace(t))
	kinds := map[string]*unstructured.Unstructured{}
	for _, o := range objects {
		kinds[o.GetKind()] = o
	}
	if kinds["PersistentVolumeClaim"] != nil || kinds["PodDisruptionBudget"] == nil {
		t.Errorf("the kinds are %q", slices.Sorted(maps.Keys(kinds)))
	}
	installDryRun(t, cluster, objects)
	var d appsv1.Deployment
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(kinds["Deployment"].Object, &d); err != nil {
		t.Fatal(err)
	}
	pod := d.Spec.Template.Spec
	if u := d.Spec.Strategy.RollingUpdate; *d.Spec.Replicas < 2 || u == nil || u.MaxUnavailable.IntValue() != 0 || pod.Containers[0].LivenessProbe.TCPSocket == nil || pod.Containers[0].LivenessProbe.HTTPGet != nil ||
		pod.Containers[0].ReadinessProbe.HTTPGet.Scheme != corev1.URISchemeHTTPS {
		t.Errorf("the Deployment has %d replicas, %+v and %+v", *d.Spec.Replicas, d.Spec.Strategy, pod.Containers[0].LivenessProbe)
	}
	text, _, err := unstructured.NestedString(kinds["ConfigMap"].Object, "data", "piped.yaml")
	if err != nil {
		t.Fatal(err)
	}
	cfg, warnings, err := Kinds().ParsePiped("piped.yaml", []byte(text))
	if err != nil || len(warnings) > 0 {
		t.Fatalf("%v, warnings %q", err, warnings)
	}
	for _, file := range append(cfg.Files(), cfg.Store.KeyFile) {
		if !slices.ContainsFunc(pod.Containers[0].VolumeMounts, func(m corev1.VolumeMount) bool { return strings.HasPrefix(file, m.MountPath+"/") }) {
			t.Errorf("no volume contains %s", file)
		}
	}
	if !strings.HasPrefix(cfg.Store.DSN.Reveal(), "postgres://") || strings.HasPrefix(cfg.API.Address, "127.") || strings.HasPrefix(cfg.Web.Address, "127.") {
		t.Errorf("replicas cannot stand by with %s on %s and %s", cfg.Store.DSN.Reveal(), cfg.API.Address, cfg.Web.Address)
	}
}

func installedInTheCluster(t, parent *testing.T, cluster *clustertest.Cluster) {
	ns, class := cluster.Namespace(t), lazyClass(t, cluster)
	objects := installManifests(t, "cluster", ns)
	installed(t, parent, cluster, objects)
	repo := newRepo(t)
	agent := startInstalled(t, cluster, installSpec(t, repo))
	agent.deployExamples(repo, ns)
	agent.routeTraffic(cluster, repo, ns)
	agent.deployOwnKinds(cluster, repo, ns, class)

	created := simple("elsewhere", ns+"-new, autoCreateNamespace: true", "hello")
	t.Cleanup(func() {
		if err := cluster.Client(t).CoreV1().Namespaces().Delete(context.Background(), ns+"-new", metav1.DeleteOptions{}); err != nil {
			t.Errorf("remove the namespace that the agent created: %v", err)
		}
	})
	agent.mustEnd(appID("elsewhere"), repo.Push(t, "another namespace", created), modelv1.DeploymentStatus_DEPLOYMENT_SUCCESS)

	for _, app := range []string{"istio", "httproute"} {
		agent.removeWithObjects(app)
	}
	if refused := agent.requests.forbidden(); len(refused) > 0 {
		t.Errorf("refused: %q", refused)
	}
	if unused := agent.requests.unused(t, objects); len(unused) > 0 {
		t.Errorf("rights that nothing needs: %q", unused)
	}
}

// dispensable holds the requests outside its namespace that an agent with rights in one
// namespace tries in case they are permitted.
var dispensable = map[string]bool{
	"get customresourcedefinitions.apiextensions.k8s.io": true,
	"get leases.coordination.k8s.io kube-system":         true,
	"get namespaces. kube-system":                        true, // the namespace's UID is the identity of the cluster
}

func installedInOneNamespace(t, parent *testing.T, cluster *clustertest.Cluster) {
	ns, elsewhere := cluster.Namespace(t), cluster.Namespace(t)
	objects := installManifests(t, "namespaced", ns)
	installed(t, parent, cluster, objects)
	repo := newRepo(t)
	agent := startInstalled(t, cluster, installSpec(t, repo))
	agent.deployExamples(repo, ns)
	agent.routeTraffic(cluster, repo, ns)
	agent.deployOwnKinds(cluster, repo, ns, boundClass(t, cluster, ns))
	for _, app := range []string{"istio", "httproute"} {
		agent.removeWithObjects(app)
	}
	for _, refused := range agent.requests.forbidden() {
		if verb, _, _ := strings.Cut(refused, " "); verb != "watch" && verb != "list" && !dispensable[refused] || strings.Contains(refused, ns) {
			t.Errorf("refused: %s", refused)
		}
	}
	if unused := agent.requests.unused(t, objects); len(unused) > 0 {
		t.Errorf("rights that nothing needs: %q", unused)
	}

	d := agent.mustEnd(appID("there"), repo.Push(t, "where it may not", simple("there", elsewhere, "hello")), modelv1.DeploymentStatus_DEPLOYMENT_FAILURE)
	mustContain(t, d.GetStatusReason(), `User "system:serviceaccount:piped:piped" cannot `,
		"; to permit it, add to a Role in namespace "+elsewhere+", or a ClusterRole, of ServiceAccount piped/piped the rule {apiGroups: [\"\"], resources: [\"configmaps\"], verbs: [\"")
	files := simple("wide", ns, "hello")
	files["wide/role.yaml"] = "apiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRole\nmetadata: {name: " + ns + "}\nrules: []\n"
	d = agent.mustEnd(appID("wide"), repo.Push(t, "without a namespace", files), modelv1.DeploymentStatus_DEPLOYMENT_FAILURE)
	mustContain(t, d.GetStatusReason(), "; to permit it, add to a ClusterRole of ServiceAccount piped/piped the rule {apiGroups: [\"rbac.authorization.k8s.io\"], resources: [\"clusterroles\"], verbs: [\"")
}

// installSpec configures an agent that has the examples' keys.
func installSpec(t *testing.T, repo *gittest.Repo) spec {
	t.Helper()
	return spec{
		dataDir: t.TempDir(), repositories: map[string]string{"apps": repo.Dir},
		more: exampleKeys(t),
	}
}

// lazyClass creates a storage class with volume binding mode WaitForFirstConsumer.
func lazyClass(t *testing.T, cluster *clustertest.Cluster) string {
	t.Helper()
	classes, lazily := cluster.Client(t).StorageV1().StorageClasses(), storagev1.VolumeBindingWaitForFirstConsumer
	class, err := classes.Create(t.Context(), &storagev1.StorageClass{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "lazy-"}, Provisioner: "example.com/none", VolumeBindingMode: &lazily,
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := classes.Delete(context.Background(), class.Name, metav1.DeleteOptions{}); err != nil {
			t.Errorf("remove the class: %v", err)
		}
	})
	return class.Name
}

// boundClass creates a volume for the claim of ownKinds and returns its class. The claim
// is bound at once, as an agent without rights on storage classes cannot know the binding
// mode.
func boundClass(t *testing.T, cluster *clustertest.Cluster, ns string) string {
	t.Helper()
	volumes, name := cluster.Client(t).CoreV1().PersistentVolumes(), "own-"+ns
	_, err := volumes.Create(t.Context(), &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.PersistentVolumeSpec{
		StorageClassName: name, AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
		Capacity:               corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")},
		ClaimRef:               &corev1.ObjectReference{Namespace: ns, Name: "own"},
		PersistentVolumeSource: corev1.PersistentVolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/none"}},
	}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := volumes.Delete(context.Background(), name, metav1.DeleteOptions{}); err != nil {
			t.Errorf("remove the volume: %v", err)
		}
	})
	return name
}

// deployExamples deploys examples/apps, and detects and heals manual changes.
func (i *installation) deployExamples(repo *gittest.Repo, ns string) {
	i.t.Helper()
	files, apps := exampleApps(i.t, ns)
	commit := repo.Push(i.t, "the examples", files)
	for _, app := range apps {
		i.mustEnd(appID(app), commit, modelv1.DeploymentStatus_DEPLOYMENT_SUCCESS)
	}
	for _, app := range apps {
		i.awaitSyncState(appID(app), modelv1.ApplicationSyncStatus_SYNCED)
		i.readObjects(app)
	}
}

// readObjects reads the live state of an application, and the content, the events and the logs
// of its objects.
func (i *installation) readObjects(app string) {
	i.t.Helper()
	id := appID(app)
	var resp *controlv1.GetLiveStateResponse
	err := whenNotBusy(func() (err error) {
		resp, err = i.control.GetLiveState(i.ctx, &controlv1.GetLiveStateRequest{ApplicationId: id, Children: true})
		return complete(err, resp.GetLiveState().GetIncompleteReason())
	})
	if err != nil {
		i.t.Errorf("the live state of %s: %v", app, err)
	}
	err = whenNotBusy(func() error {
		events, err := i.control.ListObjectEvents(i.ctx, &controlv1.ListObjectEventsRequest{ApplicationId: id})
		return complete(err, events.GetIncompleteReason())
	})
	if err != nil {
		i.t.Errorf("the events of %s: %v", app, err)
	}
	var read func([]*modelv1.LiveObject)
	read = func(objects []*modelv1.LiveObject) {
		for _, o := range objects {
			ref := o.GetObject()
			var detail *controlv1.GetLiveObjectResponse
			err := whenNotBusy(func() (err error) {
				detail, err = i.control.GetLiveObject(i.ctx, &controlv1.GetLiveObjectRequest{ApplicationId: id, Diff: true, Object: &controlv1.ObjectSelector{
					Group: &ref.Group, Kind: ref.GetKind(), Namespace: &ref.Namespace, Name: ref.GetName(),
				}})
				return err
			})
			if err != nil && status.Code(err) != codes.NotFound || err == nil && o.GetDeclared() && !detail.GetCompared() {
				i.t.Errorf("%s of %s: %q, %v", ref, app, detail.GetNote(), err)
			}
			if ref.GetKind() == "Pod" {
				i.readLog(id, ref)
			}
			read(o.GetChildren())
		}
	}
	read(resp.GetLiveState().GetObjects())
}

// complete returns the error of a read, also of one that succeeded but has not found everything:
// then the reason, with the code of a read that could not reach the cluster at all.
func complete(err error, reason string) error {
	switch {
	case err != nil || reason == "":
		return err
	case strings.Contains(reason, "cannot be reached"):
		return status.Error(codes.Unavailable, reason)
	}
	return errors.New(reason)
}

// whenNotBusy repeats a read that did not end within the agent's time limit, on a busy machine.
func whenNotBusy(read func() error) error {
	err := read()
	for end := time.Now().Add(patience); status.Code(err) == codes.Unavailable && time.Now().Before(end); time.Sleep(pollInterval) {
		err = read()
	}
	return err
}

// readLog reads the log of a pod, which may be gone, or have several containers.
func (i *installation) readLog(app string, pod *modelv1.ObjectRef) {
	i.t.Helper()
	err := whenNotBusy(func() error {
		stream, err := i.control.FollowPodLogs(i.ctx, &controlv1.FollowPodLogsRequest{ApplicationId: app, Pod: pod.GetName(), TailLines: 1})
		for err == nil {
			_, err = stream.Recv()
		}
		return err
	})
	switch {
	case errors.Is(err, io.EOF), status.Code(err) == codes.NotFound, strings.Contains(err.Error(), "has several containers"):
	default:
		i.t.Errorf("the log of %s: %v", pod, err)
	}
}

// routeTraffic deploys another version of the traffic-routing applications through their
// pipelines.
func (i *installation) routeTraffic(cluster *clustertest.Cluster, repo *gittest.Repo, ns string) {
	i.t.Helper()
	routed := []string{"httproute", "istio"}
	all, _ := exampleApps(i.t, ns)
	acceptRoute(i.t, cluster, ns, "httproute")
	commit := repo.Push(i.t, "a new version", examplesAt(all, routed, "v1.1.0"))
	for _, app := range routed {
		i.approve(i.awaitStage(appID(app), commit, examplePipelines[app].approved))
	}
	for _, app := range routed {
		i.mustEnd(appID(app), commit, modelv1.DeploymentStatus_DEPLOYMENT_SUCCESS)
	}
}

// deployOwnKinds creates, changes, breaks, rolls back and prunes an object of each kind
// in the roles.
func (i *installation) deployOwnKinds(cluster *clustertest.Cluster, repo *gittest.Repo, ns, class string) {
	i.t.Helper()
	own, client := appID("own"), cluster.Client(i.t)
	at := func(version string) map[string]string { return ownKinds(ns, class, version) }
	push := func(version string, want modelv1.DeploymentStatus) *modelv1.Deployment {
		i.t.Helper()
		return i.mustEnd(own, repo.Push(i.t, "own kinds "+version, at(version)), want)
	}
	push("v1", modelv1.DeploymentStatus_DEPLOYMENT_SUCCESS)
	push("v2", modelv1.DeploymentStatus_DEPLOYMENT_SUCCESS)
	bad := at("v2")
	// Its pod crashes within this time, also on a busy machine. The rollback has its own.
	bad["own/app.pipecd.yaml"] += fmt.Sprintf("  timeout: 1m\n  rollback: {timeout: %s}\n", patience)
	bad["own/set.yaml"] = strings.ReplaceAll(bad["own/set.yaml"], ":v2", ":crash")
	d := i.mustEnd(own, repo.Push(i.t, "a version that crashes", bad), modelv1.DeploymentStatus_DEPLOYMENT_FAILURE)
	mustContain(i.t, d.GetStatusReason(), "rolled back to commit")
	push("v2", modelv1.DeploymentStatus_DEPLOYMENT_SUCCESS)

	i.awaitSyncState(own, modelv1.ApplicationSyncStatus_SYNCED)
	i.readObjects("own")
	_, err := client.CoreV1().Services(ns).Patch(i.t.Context(), "own", types.MergePatchType, []byte(`{"metadata":{"annotations":{"version":"by hand"}}}`), metav1.PatchOptions{})
	if err != nil {
		i.t.Fatal(err)
	}
	i.awaitSyncState(own, modelv1.ApplicationSyncStatus_OUT_OF_SYNC)
	if command := i.sync(own); command.GetStatus() != modelv1.CommandStatus_COMMAND_SUCCEEDED {
		i.t.Fatalf("sync: %v", command)
	}
	i.awaitSyncState(own, modelv1.ApplicationSyncStatus_SYNCED)

	for _, file := range []string{"own/policies.yaml", "own/kinds.yaml"} {
		if err := repo.Remove(file); err != nil {
			i.t.Fatal(err)
		}
		d := i.mustEnd(own, repo.Push(i.t, "without "+file, nil), modelv1.DeploymentStatus_DEPLOYMENT_SUCCESS)
		mustContain(i.t, i.logs(d.GetId()), "deleted ")
	}
	i.removeWithObjects("own")
}

// removeWithObjects deletes an application with its objects.
func (i *installation) removeWithObjects(app string) {
	i.t.Helper()
	did := i.deleteApplication(&controlv1.DeleteApplicationRequest{ApplicationId: appID(app), Cascade: true})
	if command := i.answer(did.GetCommandId()); command.GetStatus() != modelv1.CommandStatus_COMMAND_SUCCEEDED {
		i.t.Errorf("delete %s: %v", app, command)
	}
}

// TestInstalledConfigurationIsValid: the configuration in the manifests is valid, its
// addresses use the declared ports, and the files it names are mounted.
func TestInstalledConfigurationIsValid(t *testing.T) {
	t.Parallel()
	for _, variant := range []string{"cluster", "namespaced"} {
		t.Run(variant, func(t *testing.T) {
			var text string
			var pod corev1.PodSpec
			for _, o := range installManifests(t, variant, "demo") {
				switch o.GetKind() {
				case "ConfigMap":
					text, _, _ = unstructured.NestedString(o.Object, "data", "piped.yaml")
				case "Deployment":
					var d appsv1.Deployment
					if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, &d); err != nil {
						t.Fatal(err)
					}
					pod = d.Spec.Template.Spec
				}
			}
			cfg, warnings, err := Kinds().ParsePiped("/etc/piped/piped.yaml", []byte(text))
			if err != nil || len(warnings) > 0 {
				t.Fatalf("%v, %q", err, warnings)
			}
			_, api, _ := strings.Cut(cfg.API.Address, ":")
			_, web, _ := strings.Cut(cfg.Web.Address, ":")
			var ports, mounted []string
			for _, p := range pod.Containers[0].Ports {
				ports = append(ports, fmt.Sprintf("%s %d", p.Name, p.ContainerPort))
			}
			for _, m := range pod.Containers[0].VolumeMounts {
				mounted = append(mounted, m.MountPath)
			}
			if diff := cmp.Diff([]string{"api " + api, "web " + web}, ports); diff != "" {
				t.Errorf("ports (-want +got):\n%s", diff)
			}
			for _, file := range []string{cfg.DataDir, cfg.Git.SSHKeyFile, cfg.Git.KnownHostsFile} {
				if !slices.ContainsFunc(mounted, func(dir string) bool { return file == dir || strings.HasPrefix(file, dir+"/") }) {
					t.Errorf("%s is in none of %q", file, mounted)
				}
			}
			if p := cfg.Providers; len(p) != 1 || p[0].Config.(*kubeconfig.Provider).KubeConfigPath != "" || p[0].Config.(*kubeconfig.Provider).MasterURL != "" {
				t.Errorf("not the pod's own cluster: %+v", p)
			}
		})
	}
}

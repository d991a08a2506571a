package main

import (
	"bytes"
	"context"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"

	"github.com/c785c783/piped/piped/cluster"
	"github.com/c785c783/piped/piped/cluster/clustertest"
	"github.com/c785c783/piped/piped/git/gittest"
)

// installing is a user's machine with a cluster and a repository over SSH.
type installing struct {
	*testing.T
	cluster *clustertest.Cluster
	client  kubernetes.Interface
	access  *cluster.Cluster // for objects of any kind
	git     *gittest.Repo
	repo    string // its address
	keyFile string // opens the repository
}

func newInstalling(t *testing.T) *installing {
	t.Setenv("HOME", t.TempDir())
	local := clustertest.Own(t)
	t.Setenv("KUBECONFIG", local.Kubeconfig())
	access, err := cluster.NewCluster(cluster.ClusterConfig{Name: "test", KubeConfigPath: local.Kubeconfig()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(access.Close)
	repo := gittest.New(t)
	repo.Push(t, "add web", map[string]string{"web/app.pipecd.yaml": "apiVersion: pipecd.dev/v1beta1\nkind: KubernetesApp\nspec: {name: web}\n"})
	private, public, err := gittest.NewUserKey()
	if err != nil {
		t.Fatal(err)
	}
	i := &installing{t, local, local.Client(t), access, repo, repo.SSH(t, gittest.SSHOptions{AuthorizedKey: public}).URL, filepath.Join(t.TempDir(), "id")}
	if err := os.WriteFile(i.keyFile, private, 0o600); err != nil {
		t.Fatal(err)
	}
	return i
}

// piped runs the program, which must exit with a code, and returns its output.
func (i *installing) piped(code int, args ...string) string {
	i.Helper()
	var out bytes.Buffer
	begun := time.Now()
	if got := run(i.Context(), args, &out, &out); got != code {
		i.Fatalf("piped %s: exit code %d, want %d\n%s", strings.Join(args, " "), got, code, out.String())
	}
	i.Logf("%.1fs piped %s", time.Since(begun).Seconds(), strings.Join(args, " "))
	return out.String()
}

// install installs a variant.
func (i *installing) install(code int, args ...string) string {
	i.Helper()
	return i.piped(code, slices.Concat([]string{"install", "--apply", "--repo", i.repo, "--image", "registry.example/piped:v1"}, args)...)
}

// contains fails unless a text has each of some parts.
func (i *installing) contains(text string, parts ...string) {
	i.Helper()
	for _, part := range parts {
		if !strings.Contains(text, part) {
			i.Errorf("%q is missing in\n%s", part, text)
		}
	}
}

// everything returns the names of all objects of the cluster but those that come and go by
// themselves, and whether another object owns them.
func (i *installing) everything() map[string]bool {
	i.Helper()
	config := i.cluster.RESTConfig(i.T)
	config.WarningHandler = rest.NoWarnings{} // of kinds that are deprecated
	kinds, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		i.Fatal(err)
	}
	client, err := metadata.NewForConfig(config)
	if err != nil {
		i.Fatal(err)
	}
	lists, err := kinds.ServerPreferredResources()
	if err != nil {
		i.Fatal(err)
	}
	found := map[string]bool{}
	for _, list := range lists {
		version, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil {
			i.Fatal(err)
		}
		for _, kind := range list.APIResources {
			if !slices.Contains(kind.Verbs, "list") || kind.Kind == "Event" {
				continue
			}
			objects, err := client.Resource(version.WithResource(kind.Name)).List(i.Context(), metav1.ListOptions{})
			if apierrors.IsNotFound(err) {
				continue
			}
			if err != nil {
				i.Fatal(err)
			}
			for _, o := range objects.Items {
				found[kind.Kind+" "+o.Namespace+"/"+o.Name] = len(o.OwnerReferences) > 0
			}
		}
	}
	return found
}

// settled returns everything once no pod is being deleted: the pods of an earlier rollout, which is
// complete without them, may go later.
func (i *installing) settled() map[string]bool {
	i.Helper()
	clustertest.Eventually(i, "the pods of earlier rollouts are gone", func() bool {
		pods, err := i.client.CoreV1().Pods("").List(i.Context(), metav1.ListOptions{})
		return err == nil && !slices.ContainsFunc(pods.Items, func(p corev1.Pod) bool { return p.DeletionTimestamp != nil })
	})
	return i.everything()
}

// makeDemo makes the namespace of the applications, with what Kubernetes adds to it later.
func (i *installing) makeDemo() {
	i.Helper()
	core := i.client.CoreV1()
	if _, err := core.Namespaces().Create(i.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "demo"}}, metav1.CreateOptions{}); err != nil {
		i.Fatal(err)
	}
	clustertest.Eventually(i, "the namespace to be complete", func() bool {
		_, account := core.ServiceAccounts("demo").Get(i.Context(), "default", metav1.GetOptions{})
		_, roots := core.ConfigMaps("demo").Get(i.Context(), "kube-root-ca.crt", metav1.GetOptions{})
		return account == nil && roots == nil
	})
}

// volume makes a volume for a claim of the agent: the cluster provisions none.
func (i *installing) volume(name string) {
	i.Helper()
	volumes := i.client.CoreV1().PersistentVolumes()
	_, err := volumes.Create(i.Context(), &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.PersistentVolumeSpec{
		AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}, Capacity: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("10Gi")},
		PersistentVolumeSource: corev1.PersistentVolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/none"}},
	}}, metav1.CreateOptions{})
	if err != nil {
		i.Fatal(err)
	}
}

// TestInstallation goes through the variants: each is installed over the one before, checked, and
// the last is removed with nothing left.
func TestInstallation(t *testing.T) {
	i := newInstalling(t)
	i.contains(i.piped(1, "install", "check"), "no agent is installed in namespace piped", "--repo is missing")
	inDemo := []string{"--namespaces", "demo"}
	before := slices.Concat([]string{"install", "check", "--repo", i.repo}, inDemo)
	i.contains(i.piped(1, before...), "there is no namespace demo", "kubectl create namespace demo", "no default storage class", "1 problem")
	i.makeDemo()
	_, err := i.client.CoreV1().ConfigMaps("demo").Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "piped", Labels: map[string]string{"app": "web"}}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	i.volume("piped")
	i.contains(i.piped(0, append(before, "--ssh-key-file", i.keyFile)...), "you may make the ", "branch main of ", "clock and this machine's agree", "ok       git")
	existing := i.everything()

	out := i.install(0, inDemo...)
	i.contains(out, "The key of the repository's host is SHA256:", "created Deployment piped/piped", "created Role demo/piped", "The agent answers.")
	public := regexp.MustCompile(`(?m)^ssh-ed25519 \S+`).FindString(out)
	if public == "" {
		t.Fatalf("no public key in\n%s", out)
	}
	i.contains(i.piped(1, "install", "check"), "problem  git", "add this deploy key to the repository, if it is not there: "+public,
		"ok       rights   ServiceAccount piped/piped has the ", " in demo", "PersistentVolumeClaim piped/piped is bound", "ok       agent    1 of 1 replicas answer")
	i.contains(i.install(0, inDemo...), public) // it is kept

	i.install(0, append(inDemo, "--ssh-key-file", i.keyFile)...)
	i.contains(i.piped(0, "install", "check"), "ok       git      branch main of ")

	i.contains(i.install(0), "deleted Role demo/piped, which this variant does not have", "deleted RoleBinding demo/piped", "created ClusterRole piped-agent")
	i.contains(i.piped(0, "install", "check"), "that it needs in the whole cluster")
	i.rightsAreMissed()

	replicated := []string{"--postgres", "postgres://piped@127.0.0.1:1/piped?sslmode=disable"}
	i.refusesAnotherStore(replicated, "the agent has its store in the SQLite store on its volume", "the database piped at 127.0.0.1:1")
	out = i.install(0, append(replicated, "--change-store")...)
	i.contains(out, "created PodDisruptionBudget piped/piped", "created Secret piped/piped-store", "left PersistentVolumeClaim piped/piped")
	i.contains(i.piped(0, "install", "check"), "ok       storage  the agent uses its database", "ok       agent    3 of 3 replicas answer")
	i.deploymentIs(3)

	i.install(0, replicated...)
	i.refusesAnotherStore(nil, "the agent has its store in the database piped at 127.0.0.1:1")
	i.contains(i.install(0, "--change-store"), "deleted PodDisruptionBudget piped/piped", "left Secret piped/piped-store") // and back
	i.deploymentIs(1)

	i.contains(i.install(1, "--image", "registry.example/piped:does-not-exist"), "the agent does not answer: ", "ImagePullBackOff")
	i.contains(i.piped(1, "install", "check"), "problem  agent", "ImagePullBackOff", "describe pods")

	kept := i.settled()
	i.contains(i.piped(0, "uninstall"), "would delete Deployment piped/piped", "would delete ClusterRole piped-agent", "stays: PersistentVolumeClaim piped/piped: it has the agent's data",
		"stays: Secret piped/piped-store: it has the key of the store", "stays: Secret piped/piped-git: it has the deploy key", "stays: Namespace piped: it contains", "Nothing was changed")
	if after := i.everything(); !maps.Equal(kept, after) {
		t.Errorf("listing changed %q", difference(kept, after))
	}
	i.contains(i.piped(0, "uninstall", "--yes"), "deleted Deployment piped/piped", "stays: PersistentVolumeClaim piped/piped")
	i.contains(i.piped(0, "uninstall", "--yes", "--data"), "deleted PersistentVolumeClaim piped/piped", "deleted Namespace piped")
	if left := difference(i.everything(), existing); len(left) > 0 {
		t.Errorf("left: %q", left)
	}
	if gone := difference(existing, i.everything()); len(gone) > 0 {
		t.Errorf("removed what it did not make: %q", gone)
	}
	i.contains(i.piped(0, "uninstall"), "There is no installation in namespace piped.")
}

// difference returns what is in a and not in b.
func difference(a, b map[string]bool) (out []string) {
	for name := range a {
		if _, has := b[name]; !has {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return out
}

// deploymentIs fails unless the Deployment has as many replicas, and the volume that belongs to them.
func (i *installing) deploymentIs(replicas int32) {
	i.Helper()
	d, err := i.client.AppsV1().Deployments("piped").Get(i.Context(), "piped", metav1.GetOptions{})
	if err != nil {
		i.Fatal(err)
	}
	for _, v := range d.Spec.Template.Spec.Volumes {
		if v.Name == "data" && (v.PersistentVolumeClaim != nil) != (replicas == 1) {
			i.Errorf("%d replicas have the volume %+v", replicas, v)
		}
	}
	if *d.Spec.Replicas != replicas || (d.Spec.Template.Spec.Containers[0].LivenessProbe.HTTPGet != nil) != (replicas == 1) {
		i.Errorf("%d replicas, want %d, with %+v", *d.Spec.Replicas, replicas, d.Spec.Template.Spec.Containers[0].LivenessProbe)
	}
}

// refusesAnotherStore: the command says what to do, and changes nothing.
func (i *installing) refusesAnotherStore(args []string, want ...string) {
	i.Helper()
	d := i.client.AppsV1().Deployments("piped")
	before, err := d.Get(i.Context(), "piped", metav1.GetOptions{})
	if err != nil {
		i.Fatal(err)
	}
	objects := i.settled()
	i.contains(i.install(1, args...), append(want, "From SQLite to replicas", "--change-store")...)
	after, err := d.Get(i.Context(), "piped", metav1.GetOptions{})
	if err != nil || after.Generation != before.Generation || !maps.Equal(objects, i.everything()) {
		i.Errorf("a refused installation has changed something: %v", err)
	}
}

// rightsAreMissed: the check names what the account lacks, and the command that gives it.
func (i *installing) rightsAreMissed() {
	i.Helper()
	roles := i.client.RbacV1().ClusterRoles()
	if err := roles.Delete(i.Context(), "piped-routes", metav1.DeleteOptions{}); err != nil {
		i.Fatal(err)
	}
	const missed = "may not get httproutes.gateway.networking.k8s.io"
	check := func() (code int, text string) {
		var out bytes.Buffer
		code = run(context.WithoutCancel(i.Context()), []string{"install", "check"}, &out, &out)
		return code, out.String()
	}
	clustertest.Eventually(i, "the roles to be aggregated without the deleted one", func() bool {
		code, text := check()
		return code != 0 && strings.Contains(text, missed) // and not for another reason, which may pass
	})
	i.contains(i.piped(1, "install", "check"), missed, "--only permissions --apply")
	i.contains(i.install(0, "--only", "permissions"), "created ClusterRole piped-routes")
	clustertest.Eventually(i, "the roles to be aggregated with it", func() bool {
		code, _ := check()
		return code == 0
	})
	i.piped(0, "install", "check")
}

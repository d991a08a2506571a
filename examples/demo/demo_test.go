package main

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	"github.com/c785c783/piped/examples/programs"
	"github.com/c785c783/piped/piped/cluster/clustertest"
)

func TestMain(m *testing.M) { clustertest.Main(m) }

// play plays the demo in a cluster that somebody has, and returns its exit code and what
// it prints.
func play(t *testing.T, ctx context.Context, cluster *clustertest.Cluster) (code int, printed string) {
	t.Helper()
	t.Setenv("TMPDIR", t.TempDir()) // the demo changes it, and keeps what explains a failure
	out, err := os.Create(filepath.Join(t.TempDir(), "out"))
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	var stderr bytes.Buffer
	code = run(ctx, []string{
		"-bin", programs.Dir(t), "-apps", "../apps", "-keys", "../keys", "-once", "-kubeconfig", cluster.Kubeconfig(),
		"-image", "registry.internal.example/team/web", "-tags", "3.6,3.7,3.8,3.9,3.10",
	}, out, &stderr)
	text, err := os.ReadFile(out.Name())
	if err != nil {
		t.Fatal(err)
	}
	return code, string(text) + stderr.String()
}

// objects names what a cluster has of the kinds that the demo could leave something of.
func objects(t *testing.T, cluster *clustertest.Cluster) (names []string) {
	t.Helper()
	client, err := dynamic.NewForConfig(cluster.RESTConfig(t))
	if err != nil {
		t.Fatal(err)
	}
	for _, kind := range []schema.GroupVersionResource{
		{Version: "v1", Resource: "namespaces"}, {Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"},
		{Group: "apps", Version: "v1", Resource: "deployments"}, {Version: "v1", Resource: "secrets"}, {Version: "v1", Resource: "configmaps"},
		{Group: "rbac.authorization.k8s.io", Version: "v1", Resource: "clusterroles"},
	} {
		list, err := client.Resource(kind).List(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		for _, o := range list.Items {
			names = append(names, kind.Resource+" "+o.GetNamespace()+"/"+o.GetName())
		}
	}
	leases, err := client.Resource(schema.GroupVersionResource{Group: "coordination.k8s.io", Version: "v1", Resource: "leases"}).Namespace("default").List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range leases.Items {
		names = append(names, "leases default/"+o.GetName())
	}
	slices.Sort(names)
	return names
}

// ofServer are objects that the API server writes itself, which may happen after the cluster is ready.
var ofServer = []string{
	"namespaces /default", "namespaces /kube-node-lease", "namespaces /kube-public", "namespaces /kube-system",
	"configmaps kube-system/extension-apiserver-authentication", "configmaps kube-system/kube-apiserver-legacy-service-account-token-tracking",
}

// begun returns the objects of a cluster once it has those of the API server, and each namespace the
// certificate that the controller manager writes into it, which may happen after the cluster is ready, too.
func begun(t *testing.T, cluster *clustertest.Cluster) (names []string) {
	t.Helper()
	clustertest.Eventually(t, "the cluster to have what its components write", func() bool {
		names = objects(t, cluster)
		if slices.ContainsFunc(ofServer, func(name string) bool { return !slices.Contains(names, name) }) {
			return false
		}
		return !slices.ContainsFunc(names, func(name string) bool {
			namespace, ok := strings.CutPrefix(name, "namespaces /")
			return ok && !slices.Contains(names, "configmaps "+namespace+"/kube-root-ca.crt")
		})
	})
	return names
}

// The demo plays in somebody's cluster without a control plane of its own, in one
// namespace, and leaves nothing.
func TestOwnCluster(t *testing.T) {
	cluster := clustertest.Shared(t)
	before := begun(t, cluster)
	code, printed := play(t, t.Context(), cluster)
	if code != 0 || !strings.Contains(printed, "every deployment ended as it should") {
		t.Errorf("exit code %d:\n%s", code, printed)
	}
	if strings.Contains(printed, "registry.example") || strings.Contains(printed, " demo/") {
		t.Errorf("the demo used an image or a namespace that is not the one it was given:\n%s", printed)
	}
	if after := objects(t, cluster); !slices.Equal(before, after) {
		t.Errorf("the cluster has\n%q, before the demo it had\n%q", after, before)
	}
}

// A demo that is ended in the middle leaves nothing, either.
func TestOwnClusterInterrupted(t *testing.T) {
	cluster := clustertest.Shared(t)
	before := begun(t, cluster)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	client := cluster.Client(t)
	go func() {
		defer stop()
		for list, err := client.AppsV1().Deployments("").List(ctx, metav1.ListOptions{}); err == nil && len(list.Items) == 0; {
			time.Sleep(20 * time.Millisecond)
			list, err = client.AppsV1().Deployments("").List(ctx, metav1.ListOptions{})
		}
	}()
	code, printed := play(t, ctx, cluster)
	if code != 1 {
		t.Errorf("exit code %d:\n%s", code, printed)
	}
	if after := objects(t, cluster); !slices.Equal(before, after) {
		t.Errorf("the cluster has\n%q, before the demo it had\n%q\n%s", after, before, printed)
	}
}

// A kubeconfig that cannot be used, and an image without enough tags, are refused.
func TestOwnClusterThatCannotBeUsed(t *testing.T) {
	for _, c := range []struct{ tags, want string }{{"1,2,3,4", "five"}, {"1,2,3,4,4", "five"}, {"1,2,3,4,5", "kubeconfig"}} {
		out, err := os.Create(filepath.Join(t.TempDir(), "out"))
		if err != nil {
			t.Fatal(err)
		}
		t.Setenv("TMPDIR", t.TempDir())
		var stderr bytes.Buffer
		if code := run(t.Context(), []string{"-bin", programs.Dir(t), "-kubeconfig", "/nowhere/kubeconfig", "-tags", c.tags}, out, &stderr); code == 0 || !strings.Contains(stderr.String(), c.want) {
			t.Errorf("tags %s: exit code %d, %s", c.tags, code, &stderr)
		}
		out.Close()
	}
}

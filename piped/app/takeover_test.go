package app

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/c785c783/piped/piped/cluster/clustertest"
	"github.com/c785c783/piped/piped/git/gittest"
	modelv1 "github.com/c785c783/piped/proto/piped/model/v1"
)

// TestLostDatabaseIsMadeGood: an agent with an empty data directory takes over the
// objects of an earlier one without restarting a pod. Then it deploys the branch's later
// commits, compared with the live commit.
func TestLostDatabaseIsMadeGood(t *testing.T) {
	t.Parallel()
	cluster := clustertest.Shared(t)
	ns, kube := cluster.Namespace(t), cluster.Client(t)
	repo := newRepo(t)
	web := appID("web")
	var first string
	t.Run("before", func(t *testing.T) {
		agent := runAgent(t, settings{dataDir: t.TempDir(), remote: repo.Dir, kubeconfig: cluster.Kubeconfig()})
		first = repo.Push(t, "add web", webApp(ns, "v1", ""))
		agent.mustEnd(web, first, modelv1.DeploymentStatus_DEPLOYMENT_SUCCESS)
	})
	pods := func() (names []string) {
		t.Helper()
		list, err := kube.CoreV1().Pods(ns).List(context.Background(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range list.Items {
			names = append(names, p.Name)
		}
		return names
	}
	was := pods()
	files := webApp(ns, "v1", "")
	files["web/more.yaml"] = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: more}\n"
	second := repo.Push(t, "one more object", files)

	agent := runAgent(t, settings{dataDir: t.TempDir(), remote: repo.Dir, kubeconfig: cluster.Kubeconfig()})
	d := agent.mustEnd(web, first, modelv1.DeploymentStatus_DEPLOYMENT_SUCCESS)
	mustContain(t, d.GetSummary(), "Taking over what runs", first[:7])
	d = agent.mustEnd(web, second, modelv1.DeploymentStatus_DEPLOYMENT_SUCCESS)
	if d.GetRunningCommitHash() != first {
		t.Errorf("the second deployment compares with %q, want %s", d.GetRunningCommitHash(), first)
	}
	mustContain(t, agent.logs(d.GetId()), "1 created")
	if diff := cmp.Diff(was, pods()); diff != "" {
		t.Errorf("pods were replaced (-before +after):\n%s", diff)
	}
}

// takeOverFleet runs an agent without any record of the fleet, whose live commit is the
// head. It takes over the fleet and changes nothing. Then it deploys.
func takeOverFleet(t *testing.T, f *fleet, repo *gittest.Repo, commit string, wantWrites int) {
	f.awaitQuiet(t)
	before := f.live(t)
	kubeconfig := f.kubeconfig(t)
	f.taken()
	agent := runAgent(t, settings{dataDir: t.TempDir(), remote: repo.Dir, kubeconfig: kubeconfig})
	for _, name := range f.names {
		d := agent.mustEnd(appID(name), commit, modelv1.DeploymentStatus_DEPLOYMENT_SUCCESS)
		mustContain(t, d.GetSummary(), "Taking over what runs")
		mustContain(t, agent.logs(d.GetId()), "Deployment "+f.ns+"/"+name+": nothing to roll out")
	}
	f.awaitQuiet(t)
	f.wantTaken(t, before)
	writes, conflicts := f.taken()
	objects := 0
	for _, u := range before {
		if u.GetKind() != "ReplicaSet" && u.GetKind() != "Pod" {
			objects++
		}
	}
	if len(writes)-conflicts > wantWrites*objects || slices.ContainsFunc(writes, func(w string) bool { return !strings.HasPrefix(w, "PATCH ") }) {
		t.Errorf("%d writes, %d of them refused for a conflict, for %d objects: %v", len(writes), conflicts, objects, writes)
	}

	// Later commits are deployed and pruned as usual.
	files := f.files("v1")
	next := f.names[1]
	for path, text := range files {
		text = strings.Replace(text, "registry.example/web:v1", "registry.example/web:v2", 1)
		if strings.HasPrefix(path, next+"/") && strings.HasSuffix(path, "/app.yaml") {
			service := strings.Index(text, "---\napiVersion: v1\nkind: Service")
			text = text[:service] + text[service+strings.Index(text[service:], "---\napiVersion: apps/v1"):]
		}
		files[path] = text
	}
	second := repo.Push(t, "v2, and "+next+" without a Service", files)
	for _, name := range f.names {
		d := agent.mustEnd(appID(name), second, modelv1.DeploymentStatus_DEPLOYMENT_SUCCESS)
		mustContain(t, agent.logs(d.GetId()), "Deployment "+f.ns+"/"+name+": rollout complete")
	}
	after := f.live(t)
	if after["Service "+next] != nil || after["Service "+f.names[2]] == nil {
		t.Errorf("Services: %v, %v", after["Service "+next], after["Service "+f.names[2]])
	}
	for _, name := range f.names {
		n, _, _ := unstructured.NestedInt64(after["Deployment "+name].Object, "spec", "replicas")
		if want := map[bool]int64{true: 2, false: 1}[f.scaled(name)]; n != want {
			t.Errorf("Deployment %s has %d replicas, want %d", name, n, want)
		}
	}
}

// TestLostDatabaseUnderAFleet: the database is deleted under twenty live
// applications.
func TestLostDatabaseUnderAFleet(t *testing.T) {
	t.Parallel()
	f, repo := newFleet(t, 20), newRepo(t)
	commit := repo.Push(t, "twenty applications", f.files("v1"))
	t.Run("before", func(t *testing.T) {
		agent := runAgent(t, settings{dataDir: t.TempDir(), remote: repo.Dir, kubeconfig: f.kubeconfig(t)})
		for _, name := range f.names {
			agent.mustEnd(appID(name), commit, modelv1.DeploymentStatus_DEPLOYMENT_SUCCESS)
		}
	})
	takeOverFleet(t, f, repo, commit, 1)
}

// TestFleetOfPipeCDIsTakenOver: twenty applications that PipeCD applied with
// kubectl, under its own IDs.
func TestFleetOfPipeCDIsTakenOver(t *testing.T) {
	t.Parallel()
	f, repo := newFleet(t, 20), newRepo(t)
	files := f.files("v1")
	commit := repo.Push(t, "twenty applications", files)
	f.applyAsPipeCD(t, files, commit)
	takeOverFleet(t, f, repo, commit, 2)
}

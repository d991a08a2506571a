package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/c785c783/piped/piped/cluster/clustertest"
	"github.com/c785c783/piped/piped/githost/githosttest"
)

// The commits that the workloads of the test are built from.
const (
	commitAnnotated = "a6ae82c7b1a177c8d03f9e96e0adf2466113728f"
	commitOfImage   = "b6ae82c7b1a177c8d03f9e96e0adf2466113728f"
	commitStuck     = "c6ae82c7b1a177c8d03f9e96e0adf2466113728f"
	commitForbidden = "d6ae82c7b1a177c8d03f9e96e0adf2466113728f"
	commitAway      = "e6ae82c7b1a177c8d03f9e96e0adf2466113728f"
)

// statusHost is a Git host that gets the statuses of the commits of workloads, and the file by
// which piped observe knows it.
type statusHost struct {
	*githosttest.GitHub
	file string
}

func newStatusHost(t *testing.T, dir string) statusHost {
	t.Helper()
	h := statusHost{githosttest.NewGitHub(t), filepath.Join(dir, "git-hosts.yaml")}
	h.SetCommits(commitOfImage)
	text := fmt.Sprintf(`- host: git.example.com
  type: GITHUB
  apiURL: %s
  tokenFile: token
  workloads:
    repositories: [shop/*]
    images: [{image: 'registry.example/shop/(?P<name>[a-z]+):main-(?P<commit>[0-9a-f]+)', repository: 'shop/${name}'}]
`, h.URL)
	for path, text := range map[string]string{h.file: text, filepath.Join(dir, "token"): githosttest.Token} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return h
}

// of returns the states of a commit's statuses in order, each with its context.
func (h statusHost) of(commit string) (states []string) {
	for _, s := range h.Statuses(commit) {
		_, workload, _ := strings.Cut(s.Context, "/")
		_, workload, _ = strings.Cut(workload, "/") // without the name of the cluster
		states = append(states, workload+" "+s.State)
	}
	return slices.Compact(states) // they are delivered at least once
}

// await waits until a commit has a status of a workload, which may have been pending before: a
// rollout can have ended before its start is delivered.
func (h statusHost) await(t *testing.T, commit, workload, state string) (pending bool) {
	t.Helper()
	want := workload + " " + state
	clustertest.Eventually(t, fmt.Sprintf("%s to get the status %s", commit[:7], want), func() bool { return slices.Contains(h.of(commit), want) })
	got := h.of(commit)
	pending = len(got) == 2 && got[0] == workload+" pending"
	if !pending && len(got) != 1 || got[len(got)-1] != want {
		t.Errorf("statuses of %s are %q, want %q at last", commit[:7], got, want)
	}
	return pending
}

// fromCommit returns a Deployment that names the commit from which it was built.
func fromCommit(name, image, repository, commit string) *appsv1.Deployment {
	d := deployment(name, image)
	d.Annotations = map[string]string{"pipecd.dev/repository": repository, "pipecd.dev/commit": commit}
	if d.Spec.ProgressDeadlineSeconds = new(int32(1)); !strings.HasSuffix(image, ":never-ready") {
		d.Spec.ProgressDeadlineSeconds = new(int32(600))
	}
	return d
}

// held returns a Deployment whose pods do not become ready before they are released.
func held(d *appsv1.Deployment) *appsv1.Deployment {
	d.Spec.Template.Labels = map[string]string{"app": d.Name, clustertest.BehaviorLabel: "never-ready"}
	return d
}

// release lets the pods of a Deployment become ready.
func release(t *testing.T, client kubernetes.Interface, namespace, name string) {
	t.Helper()
	clustertest.Eventually(t, "a pod of "+name+" to be released", func() bool {
		pods, err := clustertest.Behave(t.Context(), client, namespace, "app="+name, "ready")
		return err == nil && pods > 0
	})
}

// check deploys workloads that name commits while piped observe runs: by annotations or by their
// image, with pods that become ready or never do, and of a repository that is not allowed.
func (h statusHost) check(t *testing.T, client kubernetes.Interface, namespace string) {
	t.Helper()
	const repository = "https://git.example.com/shop/web"
	for _, d := range []*appsv1.Deployment{
		fromCommit("forbidden", "web:1", "https://git.example.com/secret/web", commitForbidden), held(fromCommit("annotated", "web:1", repository, commitAnnotated)),
		fromCommit("stuck", "web:never-ready", repository, commitStuck), deployment("mapped", "registry.example/shop/api:main-"+commitOfImage[:8]),
	} {
		if _, err := client.AppsV1().Deployments(namespace).Create(t.Context(), d, metav1.CreateOptions{FieldManager: "another-tool"}); err != nil {
			t.Fatal(err)
		}
	}
	pending := namespace + "/annotated pending"
	clustertest.Eventually(t, "the held rollout to be reported as pending", func() bool { return slices.Contains(h.of(commitAnnotated), pending) })
	release(t, client, namespace, "annotated")
	if !h.await(t, commitAnnotated, namespace+"/annotated", "success") {
		t.Error("the rollout that was held was never pending")
	}
	h.await(t, commitOfImage, namespace+"/mapped", "success")
	h.await(t, commitStuck, namespace+"/stuck", "failure")
	if got := h.of(commitForbidden); len(got) > 0 {
		t.Errorf("a repository that is not allowed got %q", got)
	}
	for _, call := range h.Calls() {
		if !strings.Contains(call, "/repos/shop/web/") && !strings.Contains(call, "/repos/shop/api/") {
			t.Errorf("call %s", call)
		}
	}
}

// advance deploys another commit of the annotated workload.
func (h statusHost) advance(t *testing.T, client kubernetes.Interface, namespace string) {
	t.Helper()
	d, err := client.AppsV1().Deployments(namespace).Get(t.Context(), "annotated", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	d.Annotations["pipecd.dev/commit"], d.Spec.Template.Spec.Containers[0].Image = commitAway, "web:2"
	delete(d.Spec.Template.Labels, clustertest.BehaviorLabel) // its pods are not held
	if _, err := client.AppsV1().Deployments(namespace).Update(t.Context(), d, metav1.UpdateOptions{FieldManager: "another-tool"}); err != nil {
		t.Fatal(err)
	}
}

// found checks the statuses of the commit that was deployed while piped observe did not run.
func (h statusHost) found(t *testing.T, namespace string) {
	t.Helper()
	h.await(t, commitAway, namespace+"/annotated", "success")
	h.await(t, commitAnnotated, namespace+"/annotated", "success") // as before
}

package app

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/c785c783/piped/piped/git/gittest"
	"github.com/c785c783/piped/piped/githost/githosttest"
	"github.com/c785c783/piped/proto/pipecd/apiservice"
	controlv1 "github.com/c785c783/piped/proto/piped/control/v1"
	modelv1 "github.com/c785c783/piped/proto/piped/model/v1"
)

// manyRequests is how many pull requests TestManyPullRequests opens.
const manyRequests = 12

// pull opens, pushes to or closes a pull request.
func (e *previewEnv) pull(number int, state, version string) {
	e.t.Helper()
	branch := fmt.Sprintf("pr-%d", number)
	commit := e.repo.PushOn(e.t, branch, version, previewedApp("web", e.namespace, fmt.Sprintf("v%d-%s", number, version), "0s"))
	e.github.SetPull(githosttest.PullRequest{
		Number: number, State: state, Head: githosttest.Ref{Ref: branch, SHA: commit}, Base: githosttest.Ref{Ref: gittest.Branch}, Labels: []githosttest.Label{{Name: "preview"}},
	})
}

// objects returns every object of the applications of the branch, without what the API server and
// controllers count.
func (e *previewEnv) objects() map[string]string {
	e.t.Helper()
	out := map[string]string{}
	add := func(kind string, meta metav1.ObjectMeta, spec any) {
		meta.ResourceVersion, meta.ManagedFields = "", nil
		text, err := json.Marshal([]any{meta, spec})
		if err != nil {
			e.t.Fatal(err)
		}
		out[kind+" "+meta.Name] = string(text)
	}
	ctx, all := e.t.Context(), metav1.ListOptions{}
	deployments, err := e.cluster.AppsV1().Deployments(e.namespace).List(ctx, all)
	if err != nil {
		e.t.Fatal(err)
	}
	for _, o := range deployments.Items {
		add("Deployment", o.ObjectMeta, o.Spec)
	}
	sets, err := e.cluster.AppsV1().ReplicaSets(e.namespace).List(ctx, all)
	if err != nil {
		e.t.Fatal(err)
	}
	for _, o := range sets.Items {
		add("ReplicaSet", o.ObjectMeta, o.Spec)
	}
	pods, err := e.cluster.CoreV1().Pods(e.namespace).List(ctx, all)
	if err != nil {
		e.t.Fatal(err)
	}
	for _, o := range pods.Items {
		add("Pod", o.ObjectMeta, o.Spec)
	}
	ingresses, err := e.cluster.NetworkingV1().Ingresses(e.namespace).List(ctx, all)
	if err != nil {
		e.t.Fatal(err)
	}
	for _, o := range ingresses.Items {
		add("Ingress", o.ObjectMeta, o.Spec)
	}
	return out
}

// namespaces returns the namespaces of previews.
func (e *previewEnv) namespaces() (names []string) {
	e.t.Helper()
	list, err := e.cluster.CoreV1().Namespaces().List(e.t.Context(), metav1.ListOptions{})
	if err != nil {
		e.t.Fatal(err)
	}
	for _, ns := range list.Items {
		if strings.HasPrefix(ns.Name, e.namespace+"-") {
			names = append(names, ns.Name)
		}
	}
	return names
}

// applicationsOf returns the applications whose names have a prefix.
func (c *client) applicationsOf(prefix string) (names []string) {
	c.t.Helper()
	resp, err := c.api.ListApplications(c.ctx, &apiservice.ListApplicationsRequest{})
	if err != nil {
		c.t.Fatal(err)
	}
	for _, a := range resp.GetApplications() {
		if strings.HasPrefix(a.GetName(), prefix) {
			names = append(names, a.GetName())
		}
	}
	return names
}

// TestManyPullRequests opens, pushes to and closes pull requests in random order. In the end nothing
// of them is left in the cluster or the API, and every object of the branch is as it was.
func TestManyPullRequests(t *testing.T) {
	t.Parallel()
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	e := newPreviewEnv(t)
	agent := runAgent(t, e.settings)
	agent.mustEnd(appID("web"), e.repo.Push(t, "begin", previewedApp("web", e.namespace, "v0", "0s")), modelv1.DeploymentStatus_DEPLOYMENT_SUCCESS)
	eventually(t, "the pods of the branch are there", func() bool { return len(e.objects()) == 5 })
	before := e.objects()

	left := map[int]int{} // steps of each pull request that are left
	for number := 1; number <= manyRequests; number++ {
		left[number] = 3
	}
	waited := 0
	for len(left) > 0 {
		open := []int{}
		for number := range left {
			open = append(open, number)
		}
		slices.Sort(open)
		number := open[rng.IntN(len(open))]
		switch left[number]--; left[number] {
		case 2:
			e.pull(number, "open", "first")
			if waited < 2 || rng.IntN(3) == 0 { // the others come and go before they are deployed
				waited++
				eventually(t, "the preview is there", func() bool { return slices.Contains(e.namespaces(), fmt.Sprintf("%s-%d-apps", e.namespace, number)) })
			}
		case 1:
			e.pull(number, "open", "second")
		case 0:
			e.pull(number, "closed", "second")
			delete(left, number)
		}
		time.Sleep(time.Duration(rng.IntN(400)) * time.Millisecond)
	}
	eventually(t, "nothing is left", func() bool {
		list, err := agent.control.ListPreviews(agent.ctx, &controlv1.ListPreviewsRequest{})
		if err != nil {
			t.Fatal(err)
		}
		return len(list.GetPreviews()) == 0 && len(e.namespaces()) == 0 && len(agent.applicationsOf("web-pr-")) == 0
	})
	after := e.objects()
	for name, was := range before {
		if after[name] != was {
			t.Errorf("%s was\n%s\nand is\n%s", name, was, after[name])
		}
	}
	if len(after) != len(before) {
		t.Errorf("%d objects became %d", len(before), len(after))
	}
}

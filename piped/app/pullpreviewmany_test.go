package app

import (
	"cmp"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/c785c783/piped/piped/git/gittest"
	"github.com/c785c783/piped/piped/githost/githosttest"
	"github.com/c785c783/piped/piped/store"
	"github.com/c785c783/piped/proto/pipecd/apiservice"
	controlv1 "github.com/c785c783/piped/proto/piped/control/v1"
	modelv1 "github.com/c785c783/piped/proto/piped/model/v1"
)

// manyRequests returns how many pull requests TestManyPullRequests opens: PIPED_PULL_REQUESTS, or a dozen.
func manyRequests(t *testing.T) int {
	t.Helper()
	n, err := strconv.Atoi(cmp.Or(os.Getenv("PIPED_PULL_REQUESTS"), "12"))
	if err != nil {
		t.Fatalf("PIPED_PULL_REQUESTS: %v", err)
	}
	return n
}

// pull opens, pushes to or closes a pull request that touches some of the applications web, whose previews
// have namespaces, and shop, next to which they are.
func (e *previewEnv) pull(number int, state, version string, touched []string) {
	e.t.Helper()
	branch, version := fmt.Sprintf("pr-%d", number), fmt.Sprintf("v%d-%s", number, version)
	all := map[string]map[string]string{
		"web": previewedApp("web", e.namespace, version, "0s"), "shop": routedApp("shop", e.namespace, version, version, "0s", "0s"),
	}
	files := map[string]string{}
	for _, name := range touched {
		maps.Copy(files, all[name])
	}
	commit := e.repo.PushOn(e.t, branch, version, files)
	e.github.SetPull(githosttest.PullRequest{
		Number: number, State: state, Head: githosttest.Ref{Ref: branch, SHA: commit}, Base: githosttest.Ref{Ref: gittest.Branch}, Labels: []githosttest.Label{{Name: "preview"}},
	})
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

// isThere reports whether a preview of a pull request has a namespace or an object.
func (e *previewEnv) isThere(number int) bool {
	return slices.Contains(e.namespaces(), fmt.Sprintf("%s-%d-apps", e.namespace, number)) || e.objectsOf(true)[fmt.Sprintf("deployments shop-pr-%d", number)] != ""
}

// previews returns the names of all applications that are previews.
func (c *client) previews() (names []string) {
	c.t.Helper()
	resp, err := c.api.ListApplications(c.ctx, &apiservice.ListApplicationsRequest{})
	if err != nil {
		c.t.Fatal(err)
	}
	for _, a := range resp.GetApplications() {
		if strings.Contains(a.GetName(), "-pr-") {
			names = append(names, a.GetName())
		}
	}
	return names
}

// mustBeForgotten fails the test if the store of an agent has anything of a preview but ended deployments.
func mustBeForgotten(t *testing.T, st *store.Store) {
	t.Helper()
	records, err := st.RetainedPullPreviews(t.Context(), "", 0)
	if err != nil || len(records) > 0 {
		t.Errorf("records of previews are left: %v, %v", records, err)
	}
	apps, _, err := st.ListApplications(t.Context(), store.ApplicationQuery{IncludeAll: true, IncludeDeleted: true})
	if err != nil {
		t.Fatal(err)
	}
	for _, app := range apps {
		if !app.IsPreview() {
			continue
		}
		items, err := st.Inventory(t.Context(), app.ID)
		if err != nil || len(items) > 0 || !app.Deleted || app.Deploying {
			t.Errorf("of %s is left: %v, %v, deleted %t, deploying %t", app.Name, items, err, app.Deleted, app.Deploying)
		}
	}
}

// TestManyPullRequests opens, pushes to and closes pull requests of both modes in random order. In the end
// nothing of them is left in the cluster, the API or the store, and every object of the branch is as it was.
func TestManyPullRequests(t *testing.T) {
	t.Parallel()
	seed := chaosSeed(t)
	t.Logf("seed %d (PIPED_CHAOS_SEED)", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	e := newRoutedEnv(t)
	agent := runAgent(t, e.settings)
	begin := e.repo.Push(t, "begin", merged(previewedApp("web", e.namespace, "v0", "0s"), routedApp("shop", e.namespace, "v0", "v0", "0s", "0s")))
	for _, app := range []string{"web", "shop"} {
		agent.mustEnd(appID(app), begin, modelv1.DeploymentStatus_DEPLOYMENT_SUCCESS)
	}
	before := e.objectsOf(false)

	left, touched := map[int]int{}, map[int][]string{} // steps of each pull request that are left, and what it touches
	for number := 1; number <= manyRequests(t); number++ {
		left[number], touched[number] = 3, [][]string{{"web"}, {"shop"}, {"web", "shop"}}[rng.IntN(3)]
	}
	waited := 0
	for len(left) > 0 {
		open := slices.Sorted(maps.Keys(left))
		number := open[rng.IntN(len(open))]
		switch left[number]--; left[number] {
		case 2:
			e.pull(number, "open", "first", touched[number])
			if waited < 2 || rng.IntN(3) == 0 { // the others come and go before they are deployed
				waited++
				eventually(t, "the preview is there", func() bool { return e.isThere(number) })
			}
		case 1:
			e.pull(number, "open", "second", touched[number])
		case 0:
			e.pull(number, "closed", "second", touched[number])
			delete(left, number)
		}
		time.Sleep(time.Duration(rng.IntN(400)) * time.Millisecond)
	}
	seen := e.listings()
	eventually(t, "no pull request is listed", func() bool { return e.listings() >= seen+2 })
	eventually(t, "nothing is left", func() bool {
		list, err := agent.control.ListPreviews(agent.ctx, &controlv1.ListPreviewsRequest{})
		if err != nil {
			t.Fatal(err)
		}
		return len(list.GetPreviews()) == 0 && len(e.namespaces()) == 0 && len(agent.previews()) == 0 && len(e.objectsOf(true)) == 0
	})
	e.mustBeShared(before)
	mustBeForgotten(t, openStore(t, e.settings.dataDir))
}

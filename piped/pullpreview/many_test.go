package pullpreview

import (
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/store"
)

// split returns the applications of the branch and those of previews, deleted ones included, as they are stored.
func (e *env) split() (branch, previews []deploy.Application) {
	e.t.Helper()
	all, _, err := e.store.ListApplications(e.t.Context(), store.ApplicationQuery{RepoID: "apps", IncludeAll: true, IncludeDeleted: true})
	e.must(err)
	for _, app := range all {
		if app.IsPreview() {
			previews = append(previews, app)
		} else {
			branch = append(branch, app)
		}
	}
	return branch, previews
}

// applyRouted records an object of each preview that is next to its application and was deployed.
func (e *env) applyRouted() {
	e.t.Helper()
	_, previews := e.split()
	for _, app := range previews {
		if isRouted(app) && !app.Deleted && app.LastSuccessful != nil {
			e.appliedTo(app)
		}
	}
}

// objects returns how many objects of previews there are.
func (e *env) objects() (n int) {
	e.t.Helper()
	_, previews := e.split()
	for _, app := range previews {
		items, err := e.store.Inventory(e.t.Context(), app.ID)
		e.must(err)
		n += len(items)
	}
	return n
}

// TestFiftyPullRequests opens, pushes to and closes 50 pull requests of applications of both modes in random
// order, with restarts in between. At every moment the limit holds, and in the end nothing of them is left.
func TestFiftyPullRequests(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	e := newEnv(t)
	e.app("web", "{}")
	e.app("api", "{maxActive: 5}")
	e.app("shop", "{mode: route, header: X-Preview}")
	before, _ := e.split()
	left, touched := map[int]int{}, map[int][]string{} // steps of each pull request that are left, and what it touches
	for number := 1; number <= 50; number++ {
		left[number], touched[number] = 3, [][]string{{"web"}, {"api"}, {"shop"}, {"web", "api"}, {"web", "shop"}}[rng.IntN(5)]
	}
	most, objects := 0, 0
	for len(left) > 0 {
		e.now = e.now.Add(time.Second)
		numbers := slices.Sorted(maps.Keys(left))
		number := numbers[rng.IntN(len(numbers))]
		switch left[number]--; left[number] {
		case 2, 1:
			e.open(number, nil, touched[number]...)
		case 0:
			delete(e.requests, number)
			delete(left, number)
		}
		if rng.IntN(10) == 0 {
			e.start(e.p.Settings)
		}
		e.must(e.p.repository(t.Context(), envRepositories{e}.Hosted()[0], true))
		if rng.IntN(2) == 0 {
			e.work()
			e.applyRouted()
		}
		objects = max(objects, e.objects())
		if most = max(most, len(e.spaces)); len(e.spaces) > e.p.Settings.MaxActive {
			t.Fatalf("%d previews at once", len(e.spaces))
		}
	}
	if most < 5 || objects < 3 {
		t.Errorf("at most %d namespaces and %d objects of previews were there at once", most, objects)
	}
	e.work()
	e.pass()
	e.want("all are closed", "", "", 0)
	for _, key := range []string{"plans", "reported"} {
		if n := map[string]int{"plans": len(e.p.plans), "reported": len(e.p.reported)}[key]; n > 0 {
			t.Errorf("%d %s are left in memory", n, key)
		}
	}
	if n := e.objects(); n > 0 {
		t.Errorf("%d objects are left", n)
	}
	after, _ := e.split()
	if diff := cmp.Diff(before, after); diff != "" {
		t.Errorf("an application of the branch was touched (-want +got):\n%s", diff)
	}
}

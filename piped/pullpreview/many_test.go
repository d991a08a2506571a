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

// branchApps returns the applications of the branch as they are stored.
func (e *env) branchApps() []deploy.Application {
	e.t.Helper()
	all, _, err := e.store.ListApplications(e.t.Context(), store.ApplicationQuery{RepoID: "apps", IncludeAll: true})
	e.must(err)
	return slices.DeleteFunc(all, deploy.Application.IsPreview)
}

// TestFiftyPullRequests opens, pushes to and closes 50 pull requests in random order, with restarts
// in between. At every moment the limit holds, and in the end nothing of them is left.
func TestFiftyPullRequests(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	e := newEnv(t)
	e.app("web", "{}")
	e.app("api", "{maxActive: 5}")
	before := e.branchApps()
	left, touched := map[int]int{}, map[int][]string{} // steps of each pull request that are left, and what it touches
	for number := 1; number <= 50; number++ {
		left[number], touched[number] = 3, [][]string{{"web"}, {"api"}, {"web", "api"}}[rng.IntN(3)]
	}
	most := 0
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
		}
		if most = max(most, len(e.spaces)); len(e.spaces) > e.p.Settings.MaxActive {
			t.Fatalf("%d previews at once", len(e.spaces))
		}
	}
	if most < 5 {
		t.Errorf("at most %d previews were there at once", most)
	}
	e.work()
	e.pass()
	e.want("all are closed", "", "", 0)
	for _, key := range []string{"plans", "reported"} {
		if n := map[string]int{"plans": len(e.p.plans), "reported": len(e.p.reported)}[key]; n > 0 {
			t.Errorf("%d %s are left in memory", n, key)
		}
	}
	if diff := cmp.Diff(before, e.branchApps()); diff != "" {
		t.Errorf("an application of the branch was touched (-want +got):\n%s", diff)
	}
}

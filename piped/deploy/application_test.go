package deploy

import (
	"slices"
	"testing"
)

// TestHolders states whose a place is, in whatever order its applications come.
func TestHolders(t *testing.T) {
	place := GitPath{RepoID: "apps", Dir: "web", ConfigFile: "app.pipecd.yaml"}
	own := Application{ID: ApplicationID(place), Git: place}
	kept := Application{ID: "4b4e5f6a-0000-4000-8000-000000000001", Git: GitPath{RepoID: "apps", Remote: "r", Branch: "main", Dir: "web/", ConfigFile: "app.pipecd.yaml"}}
	gone := func(a Application) Application { a.Deleted = true; return a }
	for name, c := range map[string]struct {
		apps []Application
		want Application
	}{
		"the only one":                              {[]Application{own}, own},
		"a kept ID before that of the place":        {[]Application{own, kept}, kept},
		"one that is there before a deleted one":    {[]Application{own, gone(kept)}, own},
		"deleted ones, the kept ID first":           {[]Application{gone(own), gone(kept)}, kept},
		"a kept ID before a deleted one of its own": {[]Application{gone(own), kept}, kept},
	} {
		for range 2 {
			if got := Holders(slices.Values(c.apps))[place]; got.ID != c.want.ID {
				t.Errorf("%s: it is that of %s, want %s", name, got.ID, c.want.ID)
			}
			slices.Reverse(c.apps)
		}
	}
}

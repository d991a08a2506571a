package deploy

import (
	"slices"
	"testing"
)

// TestPlaces shows that the order of applications does not affect which one owns a
// location.
func TestPlaces(t *testing.T) {
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
			places := NewPlaces(slices.Values(c.apps))
			if got, _ := places.At(place); got.ID != c.want.ID || places.ID(place) != c.want.ID {
				t.Errorf("%s: it is that of %s, want %s", name, got.ID, c.want.ID)
			}
			slices.Reverse(c.apps)
		}
	}
}

// TestPlaceThatWasLeft: a configuration at the former location of a moved application
// is a new application, with the same ID each time.
func TestPlaceThatWasLeft(t *testing.T) {
	web := GitPath{RepoID: "apps", Dir: "web", ConfigFile: "app.pipecd.yaml"}
	moved := Application{ID: ApplicationID(web), Git: web.In("store", "")}
	places := NewPlaces(slices.Values([]Application{moved}))
	if at, ok := places.At(web); ok {
		t.Errorf("the place that was left is that of %s", at.ID)
	}
	next := places.ID(web)
	if next == moved.ID || next != places.ID(web) || places.ID(web.In("store", "")) != moved.ID {
		t.Errorf("the next one gets %s, the moved one has %s and is found as %s", next, moved.ID, places.ID(web.In("store", "")))
	}
	other := Application{ID: next, Git: web}
	if got := NewPlaces(slices.Values([]Application{moved, other})).ID(web); got != next {
		t.Errorf("the next one is found as %s, want %s", got, next)
	}
}

package config

import "testing"

// TestSourcesOfImages: an expression has to match all of an image but its digest, and the first that does
// applies.
func TestSourcesOfImages(t *testing.T) {
	pattern := func(text string) (p ImagePattern) {
		t.Helper()
		if err := p.UnmarshalText([]byte(text)); err != nil {
			t.Fatal(err)
		}
		return p
	}
	w := WorkloadStatuses{Images: []ImageSource{
		{Image: pattern(`reg/web:(?P<commit>a+)|reg/old:(?P<x>.*)`), Repository: "shop/site"},
		{Repository: "shop/nothing"},
		{Image: pattern(`reg/([a-z]+):.*?(?P<commit>[0-9a-f]+)`), Repository: "shop/$1"},
	}}
	for image, want := range map[string]string{
		"reg/web:aa": "shop/site aa", "reg/web:ab": "shop/web ab", "reg/api:main-1b2": "shop/api 1b2", "reg/api:1b2@sha256:00": "shop/api 1b2", "reg/old:1": "shop/site ",
		"reg/api:1b2-dirty": "", "other/reg/api:1b2": "", "reg/api": "", "": "", "reg/api:1b2\n": "",
	} {
		got := ""
		if repository, commit, ok := w.Source(image); ok {
			got = repository + " " + commit
		}
		if got != want {
			t.Errorf("%q: %q, want %q", image, got, want)
		}
	}
}

// TestAllowedRepositories: a star stays in one part of the path, and case does not matter.
func TestAllowedRepositories(t *testing.T) {
	w := WorkloadStatuses{Repositories: []RepositoryPattern{"shop/*", "Group/*/web", "one/repo"}}
	for repository, want := range map[string]bool{
		"shop/web": true, "SHOP/Web": true, "shop/web/x": false, "shop": false, "shop/": true, "shops/web": false, "group/sub/web": true, "group/web": false, "group/a/b/web": false,
		"one/repo": true, "one/repository": false, "": false,
	} {
		if got := w.Allows(repository); got != want {
			t.Errorf("%q: %t, want %t", repository, got, want)
		}
	}
}

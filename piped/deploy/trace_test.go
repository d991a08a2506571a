package deploy_test

import (
	"testing"

	"github.com/c785c783/piped/piped/deploy"
)

func TestNamedPullRequest(t *testing.T) {
	for subject, want := range map[string]int{
		"Merge pull request #12 from shop/bump":                        12, // GitHub, merge
		"Bump web to v2 (#7)":                                          7,  // GitHub and Gitea, squash
		"Merge pull request 'Bump web (v2)' (#31) from bump into main": 31, // Gitea, merge
		"Revert \"Bump web (#7)\" (#8)":                                8,
		"":                                                             0,
		"Bump web":                                                     0,
		"Fix #12":                                                      0, // an issue
		"Bump (#7) and more":                                           0,
		"Merge branch 'bump' into 'main'":                              0, // GitLab names it in the body
		"Too large (#99999999999999999999)":                            0,
		"None (#0)":                                                    0,
	} {
		if got := deploy.NamedPullRequest(subject); got != want {
			t.Errorf("%q names %d, want %d", subject, got, want)
		}
	}
}

func TestPullRequestOfPage(t *testing.T) {
	for page, want := range map[string]int{
		"https://github.com/shop/apps/pull/12":                       12,
		"https://gitlab.example.com/shop/apps/-/merge_requests/5":    5,
		"https://git.example.com/shop/apps/pulls/3?tab=files#diff-1": 3,
		"https://git.example.com/shop/apps":                          0,
		"":                                                           0,
		"https://git.example.com/pulls/-3":                           0,
		"%":                                                          0,
	} {
		if got := deploy.PullRequestOfPage(page); got != want {
			t.Errorf("page %q: %d, want %d", page, got, want)
		}
	}
}

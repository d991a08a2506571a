package config

import (
	"fmt"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/validation"
)

// TestNamespacesOfPreviews: Kubernetes accepts every name, and repositories whose IDs differ only in
// what does not fit have different ones.
func TestNamespacesOfPreviews(t *testing.T) {
	p := Previews{NamespacePrefix: strings.Repeat("p", maxNamespacePrefix-1) + "-"}
	seen := map[string]string{}
	for _, repo := range []string{"apps", "Apps", "apps_", "apps.", "apps/-", "-", "ünï", strings.Repeat("a", 100), strings.Repeat("a", 101)} {
		for _, number := range []int{1, 1234567890} {
			name := p.Namespace(repo, number)
			if why := validation.IsDNS1123Label(name); why != nil {
				t.Errorf("%q: %s", name, why)
			}
			of := fmt.Sprint(repo, " ", number)
			if other, ok := seen[name]; ok {
				t.Errorf("%s and %s have namespace %q", of, other, name)
			}
			seen[name] = of
		}
	}
}

// TestHostsOfPreviews: each pull request has a host of its own that DNS allows, whatever its number is.
func TestHostsOfPreviews(t *testing.T) {
	long := strings.Repeat("a", 60)
	for template, want := range map[string]string{
		"pr-{{ .PullRequest.Number }}.example.com":                                           "pr-17.example.com",
		`{{ printf "%04d" .PullRequest.Number }}.example.com`:                                "0017.example.com",
		"web2-pr{{ .PullRequest.Number }}.example.com":                                       "web2-pr17.example.com",
		"{{ if eq .PullRequest.Number 17 }}shop{{ else }}pr{{ end }}.example.com":            "needs a host of its own",
		"web2{{ .PullRequest.Number }}.example.com":                                          "needs a host of its own",
		"pr-{{ .PullRequest.Number }}0.example.com":                                          "needs a host of its own",
		long + "-{{ .PullRequest.Number }}.example.com":                                      long + "-17.example.com",
		long + "-x{{ .PullRequest.Number }}.example.com":                                     "has more than 63 characters",
		"{{ .PullRequest.Number }}." + strings.Repeat(strings.Repeat("a", 49)+".", 5) + "ab": "is not a host",
		"pr_{{ .PullRequest.Number }}.example.com":                                           "is not a host",
		"*.pr-{{ .PullRequest.Number }}.example.com":                                         "is not a host",
		"{{ if eq .PullRequest.Number 1 }}pr-{{ .PullRequest.Number }}.example.com{{ end }}": "",
	} {
		got, err := Preview{Host: template}.HostOf(17)
		if err != nil {
			got = err.Error()
		}
		if got != want && (err == nil || !strings.Contains(got, want)) {
			t.Errorf("%s: %s, want %q", template, got, want)
		}
	}
}

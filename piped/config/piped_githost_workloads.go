package config

import (
	"fmt"
	"path"
	"regexp"
	"strconv"
	"strings"

	"github.com/c785c783/piped/piped/config/strict"
)

// WorkloadStatuses says for which commits the rollouts of workloads set a status.
type WorkloadStatuses struct {
	// Repositories are the repositories whose commits get it, by their path on the host:
	// `shop/web`, or a pattern such as `shop/*`. A workload that names another one is ignored.
	// Required in `workloads`.
	Repositories []RepositoryPattern `yaml:"repositories"`
	// Images say which commit an image was built from. They apply to workloads without the annotations
	// `pipecd.dev/repository` and `pipecd.dev/commit`. The first that matches an image applies.
	Images []ImageSource `yaml:"images"`
}

// ImageSource says which commit an image was built from.
type ImageSource struct {
	// Image is a regular expression that matches the whole image without its digest. Its group `commit` is
	// the commit: `registry.example.com/shop/(?P<name>[a-z-]+):main-(?P<commit>[0-9a-f]+)`.
	// Required in `images`.
	Image ImagePattern `yaml:"image"`
	// Repository is the repository of the commit, by its path on the host. It may name groups of `image`:
	// `shop/${name}`.
	// Required in `images`.
	Repository string `yaml:"repository"`
}

// ImagePattern is a regular expression that matches a whole image. Its zero value matches nothing.
type ImagePattern struct {
	text  string
	whole *regexp.Regexp
}

// UnmarshalText compiles an expression.
func (p *ImagePattern) UnmarshalText(text []byte) error {
	var written Regexp // so that an error shows the expression as it was written
	if err := written.UnmarshalText(text); err != nil || written.IsZero() {
		*p = ImagePattern{}
		return err
	}
	whole, err := regexp.Compile(`^(?:` + written.String() + `)$`)
	*p = ImagePattern{written.String(), whole}
	return err
}

// MarshalText returns the expression as written.
func (p ImagePattern) MarshalText() ([]byte, error) { return []byte(p.text), nil }

// Expected says what an ImagePattern is read from.
func (p ImagePattern) Expected() string { return Regexp{}.Expected() }

// IsZero reports whether there is no expression.
func (p ImagePattern) IsZero() bool { return p.whole == nil }

// Equal reports whether p and o were written the same.
func (p ImagePattern) Equal(o ImagePattern) bool { return p.text == o.text }

// has reports whether the expression has a group of a name or number.
func (p ImagePattern) has(group string) bool {
	if p.whole == nil {
		return false
	}
	n, err := strconv.Atoi(group)
	return p.whole.SubexpIndex(group) >= 0 || err == nil && n >= 0 && n <= p.whole.NumSubexp()
}

// RepositoryPattern matches the path of a repository on its host: `*` stands for any text without a
// slash. Upper and lower case are the same, as they are for the hosts.
type RepositoryPattern string

// UnmarshalText checks a pattern.
func (p *RepositoryPattern) UnmarshalText(text []byte) error {
	owner, name, two := strings.Cut(string(text), "/")
	if _, err := path.Match(string(text), ""); err != nil || !two || owner == "" || name == "" {
		return fmt.Errorf("expected %s, found %q", p.Expected(), text)
	}
	*p = RepositoryPattern(text)
	return nil
}

// Expected says what a RepositoryPattern is read from.
func (p RepositoryPattern) Expected() string {
	return "the path of a repository on its host, or a pattern such as shop/*"
}

// Allows reports whether the commits of a repository, given by its path on the host, get statuses.
func (w WorkloadStatuses) Allows(repository string) bool {
	for _, p := range w.Repositories {
		if ok, err := path.Match(strings.ToLower(string(p)), strings.ToLower(repository)); ok && err == nil {
			return true
		}
	}
	return false
}

// Source returns the repository and the commit that an image was built from, as the first entry of
// Images that matches it says. The texts are parts of the image and are not checked.
func (w WorkloadStatuses) Source(image string) (repository, commit string, ok bool) {
	image, _, _ = strings.Cut(image, "@")
	for _, s := range w.Images {
		if s.Image.whole == nil {
			continue
		}
		if at := s.Image.whole.FindStringSubmatchIndex(image); at != nil {
			expand := func(template string) string { return string(s.Image.whole.ExpandString(nil, template, image, at)) }
			return expand(s.Repository), expand("${commit}"), true
		}
	}
	return "", "", false
}

func (w *WorkloadStatuses) complete(d *strict.Document, at string, of GitHostType) {
	if len(w.Repositories) == 0 {
		d.Problemf(at+".repositories", "required; expected the repositories whose commits get statuses, such as shop/*")
	}
	for i, p := range w.Repositories {
		if of != GitHostGitLab && strings.Count(string(p), "/") > 1 {
			d.Problemf(fmt.Sprintf("%s.repositories[%d]", at, i), "expected an owner and a name, since only GitLab has nested groups, found %q", string(p))
		}
	}
	for i, s := range w.Images {
		s.complete(d, fmt.Sprintf("%s.images[%d]", at, i), *w)
	}
}

// variable is a reference to a group in a template of package regexp.
var variable = regexp.MustCompile(`\$(?:\{([^}]*)\}|(\w+))`)

func (s ImageSource) complete(d *strict.Document, at string, w WorkloadStatuses) {
	if s.Image.IsZero() {
		d.Problemf(at+".image", "required")
	} else if !s.Image.has("commit") {
		d.Problemf(at+".image", "expected a group for the commit, such as (?P<commit>[0-9a-f]+), found %q", s.Image.text)
	}
	groups := variable.FindAllStringSubmatch(s.Repository, -1)
	switch {
	case s.Repository == "":
		d.Problemf(at+".repository", "required")
	case len(groups) == 0 && !w.Allows(s.Repository):
		d.Problemf(at+".repository", "no pattern of repositories matches %q", s.Repository)
	}
	for _, g := range groups {
		if name := g[1] + g[2]; !s.Image.IsZero() && !s.Image.has(name) {
			d.Problemf(at+".repository", "the expression of image has no group %q", name)
		}
	}
}

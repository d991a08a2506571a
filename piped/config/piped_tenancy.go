package config

import (
	"fmt"
	"slices"

	"github.com/c785c783/piped/piped/config/strict"
)

// TenancyRule is one rule of spec.tenancy: which applications it is for, and what
// they may do. What is left out is not restricted, but for Scripts.
type TenancyRule struct {
	Name string `yaml:"name"` // unique; messages name the rule by it

	// Repositories and Paths select applications: by the ID of the repository, and
	// by the path of the configuration file (combined: ! excludes). An application
	// is selected when every one of the two that is there matches. A rule without
	// both selects every application; with Otherwise it selects those that no rule
	// with one of the two selects.
	Repositories []string `yaml:"repositories"`
	Paths        Patterns `yaml:"paths"`
	Otherwise    bool     `yaml:"otherwise"`

	Providers   []string      `yaml:"providers"`
	Namespaces  []Glob        `yaml:"namespaces"`
	Kinds       []KindPattern `yaml:"kinds"`
	DeniedKinds []KindPattern `yaml:"deniedKinds"`
	// ClusterScoped: objects without a namespace are allowed. Not written, they are
	// unless Namespaces are.
	ClusterScoped *bool `yaml:"clusterScoped"`
	// Scripts: stages that run scripts are allowed. Not written, they are not.
	Scripts bool `yaml:"scripts"`
	// ServiceAccount is as whom the application's objects are read and written; the
	// zero value is the agent itself.
	ServiceAccount ServiceAccount `yaml:"serviceAccount"`
	// VerifyCommits, when it is there, allows only commits that one of its keys
	// has signed.
	VerifyCommits *VerifyCommits `yaml:"verifyCommits"`
}

// VerifyCommits names the files of the keys that may sign commits.
type VerifyCommits struct {
	OpenPGP []string `yaml:"openPGP"` // public keys, armored or binary
	SSH     []string `yaml:"ssh"`     // allowed signers, or lines of authorized_keys
	// RequireDescendant: a head must descend from the one that was in effect before, so
	// that pushing an older commit, signed as it may be, does not bring it back.
	RequireDescendant bool `yaml:"requireDescendant"`
}

// allowsClusterScoped returns what ClusterScoped says, or its default.
func (r *TenancyRule) allowsClusterScoped() bool {
	if r.ClusterScoped != nil {
		return *r.ClusterScoped
	}
	return len(r.Namespaces) == 0
}

// completeTenancy checks the rules; a repository or a provider that they name and
// nobody configured would make a rule that is for nothing.
func completeTenancy(rules []TenancyRule, d *strict.Document, r resolver, repositories []Repository, providers []string) Tenancy {
	seen := names{d: d}
	for i := range rules {
		rule, at := &rules[i], fmt.Sprintf("tenancy[%d]", i)
		seen.add(at, "name", rule.Name)
		for j, id := range rule.Repositories {
			if !slices.ContainsFunc(repositories, func(known Repository) bool { return known.RepoID == id }) {
				d.Problemf(fmt.Sprintf("%s.repositories[%d]", at, j), "no repository %q is configured", id)
			}
		}
		for j, name := range rule.Providers {
			if !slices.Contains(providers, name) {
				d.Problemf(fmt.Sprintf("%s.providers[%d]", at, j), "no platform provider %q is configured", name)
			}
		}
		for _, key := range []string{"repositories", "paths", "providers", "namespaces", "kinds", "deniedKinds"} {
			if list := at + "." + key; d.Has(list) && !d.Has(list+"[0]") {
				d.Problemf(list, "is empty: name at least one, or leave the key out to restrict nothing by it")
			}
		}
		if rule.Otherwise {
			unfit(d, "otherwise", field{at + ".repositories", len(rule.Repositories) > 0}, field{at + ".paths", len(rule.Paths) > 0})
		}
		if len(rule.Paths) > 0 && !slices.ContainsFunc(rule.Paths, func(p Pattern) bool { return !p.exclude }) {
			d.Problemf(at+".paths", "only excludes, and so selects nothing: begin with %q", "**")
		}
		rule.VerifyCommits.complete(d, r, at+".verifyCommits")
	}
	return rules
}

func (v *VerifyCommits) complete(d *strict.Document, r resolver, at string) {
	switch {
	case v == nil:
		return
	case len(v.OpenPGP) == 0 && len(v.SSH) == 0:
		d.Problemf(at, "names no keys: add files to openPGP or to ssh")
	}
	for key, files := range map[string][]string{"openPGP": v.OpenPGP, "ssh": v.SSH} {
		for i := range files {
			field := fmt.Sprintf("%s.%s[%d]", at, key, i)
			required(d, field, files[i])
			files[i] = r.path(field, files[i])
		}
	}
}

// files returns the files of keys.
func (v *VerifyCommits) files() []string {
	if v == nil {
		return nil
	}
	return slices.Concat(v.OpenPGP, v.SSH)
}

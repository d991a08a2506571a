package config

import (
	"fmt"
	"slices"

	"github.com/c785c783/piped/piped/config/strict"
)

// TenancyRule is one rule of spec.tenancy: which applications it is for, and what
// they may do. What is left out is not restricted, but for Scripts.
type TenancyRule struct {
	// Name is the unique name that messages use for the rule.
	// Required.
	Name string `yaml:"name"`

	// Repositories are the `repoId`s of the applications that the rule applies to.
	// Default: every one.
	Repositories []string `yaml:"repositories"`
	// Paths are patterns of their configuration files; `!` excludes.
	// Default: every one.
	Paths Patterns `yaml:"paths"`
	// Otherwise applies the rule to the applications that no rule with `repositories` or `paths`
	// selects. It excludes these two keys.
	Otherwise bool `yaml:"otherwise"`

	// Providers are the platform providers to which the applications may deploy.
	// Default: all.
	Providers []string `yaml:"providers"`
	// Namespaces are the permitted namespaces of objects: names, or patterns such as `team-a-*`.
	// Default: all.
	Namespaces []Glob `yaml:"namespaces"`
	// Kinds are the permitted kinds of objects: `ConfigMap`, `apps/Deployment`, `apps/*`,
	// `core/Secret`. Upper and lower case are equal.
	// Default: all.
	Kinds []KindPattern `yaml:"kinds"`
	// DeniedKinds are the forbidden kinds, written as in `kinds`.
	// Default: none.
	DeniedKinds []KindPattern `yaml:"deniedKinds"`
	// ClusterScoped permits objects without a namespace, Namespaces among them.
	// Default: `false` with `namespaces`, else `true`.
	ClusterScoped *bool `yaml:"clusterScoped"`
	// Scripts permits stages that run scripts. An application that no rule applies to may run
	// them.
	Scripts bool `yaml:"scripts"`
	// ServiceAccount is the account as which the agent reads and writes the application's objects.
	// The agent needs the right `impersonate` on it.
	// Default: the agent itself. Type: namespace/name.
	ServiceAccount ServiceAccount `yaml:"serviceAccount"`
	// VerifyCommits permits only commits that one of the given keys has signed.
	VerifyCommits *VerifyCommits `yaml:"verifyCommits"`
}

// VerifyCommits names the files of the keys that may sign commits.
type VerifyCommits struct {
	// OpenPGP are files of public keys, armored or binary.
	// Type: list of paths.
	OpenPGP []string `yaml:"openPGP"`
	// SSH are files of allowed signers (`ssh-keygen`), or of lines of `authorized_keys`.
	// Type: list of paths.
	SSH []string `yaml:"ssh"`
	// RequireDescendant accepts a head only if its history contains the commit that was evaluated
	// before. A force-push then cannot bring back an older signed commit.
	RequireDescendant bool `yaml:"requireDescendant"`
}

// allowsClusterScoped returns what ClusterScoped says, or its default.
func (r *TenancyRule) allowsClusterScoped() bool {
	if r.ClusterScoped != nil {
		return *r.ClusterScoped
	}
	return len(r.Namespaces) == 0
}

// completeTenancy checks the rules; a rule that names a repository or a provider that is
// not configured would have no effect.
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

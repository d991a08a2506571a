package config

import (
	"fmt"
	"slices"
	"strings"

	"github.com/c785c783/piped/piped/deploy"
)

// Tenancy is spec.tenancy: what applications may do. Without rules they may do
// everything that the agent may.
type Tenancy []TenancyRule

// Tenant are the rules that are for one application. All of them apply: it may do
// what none of them forbids. Its errors are of kind deploy.Invalid, name the rule,
// and say what to do.
type Tenant []TenancyRule

// TenantObject is an object as a rule evaluates it. Ref has a namespace exactly
// when the kind is a namespaced one; Origin says where the object is written.
type TenantObject struct {
	Ref    deploy.ObjectRef
	Origin string
}

// Of returns the rules for the application configured at a place. One that no rule
// is for may do everything.
func (t Tenancy) Of(at deploy.GitPath) Tenant {
	var out Tenant
	claimed := slices.ContainsFunc(t, func(r TenancyRule) bool { return r.selective() && r.selects(at) })
	for _, r := range t {
		if r.selects(at) && !(r.Otherwise && claimed) {
			out = append(out, r)
		}
	}
	return out
}

// selective reports whether the rule selects some applications only.
func (r *TenancyRule) selective() bool { return len(r.Repositories) > 0 || len(r.Paths) > 0 }

func (r *TenancyRule) selects(at deploy.GitPath) bool {
	return (len(r.Repositories) == 0 || slices.Contains(r.Repositories, at.RepoID)) &&
		(len(r.Paths) == 0 || r.Paths.MatchCombined(at.ConfigPath()))
}

// CheckProvider refuses a platform provider that the application may not be
// deployed to.
func (t Tenant) CheckProvider(provider string) error {
	for _, r := range t {
		if len(r.Providers) > 0 && !slices.Contains(r.Providers, provider) {
			return r.refuse("does not allow the platform provider %q (allowed: %s); name one of those in spec.platformProvider",
				provider, strings.Join(r.Providers, ", "))
		}
	}
	return nil
}

// CheckScripts refuses a stage that runs scripts, if the application may not have
// one.
func (t Tenant) CheckScripts(stage string) error {
	for _, r := range t {
		if !r.Scripts {
			return r.refuse("does not allow scripts, which stage %s runs; remove the stage", stage)
		}
	}
	return nil
}

// maxRefusals is how many objects an error names.
const maxRefusals = 10

// CheckObjects refuses objects that the application may not have. The error names
// every one, but for those beyond the first ten.
func (t Tenant) CheckObjects(objects []TenantObject) error {
	var refused []string
	for _, o := range objects {
		if why := t.Forbids(o); why != "" {
			refused = append(refused, why)
		}
	}
	if len(refused) == 0 {
		return nil
	}
	if more := len(refused) - maxRefusals; more > 0 {
		refused = append(refused[:maxRefusals], fmt.Sprintf("and %d more", more))
	}
	return deploy.Errorf(deploy.Invalid, "%s; take them out of the application, or %s", strings.Join(refused, "; "), askForRule)
}

// Forbids says which rule forbids an object and why, "" if none does.
func (t Tenant) Forbids(o TenantObject) string {
	for _, r := range t {
		if why := r.forbids(o.Ref); why != "" {
			what := fmt.Sprint(o.Ref)
			if o.Origin != "" {
				what += " (" + o.Origin + ")"
			}
			return fmt.Sprintf("tenancy %q does not allow %s: %s", r.Name, why, what)
		}
	}
	return ""
}

func (r *TenancyRule) forbids(ref deploy.ObjectRef) string {
	matches := func(k KindPattern) bool { return k.match(ref.Group, ref.Kind) }
	switch {
	case slices.ContainsFunc(r.DeniedKinds, matches), len(r.Kinds) > 0 && !slices.ContainsFunc(r.Kinds, matches):
		return "kind " + ref.Kind
	case ref.Namespace == "" && !r.allowsClusterScoped():
		return fmt.Sprintf("cluster-scoped objects such as kind %s", ref.Kind)
	case ref.Namespace != "" && len(r.Namespaces) > 0 &&
		!slices.ContainsFunc(r.Namespaces, func(g Glob) bool { return g.match(ref.Namespace) }):
		return fmt.Sprintf("namespace %q (allowed: %s)", ref.Namespace, joined(r.Namespaces))
	}
	return ""
}

func joined(globs []Glob) string {
	texts := make([]string, len(globs))
	for i, g := range globs {
		texts[i] = string(g)
	}
	return strings.Join(texts, ", ")
}

// ForbidsNewNamespaces names the rule that forbids to create the namespaces that
// objects need, "" if none does. A rule that names the namespaces itself allows it,
// unless it says no to cluster-scoped objects or to the kind.
func (t Tenant) ForbidsNewNamespaces() string {
	for _, r := range t {
		if len(r.Namespaces) > 0 && r.ClusterScoped == nil {
			yes := true
			r.ClusterScoped = &yes
		}
		if r.forbids(deploy.ObjectRef{Kind: "Namespace"}) != "" {
			return r.Name
		}
	}
	return ""
}

// Account returns the service account as which the application's objects are read
// and written; the zero value is the agent itself. Two rules that say something
// else make it an error.
func (t Tenant) Account() (ServiceAccount, error) {
	var first *TenancyRule
	for i := range t {
		r := &t[i]
		switch {
		case r.ServiceAccount == (ServiceAccount{}):
		case first == nil:
			first = r
		case first.ServiceAccount != r.ServiceAccount:
			return ServiceAccount{}, deploy.Errorf(deploy.Invalid,
				"tenancy %q wants the application to act as service account %s, and tenancy %q as %s; ask those who run the agent to make them agree",
				first.Name, first.ServiceAccount, r.Name, r.ServiceAccount)
		}
	}
	if first == nil {
		return ServiceAccount{}, nil
	}
	return first.ServiceAccount, nil
}

// askForRule is what people do who cannot do without what a rule forbids.
const askForRule = "ask those who run the agent to change the rule"

func (r *TenancyRule) refuse(format string, args ...any) error {
	return deploy.Errorf(deploy.Invalid, "tenancy %q %s, or %s", r.Name, fmt.Sprintf(format, args...), askForRule)
}

package deploy

import (
	"maps"
	"slices"
	"strings"
)

// Permission is one thing that a caller of the API may do.
type Permission string

// The permissions. Those up to delete apply to single applications, the others to the agent.
const (
	PermView     Permission = "view"      // see an application, its deployments, drift, live objects and figures
	PermViewLogs Permission = "view-logs" // read logs of stages and pods, events and manifests of live objects
	PermSync     Permission = "sync"      // deploy, retry, skip stages, confirm prunes and adoptions
	PermApprove  Permission = "approve"   // approve and reject stages that wait for approval
	PermCancel   Permission = "cancel"    // cancel deployments
	PermRollback Permission = "rollback"  // deploy an earlier commit and hold the application at it
	PermEnable   Permission = "enable"    // enable and disable applications, and set their provider
	PermDelete   Permission = "delete"    // unregister applications and delete their objects

	PermEncrypt    Permission = "encrypt"    // encrypt secrets with the agent's key
	PermKeys       Permission = "keys"       // list, create and disable API keys
	PermAdminister Permission = "administer" // register applications, change the agent, read the audit log and the agent's status
)

// Permissions lists every permission.
func Permissions() []Permission {
	return []Permission{
		PermView, PermViewLogs, PermSync, PermApprove, PermCancel, PermRollback, PermEnable, PermDelete,
		PermEncrypt, PermKeys, PermAdminister,
	}
}

// OfApplications reports whether p is about single applications. The other permissions are
// about the agent as a whole.
func (p Permission) OfApplications() bool {
	return p != PermEncrypt && p != PermKeys && p != PermAdminister
}

// builtInRoles are the permissions of the roles that need no configuration.
var builtInRoles = map[string][]Permission{
	"viewer":          {PermView, PermViewLogs},
	"deployer":        {PermView, PermViewLogs, PermSync, PermCancel, PermRollback, PermEnable, PermEncrypt},
	"approver":        {PermView, PermViewLogs, PermApprove},
	"admin":           Permissions(),
	string(ReadOnly):  {PermView, PermViewLogs, PermEncrypt},
	string(ReadWrite): Permissions(),
}

// BuiltInRole returns the permissions of a role that needs no configuration: viewer,
// deployer, approver, admin, and the roles of PipeCD's API keys.
func BuiltInRole(name string) (permissions []Permission, ok bool) {
	permissions, ok = builtInRoles[name]
	return slices.Clone(permissions), ok
}

// Selector selects applications: those that satisfy each of its conditions. Without
// conditions it selects all.
type Selector struct {
	// Labels are labels that the application must have.
	Labels map[string]string `json:"labels,omitempty"`
	// Names are names, or patterns in which * stands for any text; one must match.
	Names []string `json:"names,omitempty"`
	// Repositories are IDs of repositories; the application must be in one of them.
	Repositories []string `json:"repositories,omitempty"`
}

// Empty reports whether s has no conditions.
func (s Selector) Empty() bool {
	return len(s.Labels) == 0 && len(s.Names) == 0 && len(s.Repositories) == 0
}

// Matches reports whether s selects an application.
func (s Selector) Matches(a Application) bool {
	for name, value := range s.Labels {
		if has, ok := a.Labels[name]; !ok || has != value {
			return false
		}
	}
	named := func(pattern string) bool { return matchesName(pattern, a.Name) }
	return (len(s.Names) == 0 || slices.ContainsFunc(s.Names, named)) &&
		(len(s.Repositories) == 0 || slices.Contains(s.Repositories, a.Git.RepoID))
}

// matchesName reports whether a pattern, in which * stands for any text, matches a name.
func matchesName(pattern, name string) bool {
	parts := strings.Split(pattern, "*")
	rest, ok := strings.CutPrefix(name, parts[0])
	if !ok || len(parts) == 1 {
		return ok && rest == ""
	}
	last := parts[len(parts)-1]
	for _, part := range parts[1 : len(parts)-1] {
		at := strings.Index(rest, part)
		if at < 0 {
			return false
		}
		rest = rest[at+len(part):]
	}
	return strings.HasSuffix(rest, last)
}

// Scope is a set of applications: all, or those that satisfy every selector of one of its
// alternatives. The zero value contains none.
type Scope struct {
	All          bool
	Alternatives [][]Selector
}

// Everything is the scope of all applications.
func Everything() Scope { return Scope{All: true} }

// Contains reports whether the scope contains an application.
func (s Scope) Contains(a Application) bool {
	if s.All {
		return true
	}
	return slices.ContainsFunc(s.Alternatives, func(all []Selector) bool {
		return !slices.ContainsFunc(all, func(one Selector) bool { return !one.Matches(a) })
	})
}

// None reports whether the scope contains no application, whatever there is.
func (s Scope) None() bool { return !s.All && len(s.Alternatives) == 0 }

// With returns the scope extended by the applications that satisfy every given selector.
func (s Scope) With(all ...Selector) Scope {
	all = slices.DeleteFunc(slices.Clone(all), Selector.Empty)
	if s.All || len(all) == 0 {
		return Everything()
	}
	return Scope{Alternatives: append(slices.Clip(s.Alternatives), all)}
}

// Equal reports whether two selectors have the same conditions.
func (s Selector) Equal(o Selector) bool {
	return maps.Equal(s.Labels, o.Labels) && slices.Equal(s.Names, o.Names) && slices.Equal(s.Repositories, o.Repositories)
}

// Covers reports whether s surely contains every application of o: each alternative of o
// includes all selectors of an alternative of s. It can be false for scopes that happen to
// contain the same applications.
func (s Scope) Covers(o Scope) bool {
	if s.All || o.None() {
		return true
	}
	if o.All {
		return false
	}
	return !slices.ContainsFunc(o.Alternatives, func(narrow []Selector) bool {
		return !slices.ContainsFunc(s.Alternatives, func(wide []Selector) bool { return includesAll(narrow, wide) })
	})
}

// includesAll reports whether each condition of the selectors in wide is also one of a
// selector in narrow.
func includesAll(narrow, wide []Selector) bool {
	return !slices.ContainsFunc(wide, func(w Selector) bool {
		return !slices.ContainsFunc(narrow, func(n Selector) bool { return n.within(w) })
	})
}

// within reports whether everything that s selects is surely selected by w.
func (s Selector) within(w Selector) bool {
	for name, value := range w.Labels {
		if has, ok := s.Labels[name]; !ok || has != value {
			return false
		}
	}
	subset := func(narrow, wide []string) bool {
		return len(wide) == 0 || len(narrow) > 0 && !slices.ContainsFunc(narrow, func(n string) bool { return !slices.Contains(wide, n) })
	}
	return subset(s.Names, w.Names) && subset(s.Repositories, w.Repositories)
}

// Package access decides who may do what: it holds the roles of the configuration and
// answers, for a caller and a permission, in which applications the caller has it. What no
// role grants is denied.
//
// The package does not authenticate; its room signin signs users in.
package access

import (
	"fmt"
	"slices"
	"strings"

	"github.com/c785c783/piped/piped/deploy"
)

// Everyone is the subject of a role for every user who is signed in.
const Everyone = "*"

// Role grants permissions in some applications to users.
type Role struct {
	Name         string
	Groups       []string // users in one of these groups have the role,
	Subjects     []string // and users with one of these subjects; Everyone is all of them
	Applications deploy.Selector
	Permissions  []deploy.Permission
}

// Caller is an authenticated caller of the API: a user with a session, or an API key.
type Caller struct {
	// ID is that of the API key or of the session.
	ID string
	// Key is the ID of the API key, also if it opened a session; "" for a user.
	Key string
	// Subject is recorded as the one who acted.
	Subject string
	// Issuer is the configured name of the user's issuer; "" for an API key.
	Issuer string
	// User is true for a user of an issuer, false for an API key. Users have the roles that
	// name them or one of their groups, an API key has one role.
	User bool
	// Session is true if ID is that of a session. An API key can open a session, too.
	Session bool
	// Groups are the groups of a user, as the issuer names them.
	Groups []string
	// Role is the role of an API key; "" for a user.
	Role string
	// Limit restricts an API key to some applications; nil for no restriction.
	Limit *deploy.Selector
}

// Account identifies the user or API key, whatever session it uses.
func (c Caller) Account() string {
	if c.User {
		return c.Issuer + "/" + c.Subject
	}
	return c.Key
}

// Policy is an immutable set of roles. It is safe for concurrent use. The zero value grants
// the built-in roles to API keys, and nothing to users.
type Policy struct {
	roles []Role
}

// NewPolicy returns the policy of configured roles. A role that is named like a built-in one
// and has no permissions has those of the built-in one.
func NewPolicy(roles []Role) *Policy {
	roles = slices.Clone(roles)
	for i := range roles {
		if len(roles[i].Permissions) == 0 {
			roles[i].Permissions, _ = deploy.BuiltInRole(roles[i].Name)
		}
	}
	return &Policy{roles: roles}
}

// Roles returns the names of the configured and built-in roles that an API key can have.
func (p *Policy) Roles() []string {
	names := []string{"viewer", "deployer", "approver", "admin"}
	for _, r := range p.roles {
		if !slices.Contains(names, r.Name) {
			names = append(names, r.Name)
		}
	}
	return names
}

// Known reports whether an API key can have a role of that name.
func (p *Policy) Known(role string) bool {
	_, builtIn := deploy.BuiltInRole(role)
	return builtIn || slices.ContainsFunc(p.roles, func(r Role) bool { return r.Name == role })
}

// grants returns the roles that a caller has. Those of an API key are restricted by its limit
// in Scope and Explain.
func (p *Policy) grants(c Caller) []Role {
	var has []Role
	for _, r := range p.roles {
		if c.User && r.includes(c) || !c.User && c.Role == r.Name {
			has = append(has, r)
		}
	}
	if permissions, ok := deploy.BuiltInRole(c.Role); ok && !c.User && len(has) == 0 {
		has = append(has, Role{Name: c.Role, Permissions: permissions})
	}
	return has
}

// includes reports whether a user has the role.
func (r Role) includes(user Caller) bool {
	return slices.Contains(r.Subjects, Everyone) || slices.Contains(r.Subjects, user.Subject) ||
		slices.ContainsFunc(r.Groups, func(g string) bool { return slices.Contains(user.Groups, g) })
}

// RolesOf returns the names of the roles that a caller has.
func (p *Policy) RolesOf(c Caller) []string {
	var names []string
	for _, r := range p.grants(c) {
		names = append(names, r.Name)
	}
	return names
}

// Scope returns the applications in which a caller has a permission.
func (p *Policy) Scope(c Caller, permission deploy.Permission) deploy.Scope {
	var scope deploy.Scope
	for _, r := range p.grants(c) {
		if slices.Contains(r.Permissions, permission) {
			scope = scope.With(r.Applications, c.limit())
		}
	}
	return scope
}

// Allows reports whether a caller has a permission that is about the agent. A role or key
// that is restricted to some applications has no such permission but encrypt.
func (p *Policy) Allows(c Caller, permission deploy.Permission) bool {
	scope := p.Scope(c, permission)
	return scope.All || permission == deploy.PermEncrypt && !scope.None()
}

func (c Caller) limit() deploy.Selector {
	if c.Limit == nil {
		return deploy.Selector{}
	}
	return *c.Limit
}

// Covers reports whether caller c has everything that caller o has, as far as the roles
// show it: o could be created by c without a gain of rights.
func (p *Policy) Covers(c, o Caller) bool {
	for _, permission := range deploy.Permissions() {
		has, wants := p.Scope(c, permission), p.Scope(o, permission)
		if !has.Covers(wants) {
			return false
		}
	}
	return true
}

// Decision is the answer to whether a caller has a permission in an application.
type Decision struct {
	Allowed bool
	// Role is the role that grants it; "" if none does.
	Role string
	// Reason is a sentence for users.
	Reason string
}

// Explain returns whether a caller has a permission in an application, and why. A permission
// that is about the agent is decided as by Allows.
func (p *Policy) Explain(c Caller, permission deploy.Permission, app deploy.Application) Decision {
	has := p.grants(c)
	if len(has) == 0 {
		return Decision{Reason: fmt.Sprintf("%s has no role%s", c.Subject, c.missing())}
	}
	ofAgent := !permission.OfApplications() && permission != deploy.PermEncrypt
	var without, elsewhere []string
	for _, r := range has {
		switch {
		case !slices.Contains(r.Permissions, permission):
			without = append(without, r.Name)
		case ofAgent && !(r.Applications.Empty() && c.limit().Empty()):
			elsewhere = append(elsewhere, r.Name)
		case permission.OfApplications() && !(r.Applications.Matches(app) && c.limit().Matches(app)):
			elsewhere = append(elsewhere, r.Name)
		default:
			return Decision{Allowed: true, Role: r.Name, Reason: fmt.Sprintf("role %s grants %s", r.Name, permission)}
		}
	}
	switch {
	case len(elsewhere) > 0 && ofAgent:
		return Decision{Reason: fmt.Sprintf("role %s grants %s, but only in some applications, and %s is about the agent", strings.Join(elsewhere, ", "), permission, permission)}
	case len(elsewhere) > 0 && c.Limit != nil && !c.limit().Matches(app):
		return Decision{Reason: fmt.Sprintf("API key %s is limited to other applications", c.Subject)}
	case len(elsewhere) > 0:
		return Decision{Reason: fmt.Sprintf("role %s grants %s, but not in this application", strings.Join(elsewhere, ", "), permission)}
	}
	return Decision{Reason: fmt.Sprintf("role %s does not grant %s", strings.Join(without, ", "), permission)}
}

// missing says which kind of role a caller without roles could have.
func (c Caller) missing() string {
	switch {
	case !c.User:
		return fmt.Sprintf(": no role %q is configured", c.Role)
	case len(c.Groups) == 0:
		return ": no role names this subject, and the issuer reports no groups"
	default:
		return fmt.Sprintf(": no role names this subject or one of the groups %s", strings.Join(c.Groups, ", "))
	}
}

package access_test

import (
	"strings"
	"testing"

	"github.com/c785c783/piped/piped/access"
	"github.com/c785c783/piped/piped/deploy"
)

var (
	payments = deploy.Selector{Labels: map[string]string{"team": "payments"}}
	prod     = &deploy.Selector{Labels: map[string]string{"env": "prod"}}
	policy   = access.NewPolicy([]access.Role{
		{Name: "payments", Groups: []string{"payments"}, Applications: payments, Permissions: []deploy.Permission{deploy.PermView, deploy.PermSync}},
		{Name: "viewer", Subjects: []string{access.Everyone}},
		{Name: "lead", Subjects: []string{"ana"}, Permissions: []deploy.Permission{deploy.PermView, deploy.PermKeys}},
	})
	ana = access.Caller{Subject: "ana", User: true}
	ben = access.Caller{Subject: "ben", User: true, Groups: []string{"payments", "staff"}}
)

func app(team, env string) deploy.Application {
	return deploy.Application{Name: "web", Labels: map[string]string{"team": team, "env": env}}
}

func key(role string, limit *deploy.Selector) access.Caller {
	return access.Caller{Subject: "ci", Role: role, Limit: limit}
}

// TestExplain: the answer names the role that grants, or why none does, and Scope agrees.
func TestExplain(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		caller     access.Caller
		permission deploy.Permission
		app        deploy.Application
		role       string // "" for denied
		reason     string
	}{
		"by group":                {ben, deploy.PermSync, app("payments", "dev"), "payments", "role payments grants sync"},
		"other application":       {ben, deploy.PermSync, app("search", "dev"), "", "role payments grants sync, but not in this application"},
		"everyone":                {ben, deploy.PermViewLogs, app("search", "dev"), "viewer", "role viewer grants view-logs"},
		"by subject":              {ana, deploy.PermKeys, deploy.Application{}, "lead", "role lead grants keys"},
		"not granted":             {ana, deploy.PermSync, app("payments", "dev"), "", "role viewer, lead does not grant sync"},
		"a key of no such role":   {key("boss", nil), deploy.PermView, app("search", "dev"), "", `ci has no role: no role "boss" is configured`},
		"a key is not everyone":   {key("payments", nil), deploy.PermViewLogs, app("payments", "dev"), "", "role payments does not grant view-logs"},
		"a built-in role":         {key("deployer", nil), deploy.PermRollback, app("search", "dev"), "deployer", "role deployer grants rollback"},
		"keys with a limited key": {key("admin", prod), deploy.PermKeys, deploy.Application{}, "", "role admin grants keys, but only in some applications, and keys is about the agent"},
		"encrypt with one":        {key("admin", prod), deploy.PermEncrypt, app("search", "prod"), "admin", "role admin grants encrypt"},
		"a limited key":           {key("deployer", prod), deploy.PermSync, app("search", "prod"), "deployer", "role deployer grants sync"},
		"outside of its limit":    {key("deployer", prod), deploy.PermSync, app("search", "dev"), "", "API key ci is limited to other applications"},
		"role and limit together": {key("payments", prod), deploy.PermSync, app("payments", "prod"), "payments", "role payments grants sync"},
		"role without limit":      {key("payments", prod), deploy.PermSync, app("search", "prod"), "", "role payments grants sync, but not in this application"},
	} {
		got := policy.Explain(c.caller, c.permission, c.app)
		if got.Role != c.role || got.Allowed != (c.role != "") || got.Reason != c.reason {
			t.Errorf("%s: %+v, want role %q: %s", name, got, c.role, c.reason)
		}
		if in := policy.Scope(c.caller, c.permission).Contains(c.app); in != got.Allowed {
			t.Errorf("%s: Scope says %v, Explain says %v", name, in, got.Allowed)
		}
	}
	nobody := access.NewPolicy(nil).Explain(ben, deploy.PermView, app("payments", "dev"))
	if nobody.Allowed || !strings.Contains(nobody.Reason, "no role names this subject or one of the groups payments, staff") {
		t.Errorf("without roles: %+v", nobody)
	}
}

// TestCovers: whoever creates keys gains nothing by them.
func TestCovers(t *testing.T) {
	t.Parallel()
	admin := key("admin", nil)
	for name, c := range map[string]struct {
		has, wants access.Caller
		want       bool
	}{
		"admin makes any":             {admin, key("READ_WRITE", nil), true},
		"READ_WRITE is as admin":      {key("READ_WRITE", nil), admin, true},
		"a lead makes viewers":        {ana, key("lead", nil), true},
		"a lead makes no deployers":   {ana, key("deployer", nil), false},
		"limited makes no unlimited":  {key("deployer", prod), key("viewer", nil), false},
		"limited makes limited":       {key("deployer", prod), key("viewer", prod), true},
		"limited makes more limited":  {key("deployer", prod), key("viewer", &deploy.Selector{Labels: map[string]string{"env": "prod", "team": "a"}}), true},
		"limited to others":           {key("deployer", prod), key("viewer", &payments), false},
		"a role's applications count": {key("payments", nil), key("payments", prod), true},
	} {
		if got := policy.Covers(c.has, c.wants); got != c.want {
			t.Errorf("%s: Covers = %v, want %v", name, got, c.want)
		}
	}
}

package access

import (
	"testing"

	"github.com/c785c783/piped/piped/config"
	"github.com/c785c783/piped/piped/deploy"
)

// TestConfiguredRolesDecide: what a configuration grants is what a policy allows.
func TestConfiguredRolesDecide(t *testing.T) {
	policy := NewPolicy(RolesOf(config.Access{Roles: []config.AccessRole{
		{
			Name: "payments", Groups: []string{"acme/payments"}, Subjects: []string{"ann@example.com"},
			Applications: config.AccessApplications{Labels: map[string]string{"team": "payments"}, Names: []string{"pay-*"}, Repositories: []string{"apps"}},
			Permissions:  []config.AccessPermission{"approver", "cancel"},
		},
		{Name: "viewer", Subjects: []string{Everyone}},
	}}))
	own := deploy.Application{Name: "pay-web", Labels: map[string]string{"team": "payments"}, Git: deploy.GitPath{RepoID: "apps"}}
	other := deploy.Application{Name: "pay-web", Labels: map[string]string{"team": "search"}, Git: deploy.GitPath{RepoID: "apps"}}
	member := Caller{Subject: "bob@example.com", User: true, Session: true, Groups: []string{"acme/payments"}}
	named := Caller{Subject: "ann@example.com", User: true, Session: true}
	stranger := Caller{Subject: "eve@example.com", User: true, Session: true}
	for _, c := range []struct {
		caller     Caller
		permission deploy.Permission
		app        deploy.Application
		want       bool
	}{
		{member, deploy.PermApprove, own, true},
		{named, deploy.PermCancel, own, true},
		{member, deploy.PermApprove, other, false},
		{member, deploy.PermView, other, true},
		{member, deploy.PermSync, own, false},
		{stranger, deploy.PermView, own, true},
		{stranger, deploy.PermApprove, own, false},
	} {
		if got := policy.Explain(c.caller, c.permission, c.app); got.Allowed != c.want {
			t.Errorf("%s, %s, labels %v: %+v, want %t", c.caller.Subject, c.permission, c.app.Labels, got, c.want)
		}
	}
}

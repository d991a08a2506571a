package planner

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/c785c783/piped/piped/config"
	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/source"
	"github.com/c785c783/piped/piped/store"
)

// rules is a Tenancy with one rule and a prefix of unsigned commits.
type rules struct {
	config.TenancyRule
	unsigned string // the beginning of a hash
}

func (r rules) Tenant(deploy.GitPath) config.Tenant { return config.Tenant{r.TenancyRule} }

func (r rules) Signer(_ context.Context, _ deploy.GitPath, commit string) (string, error) {
	if r.unsigned != "" && strings.HasPrefix(commit, r.unsigned) {
		return "", deploy.Errorf(deploy.Invalid, "tenancy %q does not allow commit %s", r.Name, deploy.ShortHash(commit))
	}
	return "ann", nil
}

func TestTenancyEndsDeployments(t *testing.T) {
	onto := func(provider string) func(*store.NewDeployment) {
		return func(n *store.NewDeployment) { n.Deployment.Provider = provider }
	}
	script := []deploy.Stage{{ID: "sync", Name: deploy.StageK8sSync}, {ID: "check", Name: deploy.StageScriptRun}}
	undo := []deploy.Stage{{ID: "back", Name: deploy.StageScriptRunRollback, Rollback: true}}
	custom := []deploy.Stage{{ID: "custom", Name: deploy.StageCustomSync}}
	again := []deploy.Stage{{ID: "back", Name: deploy.StageCustomSyncRollback, Rollback: true}}
	for name, c := range map[string]struct {
		rules  rules
		stages []deploy.Stage
		want   string // part of the reason; "" when it is planned
		unread bool   // the commit is not read
	}{
		"a provider that is allowed":   {rules: rules{TenancyRule: config.TenancyRule{Name: "a", Providers: []string{"dev"}}}},
		"a provider that is not":       {rules: rules{TenancyRule: config.TenancyRule{Name: "a", Providers: []string{"prod"}}}, want: `tenancy "a" does not allow the platform provider "dev"`, unread: true},
		"a commit that is not signed":  {rules: rules{TenancyRule: config.TenancyRule{Name: "a"}, unsigned: "c0ffee0"}, want: `tenancy "a" does not allow commit c0ffee0`, unread: true},
		"a script that is allowed":     {rules: rules{TenancyRule: config.TenancyRule{Name: "a", Scripts: true}}, stages: script},
		"a script that is not":         {rules: rules{TenancyRule: config.TenancyRule{Name: "a"}}, stages: script, want: `tenancy "a" does not allow scripts, which stage check runs`},
		"a script that undoes another": {rules: rules{TenancyRule: config.TenancyRule{Name: "a"}}, stages: undo, want: "which stage back runs"},
		"a custom sync":                {rules: rules{TenancyRule: config.TenancyRule{Name: "a"}}, stages: custom, want: "which stage custom runs"},
		"a custom sync that undoes":    {rules: rules{TenancyRule: config.TenancyRule{Name: "a"}}, stages: again, want: "which stage back runs"},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, e *env) {
				read := false
				e.load = func(ctx context.Context, git deploy.GitPath, commit string) (*source.Source, error) {
					read = true
					return e.read(ctx, git, commit)
				}
				if c.stages != nil {
					e.plan = func() (deploy.Plan, error) { return deploy.Plan{Stages: c.stages}, nil }
				}
				e.rules = c.rules
				e.create("d", "web", time.Now(), onto("dev"))
				e.start()
				e.wait(time.Second)
				d := e.get("d")
				if c.want == "" && d.Status != deploy.Planned {
					t.Errorf("it is %s because %q, want PLANNED", d.Status, d.StatusReason)
				}
				if c.want != "" && (d.Status != deploy.Failure || !strings.Contains(d.StatusReason, c.want)) {
					t.Errorf("it is %s because %q, want FAILURE because %q", d.Status, d.StatusReason, c.want)
				}
				if read == c.unread {
					t.Errorf("the commit was read: %t", read)
				}
			})
		})
	}
}

func TestTenancyEndsPreviews(t *testing.T) {
	for _, unsigned := range []string{"", "c0ffee0"} {
		inBubble(t, func(t *testing.T, e *env) {
			p := New(Config{
				Store: e.store, Now: e.now, Sources: e.load, Deciders: map[string]Decider{deploy.KindKubernetes: decide(func() (deploy.Plan, error) { return e.plan() })},
				Tenancy: rules{unsigned: unsigned},
			})
			e.create("d", "web", time.Now())
			_, _, err := p.Preview(t.Context(), e.get("d"))
			if (unsigned != "") != deploy.IsKind(err, deploy.Invalid) {
				t.Errorf("unsigned %q: got %v", unsigned, err)
			}
		})
	}
}

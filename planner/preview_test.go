package planner

import (
	"context"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/c785c783/piped/piped/config"
	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/source"
	"github.com/c785c783/piped/piped/store"
)

// TestPreview: a preview returns the plan and what it would wait for, and stores
// nothing.
func TestPreview(t *testing.T) {
	inBubble(t, func(t *testing.T, e *env) {
		e.create("d", "web", time.Now())
		e.spec["web"] = office
		p := New(Config{Store: e.store, Now: e.now, Logger: slog.New(slog.NewTextHandler(t.Output(), nil)), Sources: e.load, Deciders: map[string]Decider{deploy.KindKubernetes: e.plan}})
		wanted := e.get("d")
		wanted.ID, wanted.Trigger.Kind = "", deploy.OnCommit
		got, hold, err := p.Preview(t.Context(), wanted)
		if err != nil {
			t.Fatal(err)
		}
		if got.Status != deploy.Planned || got.Summary != "Quick sync" || len(got.Stages) != 1 || !strings.Contains(hold, "next opens at") {
			t.Errorf("the preview is %+v, held %q", got, hold)
		}
		all, _, err := e.store.ListDeployments(t.Context(), store.DeploymentQuery{})
		if err != nil || len(all) != 1 || all[0].Status != deploy.Pending {
			t.Errorf("the store has %v, %v", all, err)
		}
		p.Deciders[deploy.KindKubernetes] = decide(func() (deploy.Plan, error) { panic("nil map") })
		if _, _, err := p.Preview(t.Context(), wanted); !deploy.IsKind(err, deploy.Invalid) {
			t.Errorf("of what makes planning panic: %v", err)
		}
		e.spec["web"] = "  timeout: nonsense\n"
		if _, _, err := p.Preview(t.Context(), wanted); !deploy.IsKind(err, deploy.Invalid) {
			t.Errorf("of what cannot be read: %v", err)
		}
	})
}

// TestPreviewOf: an application that is missing in the store is planned from the loaded
// sources, unless the tenancy rules forbid its provider: then nothing is loaded.
func TestPreviewOf(t *testing.T) {
	inBubble(t, func(t *testing.T, e *env) {
		p := New(Config{
			Store: e.store, Now: e.now, Logger: slog.New(slog.NewTextHandler(t.Output(), nil)), Deciders: map[string]Decider{deploy.KindKubernetes: e.plan},
			Tenancy: rules{TenancyRule: config.TenancyRule{Name: "a", Providers: []string{"dev"}}, unsigned: "c0ffee"},
		})
		app := deploy.Application{ID: "new", Name: "new", Kind: deploy.KindKubernetes}
		d := deploy.Deployment{ApplicationID: "new", Provider: "dev", Status: deploy.Pending, Trigger: deploy.Trigger{Commit: deploy.Commit{Hash: "c0ffee"}}}
		loads, failure := 0, error(nil)
		preview := func() (deploy.Deployment, *source.Source, error) {
			return p.PreviewOf(t.Context(), app, d, func(ctx context.Context) (*source.Source, error) {
				loads++
				if failure != nil {
					return nil, failure
				}
				return e.load(ctx, deploy.GitPath{Dir: "new", ConfigFile: "app.pipecd.yaml"}, "merge")
			}, e.load)
		}
		planned, target, err := preview()
		if err != nil || planned.Status != deploy.Planned || planned.Summary != "Quick sync" || target == nil {
			t.Errorf("planned as %+v of %v, %v", planned, target, err)
		}
		d.Provider = "prod"
		if _, _, err := preview(); !deploy.IsKind(err, deploy.Invalid) || loads != 1 {
			t.Errorf("%v, %d loads; want to be refused before the second", err, loads)
		}
		d.Provider, failure = "dev", deploy.Errorf(deploy.Invalid, "web.yaml:3")
		if _, _, err := preview(); err == nil || !strings.Contains(err.Error(), "web.yaml:3") {
			t.Errorf("of what cannot be rendered: %v", err)
		}
	})
}

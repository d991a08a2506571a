package planner

import (
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/store"
)

// TestPreview: what would be planned is told, with what it would wait for, and
// nothing is made.
func TestPreview(t *testing.T) {
	inBubble(t, func(t *testing.T, l *lab) {
		l.create("d", "web", time.Now())
		l.spec["web"] = office
		p := New(Config{Store: l.store, Now: l.now, Logger: slog.New(slog.NewTextHandler(t.Output(), nil)), Sources: l.load, Deciders: map[string]Decider{deploy.KindKubernetes: l.plan}})
		wanted := l.get("d")
		wanted.ID, wanted.Trigger.Kind = "", deploy.OnCommit
		got, hold, err := p.Preview(t.Context(), wanted)
		if err != nil {
			t.Fatal(err)
		}
		if got.Status != deploy.Planned || got.Summary != "Quick sync" || len(got.Stages) != 1 || !strings.Contains(hold, "next opens at") {
			t.Errorf("the preview is %+v, held %q", got, hold)
		}
		all, _, err := l.store.ListDeployments(t.Context(), store.DeploymentQuery{})
		if err != nil || len(all) != 1 || all[0].Status != deploy.Pending {
			t.Errorf("the store has %v, %v", all, err)
		}
		p.Deciders[deploy.KindKubernetes] = decide(func() (deploy.Plan, error) { panic("nil map") })
		if _, _, err := p.Preview(t.Context(), wanted); !deploy.IsKind(err, deploy.Invalid) {
			t.Errorf("of what makes planning panic: %v", err)
		}
		l.spec["web"] = "  nonsense: true\n"
		if _, _, err := p.Preview(t.Context(), wanted); !deploy.IsKind(err, deploy.Invalid) {
			t.Errorf("of what cannot be read: %v", err)
		}
	})
}

package planner

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/store"
)

// TestNothingWaitsWithoutReason: whatever is triggered, ends and is cancelled, and
// however time passes, once the planner rests an application has at most one
// active deployment, and another one is pending only because of that one or
// because a window holds it, and says so. No scan helps: there is one a year.
func TestNothingWaitsWithoutReason(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		windows := rapid.SampledFrom([]string{"",
			"  syncWindows: [{kind: allow, schedule: 15 * * * *, duration: 10m}]\n",
			"  syncWindows: [{kind: deny, schedule: 30 * * * *, duration: 20m, manualSync: false}]\n"}).Draw(rt, "windows")
		steps := rapid.SliceOfN(rapid.Custom(drawStep), 3, 16).Draw(rt, "steps")
		var err error
		inBubble(t, func(t *testing.T, l *lab) {
			l.spec["web"], l.scan = windows, 365*24*time.Hour
			l.start()
			for i, s := range steps {
				l.take(fmt.Sprintf("d%02d", i), s)
				synctest.Wait()
				if err = l.checkWaiting(); err != nil {
					err = fmt.Errorf("after step %d: %w", i, err)
					return
				}
			}
		})
		if err != nil {
			rt.Fatal(err)
		}
	})
}

// step is one thing that happens to an application.
type step struct {
	Action              string
	Kind                deploy.TriggerKind // of what is triggered
	Override, Supersede bool
	Minutes             int // that pass
}

func drawStep(rt *rapid.T) step {
	return step{
		Action:    rapid.SampledFrom([]string{"trigger", "trigger", "end", "cancel", "wait", "wait", "restart"}).Draw(rt, "action"),
		Kind:      rapid.SampledFrom([]deploy.TriggerKind{deploy.OnCommit, deploy.OnCommand}).Draw(rt, "kind"),
		Override:  rapid.IntRange(0, 4).Draw(rt, "override") == 0,
		Supersede: rapid.Bool().Draw(rt, "supersede"),
		Minutes:   rapid.SampledFrom([]int{1, 10, 25, 40}).Draw(rt, "minutes"),
	}
}

// take takes a step; id is that of a new deployment.
func (l *lab) take(id string, s step) {
	l.t.Helper()
	pending, active := l.waiting()
	switch s.Action {
	case "trigger":
		l.create(id, "web", time.Now(), func(n *store.NewDeployment) {
			n.Deployment.Trigger.Kind, n.Deployment.Trigger.OverrideWindows, n.Supersede = s.Kind, s.Override, s.Supersede
		})
	case "end":
		if len(active) > 0 {
			l.finish(active[0].ID, deploy.Success)
		}
	case "cancel":
		if len(pending) > 0 {
			l.finish(pending[s.Minutes%len(pending)].ID, deploy.Cancelled)
		}
	case "wait":
		time.Sleep(time.Duration(s.Minutes) * time.Minute)
	case "restart":
		l.shutdown()
		l.start()
	}
}

// waiting returns the deployments that have not ended, and are pending or active.
func (l *lab) waiting() (pending, active []deploy.Deployment) {
	l.t.Helper()
	all, _, err := l.store.ListDeployments(l.t.Context(), store.DeploymentQuery{})
	if err != nil {
		l.t.Fatal(err)
	}
	for _, d := range all {
		switch {
		case d.Status.Active():
			active = append(active, d)
		case d.Status == deploy.Pending:
			pending = append(pending, d)
		}
	}
	return pending, active
}

// checkWaiting returns what is wrong while the planner rests.
func (l *lab) checkWaiting() error {
	pending, active := l.waiting()
	if len(active) > 1 {
		return fmt.Errorf("both %s and %s are active", active[0].ID, active[1].ID)
	}
	for _, d := range pending {
		if len(active) > 0 {
			if want := "Waiting for the end of deployment " + active[0].ID + " of commit c0ffee0"; d.StatusReason != want {
				return fmt.Errorf("%s says %q, want %q", d.ID, d.StatusReason, want)
			}
			continue
		}
		target, err := l.read(l.t.Context(), d.Git, "")
		if err != nil {
			return err
		}
		if _, reason := target.Config.SyncWindows.Hold(time.Now(), d.Trigger.Kind == deploy.OnCommand); reason == "" || d.Trigger.OverrideWindows {
			return fmt.Errorf("%s waits (%q), and nothing holds it", d.ID, d.StatusReason)
		}
		if !strings.HasPrefix(d.StatusReason, "Held: ") {
			return fmt.Errorf("%s is held and says %q", d.ID, d.StatusReason)
		}
	}
	return nil
}

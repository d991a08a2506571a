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

// TestNothingWaitsWithoutReason: after random triggers, ends, cancels and pauses, an
// idle planner leaves at most one active deployment per application, and each pending
// one waits for it or for a window and says so. Scans are disabled.
func TestNothingWaitsWithoutReason(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		windows := rapid.SampledFrom([]string{"",
			"  syncWindows: [{kind: allow, schedule: 15 * * * *, duration: 10m}]\n",
			"  syncWindows: [{kind: deny, schedule: 30 * * * *, duration: 20m, manualSync: false}]\n"}).Draw(rt, "windows")
		steps := rapid.SliceOfN(rapid.Custom(drawStep), 3, 16).Draw(rt, "steps")
		var err error
		inBubble(t, func(t *testing.T, e *env) {
			e.spec["web"], e.scan = windows, 365*24*time.Hour
			e.start()
			for i, s := range steps {
				e.take(fmt.Sprintf("d%02d", i), s)
				synctest.Wait()
				if err = e.checkWaiting(); err != nil {
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

// step is one action on an application.
type step struct {
	Action              string
	Kind                deploy.TriggerKind // of the new deployment
	Override, Supersede bool
	Minutes             int // to advance the time by
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

// take performs a step; id is the ID of a new deployment.
func (e *env) take(id string, s step) {
	e.t.Helper()
	pending, active := e.waiting()
	switch s.Action {
	case "trigger":
		e.create(id, "web", time.Now(), func(n *store.NewDeployment) {
			n.Deployment.Trigger.Kind, n.Deployment.Trigger.OverrideWindows, n.Supersede = s.Kind, s.Override, s.Supersede
		})
	case "end":
		if len(active) > 0 {
			e.finish(active[0].ID, deploy.Success)
		}
	case "cancel":
		if len(pending) > 0 {
			e.finish(pending[s.Minutes%len(pending)].ID, deploy.Cancelled)
		}
	case "wait":
		time.Sleep(time.Duration(s.Minutes) * time.Minute)
	case "restart":
		e.shutdown()
		e.start()
	}
}

// waiting returns the deployments that have not ended, and are pending or active.
func (e *env) waiting() (pending, active []deploy.Deployment) {
	e.t.Helper()
	all, _, err := e.store.ListDeployments(e.t.Context(), store.DeploymentQuery{})
	if err != nil {
		e.t.Fatal(err)
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

// checkWaiting returns violations while the planner is idle.
func (e *env) checkWaiting() error {
	pending, active := e.waiting()
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
		target, err := e.read(e.t.Context(), d.Git, "")
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

package planner

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/store"
)

// office opens from 08:00 to 10:00 every day.
const office = "  syncWindows: [{kind: allow, schedule: 0 8 * * *, duration: 2h}]\n"

// TestSyncWindow: deployments held by a sync window, with their reasons. Every test
// begins on a Saturday at midnight.
func TestSyncWindow(t *testing.T) {
	override := func(n *store.NewDeployment) { n.Deployment.Trigger.OverrideWindows = true }
	by := func(kind deploy.TriggerKind) func(*store.NewDeployment) {
		return func(n *store.NewDeployment) { n.Deployment.Trigger.Kind = kind }
	}
	const closed = "Held: outside the sync windows: next opens at 2000-01-01 08:00 UTC; sync by hand with pipectl application sync to override"
	const firm = "  syncWindows: [{kind: deny, schedule: 0 0 * * *, duration: 3h, manualSync: false}]\n"
	cases := []struct {
		name string
		spec string
		with []func(*store.NewDeployment)
		hold string // "" is none
	}{
		{"no windows", "", []func(*store.NewDeployment){byGit}, ""},
		{"a commit outside of a window", office, []func(*store.NewDeployment){byGit}, closed},
		{"drift outside of a window", office, []func(*store.NewDeployment){by(deploy.OnOutOfSync)}, closed},
		{"a chain outside of a window", office, []func(*store.NewDeployment){by(deploy.OnChain)}, closed},
		{"a sync by hand passes", office, nil, ""},
		{"but not where it is denied as well", firm, nil,
			"Held: a sync window (0 0 * * * for 3h0m0s, UTC) denies deployments: next opens at 2000-01-01 03:00 UTC; syncs by hand are held as well, unless with --override-sync-windows"},
		{"unless it overrides windows", firm, []func(*store.NewDeployment){override}, ""},
		{"an override", office, []func(*store.NewDeployment){byGit, override}, ""},
		{"inside of a window", "  syncWindows: [{kind: allow, schedule: 0 0 * * *, duration: 1h}]\n", []func(*store.NewDeployment){byGit}, ""},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, e *env) {
				e.spec["web"] = c.spec
				e.start()
				e.create("d", "web", time.Now(), c.with...)
				synctest.Wait()
				d := e.get("d")
				want := deploy.Planned
				if c.hold != "" {
					want = deploy.Pending
				}
				if d.Status != want || c.hold != "" && d.StatusReason != c.hold {
					t.Errorf("%s because\n%q, want %s because\n%q", d.Status, d.StatusReason, want, c.hold)
				}
			})
		})
	}
}

// TestWindowOpens: a held deployment is planned at the moment its window opens, also
// after a restart, and its reason is written once.
func TestWindowOpens(t *testing.T) {
	inBubble(t, func(t *testing.T, e *env) {
		e.spec["web"], e.scan = office, 365*24*time.Hour // no scan helps
		e.start()
		e.create("d", "web", time.Now(), byGit)
		e.wait(4 * time.Hour)
		if d := e.get("d"); d.Revision != 2 {
			t.Errorf("revision %d: the reason is written once, and nothing else", d.Revision)
		}
		e.shutdown()
		e.start()
		e.wait(4*time.Hour - time.Millisecond)
		if d := e.get("d"); d.Status != deploy.Pending || d.Revision != 2 {
			t.Fatalf("a moment before it is %s, revision %d", d.Status, d.Revision)
		}
		e.wait(time.Millisecond)
		if d := e.get("d"); d.Status != deploy.Planned {
			t.Errorf("at 08:00 it is %s because %q", d.Status, d.StatusReason)
		}
	})
}

// TestClockJumpOpensWindow: the next scan detects a changed clock.
func TestClockJumpOpensWindow(t *testing.T) {
	inBubble(t, func(t *testing.T, e *env) {
		e.spec["web"] = office
		e.start()
		e.create("d", "web", time.Now(), byGit)
		synctest.Wait()
		e.ahead.Store(int64(9 * time.Hour))
		e.wait(29 * time.Second)
		if d := e.get("d"); d.Status != deploy.Pending {
			t.Errorf("before the scan it is %s", d.Status)
		}
		e.wait(time.Second)
		if d := e.get("d"); d.Status != deploy.Planned {
			t.Errorf("after the scan it is %s because %q", d.Status, d.StatusReason)
		}
	})
}

// TestHeldHoldsUpNoOther: the oldest deployment that may proceed is planned, and the
// others get a reason.
func TestHeldHoldsUpNoOther(t *testing.T) {
	inBubble(t, func(t *testing.T, e *env) {
		e.spec["web"] = office
		e.create("old", "web", time.Now(), byGit)
		e.create("new", "web", time.Now().Add(time.Second))
		e.start()
		synctest.Wait()
		if diff := cmp.Diff([]string{"old PENDING", "new PLANNED"}, e.statuses("old", "new")); diff != "" {
			t.Fatalf("-want +got:\n%s", diff)
		}
		if got, want := e.get("old").StatusReason, "Waiting for the end of deployment new of commit c0ffee0"; got != want {
			t.Errorf("the held one says %q, want %q", got, want)
		}
		e.finish("new", deploy.Cancelled)
		synctest.Wait()
		if got := e.get("old").StatusReason; !strings.HasPrefix(got, "Held: outside the sync windows") {
			t.Errorf("then it says %q", got)
		}
	})
}

// TestSuperseded: a held deployment after a later one was planned.
func TestSuperseded(t *testing.T) {
	cases := []struct {
		name   string
		commit string // of the later one
		end    deploy.Status
		want   deploy.Status
		reason string
	}{
		{"by another commit that succeeds", "beef", deploy.Success, deploy.Cancelled,
			"Superseded while held: deployment new of commit beef has succeeded, and this deployment would undo it; to deploy commit c0ffee0 anyway, sync it manually"},
		{"by another commit that fails", "beef", deploy.Failure, deploy.Pending, ""},
		{"by the same commit", "c0ffee0123456789-old", deploy.Success, deploy.Pending, ""},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, e *env) {
				e.spec["web"], e.scan = office, 365*24*time.Hour
				e.start()
				e.create("old", "web", time.Now(), byGit)
				synctest.Wait()
				e.create("new", "web", time.Now().Add(time.Second), func(n *store.NewDeployment) { n.Deployment.Trigger.Commit.Hash = c.commit })
				synctest.Wait()
				e.finish("new", c.end)
				synctest.Wait()
				d := e.get("old")
				if d.Status != c.want || c.reason != "" && d.StatusReason != c.reason {
					t.Fatalf("it is %s because\n%q, want %s because\n%q", d.Status, d.StatusReason, c.want, c.reason)
				}
				if cancelled := c.want == deploy.Cancelled; cancelled != (d.SupersededBy == "new") {
					t.Errorf("it is superseded by %q", d.SupersededBy)
				}
				e.wait(8 * time.Hour)
				if d := e.get("old"); d.Status != c.want && d.Status != deploy.Planned {
					t.Errorf("at 08:00 it is %s because %q", d.Status, d.StatusReason)
				}
			})
		})
	}
}

// chained makes a deployment the first one of a chain with a block for each list of
// applications.
func chained(blocks ...[]string) func(*store.NewDeployment) {
	return func(n *store.NewDeployment) {
		n.Deployment.ChainID = "chain"
		n.Chain = &deploy.Chain{ID: "chain", Blocks: []deploy.ChainBlock{{}}}
		for _, apps := range blocks {
			var b deploy.ChainBlock
			for _, app := range apps {
				b.Nodes = append(b.Nodes, deploy.ChainNode{ApplicationID: app, ApplicationName: app, CommandID: "ask-" + app})
			}
			n.Chain.Blocks = append(n.Chain.Blocks, b)
		}
	}
}

// inBlock puts a deployment into a block of the chain.
func inBlock(block int) func(*store.NewDeployment) {
	return func(n *store.NewDeployment) {
		n.Deployment.Trigger.Kind, n.Deployment.ChainID, n.Deployment.ChainBlock = deploy.OnChain, "chain", block
		n.CommandID = "ask-" + n.Deployment.ApplicationID
	}
}

// TestChain: a block begins when the one before has succeeded, regardless of other
// deployments of its applications.
func TestChain(t *testing.T) {
	inBubble(t, func(t *testing.T, e *env) {
		e.start()
		now := time.Now()
		e.create("first", "base", now, chained([]string{"web", "db"}, []string{"edge"}))
		e.create("web", "web", now, inBlock(1))
		e.create("db", "db", now, inBlock(1))
		e.create("edge", "edge", now, inBlock(2))
		e.create("other", "edge", now.Add(time.Hour), func(n *store.NewDeployment) { // not of the chain: need not wait
			n.Deployment.Trigger.Commit.Hash = "c0ffee0123456789-edge"
		})
		synctest.Wait()
		ids := []string{"first", "web", "db", "edge", "other"}
		steps := []struct {
			end  string
			want []string
			edge string // the block it waits for
		}{
			{"", []string{"first PLANNED", "web PENDING", "db PENDING", "edge PENDING", "other PLANNED"}, ""},
			{"other", []string{"first PLANNED", "web PENDING", "db PENDING", "edge PENDING", "other SUCCESS"}, "0"},
			{"first", []string{"first SUCCESS", "web PLANNED", "db PLANNED", "edge PENDING", "other SUCCESS"}, "1"},
			{"db", []string{"first SUCCESS", "web PLANNED", "db SUCCESS", "edge PENDING", "other SUCCESS"}, "1"},
			{"web", []string{"first SUCCESS", "web SUCCESS", "db SUCCESS", "edge PLANNED", "other SUCCESS"}, ""},
		}
		for _, s := range steps {
			if s.end != "" {
				e.finish(s.end, deploy.Success)
				synctest.Wait() // and no time passes
			}
			if diff := cmp.Diff(s.want, e.statuses(ids...)); diff != "" {
				t.Errorf("after the success of %q (-want +got):\n%s", s.end, diff)
			}
			if s.edge != "" && e.get("edge").StatusReason != "Waiting for block "+s.edge+" of the deployment chain" {
				t.Errorf("after the success of %q edge says %q, want block %s", s.end, e.get("edge").StatusReason, s.edge)
			}
		}
	})
}

// TestChainBreaks: when a block fails, the waiting ones after it are cancelled with a
// reason.
func TestChainBreaks(t *testing.T) {
	inBubble(t, func(t *testing.T, e *env) {
		e.start()
		now := time.Now()
		e.create("first", "base", now, chained([]string{"web"}, []string{"edge"}))
		e.create("web", "web", now, inBlock(1))
		e.create("edge", "edge", now, inBlock(2))
		synctest.Wait()
		e.finish("first", deploy.Failure)
		synctest.Wait()
		for _, id := range []string{"web", "edge"} {
			d := e.get(id)
			if want := "Block 0 of the deployment chain did not succeed"; d.Status != deploy.Cancelled || d.StatusReason != want {
				t.Errorf("%s is %s because %q, want CANCELLED because %q", id, d.Status, d.StatusReason, want)
			}
		}
	})
}

// TestRefusedInChain: an application that rejects its chain command fails the blocks
// after it.
func TestRefusedInChain(t *testing.T) {
	inBubble(t, func(t *testing.T, e *env) {
		e.start()
		e.create("first", "base", time.Now(), chained([]string{"web"}, []string{"edge"}))
		e.create("edge", "edge", time.Now(), inBlock(2))
		synctest.Wait()
		e.finish("first", deploy.Success)
		synctest.Wait()
		if d := e.get("edge"); d.Status != deploy.Pending {
			t.Fatalf("while the command is open edge is %s because %q", d.Status, d.StatusReason)
		}
		if err := e.store.FinishCommand(t.Context(), "ask-web", deploy.CommandFailed, map[string]string{deploy.MetaReason: "onChain is disabled"}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if d := e.get("edge"); d.Status != deploy.Cancelled || d.StatusReason != "Block 1 of the deployment chain did not succeed" {
			t.Errorf("edge is %s because %q", d.Status, d.StatusReason)
		}
	})
}

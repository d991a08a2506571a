package app

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

// until is a component that runs until its context ends.
func until(ctx context.Context) error {
	<-ctx.Done()
	return ctx.Err()
}

// TestPartsStopInOrder: components end first, then what was acquired is released
// in reverse, once.
func TestPartsStopInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var order []string
		p := parts{grace: time.Minute}
		p.onClose("store", func() error { order = append(order, "store"); return nil })
		p.onClose("mirrors", func() error { order = append(order, "mirrors"); return errors.New("busy") })
		p.add("worker", func(ctx context.Context) error {
			<-ctx.Done()
			time.Sleep(time.Second)
			order = append(order, "worker")
			return nil
		})
		ctx, stop := context.WithCancel(t.Context())
		stop()
		if err := p.run(ctx); err == nil || err.Error() != "close mirrors: busy" {
			t.Errorf("error %v", err)
		}
		if err := p.close(); err != nil {
			t.Errorf("a second close: %v", err)
		}
		if diff := cmp.Diff([]string{"worker", "mirrors", "store"}, order); diff != "" {
			t.Errorf("order (-want +got):\n%s", diff)
		}
	})
}

// TestFailedComponentStopsTheOthers: the agent ends with its reason.
func TestFailedComponentStopsTheOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := parts{grace: time.Minute}
		p.add("worker", until)
		p.add("web", func(context.Context) error { return errors.New("port taken") })
		if err := p.run(t.Context()); err == nil || err.Error() != "web: port taken" {
			t.Errorf("error %v", err)
		}
	})
}

// TestHangingPartsAreNamed: components that do not stop within the grace period are named
// and left running.
func TestHangingPartsAreNamed(t *testing.T) {
	hang := func(end chan struct{}) func(context.Context) error {
		return func(context.Context) error { <-end; return nil }
	}
	for name, c := range map[string]struct {
		build func(p *parts, end chan struct{})
		want  string
	}{
		"components": {func(p *parts, end chan struct{}) {
			p.add("worker", until)
			p.add("scheduler", hang(end))
			p.add("planner", hang(end))
			p.onClose("store", func() error { return nil })
		}, "not stopped within 30s: component planner, component scheduler"},
		"a release": {func(p *parts, end chan struct{}) {
			p.add("worker", until)
			p.onClose("store", func() error { <-end; return nil })
		}, "not stopped within 30s: release of store"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				end := make(chan struct{})
				p := parts{grace: 30 * time.Second}
				c.build(&p, end)
				ctx, stop := context.WithCancel(t.Context())
				stop()
				if err := p.run(ctx); err == nil || err.Error() != c.want {
					t.Errorf("error %v, want %q", err, c.want)
				}
				close(end)
				synctest.Wait()
			})
		})
	}
}

package planner

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/c785c783/piped/piped/background"
	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/source"
)

// slowChart makes applications with names that begin with s wait for their charts until
// the server answers.
func (e *env) slowChart(answer <-chan struct{}) {
	e.load = func(ctx context.Context, git deploy.GitPath, commit string) (*source.Source, error) {
		if git.Dir[0] != 's' {
			return e.read(ctx, git, commit)
		}
		defer background.Wait(ctx, "chart https://charts.example.com/nginx-1.2.3.tgz")()
		select {
		case <-answer:
			return e.read(ctx, git, commit)
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// TestSlowRenderingHoldsUpNoOther: applications that wait for their charts do not delay
// others. Their deployments say what they wait for, and are planned in order when the
// charts are available.
func TestSlowRenderingHoldsUpNoOther(t *testing.T) {
	inBubble(t, func(t *testing.T, e *env) {
		now, answer := time.Now(), make(chan struct{})
		e.slowChart(answer)
		for i := range 20 {
			e.create(fmt.Sprintf("d%02d", i), fmt.Sprintf("slow-%02d", i), now)
		}
		e.create("later", "slow-00", now.Add(time.Second))
		e.create("x", "db", now.Add(time.Second))
		e.start()
		e.wait(3 * background.DefaultPatience)
		if diff := cmp.Diff([]string{"d00 PENDING", "later PENDING", "x PLANNED"}, e.statuses("d00", "later", "x")); diff != "" {
			t.Errorf("while the charts do not come (-want +got):\n%s", diff)
		}
		want := "Rendering the application takes long: it waits for chart https://charts.example.com/nginx-1.2.3.tgz"
		if got := e.get("d00").StatusReason; got != want {
			t.Errorf("the deployment says %q, want %q", got, want)
		}
		close(answer)
		e.wait(2 * time.Minute)
		for i := range 20 {
			id := fmt.Sprintf("d%02d", i)
			if diff := cmp.Diff([]string{id + " PLANNED"}, e.statuses(id)); diff != "" {
				t.Errorf("when they have come (-want +got):\n%s", diff)
			}
		}
		if diff := cmp.Diff([]string{"later PENDING"}, e.statuses("later")); diff != "" {
			t.Errorf("the one after it (-want +got):\n%s", diff)
		}
	})
}

// TestCancelledWhileItIsRendered: a cancelled deployment does not delay a later one of its
// application, and its rendering stops.
func TestCancelledWhileItIsRendered(t *testing.T) {
	inBubble(t, func(t *testing.T, e *env) {
		now, answer := time.Now(), make(chan struct{})
		e.slowChart(answer)
		slow := e.load
		e.load = func(ctx context.Context, git deploy.GitPath, commit string) (*source.Source, error) {
			if commit == "c0ffee0123456789-b" {
				return e.read(ctx, git, commit)
			}
			return slow(ctx, git, commit)
		}
		e.create("a", "slow", now)
		e.start()
		e.wait(2 * background.DefaultPatience)
		e.create("b", "slow", now.Add(time.Second))
		e.finish("a", deploy.Cancelled)
		synctest.Wait()
		if diff := cmp.Diff([]string{"a CANCELLED", "b PLANNED"}, e.statuses("a", "b")); diff != "" {
			t.Errorf("deployments (-want +got):\n%s", diff)
		}
	})
}

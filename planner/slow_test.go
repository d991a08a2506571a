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

// slowChart has applications whose names begin with s wait for their charts until the
// server answers.
func (l *lab) slowChart(answer <-chan struct{}) {
	l.load = func(ctx context.Context, git deploy.GitPath, commit string) (*source.Source, error) {
		if git.Dir[0] != 's' {
			return l.read(ctx, git, commit)
		}
		defer background.Wait(ctx, "chart https://charts.example.com/nginx-1.2.3.tgz")()
		select {
		case <-answer:
			return l.read(ctx, git, commit)
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// TestSlowRenderingHoldsUpNoOther: however many applications wait for their charts, the
// others are planned; the deployments say what they wait for, and are planned when it
// has come, in their order.
func TestSlowRenderingHoldsUpNoOther(t *testing.T) {
	inBubble(t, func(t *testing.T, l *lab) {
		now, answer := time.Now(), make(chan struct{})
		l.slowChart(answer)
		for i := range 20 {
			l.create(fmt.Sprintf("d%02d", i), fmt.Sprintf("slow-%02d", i), now)
		}
		l.create("later", "slow-00", now.Add(time.Second))
		l.create("x", "db", now.Add(time.Second))
		l.start()
		l.wait(3 * background.DefaultPatience)
		if diff := cmp.Diff([]string{"d00 PENDING", "later PENDING", "x PLANNED"}, l.statuses("d00", "later", "x")); diff != "" {
			t.Errorf("while the charts do not come (-want +got):\n%s", diff)
		}
		want := "Rendering the application takes long: it waits for chart https://charts.example.com/nginx-1.2.3.tgz"
		if got := l.get("d00").StatusReason; got != want {
			t.Errorf("the deployment says %q, want %q", got, want)
		}
		close(answer)
		l.wait(2 * time.Minute)
		for i := range 20 {
			id := fmt.Sprintf("d%02d", i)
			if diff := cmp.Diff([]string{id + " PLANNED"}, l.statuses(id)); diff != "" {
				t.Errorf("when they have come (-want +got):\n%s", diff)
			}
		}
		if diff := cmp.Diff([]string{"later PENDING"}, l.statuses("later")); diff != "" {
			t.Errorf("the one after it (-want +got):\n%s", diff)
		}
	})
}

// TestCancelledWhileItIsRendered: a deployment that was cancelled holds up no later one of
// its application with its chart, and is rendered no longer.
func TestCancelledWhileItIsRendered(t *testing.T) {
	inBubble(t, func(t *testing.T, l *lab) {
		now, answer := time.Now(), make(chan struct{})
		l.slowChart(answer)
		slow := l.load
		l.load = func(ctx context.Context, git deploy.GitPath, commit string) (*source.Source, error) {
			if commit == "c0ffee0123456789-b" {
				return l.read(ctx, git, commit)
			}
			return slow(ctx, git, commit)
		}
		l.create("a", "slow", now)
		l.start()
		l.wait(2 * background.DefaultPatience)
		l.create("b", "slow", now.Add(time.Second))
		l.finish("a", deploy.Cancelled)
		synctest.Wait()
		if diff := cmp.Diff([]string{"a CANCELLED", "b PLANNED"}, l.statuses("a", "b")); diff != "" {
			t.Errorf("deployments (-want +got):\n%s", diff)
		}
	})
}

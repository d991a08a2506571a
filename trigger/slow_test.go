package trigger

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/c785c783/piped/piped/background"
	"github.com/c785c783/piped/piped/deploy"
)

// slowChart is a Live for which applications in directories that begin with chart wait
// for their charts until the server answers. They have objects of others to take over.
type slowChart struct {
	asked, left chan string // commits
	answer      chan struct{}
}

func newSlowChart() slowChart {
	return slowChart{make(chan string, 10_000), make(chan string, 10_000), make(chan struct{})}
}

func (s slowChart) RunningCommits(ctx context.Context, _ string, git deploy.GitPath, commit string) ([]string, error) {
	if !strings.HasPrefix(git.Dir, "chart") {
		return nil, nil
	}
	s.asked <- commit
	defer background.Wait(ctx, "chart https://charts.example.com/nginx-1.2.3.tgz")()
	select {
	case <-s.answer:
		return nil, nil
	case <-ctx.Done():
		s.left <- commit
		return nil, ctx.Err()
	}
}

func (s slowChart) Foreign(_ context.Context, _ string, app deploy.Application, _ string) ([]deploy.AdoptedObject, error) {
	if app.Git.Dir != "chart" {
		return nil, nil
	}
	return []deploy.AdoptedObject{{Object: deploy.ObjectRef{Version: "v1", Kind: "ConfigMap", Namespace: "demo", Name: "web"}}}, nil
}

const slowNotice = "Not deployed yet: its rendering takes long: it waits for chart https://charts.example.com/nginx-1.2.3.tgz. " +
	"It is deployed when that has come; no other application waits for it"

// newSlowEnv returns an env whose passes wait a moment for the chart.
func newSlowEnv(t *testing.T, live Live, edit ...func(*env, *Config)) *env {
	t.Helper()
	l := newEnv(t, append(edit, func(_ *env, c *Config) { c.Live, c.Patience = live, 50*time.Millisecond })...)
	t.Cleanup(func() { l.trigger.watchers["apps"].close() })
	return l
}

// until polls until the condition holds.
func (l *env) until(what string, holds func() bool) {
	l.t.Helper()
	for end := time.Now().Add(10 * time.Minute); !holds(); l.poll() {
		if time.Now().After(end) {
			l.t.Fatalf("%s: not within 3 min", what)
		}
	}
}

// TestSlowChartHoldsItsApplicationAlone: the pass goes on without an application whose
// chart does not come, says on it what it waits for, and looks for it once. It is
// deployed when the chart has come, and a new commit is not held by that of the old one.
func TestSlowChartHoldsItsApplicationAlone(t *testing.T) {
	live := newSlowChart()
	l := newSlowEnv(t, live)
	first := l.upstream.Push(t, "begin", map[string]string{"chart/app.pipecd.yaml": appFile("chart"), "web/app.pipecd.yaml": appFile("web")})
	l.until("the other application is deployed", func() bool { return len(l.deployments("web")) == 1 })
	l.until("the application says why it is not", func() bool { return l.app("chart").Notice == slowNotice })
	if got := l.deployments("chart"); got != nil {
		t.Errorf("the application has deployments %v", got)
	}
	for range 3 {
		l.poll()
	}
	if got := <-live.asked; got != first || len(live.asked) > 0 {
		t.Errorf("asked at %s and %d times more, want once at %s", got, len(live.asked), first)
	}

	second := l.push("second", map[string]string{"chart/a.yaml": "1"})
	if got := <-live.asked; got != second {
		t.Errorf("then it was asked at %s, want %s", got, second)
	}
	if got := <-live.left; got != first {
		t.Errorf("the lookup at %s ended, want that at %s", got, first)
	}
	l.poll()
	w := l.trigger.watchers["apps"]
	close(live.answer)
	// The end of the first lookup begins a pass, too. It may find that of the second still at work.
	for l.deployments("chart") == nil {
		await(t, "the pass that the answer begins", func() (woken bool) {
			w.fill(func(in *inbox) { woken = in.anew })
			return woken
		})
		l.poll()
	}
	if diff := cmp.Diff([]string{"second PENDING"}, l.deployments("chart")); diff != "" || l.app("chart").Notice != "" {
		t.Errorf("once the chart is there (-want +got):\n%snotice %q", diff, l.app("chart").Notice)
	}
}

// TestCommandsWaitForASlowChart: where a person permits first what is taken over, a
// sync waits for its application, and is answered when that was looked for.
func TestCommandsWaitForASlowChart(t *testing.T) {
	live := newSlowChart()
	l := newSlowEnv(t, live, func(_ *env, c *Config) { c.Review = true })
	l.push("begin", map[string]string{"chart/app.pipecd.yaml": appFile("chart"), "web/app.pipecd.yaml": appFile("web")})
	slow, quick := l.askSync("chart"), l.askSync("web")
	l.until("the other sync is answered", func() bool { return l.command(quick).Status == deploy.CommandSucceeded })
	if got := l.command(slow); got.Status != deploy.CommandOpen {
		t.Errorf("the sync is %s because %q", got.Status, got.Metadata[deploy.MetaReason])
	}
	close(live.answer)
	l.until("the sync is answered", func() bool { return l.command(slow).Status != deploy.CommandOpen })
	l.wantRefused(slow, "1 live objects are not the application's")
}

// TestTooManySlowCharts: however many wait, the others do not; those for which there is no
// room say so, and are tried again.
func TestTooManySlowCharts(t *testing.T) {
	live := newSlowChart()
	l := newSlowEnv(t, live)
	files := map[string]string{"web/app.pipecd.yaml": appFile("web")}
	var dirs []string
	for i := range 3 * maxLookups {
		dirs = append(dirs, fmt.Sprintf("chart-%02d", i))
		files[dirs[i]+"/app.pipecd.yaml"] = appFile(dirs[i])
	}
	l.upstream.Push(t, "begin", files)
	l.until("the other application is deployed", func() bool { return len(l.deployments("web")) == 1 })
	l.until("applications for which there is no room say so", func() bool {
		return slices.ContainsFunc(dirs, func(dir string) bool {
			return strings.HasPrefix(l.app(dir).Notice, "Not deployed yet: it cannot be rendered now: chart https://charts.example.com/nginx-1.2.3.tgz takes long to answer, and too many others")
		})
	})
	close(live.answer)
	l.until("all are deployed", func() bool {
		return !slices.ContainsFunc(dirs, func(dir string) bool { return len(l.deployments(dir)) == 0 })
	})
}

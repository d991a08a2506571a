package scheduler

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/c785c783/piped/piped/deploy"
)

// TestClockJump: a wall clock that jumps ends nothing that runs, and moves no
// deadline; set back across a restart it gives nobody more than the timeout.
func TestClockJump(t *testing.T) {
	for name, jump := range map[string]time.Duration{"ahead": 24 * time.Hour, "back": -24 * time.Hour} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, l *lab) {
				l.executors[deploy.StageK8sSync] = executor(hang)
				l.start()
				l.planned("d", func(p *deploy.Plan) { p.Stages[0].Timeout = 10 * time.Minute })
				synctest.Wait()
				l.clockAhead(jump)
				time.Sleep(10*time.Minute - time.Second)
				synctest.Wait()
				if got := l.get("d").Status; got != deploy.Running {
					t.Fatalf("a second before its timeout the deployment is %s", got)
				}
				time.Sleep(2 * time.Second)
				synctest.Wait()
				l.wantEnd("d", deploy.Failure, "Stage K8S_SYNC failed: timed out after 10m0s: told to stop: timed out; rolled back to commit beef012")
			})
		})
	}
	t.Run("back across a restart", func(t *testing.T) {
		inBubble(t, func(t *testing.T, l *lab) {
			l.executors[deploy.StageK8sSync] = executor(hang)
			l.start()
			l.planned("d", func(p *deploy.Plan) { p.Stages[0].Timeout = 10 * time.Minute })
			synctest.Wait()
			l.shutdown()
			l.clockAhead(-24 * time.Hour)
			l.start()
			time.Sleep(10*time.Minute + time.Second)
			synctest.Wait()
			if got := l.get("d").Status; got != deploy.Failure {
				t.Errorf("with the clock set back the deployment is still %s after its timeout", got)
			}
		})
	})
}

// TestClockJumpAndAStoreThatFails: a run that is taken up again in the same
// process keeps the deadlines it had, whatever the wall clock says by then.
func TestClockJumpAndAStoreThatFails(t *testing.T) {
	inBubble(t, func(t *testing.T, l *lab) {
		l.planned("d", func(p *deploy.Plan) { p.Timeout = 10 * time.Minute })
		s := New(Config{Store: l.store, Now: func() time.Time { return time.Now().Add(time.Duration(l.ahead.Load())) }, Logger: l.logger})
		r := newRun(s, l.get("d"))
		deadline := time.Now().Add(10 * time.Minute)
		if got := r.remaining(forwardPart, false, deadline, 10*time.Minute); got != 10*time.Minute {
			t.Fatalf("at first %s remain", got)
		}
		time.Sleep(4 * time.Minute)
		for _, jump := range []time.Duration{24 * time.Hour, -24 * time.Hour} {
			l.clockAhead(jump)
			if got := r.remaining(forwardPart, true, deadline, 10*time.Minute); got != 6*time.Minute {
				t.Errorf("after a jump by %s: %s remain, want 6m", jump, got)
			}
		}
	})
}

// TestClockJumpIsTold: a jump is logged once, and nothing else is.
func TestClockJumpIsTold(t *testing.T) {
	inBubble(t, func(t *testing.T, l *lab) {
		l.start()
		for range 100 { // slewed: 15 ms in each scan
			l.ahead.Add(int64(15 * time.Millisecond))
			time.Sleep(30 * time.Second)
			synctest.Wait() // the scan that is due now comes before the next step
		}
		l.clockAhead(time.Hour)
		time.Sleep(10 * time.Minute)
		l.clockAhead(-time.Hour)
		time.Sleep(10 * time.Minute)
		l.shutdown()
		var told []string
		for line := range strings.Lines(l.said.String()) {
			if _, jump, ok := strings.Cut(line, `msg="the system clock jumped; running deadlines are not affected" by=`); ok {
				told = append(told, strings.TrimSpace(jump))
			}
		}
		if got, want := strings.Join(told, " "), "59m58.5s -2h0m0s"; got != want {
			t.Errorf("told of jumps by %q, want %q", got, want)
		}
	})
}

// A deployment that failed is a warning in the log, one that succeeded is none.
func TestFailedDeploymentIsAWarning(t *testing.T) {
	inBubble(t, func(t *testing.T, l *lab) {
		l.executors["TWO"] = fail("no pod came up")
		l.start()
		l.planned("good", func(p *deploy.Plan) { p.Stages = p.Stages[:1] })
		l.planned("bad", func(p *deploy.Plan) { p.Stages = []deploy.Stage{{ID: "two", Name: "TWO", Visible: true}} })
		time.Sleep(time.Minute)
		l.shutdown()
		for deployment, level := range map[string]string{"good": "level=INFO", "bad": "level=WARN"} {
			found := false
			for line := range strings.Lines(l.said.String()) {
				if strings.Contains(line, `msg="deployment completed"`) && strings.Contains(line, "deployment="+deployment) {
					found = strings.Contains(line, level)
				}
			}
			if !found {
				t.Errorf("the end of %s is not at %s:\n%s", deployment, level, l.said.String())
			}
		}
	})
}

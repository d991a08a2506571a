package scheduler

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/ownership"
)

// TestClockJump: a jump of the wall clock ends no run and moves no deadline. A clock
// set back during a restart extends no run beyond its timeout.
func TestClockJump(t *testing.T) {
	for name, jump := range map[string]time.Duration{"ahead": 24 * time.Hour, "back": -24 * time.Hour} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, e *env) {
				e.executors[deploy.StageK8sSync] = executor(hang)
				e.start()
				e.planned("d", func(p *deploy.Plan) { p.Stages[0].Timeout = 10 * time.Minute })
				synctest.Wait()
				e.clockAhead(jump)
				time.Sleep(10*time.Minute - time.Second)
				synctest.Wait()
				if got := e.get("d").Status; got != deploy.Running {
					t.Fatalf("a second before its timeout the deployment is %s", got)
				}
				time.Sleep(2 * time.Second)
				synctest.Wait()
				e.wantEnd("d", deploy.Failure, "Stage K8S_SYNC failed: timed out after 10m0s: stopped: timed out; rolled back to commit beef012")
			})
		})
	}
	t.Run("back across a restart", func(t *testing.T) {
		inBubble(t, func(t *testing.T, e *env) {
			e.executors[deploy.StageK8sSync] = executor(hang)
			e.start()
			e.planned("d", func(p *deploy.Plan) { p.Stages[0].Timeout = 10 * time.Minute })
			synctest.Wait()
			e.shutdown()
			e.clockAhead(-24 * time.Hour)
			e.start()
			time.Sleep(10*time.Minute + time.Second)
			synctest.Wait()
			if got := e.get("d").Status; got != deploy.Failure {
				t.Errorf("with the clock set back the deployment is still %s after its timeout", got)
			}
		})
	})
}

// TestClockJumpAndAStoreThatFails: a run that is resumed in the same process retains
// its deadlines after a clock jump.
func TestClockJumpAndAStoreThatFails(t *testing.T) {
	inBubble(t, func(t *testing.T, e *env) {
		e.planned("d", func(p *deploy.Plan) { p.Timeout = 10 * time.Minute })
		s := New(Config{Store: e.store, Now: func() time.Time { return time.Now().Add(time.Duration(e.ahead.Load())) }, Logger: e.logger})
		r := newRun(s, e.get("d"), ownership.Work{Context: t.Context()})
		deadline := time.Now().Add(10 * time.Minute)
		if got := r.remaining(forwardPart, false, deadline, 10*time.Minute); got != 10*time.Minute {
			t.Fatalf("at first %s remain", got)
		}
		time.Sleep(4 * time.Minute)
		for _, jump := range []time.Duration{24 * time.Hour, -24 * time.Hour} {
			e.clockAhead(jump)
			if got := r.remaining(forwardPart, true, deadline, 10*time.Minute); got != 6*time.Minute {
				t.Errorf("after a jump by %s: %s remain, want 6m", jump, got)
			}
		}
	})
}

// TestClockJumpIsLogged: each jump is logged once; slewing is not logged.
func TestClockJumpIsLogged(t *testing.T) {
	inBubble(t, func(t *testing.T, e *env) {
		e.start()
		for range 100 { // slewed: 15 ms in each scan
			e.ahead.Add(int64(15 * time.Millisecond))
			time.Sleep(30 * time.Second)
			synctest.Wait() // the scan that is due now comes before the next step
		}
		e.clockAhead(time.Hour)
		time.Sleep(10 * time.Minute)
		e.clockAhead(-time.Hour)
		time.Sleep(10 * time.Minute)
		e.shutdown()
		var logged []string
		for line := range strings.Lines(e.logged.String()) {
			if _, jump, ok := strings.Cut(line, `msg="the system clock jumped; running deadlines are not affected" by=`); ok {
				logged = append(logged, strings.TrimSpace(jump))
			}
		}
		if got, want := strings.Join(logged, " "), "59m58.5s -2h0m0s"; got != want {
			t.Errorf("logged jumps by %q, want %q", got, want)
		}
	})
}

// TestFailedDeploymentIsAWarning: only a failed deployment is logged as a warning.
func TestFailedDeploymentIsAWarning(t *testing.T) {
	inBubble(t, func(t *testing.T, e *env) {
		e.executors["TWO"] = fail("no pod came up")
		e.start()
		e.planned("good", func(p *deploy.Plan) { p.Stages = p.Stages[:1] })
		e.planned("bad", func(p *deploy.Plan) { p.Stages = []deploy.Stage{{ID: "two", Name: "TWO", Visible: true}} })
		time.Sleep(time.Minute)
		e.shutdown()
		for deployment, level := range map[string]string{"good": "level=INFO", "bad": "level=WARN"} {
			found := false
			for line := range strings.Lines(e.logged.String()) {
				if strings.Contains(line, `msg="deployment completed"`) && strings.Contains(line, "deployment="+deployment) {
					found = strings.Contains(line, level)
				}
			}
			if !found {
				t.Errorf("the end of %s is not at %s:\n%s", deployment, level, e.logged.String())
			}
		}
	})
}

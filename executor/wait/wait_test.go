package wait

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/deploy/deploytest"
)

// runFor executes one stage and returns its result, duration and log.
func runFor(ctx context.Context, e *Executor, options string, edit ...func(*deploy.StageRun)) (deploy.StageResult, time.Duration, []string) {
	log := &deploytest.Log{}
	run := deploy.StageRun{Stage: deploy.Stage{Name: deploy.StageWait, Options: json.RawMessage(options), StartedAt: time.Now()}, Log: log}
	for _, f := range edit {
		f(&run)
	}
	start := time.Now()
	result := e.Execute(ctx, run)
	return result, time.Since(start), log.Lines()
}

func TestWait(t *testing.T) {
	resumed := func(ago time.Duration) func(*deploy.StageRun) {
		return func(r *deploy.StageRun) { r.Resumed, r.Stage.StartedAt = true, time.Now().Add(-ago) }
	}
	cases := []struct {
		name    string
		options string
		edit    []func(*deploy.StageRun)
		took    time.Duration
		log     []string
	}{
		{"its duration", `{"duration": "2m30s"}`, nil, 150 * time.Second,
			[]string{"Waiting for 2m30s", "1m30s remain", "30s remain", "OK Waited for 2m30s"}},
		{"nanoseconds", `{"duration": 30000000000}`, nil, 30 * time.Second,
			[]string{"Waiting for 30s", "OK Waited for 30s"}},
		{"no options", "", nil, time.Minute, []string{"Waiting for 1m0s", "OK Waited for 1m0s"}},
		{"zero is the default", `{"duration": "0s", "skipOn": {}}`, nil, time.Minute, []string{"Waiting for 1m0s", "OK Waited for 1m0s"}},
		{"what remains after a restart", `{"duration": "10m"}`, []func(*deploy.StageRun){resumed(9*time.Minute + 30*time.Second)}, 30 * time.Second,
			[]string{"Waiting resumes after a restart of the agent: 30s of 10m0s remain", "OK Waited for 10m0s"}},
		{"over while the agent was down", `{"duration": "10m"}`, []func(*deploy.StageRun){resumed(time.Hour)}, 0,
			[]string{"Waiting resumes after a restart of the agent: 0s of 10m0s remain", "OK Waited for 10m0s"}},
		{"a clock that went back adds nothing", `{"duration": "30s"}`, []func(*deploy.StageRun){resumed(-time.Hour)}, 30 * time.Second,
			[]string{"Waiting resumes after a restart of the agent: 30s of 30s remain", "OK Waited for 30s"}},
		{"a clock that jumped while it runs", `{"duration": "30s"}`,
			[]func(*deploy.StageRun){func(r *deploy.StageRun) { r.Stage.StartedAt = time.Now().Add(-time.Hour) }}, 30 * time.Second,
			[]string{"Waiting for 30s", "OK Waited for 30s"}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				result, took, log := runFor(t.Context(), New(Config{Now: time.Now}), c.options, c.edit...)
				if want := (deploy.StageResult{Status: deploy.StageSuccess}); result != want || took != c.took {
					t.Errorf("ended as %+v after %s, want %+v after %s", result, took, want, c.took)
				}
				if diff := cmp.Diff(c.log, log); diff != "" {
					t.Errorf("log (-want +got):\n%s", diff)
				}
			})
		})
	}
}

// TestWaitIsStopped: each stop reason ends the stage at once.
func TestWaitIsStopped(t *testing.T) {
	for why, want := range map[deploy.StopReason]deploy.StageStatus{
		deploy.StopCancelled: deploy.StageCancelled,
		deploy.StopTimedOut:  deploy.StageFailure,
		deploy.StopSkipped:   deploy.StageSkipped,
		deploy.StopShutdown:  deploy.StageFailure,
	} {
		t.Run(string(why), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, stop := context.WithCancelCause(t.Context())
				time.AfterFunc(7*time.Second, func() { stop(why) })
				result, took, _ := runFor(ctx, New(Config{Now: time.Now}), `{"duration": "1h"}`)
				if result.Status != want || result.Reason != "the wait of 1h0m0s had not finished" || took != 7*time.Second {
					t.Errorf("ended as %+v after %s, want %s after 7s", result, took, want)
				}
			})
		})
	}
}

func TestBadOptions(t *testing.T) {
	for options, want := range map[string]string{
		`{"duration": "soon"}`: `duration "soon": expected a duration such as 90s or 5m`,
		`{"duration": true}`:   `duration true: expected a duration such as 90s or 5m`,
		`{"duration": "-5s"}`:  "duration -5s: expected none below zero",
		`{`:                    "read the options of WAIT: unexpected end of JSON input",
	} {
		result, _, _ := runFor(t.Context(), New(Config{Now: time.Now}), options)
		if result.Status != deploy.StageFailure || !strings.Contains(result.Reason, want) {
			t.Errorf("options %s: ended as %+v, want FAILURE because %q", options, result, want)
		}
	}
}

func FuzzOptions(f *testing.F) {
	for _, seed := range []string{"", "null", `{"duration": "5m"}`, `{"duration": 1e300}`, `{"duration": -1}`, `{"duration": []}`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, options []byte) {
		d, err := durationOf(options)
		switch {
		case err == nil && d <= 0:
			t.Errorf("%q is read as %s without an error", options, d)
		case err != nil && !deploy.IsKind(err, deploy.Invalid):
			t.Errorf("%q: error of kind %s, want invalid", options, deploy.KindOf(err))
		}
	})
}

package analysis

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/c785c783/piped/executor/analysis/provider"
	"github.com/c785c783/piped/piped/config/analysis"
	"github.com/c785c783/piped/piped/deploy"
)

// after answers queries with one number at a time, by seconds since the start; seconds
// without an entry repeat the last one.
func after(began time.Time, numbers map[int]float64) script {
	return func(_ context.Context, _ string, over provider.Window) ([]float64, error) {
		for s := int(over.To.Sub(began).Seconds()); s >= 0; s-- {
			if v, ok := numbers[s]; ok {
				return []float64{v}, nil
			}
		}
		return nil, nil
	}
}

func TestAnalysis(t *testing.T) {
	down := errors.New("connection refused")
	cases := []struct {
		name    string
		options func() analysis.Options
		answers func(began time.Time) script
		status  deploy.StageStatus
		reason  string
		took    time.Duration
		log     []string
		samples []string
	}{
		{
			name:    "all good",
			options: func() analysis.Options { return options(seconds(65), atMost(0.01, seconds(20))) },
			answers: func(began time.Time) script { return after(began, map[int]float64{0: 0.001, 40: 0.01}) },
			status:  deploy.StageSuccess, took: 65 * time.Second,
			log: []string{
				"Analysing for 1m5s", "errors: every 20s, no failure is tolerated",
				"errors: 0.001 (expected at most 0.01): ok, no failures",
				"errors: 0.01 (expected at most 0.01): ok, no failures",
				"errors: 0.01 (expected at most 0.01): ok, no failures",
				"OK The analysis of 1m5s passed",
			},
			samples: []string{"metrics[0] 1 OK", "metrics[0] 2 OK", "metrics[0] 3 OK"},
		},
		{
			name: "bad in the middle, and tolerated",
			options: func() analysis.Options {
				m := atMost(0.01, seconds(10))
				m.FailureLimit = 2
				return options(seconds(40), m)
			},
			answers: func(began time.Time) script { return after(began, map[int]float64{0: 0, 20: 0.5, 40: 0}) },
			status:  deploy.StageSuccess, took: 40 * time.Second,
			log: []string{
				"Analysing for 40s", "errors: every 10s, 2 failures are tolerated",
				"errors: 0 (expected at most 0.01): ok, 0 of 2 failures",
				"ERROR errors: 0.5 (expected at most 0.01): failed, 1 of 2 failures",
				"ERROR errors: 0.5 (expected at most 0.01): failed, 2 of 2 failures",
				"errors: 0 (expected at most 0.01): ok, 2 of 2 failures",
				"OK The analysis of 40s passed",
			},
			samples: []string{"metrics[0] 1 OK", "metrics[0] 2 FAILED counted", "metrics[0] 3 FAILED counted", "metrics[0] 4 OK"},
		},
		{
			name: "bad once too often",
			options: func() analysis.Options {
				m := atMost(0.01, seconds(10))
				m.FailureLimit = 1
				return options(seconds(3600), m)
			},
			answers: func(began time.Time) script { return after(began, map[int]float64{0: 0, 20: 0.5, 30: 0.7}) },
			status:  deploy.StageFailure, took: 30 * time.Second,
			reason: "the analysis failed: errors has failed 2 times, and 1 failure is tolerated (failureLimit: 1); the last time: 0.7 (expected at most 0.01)",
			log: []string{
				"Analysing for 1h0m0s", "errors: every 10s, 1 failure is tolerated",
				"errors: 0 (expected at most 0.01): ok, 0 of 1 failures",
				"ERROR errors: 0.5 (expected at most 0.01): failed, 1 of 1 failures",
				"ERROR errors: 0.7 (expected at most 0.01): failed, 1 failure is tolerated",
			},
			samples: []string{"metrics[0] 1 OK", "metrics[0] 2 FAILED counted", "metrics[0] 3 FAILED counted"},
		},
		{
			name: "one of two fails",
			options: func() analysis.Options {
				second := atMost(100, seconds(7))
				second.Name = "latency"
				return options(seconds(3600), second, atMost(0.01, seconds(10)))
			},
			answers: func(began time.Time) script { return after(began, map[int]float64{0: 1}) },
			status:  deploy.StageFailure, took: 10 * time.Second,
			reason: "the analysis failed: errors has failed once, and no failure is tolerated (failureLimit: 0); the last time: 1 (expected at most 0.01)",
			log: []string{
				"Analysing for 1h0m0s", "latency: every 7s, no failure is tolerated", "errors: every 10s, no failure is tolerated",
				"latency: 1 (expected at most 100): ok, no failures",
				"ERROR errors: 1 (expected at most 0.01): failed, no failure is tolerated",
			},
			samples: []string{"metrics[0] 1 OK", "metrics[1] 1 FAILED counted"},
		},
		{
			name: "no data is skipped, or counts",
			options: func() analysis.Options {
				skips := atMost(1, seconds(10))
				skips.Name, skips.SkipOnNoData = "patient", true
				counts := atMost(1, seconds(20))
				counts.Name, counts.FailureLimit = "strict", 1
				return options(seconds(20), skips, counts)
			},
			answers: func(time.Time) script { return after(time.Now().Add(time.Hour), nil) },
			status:  deploy.StageSuccess, took: 20 * time.Second,
			samples: []string{"metrics[0] 1 NO_DATA", "metrics[0] 2 NO_DATA", "metrics[1] 1 NO_DATA counted"},
		},
		{
			name:    "no answer",
			options: func() analysis.Options { return options(seconds(20), atMost(1, seconds(10))) },
			answers: func(time.Time) script {
				return func(context.Context, string, provider.Window) ([]float64, error) { return nil, down }
			},
			status: deploy.StageFailure, took: 10 * time.Second,
			reason: "the analysis failed: errors has failed once, and no failure is tolerated (failureLimit: 0); the last time: connection refused",
			log: []string{
				"Analysing for 20s", "errors: every 10s, no failure is tolerated",
				"ERROR errors: connection refused: error, which counts as a failure, no failure is tolerated",
			},
			samples: []string{"metrics[0] 1 ERROR counted"},
		},
		{
			name: "answers that take too long",
			options: func() analysis.Options {
				m := atMost(1, seconds(2))
				m.FailureLimit = 9
				return options(seconds(14), m)
			},
			answers: func(time.Time) script {
				return func(ctx context.Context, _ string, _ provider.Window) ([]float64, error) {
					<-ctx.Done()
					return nil, context.Cause(ctx)
				}
			},
			// Queried at 2, 7 (for 6), 12 and 17 (for 14) seconds, each time for 5.
			status: deploy.StageSuccess, took: 22 * time.Second,
			samples: []string{"metrics[0] 1 ERROR counted", "metrics[0] 3 ERROR counted", "metrics[0] 6 ERROR counted", "metrics[0] 7 ERROR counted"},
		},
		{
			name:    "nothing to check",
			options: func() analysis.Options { return options(seconds(3600)) },
			answers: func(time.Time) script { return nil },
			status:  deploy.StageSuccess,
			log:     []string{"There is nothing to check: the analysis has no metrics, logs or https"},
		},
		{
			name: "an interval of nothing",
			options: func() analysis.Options {
				return options(seconds(60), atMost(1, 0))
			},
			answers: func(time.Time) script { return nil },
			status:  deploy.StageFailure, reason: "metrics[0]: interval: required",
		},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				e := newEnv(t, c.answers(time.Now()))
				result, took := e.execute(t.Context(), c.options())
				if want := (deploy.StageResult{Status: c.status, Reason: c.reason}); result != want || took != c.took {
					t.Errorf("ended as %+v after %s, want %+v after %s", result, took, want, c.took)
				}
				if diff := cmp.Diff(c.log, e.log.Lines()); c.log != nil && diff != "" {
					t.Errorf("log (-want +got):\n%s", diff)
				}
				if diff := cmp.Diff(c.samples, e.samples()); diff != "" {
					t.Errorf("samples (-want +got):\n%s", diff)
				}
			})
		})
	}
}

// TestAnalysisIsStopped: each stop reason ends the stage at once, also during a query.
func TestAnalysisIsStopped(t *testing.T) {
	for why, want := range map[deploy.StopReason]deploy.StageStatus{
		deploy.StopCancelled: deploy.StageCancelled,
		deploy.StopTimedOut:  deploy.StageFailure,
		deploy.StopSkipped:   deploy.StageSkipped,
		deploy.StopShutdown:  deploy.StageFailure,
	} {
		for name, at := range map[string]time.Duration{"between two evaluations": 15 * time.Second, "during an evaluation": 12 * time.Second} {
			t.Run(string(why)+" "+name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					e := newEnv(t, script(func(ctx context.Context, _ string, _ provider.Window) ([]float64, error) {
						select {
						case <-ctx.Done():
							return nil, ctx.Err()
						case <-time.After(3 * time.Second):
							return []float64{0}, nil
						}
					}))
					ctx, stop := context.WithCancelCause(t.Context())
					time.AfterFunc(at, func() { stop(why) })
					result, took := e.execute(ctx, options(seconds(3600), atMost(1, seconds(10))))
					if result.Status != want || result.Reason != "the analysis of 1h0m0s had not finished" || took != at {
						t.Errorf("ended as %+v after %s, want %s after %s", result, took, want, at)
					}
					if _, passed, err := e.store.AnalysisPassed(t.Context(), "app", "s"); passed || err != nil {
						t.Errorf("it counts as passed: %v, %v", passed, err)
					}
				})
			})
		}
	}
}

// TestAnalysisGoesOn: a killed and restarted agent neither extends nor repeats the
// analysis, and counts earlier failures.
func TestAnalysisGoesOn(t *testing.T) {
	cases := []struct {
		name         string
		killed, back time.Duration // since the start
		ends         time.Duration
		status       deploy.StageStatus
		samples      []string
	}{
		{"between two evaluations", 15 * time.Second, 17 * time.Second, 50 * time.Second, deploy.StageSuccess,
			[]string{"metrics[0] 1 FAILED counted", "metrics[0] 2 OK", "metrics[0] 3 OK", "metrics[0] 4 OK", "metrics[0] 5 OK"}},
		{"a missed evaluation", 15 * time.Second, 34 * time.Second, 50 * time.Second, deploy.StageSuccess,
			[]string{"metrics[0] 1 FAILED counted", "metrics[0] 3 OK", "metrics[0] 4 OK", "metrics[0] 5 OK"}},
		{"it would be over", 15 * time.Second, time.Hour, time.Hour, deploy.StageSuccess,
			[]string{"metrics[0] 1 FAILED counted", "metrics[0] 5 OK"}},
		{"it is bad again", 15 * time.Second, 2 * time.Hour, 2 * time.Hour, deploy.StageFailure,
			[]string{"metrics[0] 1 FAILED counted", "metrics[0] 5 FAILED counted"}},
		{"a moment after the last evaluation", 50*time.Second - time.Millisecond, 50*time.Second + time.Millisecond, 50*time.Second + time.Millisecond, deploy.StageSuccess,
			[]string{"metrics[0] 1 FAILED counted", "metrics[0] 2 OK", "metrics[0] 3 OK", "metrics[0] 4 OK", "metrics[0] 5 OK"}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began := time.Now()
				e := newEnv(t, after(began, map[int]float64{0: 9, 20: 0, 7200: 9}))
				m := atMost(1, seconds(10))
				m.FailureLimit = 1
				o := options(seconds(50), m)
				ctx, stop := context.WithCancelCause(t.Context())
				time.AfterFunc(c.killed, func() { stop(deploy.StopShutdown) })
				e.execute(ctx, o)
				time.Sleep(c.back - time.Since(began))
				result := e.executor().Execute(t.Context(), e.run(o, began, true))
				if ends := time.Since(began); result.Status != c.status || ends != c.ends {
					t.Errorf("ended as %+v after %s, want %s after %s", result, ends, c.status, c.ends)
				}
				if diff := cmp.Diff(c.samples, e.samples()); diff != "" {
					t.Errorf("samples (-want +got):\n%s", diff)
				}
			})
		})
	}
}

// TestVerdictSurvives: the agent dies between storing the decisive sample and the end
// of the stage.
func TestVerdictSurvives(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		e := newEnv(t, after(began, map[int]float64{0: 9, 11: 0}))
		o := options(seconds(50), atMost(1, seconds(10)))
		first, _ := e.execute(t.Context(), o)
		time.Sleep(5 * time.Second)
		again := e.executor().Execute(t.Context(), e.run(o, began, true))
		if first.Status != deploy.StageFailure || again != first {
			t.Errorf("it ended as %+v and then as %+v", first, again)
		}
	})
}

// TestClockThatWentBack: after a restart with a clock set back, the analysis takes at
// most its whole duration.
func TestClockThatWentBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newEnv(t, after(time.Now(), map[int]float64{0: 0}))
		began := time.Now()
		result := e.executor().Execute(t.Context(), e.run(options(seconds(50), atMost(1, seconds(10))), began.Add(time.Hour), true))
		if took := time.Since(began); result.Status != deploy.StageSuccess || took != 50*time.Second {
			t.Errorf("ended as %+v after %s", result, took)
		}
	})
}

// TestAnalysesOfOneStage: another stage runs several analyses.
func TestAnalysesOfOneStage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newEnv(t, after(time.Now(), map[int]float64{0: 0, 25: 9}))
		run := e.run(analysis.Options{}, time.Now(), false)
		executor := e.executor()
		o := options(seconds(20), atMost(1, seconds(10)))
		if err := executor.Analyze(t.Context(), run, "20%", o, time.Now()); err != nil {
			t.Error(err)
		}
		if err := executor.Analyze(t.Context(), run, "50%", o, time.Now()); err == nil {
			t.Error("the second one passed")
		}
		if diff := cmp.Diff([]string{"20%/metrics[0] 1 OK", "20%/metrics[0] 2 OK", "50%/metrics[0] 1 FAILED counted"}, e.samples()); diff != "" {
			t.Errorf("samples (-want +got):\n%s", diff)
		}
		p, ok, err := e.store.AnalysisPassed(t.Context(), "app", "s/20%")
		if err != nil || !ok || p.DeploymentID != "d" {
			t.Errorf("passed: %+v, %v, %v", p, ok, err)
		}
	})
}

// TestPrevious compares with the last passed analysis at the same time after its start.
func TestPrevious(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		level := 1.0
		var asked []time.Duration
		e := newEnv(t, script(func(_ context.Context, _ string, over provider.Window) ([]float64, error) {
			if ago := time.Since(over.To); ago > 0 {
				asked = append(asked, over.To.Sub(began))
				return []float64{1, 2, 3, 4, 5}, nil
			}
			return []float64{level + .1, level + 1.1, level + 2.1, level + 3.1, level + 4.1}, nil
		}))
		m := atMost(0, seconds(10))
		m.Strategy, m.Expected, m.Deviation = analysis.Previous, analysis.Expected{}, analysis.High
		o := options(seconds(30), m)
		if result, took := e.execute(t.Context(), o); result.Status != deploy.StageSuccess || took != 30*time.Second {
			t.Errorf("the first one ended as %+v after %s", result, took)
		}
		if diff := cmp.Diff([]string{"errors: ok: no earlier analysis of this stage passed, so there is nothing to compare with"}, e.log.Lines()[:1]); diff != "" {
			t.Errorf("log of the first one (-want +got):\n%s", diff)
		}
		time.Sleep(time.Hour)
		e.deploy("second")
		level = 1.5
		if result, _ := e.execute(t.Context(), o); result.Status != deploy.StageSuccess {
			t.Errorf("the second one, no worse than the first, ended as %+v", result)
		}
		if diff := cmp.Diff([]time.Duration{10 * time.Second, 20 * time.Second, 30 * time.Second}, asked); diff != "" {
			t.Errorf("what the second was compared with (-want +got):\n%s", diff)
		}
		time.Sleep(time.Hour)
		e.deploy("third")
		level = 50
		result, took := e.execute(t.Context(), o)
		want := "the analysis failed: errors has failed once, and no failure is tolerated (failureLimit: 0); the last time: now 52.1, before 3 (medians of 5 and 5 points): now is higher (p = 0.0039683, below 0.05)"
		if result.Status != deploy.StageFailure || result.Reason != want || took != 10*time.Second {
			t.Errorf("the third, far worse, ended as %+v after %s", result, took)
		}
	})
}

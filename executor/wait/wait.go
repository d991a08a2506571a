// Package wait runs WAIT: a stage that waits for a configured duration.
//
// After a restart the wait ends at the same time as without one. It accesses no store,
// no Git and no cluster.
package wait

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/c785c783/piped/piped/deploy"
)

const (
	defaultDuration = time.Minute // as in PipeCD
	defaultSayEvery = time.Minute
)

// Config contains the dependencies and settings of an Executor.
type Config struct {
	// Now is only used after a restart. Otherwise the wait is measured by the monotonic
	// clock and unaffected by clock jumps.
	Now func() time.Time
	// SayEvery is the interval of log lines with the remaining time; zero means a
	// minute.
	SayEvery time.Duration
}

// Executor runs WAIT stages. It is safe for concurrent use.
type Executor struct{ Config }

// New returns an Executor.
func New(c Config) *Executor {
	if c.SayEvery == 0 {
		c.SayEvery = defaultSayEvery
	}
	return &Executor{c}
}

// Execute waits for the stage's duration. It implements scheduler.Executor.
func (e *Executor) Execute(ctx context.Context, run deploy.StageRun) deploy.StageResult {
	duration, err := durationOf(run.Stage.Options)
	if err != nil {
		return deploy.StageResult{Status: deploy.StageFailure, Reason: err.Error()}
	}
	remaining := duration
	if run.Resumed {
		remaining = max(0, min(duration, run.Stage.StartedAt.Add(duration).Sub(e.Now())))
		run.Log.Infof("Waiting resumes after a restart of the agent: %s of %s remain", short(remaining), duration)
	} else {
		run.Log.Infof("Waiting for %s", duration)
	}
	if why := e.wait(ctx, remaining, run.Log); why != "" {
		return deploy.StageResult{Status: why.Status(), Reason: fmt.Sprintf("the wait of %s had not finished", duration)}
	}
	run.Log.Successf("Waited for %s", duration)
	return deploy.StageResult{Status: deploy.StageSuccess}
}

// wait returns after d, or with the reason when ctx is cancelled.
func (e *Executor) wait(ctx context.Context, d time.Duration, log deploy.StageLog) deploy.StopReason {
	start := time.Now() // only for time.Since, which uses the monotonic clock
	end := time.NewTimer(d)
	defer end.Stop()
	say := time.NewTicker(e.SayEvery)
	defer say.Stop()
	for {
		select {
		case <-ctx.Done():
			return deploy.Stopped(ctx)
		case <-end.C:
			return ""
		case <-say.C:
			if left := d - time.Since(start); left > 0 {
				log.Infof("%s remain", short(left))
			}
		}
	}
}

// short rounds a duration for display.
func short(d time.Duration) time.Duration {
	if d < time.Second {
		return d.Round(time.Millisecond)
	}
	return d.Round(time.Second)
}

// durationOf returns the duration option: a text such as "90s", or a number of nanoseconds.
// It returns one minute if the option is missing or 0. The error is of kind Invalid.
func durationOf(options json.RawMessage) (time.Duration, error) {
	if len(options) == 0 {
		return defaultDuration, nil
	}
	var o struct {
		Duration any `json:"duration"`
	}
	if err := json.Unmarshal(options, &o); err != nil {
		return 0, deploy.Errorf(deploy.Invalid, "read the options of WAIT: %w", err)
	}
	var d time.Duration
	switch v := o.Duration.(type) {
	case nil:
	case float64:
		d = time.Duration(v)
	case string:
		var err error
		if d, err = time.ParseDuration(v); err != nil {
			return 0, deploy.Errorf(deploy.Invalid, "read the options of WAIT: duration %q: expected a duration such as 90s or 5m", v)
		}
	default:
		return 0, deploy.Errorf(deploy.Invalid, "read the options of WAIT: duration %v: expected a duration such as 90s or 5m", v)
	}
	switch {
	case d < 0:
		return 0, deploy.Errorf(deploy.Invalid, "read the options of WAIT: duration %s: expected none below zero", d)
	case d == 0:
		return defaultDuration, nil
	}
	return d, nil
}

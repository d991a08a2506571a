package analysis

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/c785c783/piped/piped/config/analysis"
	"github.com/c785c783/piped/piped/deploy"
)

// process is one analysis that runs.
type process struct {
	*Executor
	run      deploy.StageRun
	name     string
	duration time.Duration
	since    time.Time

	checks  []*check
	start   time.Time     // of this process, for the monotonic clock
	earlier time.Duration // that had passed before start
}

// prepare makes the checks and finds out how far they had come before a restart.
func (p *process) prepare(ctx context.Context, o analysis.Options) error {
	if o.Duration <= 0 {
		return deploy.Errorf(deploy.Invalid, "the analysis has the duration %s; expected one above 0", o.Duration)
	}
	p.start = time.Now()
	if p.run.Resumed {
		p.earlier = max(0, min(p.duration, p.Now().Sub(p.since)))
	}
	checks, err := p.resolve(ctx, o)
	if err != nil {
		return err
	}
	if err := p.addChecks(ctx, checks); err != nil {
		return err
	}
	return p.restore(ctx)
}

// restore gives the checks what they had seen before a restart.
func (p *process) restore(ctx context.Context) error {
	if !p.run.Resumed {
		return nil
	}
	samples, err := p.Store.AnalysisSamples(ctx, p.run.Deployment.ID, p.run.Stage.ID)
	if err != nil {
		return err
	}
	for _, s := range samples {
		for _, c := range p.checks {
			if c.id != s.Check {
				continue
			}
			c.position = max(c.position, s.Position)
			if s.Counted {
				c.failures++
				c.last = s.Text
			}
		}
	}
	return nil
}

// elapsed is how long the analysis runs, over all restarts.
func (p *process) elapsed() time.Duration { return p.earlier + time.Since(p.start) }

// carryOut runs the checks side by side until the duration is over or one of
// them has failed for good.
func (p *process) carryOut(ctx context.Context) error {
	p.announce()
	group, checking := errgroup.WithContext(ctx)
	for _, c := range p.checks {
		group.Go(func() error { return p.watch(checking, c) })
	}
	err := group.Wait()
	if err == nil {
		err = p.waitUntil(ctx, p.duration)
	}
	if deploy.Stopped(ctx) != "" {
		return p.notOver()
	}
	if err != nil {
		return err
	}
	passed := deploy.AnalysisPassed{ApplicationID: p.run.Application.ID, Analysis: p.key(), DeploymentID: p.run.Deployment.ID, StartedAt: p.since}
	if err := p.Store.SaveAnalysisPassed(ctx, passed); err != nil {
		p.Logger.Warn("cannot store that an analysis was passed; strategy PREVIOUS will compare with the one before",
			"app", p.run.Deployment.ApplicationName, "deployment", p.run.Deployment.ID, "stage", p.run.Stage.ID, "error", err)
	}
	p.run.Log.Successf("The analysis of %s is passed", p.duration)
	return nil
}

// notOver is the error of an analysis that was stopped.
func (p *process) notOver() error { return fmt.Errorf("the analysis of %s was not over", p.duration) }

// announce says what is about to be done.
func (p *process) announce() {
	if p.earlier > 0 {
		p.run.Log.Infof("The analysis goes on after a restart of the agent: %s of %s remain", (p.duration - p.earlier).Round(time.Millisecond), p.duration)
		return
	}
	p.run.Log.Infof("Analysing for %s", p.duration)
	for _, c := range p.checks {
		p.run.Log.Infof("%s: every %s, %s", c.name, c.interval, c.tolerance())
	}
}

// key names the analysis among those of the application.
func (p *process) key() string { return prefixed(p.run.Stage.ID, p.name) }

func prefixed(first, second string) string {
	if first == "" || second == "" {
		return first + second
	}
	return first + "/" + second
}

// errStopped says that something was stopped before its end; those who stop know why.
var errStopped = errors.New("stopped")

// waitUntil returns nil once that much has elapsed, errStopped when ctx ends
// before.
func (p *process) waitUntil(ctx context.Context, elapsed time.Duration) error {
	timer := time.NewTimer(elapsed - p.elapsed())
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return errStopped
	case <-timer.C:
		return nil
	}
}

// watch has a check look at the end of each of its intervals that lies within the
// analysis. Of those that were missed, because the agent was down or an answer took
// long, the last one is made up for. The error says why the check has failed for
// good.
func (p *process) watch(ctx context.Context, c *check) error {
	if c.failedForGood() {
		return c.verdict()
	}
	if c.look == nil {
		return nil
	}
	looks := int64(p.duration / c.interval)
	for c.position < looks {
		position := max(c.position+1, min(looks, int64(p.elapsed()/c.interval)))
		if err := p.waitUntil(ctx, time.Duration(position)*c.interval); err != nil {
			return err
		}
		out := c.ask(ctx, moment{now: p.Now(), elapsed: max(p.elapsed(), time.Duration(position)*c.interval)})
		if ctx.Err() != nil {
			return errStopped
		}
		c.position = position
		p.record(ctx, c, out)
		if c.failedForGood() {
			return c.verdict()
		}
	}
	return nil
}

// record counts what a check has seen, stores it and says it.
func (p *process) record(ctx context.Context, c *check, out outcome) {
	counted := c.count(out)
	sample := deploy.AnalysisSample{
		ApplicationID: p.run.Application.ID, DeploymentID: p.run.Deployment.ID, StageID: p.run.Stage.ID,
		Check: c.id, Name: c.name, Position: c.position, At: p.Now(), Verdict: out.verdict, Counted: counted,
		Values: storable(out.values), Compared: storable(out.compared), Text: out.text,
	}
	if err := p.Store.AppendAnalysisSample(ctx, sample); err != nil && ctx.Err() == nil {
		p.Logger.Warn("cannot store what a check has seen; after a restart it would not be known",
			"app", p.run.Deployment.ApplicationName, "deployment", p.run.Deployment.ID, "stage", p.run.Stage.ID, "check", c.name, "error", err)
	}
	for _, w := range out.warnings {
		p.run.Log.Infof("%s: warning of the provider: %s", c.name, w)
	}
	if counted {
		p.run.Log.Errorf("%s", c.line(out))
	} else {
		p.run.Log.Infof("%s", c.line(out))
	}
}

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

// session is one running analysis.
type session struct {
	*Executor
	run      deploy.StageRun
	name     string
	duration time.Duration
	since    time.Time

	checks  []*check
	start   time.Time     // of this session, by the monotonic clock
	earlier time.Duration // elapsed before start, in sessions before a restart
}

// prepare creates the checks and restores their state after a restart.
func (p *session) prepare(ctx context.Context, o analysis.Options) error {
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
	p.describe(ctx)
	return p.restore(ctx)
}

// restore restores the state of the checks from the samples before a restart.
func (p *session) restore(ctx context.Context) error {
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

// elapsed returns the run time of the analysis, including sessions before a restart.
func (p *session) elapsed() time.Duration { return p.earlier + time.Since(p.start) }

// runChecks runs the checks concurrently until the duration is over or one of them has
// failed.
func (p *session) runChecks(ctx context.Context) error {
	p.logStart()
	group, checking := errgroup.WithContext(ctx)
	for _, c := range p.checks {
		group.Go(func() error { return p.runCheck(checking, c) })
	}
	err := group.Wait()
	if err == nil {
		err = p.waitUntil(ctx, p.duration)
	}
	if deploy.Stopped(ctx) != "" {
		return p.unfinished()
	}
	if err != nil {
		return err
	}
	passed := deploy.AnalysisPassed{ApplicationID: p.run.Application.ID, Analysis: p.key(), DeploymentID: p.run.Deployment.ID, StartedAt: p.since}
	if err := p.Store.SaveAnalysisPassed(ctx, passed); err != nil {
		p.Logger.Warn("cannot store that an analysis passed; strategy PREVIOUS will compare with the one before",
			"app", p.run.Deployment.ApplicationName, "deployment", p.run.Deployment.ID, "stage", p.run.Stage.ID, "error", err)
	}
	p.run.Log.Successf("The analysis of %s passed", p.duration)
	return nil
}

// unfinished returns the error of a stopped analysis.
func (p *session) unfinished() error {
	return fmt.Errorf("the analysis of %s had not finished", p.duration)
}

// logStart logs what the analysis checks, or that it resumes.
func (p *session) logStart() {
	if p.earlier > 0 {
		p.run.Log.Infof("The analysis resumes after a restart of the agent: %s of %s remain", (p.duration - p.earlier).Round(time.Millisecond), p.duration)
		return
	}
	p.run.Log.Infof("Analysing for %s", p.duration)
	for _, c := range p.checks {
		p.run.Log.Infof("%s: every %s, %s", c.name, c.interval, c.tolerance())
	}
}

// key identifies the analysis within its application.
func (p *session) key() string { return prefixed(p.run.Stage.ID, p.name) }

// prefixed joins two names with a slash. If one is empty it returns the other.
func prefixed(first, second string) string {
	if first == "" || second == "" {
		return first + second
	}
	return first + "/" + second
}

// errStopped reports that the context ended first; the caller knows why.
var errStopped = errors.New("stopped")

// waitUntil returns nil after the given run time, errStopped if ctx ends first.
func (p *session) waitUntil(ctx context.Context, elapsed time.Duration) error {
	timer := time.NewTimer(elapsed - p.elapsed())
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return errStopped
	case <-timer.C:
		return nil
	}
}

// runCheck evaluates a check at the end of each of its intervals within the analysis.
// After missed intervals (a restart, or a slow provider) only the last one is
// evaluated. The error explains why the check has failed.
func (p *session) runCheck(ctx context.Context, c *check) error {
	if c.failed() {
		return c.failure()
	}
	if c.evaluate == nil {
		return nil
	}
	evaluations := int64(p.duration / c.interval)
	for c.position < evaluations {
		position := max(c.position+1, min(evaluations, int64(p.elapsed()/c.interval)))
		if err := p.waitUntil(ctx, time.Duration(position)*c.interval); err != nil {
			return err
		}
		out := c.run(ctx, instant{now: p.Now(), elapsed: max(p.elapsed(), time.Duration(position)*c.interval)})
		if ctx.Err() != nil {
			return errStopped
		}
		c.position = position
		p.record(ctx, c, out)
		if c.failed() {
			return c.failure()
		}
	}
	return nil
}

// record counts, stores and logs the outcome of an evaluation.
func (p *session) record(ctx context.Context, c *check, out outcome) {
	counted := c.count(out)
	sample := deploy.AnalysisSample{
		ApplicationID: p.run.Application.ID, DeploymentID: p.run.Deployment.ID, StageID: p.run.Stage.ID,
		Check: c.id, Name: c.name, Position: c.position, At: p.Now(), Verdict: out.verdict, Counted: counted,
		Values: storable(out.values), Compared: storable(out.compared), Text: out.text,
	}
	if err := p.Store.AppendAnalysisSample(ctx, sample); err != nil && ctx.Err() == nil {
		p.Logger.Warn("cannot store the result of a check; a restart of the agent would lose it",
			"app", p.run.Deployment.ApplicationName, "deployment", p.run.Deployment.ID, "stage", p.run.Stage.ID, "check", c.name, "error", err)
	}
	for _, w := range out.warnings {
		p.run.Log.Infof("%s: warning of the provider: %s", c.name, w)
	}
	if counted {
		p.run.Log.Errorf("%s", c.logLine(out))
	} else {
		p.run.Log.Infof("%s", c.logLine(out))
	}
}

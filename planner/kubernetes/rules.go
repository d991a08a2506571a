package kubernetes

import (
	"context"
	"fmt"

	"github.com/c785c783/piped/piped/config"
	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/manifest"
	"github.com/c785c783/piped/piped/source"
)

// question is what a decision is about.
type question struct {
	app        deploy.Application
	deployment deploy.Deployment
	target     *source.Source
	running    Running
}

func (q question) config() *config.Application { return q.target.Config }
func (q question) trigger() deploy.Trigger     { return q.deployment.Trigger }

// choice is an answer, with its reason as a sentence for a person; the zero
// choice is none.
type choice struct {
	strategy deploy.Strategy
	reason   string
}

func quick(format string, args ...any) choice {
	return choice{deploy.StrategyQuickSync, "Quick sync: " + fmt.Sprintf(format, args...)}
}

func pipeline(format string, args ...any) choice {
	return choice{deploy.StrategyPipeline, "Pipeline: " + fmt.Sprintf(format, args...)}
}

// choose asks the rules in PipeCD's order; the first that has an answer decides.
// Those after the first deployment compare what runs with what is to run.
func choose(ctx context.Context, q question) (choice, error) {
	if err := possible(q); err != nil {
		return choice{}, err
	}
	for _, rule := range []func(question) choice{
		askedFor, noPipeline, alwaysPipeline, commitForPipeline, commitForQuickSync, firstDeployment,
	} {
		if c := rule(q); c != (choice{}) {
			return c, nil
		}
	}
	running, c, err := whatRuns(ctx, q)
	if err != nil || c != (choice{}) {
		return c, err
	}
	changes := comparisonOf(q.config().Kubernetes.Workloads, running.Objects, q.target.Objects)
	changes.hide = func(text string) string { return running.Redactor.Text(q.target.Redactor.Text(text)) }
	for _, rule := range []func(comparison) choice{
		workloadsCameOrWent, templateChanged, configChanged, noWorkloads, scaled,
	} {
		if c := rule(changes); c != (choice{}) {
			c.reason = changes.hide(c.reason)
			return c, nil
		}
	}
	return quick("no pod template, and no ConfigMap or Secret that pods use, has changed"), nil
}

// possible refuses what cannot be done.
func possible(q question) error {
	if q.trigger().Strategy == deploy.StrategyPipeline && q.config().Pipeline == nil {
		return deploy.Errorf(deploy.Invalid, "a pipeline was asked for, but %s has no spec.pipeline: add one, or sync with the strategy AUTO or QUICK_SYNC", q.deployment.Git.ConfigPath())
	}
	return nil
}

func askedFor(q question) choice {
	switch t := q.trigger(); t.Strategy {
	case deploy.StrategyQuickSync, deploy.StrategyPipeline:
		return choice{t.Strategy, t.StrategySummary}
	}
	return choice{}
}

func noPipeline(q question) choice {
	switch {
	case q.config().Pipeline != nil:
		return choice{}
	case q.app.LastSuccessful == nil:
		return quick("first deployment of %s", manifests(q.target.Objects))
	}
	return quick("no pipeline is configured")
}

func alwaysPipeline(q question) choice {
	if q.config().Planner.AlwaysUsePipeline {
		return pipeline("planner.alwaysUsePipeline is set")
	}
	return choice{}
}

// commitForPipeline and commitForQuickSync look at the subject of a commit that
// no person asked to deploy.
func commitForPipeline(q question) choice {
	m := q.config().CommitMatcher.Pipeline
	if q.trigger().Commander == "" && m.MatchString(q.trigger().Commit.Message) {
		return pipeline("the commit message matches commitMatcher.pipeline (%s)", m)
	}
	return choice{}
}

func commitForQuickSync(q question) choice {
	m := q.config().CommitMatcher.QuickSync
	if q.trigger().Commander == "" && m.MatchString(q.trigger().Commit.Message) {
		return quick("the commit message matches commitMatcher.quickSync (%s)", m)
	}
	return choice{}
}

func firstDeployment(q question) choice {
	if q.app.LastSuccessful == nil {
		return quick("first deployment of %s, there is nothing to compare with", manifests(q.target.Objects))
	}
	return choice{}
}

func manifests(objects []manifest.Object) string {
	if len(objects) == 1 {
		return "1 manifest"
	}
	return fmt.Sprintf("%d manifests", len(objects))
}

// whatRuns loads what runs. Where that cannot be done any more, because the commit
// is gone or this version refuses what it holds, the pipeline is the careful answer.
func whatRuns(ctx context.Context, q question) (*source.Source, choice, error) {
	running, err := q.running(ctx)
	commit := deploy.ShortHash(q.app.LastSuccessful.Trigger.Commit.Hash)
	switch {
	case deploy.IsKind(err, deploy.NotFound), deploy.IsKind(err, deploy.Invalid):
		return nil, pipeline("what runs, commit %s, cannot be read to compare with it: %v", commit, err), nil
	case err != nil:
		return nil, choice{}, fmt.Errorf("load what runs, commit %s: %w", commit, err)
	}
	return running, choice{}, nil
}

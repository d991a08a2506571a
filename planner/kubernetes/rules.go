package kubernetes

import (
	"context"
	"fmt"

	"github.com/c785c783/piped/piped/config"
	"github.com/c785c783/piped/piped/config/kubernetes"
	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/manifest"
	"github.com/c785c783/piped/piped/source"
)

// input contains what the rules depend on.
type input struct {
	app        deploy.Application
	deployment deploy.Deployment
	target     *source.Source
	running    Running
}

func (in input) config() *config.Application { return in.target.Config }
func (in input) trigger() deploy.Trigger     { return in.deployment.Trigger }

// choice is a rule's decision, with its reason as a sentence; the zero choice leaves
// the decision to the next rule.
type choice struct {
	strategy deploy.Strategy
	reason   string
}

// quick and pipeline return the choice of a strategy with a formatted reason.
func quick(format string, args ...any) choice {
	return choice{deploy.StrategyQuickSync, "Quick sync: " + fmt.Sprintf(format, args...)}
}

func pipeline(format string, args ...any) choice {
	return choice{deploy.StrategyPipeline, "Pipeline: " + fmt.Sprintf(format, args...)}
}

// choose evaluates the rules in PipeCD's order; the first decision applies. The rules
// after firstDeployment compare the running state with the target.
func choose(ctx context.Context, in input) (choice, error) {
	if err := validate(in); err != nil {
		return choice{}, err
	}
	for _, rule := range []func(input) choice{
		requestedStrategy, noPipeline, alwaysPipeline, commitForPipeline, commitForQuickSync, firstDeployment,
	} {
		if c := rule(in); c != (choice{}) {
			return c, nil
		}
	}
	running, c, err := loadRunning(ctx, in)
	if err != nil || c != (choice{}) {
		return c, err
	}
	changes := comparisonOf(kubernetes.SpecOf(in.config().Platform).Workloads, running.Objects, in.target.Objects)
	changes.redact = func(text string) string { return running.Redactor.Text(in.target.Redactor.Text(text)) }
	for _, rule := range []func(comparison) choice{
		workloadsAddedOrRemoved, templateChanged, configChanged, noWorkloads, scaled,
	} {
		if c := rule(changes); c != (choice{}) {
			c.reason = changes.redact(c.reason)
			return c, nil
		}
	}
	return quick("no pod template, and no ConfigMap or Secret that pods use, has changed"), nil
}

// validate rejects impossible requests.
func validate(in input) error {
	if in.trigger().Strategy == deploy.StrategyPipeline && in.config().Pipeline == nil {
		return deploy.Errorf(deploy.Invalid, "a pipeline was requested, but %s has no spec.pipeline: add one, or sync with the strategy AUTO or QUICK_SYNC", in.deployment.Git.ConfigPath())
	}
	return nil
}

// requestedStrategy chooses the strategy that the trigger requests, if any.
func requestedStrategy(in input) choice {
	switch t := in.trigger(); t.Strategy {
	case deploy.StrategyQuickSync, deploy.StrategyPipeline:
		return choice{t.Strategy, t.StrategySummary}
	}
	return choice{}
}

// noPipeline chooses the quick sync if the configuration has no pipeline.
func noPipeline(in input) choice {
	switch {
	case in.config().Pipeline != nil:
		return choice{}
	case in.app.LastSuccessful == nil:
		return quick("first deployment of %s", manifests(in.target.Objects))
	}
	return quick("no pipeline is configured")
}

// alwaysPipeline chooses the pipeline if planner.alwaysUsePipeline is set.
func alwaysPipeline(in input) choice {
	if in.config().Planner.AlwaysUsePipeline {
		return pipeline("planner.alwaysUsePipeline is set")
	}
	return choice{}
}

// commitForPipeline and commitForQuickSync choose a strategy if the commit message
// matches its pattern in commitMatcher, unless a user requested the deployment.
func commitForPipeline(in input) choice {
	m := in.config().CommitMatcher.Pipeline
	if in.trigger().Commander == "" && m.MatchString(in.trigger().Commit.Message) {
		return pipeline("the commit message matches commitMatcher.pipeline (%s)", m)
	}
	return choice{}
}

func commitForQuickSync(in input) choice {
	m := in.config().CommitMatcher.QuickSync
	if in.trigger().Commander == "" && m.MatchString(in.trigger().Commit.Message) {
		return quick("the commit message matches commitMatcher.quickSync (%s)", m)
	}
	return choice{}
}

// firstDeployment chooses the quick sync if the application was never deployed
// successfully.
func firstDeployment(in input) choice {
	if in.app.LastSuccessful == nil {
		return quick("first deployment of %s, there is nothing to compare with", manifests(in.target.Objects))
	}
	return choice{}
}

// manifests describes the number of objects, such as "2 manifests".
func manifests(objects []manifest.Object) string {
	if len(objects) == 1 {
		return "1 manifest"
	}
	return fmt.Sprintf("%d manifests", len(objects))
}

// loadRunning loads the running state. If it cannot be loaded any more, because the
// commit is missing or this version rejects its content, the pipeline is the safe
// choice.
func loadRunning(ctx context.Context, in input) (*source.Source, choice, error) {
	running, err := in.running(ctx)
	commit := deploy.ShortHash(in.app.LastSuccessful.Trigger.Commit.Hash)
	switch {
	case deploy.IsKind(err, deploy.NotFound), deploy.IsKind(err, deploy.Invalid):
		return nil, pipeline("the running commit %s cannot be read for comparison: %v", commit, err), nil
	case err != nil:
		return nil, choice{}, fmt.Errorf("load the running commit %s: %w", commit, err)
	}
	return running, choice{}, nil
}

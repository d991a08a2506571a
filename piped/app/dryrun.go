package app

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/c785c783/piped/piped/config"
	"github.com/c785c783/piped/piped/deploy"
)

// Proposal says what the first deployment of an application would do.
type Proposal struct {
	Application deploy.Application
	Plan        deploy.Deployment // as it would be planned now
	Hold        string            // why it would wait, "" if it would not
	Changes     []deploy.PlannedChange
	Live        []deploy.AdoptedObject // its objects that exist, also those of others
	Err         error                  // why it would not be deployed
}

// DryRun returns what a new agent with a configuration would do first: a proposal for each
// application, by name, and the configuration files that would not become applications. It
// changes nothing in clusters. The agent runs meanwhile, as a disabled one; the data directory of
// the configuration must be empty.
func DryRun(ctx context.Context, cfg *config.Piped, o Options) (_ []Proposal, _ []deploy.Candidate, err error) {
	o.LeaseEvery, o.disabled = -1, true
	agent, err := New(ctx, cfg, o)
	if err != nil {
		return nil, nil, err
	}
	running, stop := context.WithCancelCause(ctx)
	ended := make(chan error, 1)
	go func() {
		err := agent.Run(running)
		stop(err)
		ended <- err
	}()
	proposals, candidates, err := agent.propose(running)
	if cause := context.Cause(running); cause != nil && ctx.Err() == nil {
		err = cause // the agent has failed
	}
	stop(nil)
	return proposals, candidates, errors.Join(err, <-ended)
}

// propose waits until the repositories have been read, and plans every application.
func (a *App) propose(ctx context.Context) (proposals []Proposal, rest []deploy.Candidate, err error) {
	watched, problems := a.live.repositories.watchable()
	for id, problem := range problems {
		return nil, nil, fmt.Errorf("repository %q cannot be watched: %w", id, problem)
	}
	for _, r := range watched {
		if err := a.live.follower.get().Passed(ctx, r.Config.RepoID); err != nil {
			return nil, nil, err
		}
	}
	st := a.dry.planner.Store
	apps, err := st.AllApplications(ctx)
	if err != nil {
		return nil, nil, err
	}
	slices.SortFunc(apps, func(a, b deploy.Application) int { return strings.Compare(a.Name, b.Name) })
	for _, app := range apps {
		p := Proposal{Application: app}
		p.Err = a.dry.propose(ctx, &p)
		proposals = append(proposals, p)
	}
	rest, err = st.Candidates(ctx)
	return proposals, rest, errors.Join(err, ctx.Err())
}

// propose plans the first deployment of an application.
func (p previews) propose(ctx context.Context, out *Proposal) (err error) {
	if out.Plan, out.Hold, err = p.Preview(ctx, out.Application, "", "", ""); err != nil {
		return err
	}
	stranger := out.Application
	stranger.ID = "" // so that no object counts as its own
	// This waits for the cluster, without which the changes would name objects without their namespaces.
	if out.Live, err = p.platforms.Foreign(ctx, out.Application.Provider, stranger, out.Plan.Trigger.Commit.Hash); err != nil {
		return err
	}
	effect, err := p.Changes(ctx, out.Plan)
	out.Changes = effect.Changes
	return err
}

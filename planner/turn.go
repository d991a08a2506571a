package planner

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/c785c783/piped/piped/background"
	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/source"
	"github.com/c785c783/piped/piped/store"
)

// planNext plans the oldest pending deployment of an application that may go.
// The others stay pending and say what they wait for.
func (p *Planner) planNext(ctx context.Context, appID string) error {
	p.note(appID, true) // what changes while it is planned may concern it
	pending, active, err := p.open(ctx, appID)
	if err != nil {
		return err
	}
	if len(pending) == 0 {
		p.note(appID, false)
		p.jobs.Forget(appID)
	}
	for i, d := range pending {
		if active != nil { // its end wakes the planner again
			if err := p.hold(ctx, d, fmt.Sprintf("Waiting for the end of deployment %s of commit %s", active.ID, active.Trigger.Commit.Short())); err != nil {
				return err
			}
			continue
		}
		v, err := p.judgeInBackground(ctx, d)
		var running *background.Running
		if errors.As(err, &running) {
			return p.holdWhile(ctx, d, running) // those after it wait, too
		}
		if err != nil {
			return err
		}
		if v.hold == "" {
			if err := p.overtake(ctx, pending[:i], d, v); err != nil {
				return err
			}
			moved, err := p.end(ctx, d, v)
			if moved {
				p.note(appID, len(pending) > 1)
			}
			return err
		}
		if err := p.hold(ctx, d, v.hold); err != nil {
			return err
		}
		if !v.until.IsZero() {
			p.queue.AddAfter(appID, v.until.Sub(p.Now()))
		}
	}
	return nil
}

// judgeInBackground is judge while the worker plans for others, if it takes long: then
// the error is a *background.Running, and its end enqueues the application again.
func (p *Planner) judgeInBackground(ctx context.Context, d deploy.Deployment) (verdict, error) {
	return p.jobs.Do(ctx, d.ApplicationID, d.ID, func() { p.queue.Add(d.ApplicationID) }, func(ctx context.Context) (verdict, error) {
		return p.judge(ctx, d)
	})
}

// holdWhile writes down what the rendering of a deployment's application waits for.
func (p *Planner) holdWhile(ctx context.Context, d deploy.Deployment, running *background.Running) error {
	if running.On == "" {
		return nil
	}
	return p.hold(ctx, d, "Rendering the application takes long: "+running.Error())
}

// open returns the pending deployments of an application, the oldest first, and
// the active one, nil if there is none.
func (p *Planner) open(ctx context.Context, appID string) (pending []deploy.Deployment, active *deploy.Deployment, err error) {
	open, _, err := p.Store.ListDeployments(ctx, store.DeploymentQuery{
		ApplicationIDs: []string{appID},
		Statuses:       []deploy.Status{deploy.Pending, deploy.Planned, deploy.Running, deploy.RollingBack},
	})
	if err != nil {
		return nil, nil, err
	}
	for i, d := range open {
		if d.Status.Active() {
			active = &open[i]
		} else {
			pending = append(pending, d)
		}
	}
	slices.SortFunc(pending, func(a, b deploy.Deployment) int {
		return cmp.Or(a.Trigger.At.Compare(b.Trigger.At), cmp.Compare(a.ID, b.ID))
	})
	return pending, active, nil
}

// verdict is what becomes of a pending deployment: it is held until a time, if
// that is known, or ends, or gets a plan.
type verdict struct {
	hold  string // why it stays pending; "" if it does not
	until time.Time

	status deploy.Status // how it ends unplanned; "" if it does not
	reason string

	plan deploy.Plan
}

// chainTurn holds a deployment until the blocks of its chain before its own have
// succeeded, and ends it when one of them has not. The zero verdict lets it go.
func (p *Planner) chainTurn(ctx context.Context, d deploy.Deployment) (verdict, error) {
	if d.ChainID == "" || d.ChainBlock == 0 {
		return verdict{}, nil
	}
	chain, err := p.Store.Chain(ctx, d.ChainID)
	if err != nil {
		return verdict{}, err
	}
	switch turn, reason := chain.Turn(d.ChainBlock); turn {
	case deploy.ChainWait:
		return verdict{hold: reason}, nil
	case deploy.ChainCancel:
		return verdict{status: deploy.Cancelled, reason: reason}, nil
	}
	return verdict{}, nil
}

// windowTurn holds a deployment while a sync window of the commit to deploy says
// so. The zero verdict lets it go.
func (p *Planner) windowTurn(d deploy.Deployment, target *source.Source) verdict {
	if d.Trigger.OverrideWindows {
		return verdict{}
	}
	until, reason := target.Config.SyncWindows.Hold(p.Now(), d.Trigger.Kind == deploy.OnCommand)
	if reason == "" {
		return verdict{}
	}
	return verdict{hold: "Held: " + reason, until: until}
}

// otherAgents is how often it is asked whether another agent manages a cluster still.
const otherAgents = 5 * time.Second

// managedTurn holds a deployment while another agent manages its cluster. The zero verdict
// lets it go.
func (p *Planner) managedTurn(ctx context.Context, d deploy.Deployment) verdict {
	if p.Managed == nil {
		return verdict{}
	}
	if err := p.Managed(ctx, d.Provider); err != nil {
		return verdict{hold: "Held: " + err.Error(), until: p.Now().Add(otherAgents)}
	}
	return verdict{}
}

// hold writes down what a deployment waits for, unless that is known already.
func (p *Planner) hold(ctx context.Context, d deploy.Deployment, reason string) error {
	if d.StatusReason == reason {
		return nil
	}
	_, err := p.Store.UpdateDeployment(ctx, d.ID, func(d *deploy.Deployment) error {
		if d.Status != deploy.Pending {
			return notPending(d)
		}
		d.StatusReason = reason
		return nil
	})
	if deploy.IsKind(err, deploy.Conflict) {
		return nil // it no longer waits, or waits for something else: that wakes the planner
	}
	if err == nil {
		p.logger(d).Info("deployment waits", "reason", reason)
	}
	return err
}

func notPending(d *deploy.Deployment) error {
	return deploy.Errorf(deploy.Conflict, "deployment %s is %s, not PENDING", d.ID, d.Status)
}

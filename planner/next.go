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

// planNext plans the oldest pending deployment that may proceed. The others stay
// pending with a reason.
func (p *Planner) planNext(ctx context.Context, appID string) error {
	p.setWaiting(appID, true) // changes during the planning may affect it
	pending, active, err := p.openDeployments(ctx, appID)
	if err != nil {
		return err
	}
	if len(pending) == 0 {
		p.setWaiting(appID, false)
		p.jobs.Forget(appID)
	}
	for i, d := range pending {
		if active != nil { // its end enqueues the application again
			if err := p.hold(ctx, d, fmt.Sprintf("Waiting for the end of deployment %s of commit %s", active.ID, active.Trigger.Commit.Short())); err != nil {
				return err
			}
			continue
		}
		v, err := p.evaluateInBackground(ctx, d)
		var running *background.Running
		if errors.As(err, &running) {
			return p.holdWhile(ctx, d, running) // later deployments wait, too
		}
		if err != nil {
			return err
		}
		if v.hold == "" {
			if err := p.markSuperseded(ctx, pending[:i], d, v); err != nil {
				return err
			}
			moved, err := p.finish(ctx, d, v)
			if moved {
				p.setWaiting(appID, len(pending) > 1)
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

// evaluateInBackground calls evaluate in the background. If it takes long, the error is a
// *background.Running, and its end enqueues the application again.
func (p *Planner) evaluateInBackground(ctx context.Context, d deploy.Deployment) (verdict, error) {
	return p.jobs.Do(ctx, d.ApplicationID, d.ID, func() { p.queue.Add(d.ApplicationID) }, func(ctx context.Context) (verdict, error) {
		return p.evaluate(ctx, d)
	})
}

// holdWhile stores what the rendering of a deployment's application waits for. It stores
// nothing if the rendering waits for nothing outside of the agent, because it then ends
// soon.
func (p *Planner) holdWhile(ctx context.Context, d deploy.Deployment, running *background.Running) error {
	if running.On == "" {
		return nil
	}
	return p.hold(ctx, d, "Rendering the application takes long: "+running.Error())
}

// openDeployments returns the pending deployments of an application, oldest first, and
// the active one, nil if none.
func (p *Planner) openDeployments(ctx context.Context, appID string) (pending []deploy.Deployment, active *deploy.Deployment, err error) {
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

// verdict is the decision about a pending deployment: it is held, with an end if known,
// or completed without a plan, or planned.
type verdict struct {
	hold  string // why it stays pending; "" if not held
	until time.Time

	status deploy.Status // terminal status without a plan; "" if planned
	reason string
	by     string // the newer deployment that supersedes it; "" for none

	plan deploy.Plan
}

// chainTurn holds a deployment until the earlier blocks of its chain have succeeded,
// and cancels it when one has not. The zero verdict lets it proceed.
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

// windowTurn holds a deployment while a sync window of its commit is closed. The zero
// verdict lets it proceed.
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

// managedRetry is the interval for checks whether another agent still manages a
// cluster.
const managedRetry = 5 * time.Second

// managedTurn holds a deployment while another agent manages its cluster. The zero
// verdict lets it proceed.
func (p *Planner) managedTurn(ctx context.Context, d deploy.Deployment) verdict {
	if p.Managed == nil {
		return verdict{}
	}
	if err := p.Managed(ctx, d.Provider); err != nil {
		return verdict{hold: "Held: " + err.Error(), until: p.Now().Add(managedRetry)}
	}
	return verdict{}
}

// hold stores what a deployment waits for, if that has changed.
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
		return nil // it was changed concurrently, which enqueues the application again
	}
	if err == nil {
		p.logger(d).Info("deployment waits", "reason", reason)
	}
	return err
}

// notPending returns the Conflict error for a deployment that has left PENDING meanwhile.
func notPending(d *deploy.Deployment) error {
	return deploy.Errorf(deploy.Conflict, "deployment %s is %s, not PENDING", d.ID, d.Status)
}

package kubernetes

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/c785c783/piped/piped/cluster"
	"github.com/c785c783/piped/piped/deploy"
)

// planFor bounds how long a cluster may take to tell what is there of an
// application: then it counts as one that does not answer.
const planFor = 15 * time.Second

// removal is the deletion of an application's objects in one cluster.
type removal struct {
	*Remover
	app     deploy.Application
	cluster string
	kinds   []string // of the protected kinds, those that are deleted all the same
	log     deploy.StageLog
}

// run deletes level by level. What uses others goes first: a level is begun only when
// the one before it is gone, also by the last attempt. Each level's objects leave the
// inventory when they are gone. The error is one of the store.
func (m removal) run(ctx context.Context, items []deploy.InventoryItem) (found findings, err error) {
	c, release, err := m.open()
	if err != nil {
		return findings{waiting: []string{err.Error()}}, nil
	}
	defer release()
	plan, err := m.plan(ctx, c, items)
	if err != nil {
		return findings{waiting: []string{err.Error()}}, nil
	}
	for _, k := range plan.Kept {
		found.kept = append(found.kept, fmt.Sprintf("%s: %s", k.Item.Object, k.Reason))
		if k.Over {
			found.over = append(found.over, k.Item)
		}
	}
	if err := m.forget(ctx, plan.Gone); err != nil {
		return found, err
	}
	for i, level := range plan.Levels {
		ended, left := c.RemoveLevel(ctx, m.PipedID, level, m.log)
		if err := m.forget(ctx, ended); err != nil {
			return found, err
		}
		for _, l := range left {
			found.waiting = append(found.waiting, fmt.Sprintf("%s: %s", l.Item.Object, l.Reason))
		}
		if len(left) == 0 {
			continue
		}
		if later := len(slices.Concat(plan.Levels[i+1:]...)); later > 0 {
			found.waiting = append(found.waiting, fmt.Sprintf("what goes only after these: %d more", later))
		}
		break
	}
	return found, ctx.Err()
}

// forget takes objects that are gone out of the inventory, even if the agent is told
// to end meanwhile.
func (m removal) forget(ctx context.Context, items []deploy.InventoryItem) error {
	return m.Store.DeleteInventory(context.WithoutCancel(ctx), m.app.ID, m.cluster, refsOf(items)...)
}

// open finds the cluster, as the application may use it.
func (m removal) open() (c Cluster, release func(), err error) {
	if c, release, err = m.Clusters.Hold(m.cluster); err != nil || m.Tenancy == nil {
		return c, release, err
	}
	account, err := m.Tenancy.Tenant(m.app.Git).Account()
	if err == nil && account.User() != "" {
		c.Cluster, err = c.As(account.User())
	}
	if err != nil {
		release()
		return c, nil, err
	}
	return c, release, nil
}

// plan finds out what is to be deleted. The error is Unavailable when the cluster
// does not answer.
func (m removal) plan(ctx context.Context, c Cluster, items []deploy.InventoryItem) (cluster.Removal, error) {
	limited, stop := context.WithTimeout(ctx, planFor)
	defer stop()
	plan, err := c.PlanRemoval(limited, m.PipedID, items, m.kinds)
	if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
		err = deploy.Errorf(deploy.Unavailable, "%s does not answer within %s: %w", c, planFor, err)
	}
	return plan, err
}

// kinds returns which of the protected kinds the application's last success names in
// its pruneKinds. None when that is not known any more: what is protected then stays.
func (r *Remover) kinds(ctx context.Context, app deploy.Application) ([]string, error) {
	if app.LastSuccessful == nil {
		return nil, nil
	}
	kept, err := r.Store.AppliedSet(ctx, app.LastSuccessful.DeploymentID)
	if deploy.IsKind(err, deploy.NotFound) || deploy.IsKind(err, deploy.Invalid) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var stored storedSet
	if err := json.Unmarshal(kept.Objects, &stored); err != nil {
		return nil, fmt.Errorf("decode the applied set of commit %s: %w", deploy.ShortHash(kept.Commit), err)
	}
	return stored.Spec.PruneKinds, nil
}

package kubernetes

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/c785c783/piped/piped/cluster/apply"
	"github.com/c785c783/piped/piped/deploy"
)

// planFor bounds how long a cluster may take to list the objects of an application. After
// that it counts as unreachable.
const planFor = 15 * time.Second

// removal is the deletion of an application's objects in one cluster.
type removal struct {
	*Remover
	app     deploy.Application
	cluster string
	items   []deploy.InventoryItem
	kinds   []string // protected kinds that may be deleted
}

// run deletes level by level. Objects that use others are in earlier levels. A level begins
// only when the one before it is gone, even in the last attempt. Objects leave the
// inventory when they are gone. Problems of the cluster are in found.waiting; the error is
// one of the store or of ctx.
func (m removal) run(ctx context.Context, log deploy.StageLog) (found findings, err error) {
	c, release, err := m.open()
	if err != nil {
		return findings{waiting: []string{err.Error()}}, nil
	}
	defer release()
	plan, err := m.plan(ctx, c)
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
		ended, left := c.RemoveLevel(ctx, m.PipedID, level, log)
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
			found.waiting = append(found.waiting, fmt.Sprintf("%d more can be deleted only after these", later))
		}
		break
	}
	return found, ctx.Err()
}

// forget removes objects that are gone from the inventory, even if the agent is stopped
// meanwhile.
func (m removal) forget(ctx context.Context, items []deploy.InventoryItem) error {
	return m.Store.DeleteInventory(context.WithoutCancel(ctx), m.app.ID, m.cluster, itemRefs(items)...)
}

// open returns the cluster. Requests are made as the service account that the tenancy rules
// name for the application, if any. The caller calls release.
func (m removal) open() (c Cluster, release func(), err error) {
	if c, release, err = m.Clusters.Hold(m.cluster); err != nil || m.Tenancy == nil {
		return c, release, err
	}
	account, err := m.Tenancy.Tenant(m.app.Git).Account()
	if err == nil && account.User() != "" {
		c.Client, err = c.As(account.User())
	}
	if err != nil {
		release()
		return c, nil, err
	}
	return c, release, nil
}

// plan returns the objects to delete, in levels. The error is of kind Unavailable if the
// cluster does not answer within planFor.
func (m removal) plan(ctx context.Context, c Cluster) (apply.Removal, error) {
	limited, stop := context.WithTimeout(ctx, planFor)
	defer stop()
	plan, err := c.PlanRemoval(limited, m.PipedID, m.items, m.kinds)
	if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
		err = deploy.Errorf(deploy.Unavailable, "%s does not answer within %s: %w", c, planFor, err)
	}
	return plan, err
}

// kinds returns the protected kinds that pruneKinds names in the configuration of the
// application's last success. It returns none if that applied set is missing or cannot be
// decrypted; then objects of protected kinds stay.
func (r *Remover) kinds(ctx context.Context, app deploy.Application) ([]string, error) {
	if app.LastSuccessful == nil {
		return nil, nil
	}
	applied, err := r.Store.AppliedSet(ctx, app.LastSuccessful.DeploymentID)
	if deploy.IsKind(err, deploy.NotFound) || deploy.IsKind(err, deploy.Invalid) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	stored, err := decodeSet(applied)
	return stored.Spec.PruneKinds, err
}

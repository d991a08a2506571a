package kubernetes

import (
	"context"
	"fmt"
	"strings"

	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/store"
)

// claim records in the store that objects belong to the application. It fails if another
// application has claimed one of them.
func (w *work) claim(ctx context.Context, refs []deploy.ObjectRef) error {
	identity, err := w.cluster.Identity(ctx)
	if err != nil {
		return err
	}
	taken, err := w.Store.ClaimObjects(ctx, store.Claim{
		ApplicationID: w.run.Application.ID, Cluster: identity, Provider: w.cluster.Name(), DeploymentID: w.run.Deployment.ID, TakeOver: w.set.Spec.TakeOver,
	}, refs...)
	if err != nil || len(taken) == 0 {
		return err
	}
	texts := make([]string, len(taken))
	for i, t := range taken {
		texts[i] = fmt.Sprintf("%s belongs to %s", t.Object, w.named(ctx, t.ApplicationID))
	}
	return deploy.Errorf(deploy.Invalid,
		"nothing was changed, because %s may not write objects of others: %s; take the objects out of one of them, or set takeOver: true",
		w.named(ctx, w.run.Application.ID), strings.Join(texts, "; "))
}

// named describes an application in a message.
func (w *work) named(ctx context.Context, id string) string {
	if known := w.describe(ctx)(id); known != "" {
		return "application " + known
	}
	return "application " + id
}

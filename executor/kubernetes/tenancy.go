package kubernetes

import (
	"context"
	"slices"

	"github.com/c785c783/piped/piped/cluster"
	"github.com/c785c783/piped/piped/config"
	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/manifest"
)

// Tenancy tells what the agent's configuration permits an application to do.
type Tenancy interface {
	// Tenant returns the rules for the application configured at a place.
	Tenant(at deploy.GitPath) config.Tenant
	// Signer returns who signed a commit for the application, "" when that is of no
	// interest. The error is of kind deploy.Invalid when the commit is not allowed.
	Signer(ctx context.Context, at deploy.GitPath, commit string) (string, error)
}

// tenant returns the rules for the stage's application, as they are now.
func (w *work) tenant() config.Tenant {
	if w.Tenancy == nil {
		return nil
	}
	return w.Tenancy.Tenant(w.run.Deployment.Git)
}

// admit refuses a deployment that the application may not have. The planner did
// so before, by the rules of then.
func admit(ctx context.Context, w *work) error {
	if w.Tenancy == nil {
		return nil
	}
	d := w.run.Deployment
	if err := w.tenant().CheckProvider(d.Provider); err != nil {
		return w.refuse(err)
	}
	signer, err := w.Tenancy.Signer(ctx, d.Git, d.Trigger.Commit.Hash)
	if signer != "" {
		w.log.Infof("Commit %s is signed by %s", d.Trigger.Commit.Short(), signer)
	}
	return w.refuse(err)
}

// refuse ends the stage for a rule. Where it is the first one, there is nothing to
// roll back: nothing was done.
func (w *work) refuse(err error) error {
	if deploy.IsKind(err, deploy.Invalid) {
		return &stageError{reason: err.Error(), noRollback: w.run.First()}
	}
	return err
}

// permitSet refuses a set with objects that the application may not have.
func permitSet(_ context.Context, w *work) error {
	var objects []config.TenantObject
	for _, o := range slices.Concat(w.set.Objects, w.hooks) {
		objects = append(objects, config.TenantObject{Ref: manifest.Ref(o.Unstructured), Origin: o.Origin.String()})
	}
	w.limitNamespaces()
	return w.refuse(w.tenant().CheckObjects(objects))
}

// limitNamespaces lets the stage create missing namespaces only if the rules do.
func (w *work) limitNamespaces() {
	if rule := w.tenant().ForbidsNewNamespaces(); rule != "" && w.set.Spec.AutoCreateNamespace {
		w.log.Infof("input.autoCreateNamespace has no effect: tenancy %q does not allow it", rule)
		w.set.Spec.AutoCreateNamespace = false
	}
}

// leaveForbidden takes out of the set what the application may not have any more:
// a rollback puts back what ran, but nothing that a rule has come to forbid.
func leaveForbidden(_ context.Context, w *work) error {
	all := len(w.set.Objects)
	w.limitNamespaces()
	w.set.Objects = slices.DeleteFunc(w.set.Objects, func(o manifest.Object) bool {
		why := w.tenant().Forbids(config.TenantObject{Ref: manifest.Ref(o.Unstructured)})
		if why != "" {
			w.log.Infof("Not put back: %s", why)
		}
		return why != ""
	})
	if all > 0 && len(w.set.Objects) == 0 {
		return deploy.Errorf(deploy.Invalid, "the tenancy rules forbid every object of the last success (see the log): nothing is put back; "+
			"ask those who run the agent to change the rules, or deploy what they allow")
	}
	return nil
}

// sayForbidden names what is no longer in Git and may not be touched.
func (w *work) sayForbidden() {
	left, _ := cluster.Leftovers(cluster.PruneRequest{Inventory: ofPrimary(w.before), Applied: w.items, Kinds: w.set.Spec.PruneKinds})
	w.permitted(left, func(why string) { w.log.Infof("No longer in Git, and left alone: %s", why) })
}

// permitted returns those items that the application may still touch; say is
// called for each of the others, which stay as they are.
func (w *work) permitted(items []deploy.InventoryItem, say func(why string)) []deploy.InventoryItem {
	tenant := w.tenant()
	return slices.DeleteFunc(slices.Clone(items), func(item deploy.InventoryItem) bool {
		why := tenant.Forbids(config.TenantObject{Ref: item.Object})
		if why != "" {
			say(why)
		}
		return why != ""
	})
}

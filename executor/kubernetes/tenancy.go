package kubernetes

import (
	"context"
	"slices"

	"github.com/c785c783/piped/piped/cluster/apply"
	"github.com/c785c783/piped/piped/config"
	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/manifest"
)

// Tenancy returns the tenancy rules of the agent's configuration.
type Tenancy interface {
	// Tenant returns the rules for the application at a Git path.
	Tenant(at deploy.GitPath) config.Tenant
	// Signer returns the signer of a commit, "" if no rule requires a signature. The error is
	// of kind deploy.Invalid if the application may not deploy the commit.
	Signer(ctx context.Context, at deploy.GitPath, commit string) (string, error)
}

// tenant returns the current rules for the stage's application.
func (w *work) tenant() config.Tenant {
	if w.Tenancy == nil {
		return nil
	}
	return w.Tenancy.Tenant(w.run.Deployment.Git)
}

// admit refuses a deployment that the tenancy rules forbid. The planner has checked that as
// well, but the rules may have changed since.
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

// refuse converts an Invalid error into a stageError, in the first stage without a rollback
// because nothing was changed. It returns other errors, and nil, unchanged.
func (w *work) refuse(err error) error {
	if deploy.IsKind(err, deploy.Invalid) {
		return &stageError{reason: err.Error(), noRollback: w.run.First()}
	}
	return err
}

// permitSet refuses a set and hooks with objects that the tenancy rules forbid.
func permitSet(_ context.Context, w *work) error {
	return w.permit(slices.Concat(w.set.Objects, w.hooks))
}

// permit refuses objects that the tenancy rules forbid.
func (w *work) permit(objects []manifest.Object) error {
	var all []config.TenantObject
	for _, o := range objects {
		all = append(all, config.TenantObject{Ref: manifest.Ref(o.Unstructured), Origin: o.Origin.String()})
	}
	w.limitNamespaces()
	return w.refuse(w.tenant().CheckObjects(all))
}

// limitNamespaces turns off the creation of missing namespaces if the tenancy rules forbid
// it.
func (w *work) limitNamespaces() {
	if rule := w.tenant().ForbidsNewNamespaces(); rule != "" && w.set.Spec.AutoCreateNamespace {
		w.log.Infof("input.autoCreateNamespace has no effect: tenancy %q does not allow it", rule)
		w.set.Spec.AutoCreateNamespace = false
	}
}

// dropForbidden removes the objects from the set that the current tenancy rules forbid: a
// rollback does not restore them. The error is of kind Invalid if no object is left.
func dropForbidden(_ context.Context, w *work) error {
	all := len(w.set.Objects)
	w.limitNamespaces()
	w.set.Objects = slices.DeleteFunc(w.set.Objects, func(o manifest.Object) bool {
		why := w.tenant().Forbids(config.TenantObject{Ref: manifest.Ref(o.Unstructured)})
		if why != "" {
			w.log.Infof("Not restored: %s", why)
		}
		return why != ""
	})
	if all > 0 && len(w.set.Objects) == 0 {
		return deploy.Errorf(deploy.Invalid, "the tenancy rules forbid every object of the last success (see the log): nothing is restored; "+
			"ask the operators of the agent to change the rules, or deploy what they allow")
	}
	return nil
}

// logForbidden lists the objects that are no longer in Git and may not be deleted.
func (w *work) logForbidden() {
	left, _ := apply.Leftovers(apply.PruneRequest{Inventory: ofPrimary(w.before), Applied: w.items, Kinds: w.set.Spec.PruneKinds})
	w.permitted(left, func(why string) { w.log.Infof("No longer in Git, and left alone: %s", why) })
}

// permitted returns the items that the tenancy rules let the application change. For each
// other item it calls say with the reason.
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

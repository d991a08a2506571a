package app

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/c785c783/piped/executor/kubernetes"
	"github.com/c785c783/piped/piped/cluster/apply"
	clusterlive "github.com/c785c783/piped/piped/cluster/live"
	config "github.com/c785c783/piped/piped/config/kubernetes"
	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/manifest"
)

// liveObjects reads single objects of applications: their content, events and logs. It
// implements control.Objects for the same reason as liveStates implements control.Live.
type liveObjects struct {
	liveStates
	pipedID string
}

// foundObject is an object of an application, and the one in the inventory that created it, if
// that is another one.
type foundObject struct {
	deploy.LiveObject
	owner *deploy.LiveObject
}

// sets is kept, with the secrets of the last deployment also if that has failed, since its
// objects may be live.
func (l liveObjects) sets(ctx context.Context, app deploy.Application) (keptSets, error) {
	kept, err := l.kept(ctx, app)
	if err != nil || app.Deploying || app.LastTriggered == nil || app.LastSuccessful != nil && app.LastSuccessful.DeploymentID == app.LastTriggered.DeploymentID {
		return kept, err
	}
	failed, err := l.kept(ctx, deploy.Application{LastSuccessful: app.LastTriggered})
	if len(kept) == 0 {
		return failed, err
	}
	for _, one := range failed {
		kept = append(kept, kubernetes.Kept{Redactor: one.Redactor})
	}
	return kept, err
}

// LiveObject implements control.Objects.
func (l liveObjects) LiveObject(ctx context.Context, app deploy.Application, q deploy.ObjectQuery) (deploy.ObjectDetail, error) {
	ctx, stop := context.WithTimeout(ctx, liveTimeout)
	defer stop()
	kept, err := l.sets(ctx, app)
	if err != nil {
		return deploy.ObjectDetail{}, err
	}
	found, err := l.find(ctx, app, kept, q.ObjectSelector)
	if err != nil {
		return deploy.ObjectDetail{}, err
	}
	detail := deploy.ObjectDetail{Object: found.LiveObject}
	detail.Object.Children = nil
	declared, err := l.declared(ctx, app, found)
	if err == nil {
		err = l.describe(ctx, app, kept, found, declared, q, &detail)
	}
	return detail, kept.redact(err)
}

// describe fills in the content of an object.
func (l liveObjects) describe(ctx context.Context, app deploy.Application, kept keptSets, found foundObject, d declaration, q deploy.ObjectQuery, out *deploy.ObjectDetail) error {
	held, release, err := holdFor(l.clusters, l.tenants, found.Cluster, app)
	if err != nil {
		return err
	}
	defer release()
	unmaskable := kept.unmaskable(found, d)
	if found.UID != "" && unmaskable == "" {
		live, err := clusterlive.ReadObject(ctx, held.Cluster, found.Object, found.UID, found.owner != nil)
		if err != nil {
			return err
		}
		if live != nil {
			out.Live = apply.Present(live, d.object, kept)
			if q.ManagedFields {
				out.Managers = apply.Managers(live, kept)
			}
		}
	}
	switch {
	case unmaskable != "":
		out.Note = unmaskable
	case d.object == nil:
		out.Note = d.missing
	case found.owner != nil:
		out.Note = fmt.Sprintf("it was created by %s, so Git does not declare it", found.owner.Object)
	default:
		out.Git, out.GitCommit = apply.Present(d.object, nil, kept), d.Commit
		if q.Diff {
			return l.compare(ctx, held.Client, app, kept, d, out)
		}
	}
	return nil
}

// unmaskable returns why the secrets in an object may be unknown, so that its content cannot be
// shown; "" if it can.
func (k keptSets) unmaskable(found foundObject, d declaration) string {
	secrets := slices.ContainsFunc(k, func(one kubernetes.Kept) bool { return one.Redactor != nil })
	switch {
	case len(k) == 0:
		return "its content is not shown: no objects of a deployment are stored, so that secrets in it cannot be recognised; sync the application"
	case secrets && d.object == nil && found.owner == nil && found.Variant == string(config.Primary):
		return "its content is not shown: " + d.missing + ", and it may contain secrets of an earlier commit, which are unknown"
	}
	return ""
}

// compare compares an object with its declaration.
func (l liveObjects) compare(ctx context.Context, c *apply.Client, app deploy.Application, kept keptSets, d declaration, out *deploy.ObjectDetail) error {
	compared, err := c.Compare(ctx, apply.CompareRequest{
		ApplicationID: app.ID, PipedID: l.pipedID, Commit: d.Commit, VariantKey: d.VariantKey, VariantValue: d.VariantValue,
		Objects: d.Objects, Inventory: d.inventory, Only: []deploy.ObjectRef{manifest.Ref(d.object)},
		Ignore: d.Ignore, Conceal: kept, Diff: true,
	})
	if err != nil {
		return err
	}
	for _, one := range compared {
		out.Drift, out.Note = one.Drift, one.Problem
		if out.Compared = one.Problem == "" && !one.Ignored; one.Ignored {
			out.Note = fmt.Sprintf("the annotation %s excludes it from comparisons", manifest.AnnotationIgnoreDrift)
		}
	}
	return nil
}

// declaration is the declaration of an object, with all that was applied with it.
type declaration struct {
	kubernetes.Expectation
	inventory []deploy.InventoryItem     // in the object's cluster
	object    *unstructured.Unstructured // nil if it is not declared
	missing   string                     // why it is not
}

// declared returns the declaration of an object, or of the workload that created it: by the
// active deployment if that has stored its objects, else by the last success.
func (l liveObjects) declared(ctx context.Context, app deploy.Application, found foundObject) (declaration, error) {
	ref := found.Object
	if found.owner != nil {
		ref = found.owner.Object
	}
	none := declaration{missing: "no objects of a successful deployment are stored, so it cannot be said what Git declares"}
	for _, last := range deployedLast(app) {
		set, err := l.store.AppliedSet(ctx, last.DeploymentID)
		if deploy.IsKind(err, deploy.NotFound) || deploy.IsKind(err, deploy.Invalid) {
			continue // not stored, or its key is lost
		}
		if err != nil {
			return declaration{}, err
		}
		d := declaration{}
		if d.inventory, err = l.inventoryIn(ctx, app, found.Cluster); err != nil {
			return declaration{}, err
		}
		deployment, err := l.store.Deployment(ctx, last.DeploymentID)
		if err != nil {
			return declaration{}, err
		}
		if d.Expectation, err = kubernetes.Expected(set, deployment, d.inventory); err != nil {
			return declaration{}, err
		}
		for _, o := range d.Objects {
			if manifest.Ref(o.Unstructured).Key() == ref.Key() {
				d.object = o.Unstructured
				return d, nil
			}
		}
		none.missing = fmt.Sprintf("commit %s does not declare it", deploy.ShortHash(d.Commit))
	}
	return none, nil
}

// deployedLast returns the deployments whose sets may declare the present objects, the newest
// first: the active one and the last success, or the last one before the first success.
func deployedLast(app deploy.Application) (refs []*deploy.DeploymentRef) {
	if app.LastTriggered != nil && (app.Deploying || app.LastSuccessful == nil) {
		refs = append(refs, app.LastTriggered)
	}
	if app.LastSuccessful != nil {
		refs = append(refs, app.LastSuccessful)
	}
	return refs
}

func (l liveObjects) inventoryIn(ctx context.Context, app deploy.Application, cluster string) ([]deploy.InventoryItem, error) {
	items, err := l.store.Inventory(ctx, app.ID)
	return slices.DeleteFunc(items, func(item deploy.InventoryItem) bool { return item.Cluster != cluster }), err
}

// find returns the object that a selector selects, with its children. The error is NotFound
// for none, and Invalid for several.
func (l liveObjects) find(ctx context.Context, app deploy.Application, kept keptSets, s deploy.ObjectSelector) (foundObject, error) {
	items, err := l.store.Inventory(ctx, app.ID)
	if err != nil {
		return foundObject{}, err
	}
	own := slices.DeleteFunc(slices.Clone(items), func(item deploy.InventoryItem) bool { return !selects(s, item.Cluster, item.Object) })
	found, state, err := l.members(ctx, app, kept, own, s)
	if err == nil && len(found) == 0 {
		others := slices.DeleteFunc(items, func(item deploy.InventoryItem) bool {
			return s.Namespace != nil && item.Object.Namespace != *s.Namespace || s.Cluster != "" && item.Cluster != s.Cluster
		})
		found, state, err = l.members(ctx, app, kept, others, s)
	}
	switch {
	case err != nil:
		return foundObject{}, err
	case len(found) == 1:
		return found[0], nil
	case len(found) > 1:
		var all []string
		for _, f := range found[:min(len(found), maxNamed)] {
			all = append(all, fmt.Sprintf("%s (group %q, cluster %s)", f.Object, f.Object.Group, f.Cluster))
		}
		return foundObject{}, deploy.Errorf(deploy.Invalid, "application %s has several objects %s %s: name the namespace, group or cluster of one of %s",
			app.Name, s.Kind, s.Name, strings.Join(all, ", "))
	case state.Incomplete != "":
		return foundObject{}, deploy.Errorf(deploy.Unavailable, "application %s is not known to have an object %s %s, and not all could be read: %s", app.Name, s.Kind, s.Name, state.Incomplete)
	}
	return foundObject{}, deploy.Errorf(deploy.NotFound, "application %s has no object %s %s%s", app.Name, s.Kind, s.Name, othersOf(state, s.Kind))
}

// maxNamed is the number of objects that an error names.
const maxNamed = 10

// members reads the state of items, and returns the objects in it that a selector selects.
func (l liveObjects) members(ctx context.Context, app deploy.Application, kept keptSets, items []deploy.InventoryItem, s deploy.ObjectSelector) ([]foundObject, deploy.LiveState, error) {
	if len(items) == 0 {
		return nil, deploy.LiveState{}, nil
	}
	state, err := l.state(ctx, app, kept, items, clusterlive.Request{Children: true, All: true})
	var found []foundObject
	for i := range state.Objects {
		top := &state.Objects[i]
		if selects(s, top.Cluster, top.Object) {
			found = append(found, foundObject{LiveObject: *top})
		}
		for o := range descendants(top.Children) {
			if selects(s, o.Cluster, o.Object) {
				found = append(found, foundObject{o, top})
			}
		}
	}
	return found, state, err
}

// descendants iterates over objects and their children.
func descendants(objects []deploy.LiveObject) func(yield func(deploy.LiveObject) bool) {
	return func(yield func(deploy.LiveObject) bool) {
		for _, o := range objects {
			if !yield(o) {
				return
			}
			for child := range descendants(o.Children) {
				if !yield(child) {
					return
				}
			}
		}
	}
}

// selects reports whether a selector selects an object.
func selects(s deploy.ObjectSelector, cluster string, ref deploy.ObjectRef) bool {
	return (s.Cluster == "" || s.Cluster == cluster) && (s.Group == nil || *s.Group == ref.Group) && strings.EqualFold(s.Kind, ref.Kind) &&
		(s.Namespace == nil || *s.Namespace == ref.Namespace) && s.Name == ref.Name
}

// othersOf returns the objects of a kind in a state, as the end of a message; "" for none.
func othersOf(state deploy.LiveState, kind string) string {
	var names []string
	for o := range descendants(state.Objects) {
		if strings.EqualFold(o.Object.Kind, kind) && len(names) <= maxNamed {
			names = append(names, o.Object.Name)
		}
	}
	switch {
	case len(names) == 0:
		return ""
	case len(names) > maxNamed:
		names[maxNamed] = "and more"
	}
	return "; it has " + strings.Join(names, ", ")
}

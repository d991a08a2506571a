package app

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/c785c783/piped/executor/kubernetes"
	clusterlive "github.com/c785c783/piped/piped/cluster/live"
	config "github.com/c785c783/piped/piped/config/kubernetes"
	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/store"
)

// liveStates reads the live state of applications. It implements control.Live here, because it
// joins the cluster connections and tenancy rules of this package with the sets that package
// executor/kubernetes stores.
type liveStates struct {
	store    *store.Store
	clusters *clusters
	tenants  *tenants
	now      func() time.Time
}

// LiveState implements control.Live. It reads objects in the clusters of the inventory: more
// than one after a change of the provider, until the objects in the former one are pruned.
func (l liveStates) LiveState(ctx context.Context, app deploy.Application, children deploy.LiveChildren) (deploy.LiveState, error) {
	ctx, stop := context.WithTimeout(ctx, liveTimeout)
	defer stop()
	kept, err := l.kept(ctx, app)
	if err != nil {
		return deploy.LiveState{}, err
	}
	items, err := l.store.Inventory(ctx, app.ID)
	if err != nil {
		return deploy.LiveState{}, err
	}
	return l.state(ctx, app, kept, items, clusterlive.Request{Children: children != deploy.NoChildren, All: children == deploy.AllChildren})
}

// state reads the live state of items of the inventory of an application.
func (l liveStates) state(ctx context.Context, app deploy.Application, kept keptSets, items []deploy.InventoryItem, req clusterlive.Request) (deploy.LiveState, error) {
	state := deploy.LiveState{ApplicationID: app.ID, ReadAt: l.now()}
	inClusters := map[string][]deploy.InventoryItem{}
	for _, item := range items {
		inClusters[item.Cluster] = append(inClusters[item.Cluster], item)
	}
	var problems []string
	for _, name := range slices.Sorted(maps.Keys(inClusters)) {
		req.ApplicationID, req.Items, req.Checks = app.ID, inClusters[name], kept.checks()
		found, unread, err := l.read(ctx, app, name, req)
		if err != nil && name == app.Provider {
			return state, kept.redact(err)
		}
		if err != nil { // a former cluster
			unread = append(unread, err.Error())
		}
		state.Objects, problems = append(state.Objects, found...), append(problems, unread...)
	}
	state.Incomplete = firstOf(problems)
	kept.mark(&state)
	slices.SortStableFunc(state.Objects, func(a, b deploy.LiveObject) int {
		return cmp.Or(cmp.Compare(a.Object.Kind, b.Object.Kind), cmp.Compare(a.Object.Namespace, b.Object.Namespace), cmp.Compare(a.Object.Name, b.Object.Name))
	})
	return state, nil
}

// read reads the objects in one cluster, as the account of the application.
func (l liveStates) read(ctx context.Context, app deploy.Application, provider string, req clusterlive.Request) ([]deploy.LiveObject, []string, error) {
	held, release, err := holdFor(l.clusters, l.tenants, provider, app)
	if err != nil {
		return nil, nil, err
	}
	defer release()
	return clusterlive.Read(ctx, held.Cluster, req)
}

// firstOf joins the first few problems.
func firstOf(problems []string) string {
	const shown = 3
	if more := len(problems) - shown; more > 0 {
		problems = append(slices.Clone(problems[:shown]), "and more")
	}
	return strings.Join(problems, "; ")
}

// keptSets are the stored sets of the application's last successful deployment and of the
// active one, if any.
type keptSets []kubernetes.Kept

func (l liveStates) kept(ctx context.Context, app deploy.Application) (kept keptSets, err error) {
	refs := []*deploy.DeploymentRef{app.LastSuccessful}
	if app.Deploying {
		refs = append(refs, app.LastTriggered)
	}
	for _, ref := range refs {
		if ref == nil {
			continue
		}
		set, err := l.store.AppliedSet(ctx, ref.DeploymentID)
		if deploy.IsKind(err, deploy.NotFound) || deploy.IsKind(err, deploy.Invalid) {
			continue // not stored, or its key is lost
		}
		if err != nil {
			return nil, err
		}
		one, err := kubernetes.ReadKept(set)
		if err != nil {
			return nil, err
		}
		kept = append(kept, one)
	}
	return kept, nil
}

func (k keptSets) checks() (checks []config.HealthCheck) {
	for _, one := range k {
		checks = append(checks, one.Checks...)
	}
	return checks
}

// Text returns a text without the secrets of the sets. It implements apply.Concealer.
func (k keptSets) Text(text string) string {
	for _, one := range k {
		text = one.Redactor.Text(text)
	}
	return text
}

// redact removes the secrets of the sets from an error.
func (k keptSets) redact(err error) error {
	for _, one := range k {
		err = one.Redactor.Error(err)
	}
	return err
}

// mark marks declared objects, removes those that are neither declared nor live, redacts
// secrets, and sets the health of the application.
func (k keptSets) mark(state *deploy.LiveState) {
	declared := map[string]bool{}
	for _, one := range k {
		for _, ref := range one.Objects {
			declared[ref.Key()] = true
		}
	}
	for i := range state.Objects {
		o := &state.Objects[i]
		o.Declared = o.Variant == string(config.Primary) && (len(k) == 0 || declared[o.Object.Key()])
		k.redactObject(o)
	}
	state.Objects = slices.DeleteFunc(state.Objects, func(o deploy.LiveObject) bool {
		return !o.Declared && o.Variant == string(config.Primary) && o.Health == deploy.HealthMissing
	})
	for i, o := range state.Objects {
		if i == 0 || o.Health.WorseThan(state.Health) {
			state.Health = o.Health
		}
	}
	state.Incomplete = k.Text(state.Incomplete)
}

func (k keptSets) redactObject(o *deploy.LiveObject) {
	o.Images, o.Reason = slices.Clone(o.Images), k.Text(o.Reason)
	for i := range o.Images {
		o.Images[i] = k.Text(o.Images[i])
	}
	for i := range o.Children {
		k.redactObject(&o.Children[i])
	}
}

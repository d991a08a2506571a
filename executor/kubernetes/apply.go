package kubernetes

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/c785c783/piped/piped/cluster"
	"github.com/c785c783/piped/piped/cluster/rollout"
	"github.com/c785c783/piped/piped/config"
	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/manifest"
	"github.com/c785c783/piped/piped/source/secret"
	"github.com/c785c783/piped/piped/store"
)

// metaCreating is the stage metadata key of the objects the stage was about to
// create: after a crash it knows which of those it finds are its own, and so does
// the rollback after a stage that was stopped.
const metaCreating = deploy.MetaCreating

// work is one run of a stage. Its steps fill it one after the other.
type work struct {
	*Executor
	run     deploy.StageRun
	log     deploy.StageLog
	cluster Cluster
	release func()              // gives the cluster back
	config  *config.Application // of the commit that is rendered
	set     set
	hooks   []manifest.Object // of the commit, resolved: no part of the set
	hide    *secret.Redactor  // takes the set's secrets out of what the stage says

	before []deploy.InventoryItem // the application's inventory before the stage
	items  []deploy.InventoryItem // of the set, as applied

	expired map[string]bool // keys of the set's Jobs that have finished and are gone

	mu       sync.Mutex
	rollouts map[string]deploy.Rollout // by ID: the records of the set's workloads
	hooksRun map[string]hookState      // by object
	wrote    map[string]bool           // keys of the objects that were sent

	telling  []string        // keys of the workloads whose pods are nudged because their configuration changed
	restored map[string]bool // keys of the restored ConfigMaps and Secrets that reach has noted
}

// apply makes the cluster hold the set. For each workload a rollout record says
// what was live before; it is stored before the first write and after it.
func apply(ctx context.Context, w *work) error {
	if err := w.loadRollouts(ctx); err != nil {
		return err
	}
	req, err := w.request(ctx, w.set.Objects)
	if err != nil {
		return err
	}
	w.before = req.Inventory
	req.Journal = journal{w}
	result, err := w.cluster.Apply(ctx, req)
	w.items, w.expired = result.Items, keys(result.Expired)
	if err != nil {
		return errors.Join(err, w.noteReach(ctx, result))
	}
	if err := w.recordExpired(ctx, result.Expired); err != nil {
		return err
	}
	if err := w.recordConfigs(ctx); err != nil {
		return err
	}
	if err := w.reach(ctx, result, false); err != nil {
		return err
	}
	return w.join(ctx, w.set.Objects, result.Live)
}

// recordExpired completes the inventory with the Jobs that were taken over without
// being there any more, so that they are known to have run.
func (w *work) recordExpired(ctx context.Context, expired []deploy.InventoryItem) error {
	known := keys(w.before)
	return w.Store.PutInventory(ctx, slices.DeleteFunc(expired, func(i deploy.InventoryItem) bool { return known[i.Object.Key()] })...)
}

// recordConfigs completes the inventory with the configuration of workloads that were not
// sent although it has changed.
func (w *work) recordConfigs(ctx context.Context) error {
	before := map[string]string{}
	for _, i := range w.before {
		before[i.Object.Key()] = i.ConfigHash
	}
	return w.Store.PutInventory(ctx, slices.DeleteFunc(slices.Clone(w.items), func(i deploy.InventoryItem) bool {
		was, known := before[i.Object.Key()]
		return !known || was == i.ConfigHash || w.written(i.Object)
	})...)
}

// request returns what is asked of the cluster for objects of the application,
// with what is known of earlier runs.
func (w *work) request(ctx context.Context, objects []manifest.Object) (req cluster.ApplyRequest, err error) {
	req = w.baseRequest(ctx, objects)
	for _, read := range []func() error{
		func() error { req.Inventory, err = w.inventory(ctx); return err },
		func() error { req.Created, err = w.creating(); return err },
		func() error { req.Restarts, err = restartsOf(w.run.Stage); return err },
		func() error { req.Undo, err = w.undo(); return err },
		func() error { req.Reached, err = w.reached(ctx); return err },
		func() error { req.DriftedSince, err = w.driftedSince(ctx); return err },
	} {
		if err := read(); err != nil {
			return req, err
		}
	}
	return req, nil
}

// baseRequest is a request for objects that says whose they are.
func (w *work) baseRequest(ctx context.Context, objects []manifest.Object) cluster.ApplyRequest {
	return cluster.ApplyRequest{
		ApplicationID: w.run.Application.ID, PipedID: w.PipedID,
		VariantKey: w.set.Spec.VariantKey, VariantValue: w.set.value(), Variant: string(w.set.variant()),
		DeploymentID: w.run.Deployment.ID, Commit: w.set.Commit, Objects: objects, LastSuccess: w.lastSuccess(),
		TakeOver: w.set.Spec.TakeOver, Adopt: w.run.Deployment.Trigger.TakeOver, AutoCreateNamespace: w.set.Spec.AutoCreateNamespace,
		Yield:       cluster.Yielded(w.set.Spec.Drift),
		Propagation: w.set.Spec.propagation().Mode, Named: w.set.Spec.named(),
		ApplicationExists: w.applicationExists(ctx), Describe: w.describe(ctx), Claim: w.claim, Log: w.log,
	}
}

// lastSuccess returns when the application's last successful deployment ended.
func (w *work) lastSuccess() (at time.Time) {
	if last := w.run.Application.LastSuccessful; last != nil {
		at = last.CompletedAt
	}
	return at
}

// inventory returns what the application applied to the stage's cluster. An
// application that moved has items on other clusters, which are none of this
// stage's business.
func (w *work) inventory(ctx context.Context) ([]deploy.InventoryItem, error) {
	items, err := w.Store.Inventory(ctx, w.run.Application.ID)
	return slices.DeleteFunc(items, func(i deploy.InventoryItem) bool { return i.Cluster != w.cluster.Name() }), err
}

// applicationExists reports whether an application is registered here.
func (w *work) applicationExists(ctx context.Context) func(id string) bool {
	return func(id string) bool {
		app, err := w.Store.Application(ctx, id)
		return !deploy.IsKind(err, deploy.NotFound) && !app.Deleted
	}
}

// describe names an application registered here by its name, and by where it is
// configured: names may repeat.
func (w *work) describe(ctx context.Context) func(id string) string {
	return func(id string) string {
		app, err := w.Store.Application(ctx, id)
		if err != nil {
			return ""
		}
		return fmt.Sprintf("%s (%s:%s, ID %s)", app.Name, app.Git.RepoID, app.Git.ConfigPath(), id)
	}
}

// loadRollouts reads what an interrupted run of the stage recorded.
func (w *work) loadRollouts(ctx context.Context) error {
	if !w.run.Resumed {
		return nil
	}
	recorded, err := w.Store.Rollouts(ctx, store.RolloutQuery{DeploymentID: w.run.Deployment.ID, StageID: w.run.Stage.ID})
	if err != nil {
		return err
	}
	for _, r := range recorded {
		w.rollouts[r.ID] = r
	}
	return nil
}

// creating returns the objects an interrupted run was about to create.
func (w *work) creating() ([]deploy.ObjectRef, error) { return announcedBy(w.run.Stage) }

// announcedBy returns the objects a stage was about to create.
func announcedBy(stage deploy.Stage) ([]deploy.ObjectRef, error) {
	text := stage.Metadata[metaCreating]
	if text == "" {
		return nil, nil
	}
	var refs []deploy.ObjectRef
	if err := json.Unmarshal([]byte(text), &refs); err != nil {
		return nil, fmt.Errorf("read what stage %s was about to create: %w", stage.ID, err)
	}
	return refs, nil
}

// written reports whether this run of the stage sent the object.
func (w *work) written(ref deploy.ObjectRef) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.wrote[ref.Key()]
}

// join makes a record for each workload that needed no write: what is live now
// is what was live before, and its rollout may still be going on.
func (w *work) join(ctx context.Context, objs []manifest.Object, applied map[deploy.ObjectRef]*unstructured.Unstructured) error {
	for _, obj := range objs {
		live := applied[manifest.Ref(obj.Unstructured)]
		rec := w.record(obj)
		if live == nil || rec.Phase != "" && rec.Phase != deploy.RolloutIntent {
			continue
		}
		found, err := rollout.WorkloadFrom(live)
		if err != nil {
			return err
		}
		if rec.Phase == "" {
			if rec, err = w.intended(ctx, rec, &found, found.Template.Digest); err != nil {
				return err
			}
		}
		if err := w.save(ctx, rollout.Applied(rec, found, w.Now())); err != nil {
			return err
		}
	}
	return nil
}

// record returns the rollout record of an object, a fresh one without phase if
// there is none.
func (w *work) record(obj manifest.Object) deploy.Rollout {
	d := w.run.Deployment
	id := deploy.RolloutID(d.ID, w.run.Stage.ID, w.cluster.Name(), manifest.Ref(obj.Unstructured))
	w.mu.Lock()
	defer w.mu.Unlock()
	if rec, ok := w.rollouts[id]; ok {
		return rec
	}
	return deploy.Rollout{
		ID: id, ApplicationID: d.ApplicationID, ApplicationName: d.ApplicationName, DeploymentID: d.ID, StageID: w.run.Stage.ID,
		Commit: w.set.Commit, Cluster: w.cluster.Name(), Workload: manifest.Ref(obj.Unstructured), CreatedAt: w.Now(),
	}
}

func (w *work) save(ctx context.Context, rec deploy.Rollout) error {
	saved, err := w.Store.SaveRollout(ctx, w.withoutSecrets(rec))
	if err != nil {
		return fmt.Errorf("record the rollout of %s: %w", rec.Workload, err)
	}
	w.mu.Lock()
	w.rollouts[saved.ID] = saved
	w.mu.Unlock()
	return nil
}

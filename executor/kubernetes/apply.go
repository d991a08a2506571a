package kubernetes

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/c785c783/piped/piped/cluster/apply"
	"github.com/c785c783/piped/piped/cluster/rollout"
	"github.com/c785c783/piped/piped/config"
	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/manifest"
	"github.com/c785c783/piped/piped/source/secret"
	"github.com/c785c783/piped/piped/store"
)

// metaCreating is the stage metadata key of the objects that the stage was about to create.
// A resumed run and a rollback read from it which live objects the deployment has created.
const metaCreating = deploy.MetaCreating

// work is one run of a stage. Each step reads what the steps before it stored here.
type work struct {
	*Executor
	run     deploy.StageRun
	log     deploy.StageLog
	cluster Cluster
	release func()              // releases the cluster
	config  *config.Application // application configuration of the rendered commit
	set     set
	hooks   []manifest.Object // of the commit, resolved; not part of the set
	hide    *secret.Redactor  // redacts the set's secrets from messages

	// Of the last apply:
	before  []deploy.InventoryItem // the application's inventory before the apply
	items   []deploy.InventoryItem // the applied objects
	expired map[string]bool        // keys of the Jobs among items that Kubernetes deleted after their end

	mu       sync.Mutex
	rollouts map[string]deploy.Rollout // records of the set's workloads, by ID
	hooksRun map[string]hookState      // by hookKey; nil before loadHooks
	wrote    map[string]bool           // keys of the objects that this run has written

	nudging  []string        // keys of the workloads whose pods are nudged for changed configuration
	restored map[string]bool // keys of the restored ConfigMaps and Secrets that nudges are planned for
}

// applySet applies the objects of the set.
func applySet(ctx context.Context, w *work) error { return w.applyObjects(ctx, w.set.Objects) }

// applyObjects applies objects of the set. It stores a rollout record for each workload
// before the write, with the live state, and again after the write.
func (w *work) applyObjects(ctx context.Context, objects []manifest.Object) error {
	if err := w.loadRollouts(ctx); err != nil {
		return err
	}
	req, err := w.request(ctx, objects)
	if err != nil {
		return err
	}
	req.Journal, w.before = journal{w}, req.Inventory
	result, err := w.cluster.Apply(ctx, req)
	w.items, w.expired = result.Items, keys(result.Expired)
	if err != nil {
		return errors.Join(err, w.noteFailedApply(ctx, result))
	}
	for _, record := range []func() error{
		func() error { return w.recordExpired(ctx, result.Expired) },
		func() error { return w.recordConfigs(ctx) },
		func() error { return w.planNudges(ctx, result, false) },
		func() error { return w.recordUnwritten(ctx, objects, result.Live) },
	} {
		if err := record(); err != nil {
			return err
		}
	}
	return nil
}

// recordExpired adds Jobs to the inventory that finished and were deleted by Kubernetes
// before the application took them over, so that they are not run again.
func (w *work) recordExpired(ctx context.Context, expired []deploy.InventoryItem) error {
	known := keys(w.before)
	return w.Store.PutInventory(ctx, slices.DeleteFunc(expired, func(i deploy.InventoryItem) bool { return known[i.Object.Key()] })...)
}

// recordConfigs updates the configuration hash in the inventory of workloads that were not
// written although their configuration has changed.
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

// request returns a request to apply objects, including the records of earlier runs and
// stages.
func (w *work) request(ctx context.Context, objects []manifest.Object) (req apply.Request, err error) {
	req = w.baseRequest(ctx, objects)
	for _, read := range []func() error{
		func() error { req.Inventory, err = w.inventory(ctx); return err },
		func() error { req.Created, err = creating(w.run.Stage); return err },
		func() error { req.Restarts, err = restartsOf(w.run.Stage); return err },
		func() error { req.Undo, err = w.undo(); return err },
		func() error { req.Reached, err = w.knownPropagations(ctx); return err },
		func() error { req.DriftedSince, err = w.driftedSince(ctx); return err },
	} {
		if err := read(); err != nil {
			return req, err
		}
	}
	return req, nil
}

// baseRequest returns a request to apply objects, without the records of earlier runs.
func (w *work) baseRequest(ctx context.Context, objects []manifest.Object) apply.Request {
	return apply.Request{
		ApplicationID: w.run.Application.ID, PipedID: w.PipedID,
		VariantKey: w.set.Spec.VariantKey, VariantValue: w.set.value(), Variant: string(w.set.variant()),
		DeploymentID: w.run.Deployment.ID, Commit: w.set.Commit, Objects: objects, LastSuccess: w.lastSuccess(),
		TakeOver: w.set.Spec.TakeOver, Adopt: w.run.Deployment.Trigger.TakeOver, AutoCreateNamespace: w.set.Spec.AutoCreateNamespace,
		Yield:       apply.Yielded(w.set.Spec.Drift),
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

// inventory returns the application's inventory in the stage's cluster. An application
// that was moved also has items in other clusters, which no stage changes.
func (w *work) inventory(ctx context.Context) ([]deploy.InventoryItem, error) {
	items, err := w.Store.Inventory(ctx, w.run.Application.ID)
	return slices.DeleteFunc(items, func(i deploy.InventoryItem) bool { return i.Cluster != w.cluster.Name() }), err
}

// applicationExists returns a function that reports whether an application is registered
// with this agent. If the store fails it returns true.
func (w *work) applicationExists(ctx context.Context) func(id string) bool {
	return func(id string) bool {
		app, err := w.Store.Application(ctx, id)
		return !deploy.IsKind(err, deploy.NotFound) && !app.Deleted
	}
}

// describe returns a function that names a registered application in messages, with its
// configuration file because names may repeat. It returns "" for an unknown application.
func (w *work) describe(ctx context.Context) func(id string) string {
	return func(id string) string {
		app, err := w.Store.Application(ctx, id)
		if err != nil {
			return ""
		}
		return fmt.Sprintf("%s (%s:%s, ID %s)", app.Name, app.Git.RepoID, app.Git.ConfigPath(), id)
	}
}

// loadRollouts reads the rollout records of an interrupted run of the stage.
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

// creating returns the objects that a stage was about to create.
func creating(stage deploy.Stage) (refs []deploy.ObjectRef, err error) {
	_, err = readMetadata(stage, metaCreating, &refs)
	return refs, err
}

// written reports whether this run of the stage has written the object.
func (w *work) written(ref deploy.ObjectRef) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.wrote[ref.Key()]
}

// recordUnwritten stores a rollout record for each workload that needed no write: the
// rollout of an earlier write may still be in progress.
func (w *work) recordUnwritten(ctx context.Context, objs []manifest.Object, applied map[deploy.ObjectRef]*unstructured.Unstructured) error {
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

// record returns the rollout record of an object, or a new one without a phase.
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

// save stores a rollout record, with the set's secrets redacted.
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

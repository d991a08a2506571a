package kubernetes

import (
	"cmp"
	"context"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/c785c783/piped/piped/cluster/apply"
	"github.com/c785c783/piped/piped/cluster/rollout"
	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/manifest"
	"github.com/c785c783/piped/piped/store"
)

// journal implements apply.Journal. It records the planned changes in the stage's metadata,
// a rollout record for each workload, and an inventory item for each object.
type journal struct{ *work }

// routeJournal is the journal for the objects that route traffic. Their waves are written
// without a wait in between.
type routeJournal struct{ journal }

// AfterWave returns nil, so that the next wave is written at once.
func (routeJournal) AfterWave(context.Context, []manifest.Object, apply.Result) error {
	return nil
}

// Begin stores which workloads the apply restarts, the configuration that running pods see,
// and which objects the apply creates. A run after a crash cannot determine them from the
// cluster any more.
func (j journal) Begin(ctx context.Context, intent apply.Intent) error {
	if len(intent.Restarts) > 0 {
		if err := saveMetadata(ctx, j.run, metaConfig, intent.Restarts); err != nil {
			return err
		}
	}
	if err := j.savePodConfig(ctx, intent.Reach); err != nil {
		return err
	}
	if len(intent.Creates) > 0 {
		return j.announce(ctx, intent.Creates)
	}
	return nil
}

// announce adds objects to the stage's record of objects that it is about to create.
func (w *work) announce(ctx context.Context, refs []deploy.ObjectRef) error {
	earlier, err := creating(w.run.Stage)
	if err != nil {
		return err
	}
	return saveMetadata(ctx, w.run, metaCreating, append(earlier, refs...))
}

// BeforeWrite stores the intent to apply a workload. It retains the record of an
// interrupted run, because only that record contains the live state before the first write.
func (j journal) BeforeWrite(ctx context.Context, obj manifest.Object, live, planned *unstructured.Unstructured) error {
	rec := j.record(obj)
	if rec.Phase != "" {
		return nil
	}
	var before *rollout.Workload
	if live != nil {
		found, err := rollout.WorkloadFrom(live)
		if err != nil {
			return err
		}
		before = &found
	}
	digest := ""
	if planned != nil {
		digest = rollout.ObjectTemplate(planned).Digest
	}
	rec, err := j.intended(ctx, rec, before, digest)
	if err != nil {
		return err
	}
	return j.save(ctx, rec)
}

// intended returns rec with the intent to apply its workload (rollout.Intended). before is
// the live workload, nil if there is none. digest is the digest of the planned pod
// template, "" if it is unknown. If the template may stay unchanged, it also sets
// ProvenBefore: whether the last ended rollout of the workload succeeded with this
// template.
func (w *work) intended(ctx context.Context, rec deploy.Rollout, before *rollout.Workload, digest string) (deploy.Rollout, error) {
	rec = rollout.Intended(rec, before, digest)
	if before == nil || digest != "" && digest != rec.LiveBefore {
		return rec, nil
	}
	recorded, err := w.Store.Rollouts(ctx, store.RolloutQuery{Cluster: rec.Cluster, Workload: rec.Workload, Limit: provenBy})
	for _, earlier := range recorded {
		if earlier.Phase.Terminal() {
			well := earlier.Phase == deploy.RolloutComplete || earlier.Phase == deploy.RolloutNoRollout && !earlier.PausedInGit
			rec.ProvenBefore = well && cmp.Or(earlier.FollowedDigest, earlier.TemplateDigest) == rec.LiveBefore
			break
		}
	}
	return rec, err
}

// provenBy is how many of a workload's newest rollouts are searched for the last one
// that ended.
const provenBy = 5

// AfterWrite stores the result of a write: the rollout record of a workload, then the
// inventory item. It does so even if the stage was stopped meanwhile, because the object is
// written.
func (j journal) AfterWrite(ctx context.Context, obj manifest.Object, result *unstructured.Unstructured, item deploy.InventoryItem) error {
	ctx = context.WithoutCancel(ctx)
	j.mu.Lock()
	j.wrote[item.Object.Key()] = true
	j.mu.Unlock()
	if rec := j.record(obj); rec.Phase != "" && !rec.Phase.Terminal() {
		found, err := rollout.WorkloadFrom(result)
		if err != nil {
			return err
		}
		rec = rollout.Applied(rec, found, j.Now())
		if err := j.noteRewrite(ctx, &rec, item); err != nil {
			return err
		}
		if err := j.save(ctx, rec); err != nil {
			return err
		}
	}
	return j.Store.PutInventory(ctx, item)
}

// AfterWave waits until the wave has rolled out and is healthy. Meanwhile the agent nudges
// pods for changed configuration.
func (j journal) AfterWave(ctx context.Context, wave []manifest.Object, result apply.Result) error {
	if err := j.planNudges(ctx, result, false); err != nil {
		return err
	}
	if err := j.recordUnwritten(ctx, wave, result.Live); err != nil {
		return err
	}
	j.log.Infof("A wave is applied (%s %d); the next one follows when it is healthy", manifest.AnnotationOrder, manifest.Order(wave[0].Unstructured))
	return j.awaitHealth(ctx, wave)
}

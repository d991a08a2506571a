package kubernetes

import (
	"cmp"
	"context"
	"strings"
	"time"

	"github.com/c785c783/piped/piped/cluster/rollout"
	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/manifest"
	"github.com/c785c783/piped/piped/store"
)

// unstickInterval is how often StatefulSets that are rolled back are looked at
// without an event.
const unstickInterval = 5 * time.Second

// putBack applies the set and waits for it. Meanwhile it deletes the failed pods
// that the StatefulSets of the set would wait for.
func putBack(ctx context.Context, w *work) error {
	failed, err := w.failedRevisions(ctx)
	if err != nil {
		return err
	}
	during, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- w.unstick(during, failed) }()
	if err = apply(ctx, w); err == nil {
		err = await(ctx, w)
	}
	stop()
	return cmp.Or(err, <-ended)
}

// failedRevisions returns, for the StatefulSets of the set, the names of the
// revisions that the stages before gave them.
func (w *work) failedRevisions(ctx context.Context) (map[deploy.ObjectRef][]string, error) {
	own := map[deploy.ObjectRef]bool{}
	for _, o := range w.set.Objects {
		if ref := manifest.Ref(o.Unstructured); ref.Group == "apps" && ref.Kind == rollout.KindStatefulSet {
			own[ref] = true
		}
	}
	if len(own) == 0 {
		return nil, nil
	}
	all, err := w.Store.Rollouts(ctx, store.RolloutQuery{DeploymentID: w.run.Deployment.ID, Cluster: w.cluster.Name()})
	if err != nil {
		return nil, err
	}
	failed := map[deploy.ObjectRef][]string{}
	for _, rec := range all {
		changed := rec.StageID != w.run.Stage.ID && rec.LiveBefore != rec.TemplateDigest
		if own[rec.Workload] && changed && rec.TargetName != "" {
			failed[rec.Workload] = append(failed[rec.Workload], rec.TargetName)
		}
	}
	return failed, nil
}

// unstick looks at the StatefulSets whenever they change, until ctx ends.
func (w *work) unstick(ctx context.Context, failed map[deploy.ObjectRef][]string) error {
	changed := make(chan struct{}, 1)
	for ref := range failed {
		cancel, err := w.cluster.Rollouts.Subscribe(ref, func() {
			select {
			case changed <- struct{}{}:
			default:
			}
		})
		if err != nil {
			return err
		}
		defer cancel()
	}
	again := time.NewTicker(unstickInterval)
	defer again.Stop()
	said := map[string]bool{}
	for {
		for ref, revisions := range failed {
			w.unstickOne(ctx, ref, revisions, said)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-changed:
		case <-again.C:
		}
	}
}

// unstickOne looks at one StatefulSet, and says in the log what was deleted or
// why it could not be: the rollout itself then tells how the rollback ends.
func (w *work) unstickOne(ctx context.Context, ref deploy.ObjectRef, revisions []string, said map[string]bool) {
	deleted, err := w.cluster.Unstick(ctx, ref, revisions)
	for _, pod := range deleted {
		w.log.Infof("Deleted pod %s: it is of %s, which failed, and is not ready; %s would wait for it and not roll back", pod, strings.Join(revisions, ", "), ref)
	}
	if err != nil && ctx.Err() == nil && !said[err.Error()] {
		said[err.Error()] = true
		w.log.Infof("Pods of the failed revision stay for now: %v", err)
	}
}

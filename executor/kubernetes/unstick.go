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

// unstickInterval is the interval of checks of StatefulSets during a rollback, in addition
// to the checks after each change.
const unstickInterval = 5 * time.Second

// restoreObjects applies objects of the set and waits for them. Meanwhile it deletes the
// failed pods that block the rollback of their StatefulSets.
func (w *work) restoreObjects(ctx context.Context, objects []manifest.Object) error {
	failed, err := w.failedRevisions(ctx, objects)
	if err != nil {
		return err
	}
	during, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- w.unstick(during, failed) }()
	if err = w.applyObjects(ctx, objects); err == nil {
		err = w.awaitObjects(ctx, objects)
	}
	stop()
	return cmp.Or(err, <-ended)
}

// failedRevisions returns, for each StatefulSet among objects, the names of the
// ControllerRevisions that earlier stages of the deployment created.
func (w *work) failedRevisions(ctx context.Context, objects []manifest.Object) (map[deploy.ObjectRef][]string, error) {
	own := map[deploy.ObjectRef]bool{}
	for _, ref := range objectRefs(objects) {
		if ref.Group == "apps" && ref.Kind == rollout.KindStatefulSet {
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

// unstick calls unstickOne for each StatefulSet, after each change of one of them and at
// intervals, until ctx ends.
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
	logged := map[string]bool{}
	for {
		for ref, revisions := range failed {
			w.unstickOne(ctx, ref, revisions, logged)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-changed:
		case <-again.C:
		}
	}
}

// unstickOne deletes the pods that block one StatefulSet. It logs each reason why one
// cannot be deleted once. It returns no error, because the rollout then decides the result
// of the rollback.
func (w *work) unstickOne(ctx context.Context, ref deploy.ObjectRef, revisions []string, logged map[string]bool) {
	deleted, err := w.cluster.Unstick(ctx, ref, revisions)
	for _, pod := range deleted {
		w.log.Infof("Deleted pod %s: it is not ready and of %s, which failed; %s would not roll back while it waits for the pod", pod, strings.Join(revisions, ", "), ref)
	}
	if err != nil && ctx.Err() == nil && !logged[err.Error()] {
		logged[err.Error()] = true
		w.log.Infof("Cannot delete pods of the failed revision yet: %v", err)
	}
}

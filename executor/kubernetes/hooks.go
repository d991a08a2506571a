package kubernetes

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/c785c783/piped/piped/cluster/apply"
	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/manifest"
)

// metaHooks is the stage metadata key of the states of the hooks. A deployment runs each
// hook once per phase, even if its stages are interrupted.
const metaHooks = deploy.MetaHooks

// hookState is the progress of a hook in a deployment.
type hookState string

const (
	hookBegun hookState = "begun" // created, not known to have ended
	hookDone  hookState = "done"
)

// preHooks runs the hooks that precede the apply. They run only if the set can be applied,
// because their external effects cannot be undone.
func preHooks(ctx context.Context, w *work) error {
	w.logSkippedHooks()
	hooks := w.hooksOf(manifest.HookPre)
	if len(hooks) == 0 {
		return nil
	}
	req, err := w.request(ctx, w.set.Objects)
	if err != nil {
		return err
	}
	if err := w.cluster.Check(ctx, req); err != nil {
		return err
	}
	return w.runHooks(ctx, hooks)
}

// postHooks runs the hooks that follow the apply. Call it when the application is healthy.
func postHooks(ctx context.Context, w *work) error {
	return w.runHooks(ctx, w.hooksOf(manifest.HookPost))
}

// hooksOf returns the hooks of a phase that this deployment runs.
func (w *work) hooksOf(phase manifest.HookPhase) []manifest.Object {
	return slices.DeleteFunc(slices.Clone(w.hooks), func(o manifest.Object) bool {
		return o.Hook.Phase != phase || w.skipReason(o.Hook) != ""
	})
}

// skipReason explains why this deployment does not run a hook; "" if it runs it.
func (w *work) skipReason(h manifest.Hook) string {
	install := w.run.Deployment.RunningCommit == ""
	switch {
	case h.Phase != manifest.HookPre && h.Phase != manifest.HookPost:
		return "a deployment has no such phase"
	case w.run.Deployment.Trigger.TakeOver:
		return "the live objects are taken over as they are"
	case install && !h.Install:
		return "it is for upgrades, and the application has no earlier success"
	case !install && !h.Upgrade:
		return "it is for installations, and the application has an earlier success"
	}
	return ""
}

func (w *work) logSkippedHooks() {
	for _, o := range w.hooks {
		if why := w.skipReason(o.Hook); why != "" {
			w.log.Infof("Hook %s (%s) is not run%s: %s", manifest.Ref(o.Unstructured), o.Origin, side(o.Hook.Phase), why)
		}
	}
}

// side describes a hook's phase in the stage's log.
func side(phase manifest.HookPhase) string {
	switch phase {
	case manifest.HookPre:
		return " before the sync"
	case manifest.HookPost:
		return " after the sync"
	}
	return ""
}

// logNoHooks logs that a rollback runs no hooks: running them again does not undo their
// external effects.
func logNoHooks(_ context.Context, w *work) error {
	if n := w.set.Spec.Hooks; n > 0 {
		w.log.Infof("A rollback runs no hooks; commit %s has %d", deploy.ShortHash(w.set.Commit), n)
	}
	return nil
}

// runHooks runs hooks by weight, and waits for those that run to completion. The first
// failure fails the stage. Then it deletes the hooks whose deletion policy asks for that.
func (w *work) runHooks(ctx context.Context, hooks []manifest.Object) error {
	if err := w.loadHooks(); err != nil {
		return err
	}
	begun, err := w.runByWeight(ctx, hooks)
	if ctx.Err() != nil || deploy.StoreUnavailable(err) {
		return err // a resumed stage waits for the hooks that run
	}
	var over []deploy.ObjectRef
	for _, o := range begun {
		if w.stateOf(o) == hookDone && o.Hook.DeleteOnSuccess || w.stateOf(o) != hookDone && o.Hook.DeleteOnFailure {
			over = append(over, manifest.Ref(o.Unstructured))
		}
	}
	if deleteErr := w.deleteHooks(ctx, over); err == nil {
		err = deleteErr
	}
	return err
}

// runByWeight runs hooks in the order of their weights, those of equal weight together, and
// returns those that were begun.
func (w *work) runByWeight(ctx context.Context, hooks []manifest.Object) (begun []manifest.Object, err error) {
	hooks = slices.Clone(hooks)
	slices.SortStableFunc(hooks, func(a, b manifest.Object) int { return cmp.Compare(a.Hook.Weight, b.Hook.Weight) })
	for len(hooks) > 0 {
		n := slices.IndexFunc(hooks, func(o manifest.Object) bool { return o.Hook.Weight != hooks[0].Hook.Weight })
		if n < 0 {
			n = len(hooks)
		}
		begun = append(begun, hooks[:n]...)
		if err := w.runGroup(ctx, hooks[:n]); err != nil {
			return begun, err
		}
		hooks = hooks[n:]
	}
	return begun, nil
}

// runGroup applies those hooks of one phase that this deployment has not completed, and
// waits for those that run to completion.
func (w *work) runGroup(ctx context.Context, hooks []manifest.Object) error {
	hooks = slices.DeleteFunc(slices.Clone(hooks), func(o manifest.Object) bool { return w.stateOf(o) == hookDone })
	if len(hooks) == 0 {
		return nil
	}
	req := w.baseRequest(ctx, hooks)
	req.HookRun, req.Journal = w.run.Deployment.ID+"/"+string(hooks[0].Hook.Phase), hookJournal{work: w}
	for _, o := range hooks {
		if w.stateOf(o) == hookBegun {
			req.Created = append(req.Created, manifest.Ref(o.Unstructured))
		}
	}
	if _, err := w.cluster.Apply(ctx, req); err != nil {
		return fmt.Errorf("run hooks: %w", err)
	}
	g, gctx := errgroup.WithContext(ctx)
	for _, o := range hooks {
		g.Go(func() error {
			if apply.RunsToEnd(o.Unstructured) {
				if err := w.cluster.AwaitHealthy(gctx, apply.HealthRequest{Objects: []manifest.Object{o}, Log: w.log}); err != nil {
					return fmt.Errorf("hook %w", err)
				}
			}
			return w.saveHook(gctx, o, hookDone)
		})
	}
	err := g.Wait()
	if err != nil {
		w.logCrashes(ctx, nil, err)
	}
	return err
}

// deleteHooks deletes hooks that have run.
func (w *work) deleteHooks(ctx context.Context, refs []deploy.ObjectRef) error {
	items, err := w.cluster.Owned(ctx, w.run.Application.ID, w.PipedID, refs)
	if err != nil {
		return fmt.Errorf("delete hooks that have run: %w", err)
	}
	if _, err := w.cluster.Delete(ctx, w.PipedID, items, w.log); err != nil {
		return fmt.Errorf("delete hooks that have run: %w", err)
	}
	return nil
}

// loadHooks reads the states of the deployment's hooks from the metadata of its stages,
// unless an earlier call has done so.
func (w *work) loadHooks() error {
	if w.hooksRun != nil {
		return nil
	}
	w.hooksRun = map[string]hookState{}
	for _, stage := range append(w.run.Deployment.ForwardStages(), w.run.Stage) {
		var states map[string]hookState
		if _, err := readMetadata(stage, metaHooks, &states); err != nil {
			return err
		}
		for key, state := range states {
			if w.hooksRun[key] != hookDone {
				w.hooksRun[key] = state
			}
		}
	}
	return nil
}

// hookKey identifies a hook in a deployment: an object may run in two phases.
func hookKey(o manifest.Object) string {
	return string(o.Hook.Phase) + " " + manifest.Ref(o.Unstructured).Key()
}

// stateOf returns the state of a hook in its phase, "" if it was not begun.
func (w *work) stateOf(o manifest.Object) hookState {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.hooksRun[hookKey(o)]
}

// hookJournal records only which hooks were begun: hooks have no rollout records and are
// not in the inventory.
type hookJournal struct {
	apply.NoJournal
	work *work
}

// AfterWrite stores that a hook was begun, even if the stage was stopped meanwhile.
func (j hookJournal) AfterWrite(ctx context.Context, o manifest.Object, _ *unstructured.Unstructured, _ deploy.InventoryItem) error {
	return j.work.saveHook(context.WithoutCancel(ctx), o, hookBegun)
}

// saveHook sets the state of a hook, and stores the states of all hooks in the stage's
// metadata.
func (w *work) saveHook(ctx context.Context, o manifest.Object, state hookState) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.hooksRun[hookKey(o)] = state
	return saveMetadata(ctx, w.run, metaHooks, w.hooksRun)
}

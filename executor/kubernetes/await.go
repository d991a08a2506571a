package kubernetes

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/c785c783/piped/piped/cluster/apply"
	"github.com/c785c783/piped/piped/cluster/rollout"
	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/manifest"
	"github.com/c785c783/piped/piped/store"
)

// await waits until every rollout of the set has ended and its other objects are healthy.
// It returns a stageError for a failed rollout or an unhealthy object.
func await(ctx context.Context, w *work) error { return w.awaitObjects(ctx, w.set.Objects) }

// awaitObjects waits for objects of the set, then for the nudges of their pods.
func (w *work) awaitObjects(ctx context.Context, objs []manifest.Object) error {
	if err := w.awaitHealth(ctx, objs); err != nil {
		return err
	}
	return w.awaitNudges(ctx)
}

// awaitHealth waits until the rollouts of objects have ended and the others are healthy.
// The first failure ends the wait for both.
func (w *work) awaitHealth(ctx context.Context, objs []manifest.Object) error {
	unproven, err := w.unproven(ctx, objs)
	if err != nil {
		return err
	}
	during, stop := context.WithCancel(ctx)
	defer stop()
	health, abandon := make(chan error, 1), make(chan string, 1)
	go func() {
		err := w.cluster.AwaitHealthy(during, apply.HealthRequest{Objects: unproven, Checks: w.set.Spec.HealthChecks, Log: w.log})
		var u *apply.Unhealthy
		if errors.As(err, &u) {
			abandon <- u.Object.String()
		}
		health <- err
	}()
	ended, err := w.awaitRollouts(ctx, objs, abandon)
	if err == nil {
		err = evaluate(ended)
	}
	if err != nil {
		stop()
	}
	unhealthy := <-health
	if cmp.Or(err, unhealthy) != nil {
		w.logCrashes(ctx, ended, unhealthy)
	}
	return joinFailures(err, unhealthy)
}

// unproven returns the objects whose health decides the result of the stage: those that
// this deployment wrote, and those that no successful deployment has written. The other
// objects were healthy at the end of an earlier deployment. If one has become unhealthy
// since, that does not fail the stage.
func (w *work) unproven(ctx context.Context, objs []manifest.Object) (out []manifest.Object, err error) {
	writers := map[string]string{} // deployment IDs, by the key of the object
	for _, item := range w.before {
		writers[item.Object.Key()] = item.DeploymentID
	}
	proven := map[string]bool{} // whether a deployment succeeded, by its ID
	for _, o := range objs {
		if !apply.HasHealth(o, w.set.Spec.HealthChecks) {
			continue
		}
		ref := manifest.Ref(o.Unstructured)
		if w.expired[ref.Key()] {
			continue
		}
		writer := writers[ref.Key()]
		if _, known := proven[writer]; !known && writer != "" {
			d, err := w.Store.Deployment(ctx, writer)
			if err != nil && !deploy.IsKind(err, deploy.NotFound) {
				return nil, err
			}
			proven[writer] = err == nil && d.Status == deploy.Success
		}
		if w.written(ref) || !proven[writer] {
			out = append(out, o)
		}
	}
	return out, nil
}

// awaitRollouts waits until the rollouts of objects have ended, and returns their records.
// A text received from abandon, the name of an unhealthy object, ends the wait: records that
// have not ended are stored as Superseded, and the error is nil.
func (w *work) awaitRollouts(ctx context.Context, objs []manifest.Object, abandon <-chan string) ([]deploy.Rollout, error) {
	records := w.records(objs)
	if len(records) == 0 {
		return nil, nil
	}
	return rollout.Wait(ctx, rollout.Request{
		Records: records, Observer: w.cluster.Rollouts, Policy: w.policy(), Save: w.saveEnd, Abandon: abandon,
		Progress: func(line string) { w.log.Infof("%s", line) }, Marked: w.Metrics.Marked, Now: w.Now,
	})
}

// joinFailures combines the error of the rollouts with that of the other objects. If an
// object is unhealthy, the result omits rollouts that were abandoned or taken over by
// another field manager, and permits a rollback.
func joinFailures(rollouts, objects error) error {
	var u *apply.Unhealthy
	if !errors.As(objects, &u) {
		return cmp.Or(rollouts, objects)
	}
	var r *stageError
	if errors.As(rollouts, &r) && !r.noRollback {
		return &stageError{reason: r.reason + "; " + objects.Error()}
	}
	return &stageError{reason: objects.Error()}
}

// records returns the rollout records of objects, in their order.
func (w *work) records(objs []manifest.Object) []deploy.Rollout {
	var out []deploy.Rollout
	for _, obj := range objs {
		if rec := w.record(obj); rec.Phase != "" {
			out = append(out, rec)
		}
	}
	return out
}

// policy returns the agent's policy with the application's settings.
func (w *work) policy() rollout.Policy {
	p := w.Policy
	p.ReadyThreshold, p.Strict, p.NoFailFast = w.set.Spec.ReadyThreshold, w.set.Spec.Strict, !w.set.Spec.FailFast
	p.WaitTermination = w.set.Spec.WaitTermination
	return p
}

// withoutSecrets redacts the set's secrets from the texts of a record.
func (w *work) withoutSecrets(rec deploy.Rollout) deploy.Rollout {
	rec.Images, rec.ImagesBefore, rec.Reason = w.hide.Text(rec.Images), w.hide.Text(rec.ImagesBefore), w.hide.Text(rec.Reason)
	return rec
}

// saveEnd stores a record, and logs its success. After a conflict it returns the stored
// record with the error.
func (w *work) saveEnd(ctx context.Context, rec deploy.Rollout) (deploy.Rollout, error) {
	saved, err := w.Store.SaveRollout(ctx, w.withoutSecrets(rec))
	switch {
	case err == nil && saved.Phase == deploy.RolloutComplete:
		w.log.Successf("%s: rollout complete after %s", saved.Workload, took(rec))
	case err == nil && saved.Phase == deploy.RolloutNoRollout:
		w.log.Infof("%s: nothing to roll out", saved.Workload)
	}
	if !deploy.IsKind(err, deploy.Conflict) {
		return saved, err
	}
	stored, readErr := w.Store.Rollouts(ctx, store.RolloutQuery{DeploymentID: rec.DeploymentID, StageID: rec.StageID})
	if readErr != nil {
		return rec, readErr
	}
	for _, s := range stored {
		if s.ID == rec.ID {
			return s, err
		}
	}
	return rec, err
}

// took returns how long a rollout took, from the first apply to its end. Both times are of
// the agent's clock.
func took(rec deploy.Rollout) time.Duration {
	return max(0, rec.CompletedAt.Sub(rec.AppliedAt)).Round(10 * time.Millisecond)
}

// stageError fails a stage, and sets whether a rollback may follow.
type stageError struct {
	reason     string
	noRollback bool // nothing was changed, or a rollback would undo the change of another field manager
}

func (e *stageError) Error() string { return e.reason }

// evaluate returns nil if all rollouts have succeeded, else a stageError. It names the
// failed rollouts. Only if none has failed, it names those that another field manager took
// over, and forbids a rollback.
func evaluate(ended []deploy.Rollout) error {
	var failed, foreign []string
	for _, rec := range ended {
		switch rec.Phase {
		case deploy.RolloutComplete, deploy.RolloutNoRollout:
		case deploy.RolloutFailed, deploy.RolloutTimedOut:
			failed = append(failed, ending(rec))
		default:
			foreign = append(foreign, ending(rec))
		}
	}
	switch {
	case len(failed) > 0:
		return &stageError{reason: strings.Join(failed, "; ")}
	case len(foreign) > 0:
		return &stageError{reason: strings.Join(foreign, "; "), noRollback: true}
	}
	return nil
}

// ending returns the workload and the reason of a record for a message. It removes the
// workload's name from the start of the reason.
func ending(rec deploy.Rollout) string {
	return fmt.Sprintf("%s: %s", rec.Workload, strings.TrimPrefix(rec.Reason, rec.Workload.Name+": "))
}

// failure returns the result of a stage that ended with an error.
func failure(err error) deploy.StageResult {
	result := deploy.StageResult{Status: deploy.StageFailure, Reason: err.Error(), Interrupted: deploy.StoreUnavailable(err)}
	var r *stageError
	if errors.As(err, &r) {
		result.NoRollback = r.noRollback
	}
	return result
}

package kubernetes

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/c785c783/piped/piped/cluster"
	"github.com/c785c783/piped/piped/cluster/rollout"
	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/manifest"
	"github.com/c785c783/piped/piped/store"
)

// await waits until every rollout of the set has ended and everything else that has
// health is healthy. It fails with a stageError unless all went well.
// Then it says which pods were told of their configuration meanwhile.
func await(ctx context.Context, w *work) error {
	if err := w.awaitObjects(ctx, w.set.Objects); err != nil {
		return err
	}
	return w.sayTold(ctx)
}

// awaitObjects is await for some objects of the set. The first failure ends the
// wait, be it of a rollout or of another object.
func (w *work) awaitObjects(ctx context.Context, objs []manifest.Object) error {
	unproven, err := w.unproven(ctx, objs)
	if err != nil {
		return err
	}
	healthy, stop := context.WithCancel(ctx)
	defer stop()
	sick, abandon := make(chan error, 1), make(chan string, 1)
	go func() {
		err := w.cluster.AwaitHealthy(healthy, cluster.HealthRequest{Objects: unproven, Checks: w.set.Spec.HealthChecks, Log: w.log})
		var u *cluster.Unhealthy
		if errors.As(err, &u) {
			abandon <- u.Object.String()
		}
		sick <- err
	}()
	ended, err := w.awaitRollouts(ctx, objs, abandon)
	if err == nil {
		err = judge(ended)
	}
	if err != nil {
		stop()
	}
	unhealthy := <-sick
	if cmp.Or(err, unhealthy) != nil {
		w.sayCrashes(ctx, ended, unhealthy)
	}
	return worst(err, unhealthy)
}

// unproven returns those objects with health that have to show it: what the deployment
// wrote, and what no successful one wrote before. What was healthy at the end of an
// earlier deployment and is not any more is no reason to roll this one back.
func (w *work) unproven(ctx context.Context, objs []manifest.Object) (out []manifest.Object, err error) {
	writers := map[string]string{} // deployments, by the key of the object
	for _, item := range w.before {
		writers[item.Object.Key()] = item.DeploymentID
	}
	proven := map[string]bool{} // by deployment
	for _, o := range objs {
		if !cluster.HasHealth(o, w.set.Spec.HealthChecks) {
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

// worst makes one error of those of the rollouts and of the other objects: what has
// failed counts more than what somebody else took over, or what was given up.
func worst(rollouts, objects error) error {
	var u *cluster.Unhealthy
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

// policy is the agent's with what the application sets.
func (w *work) policy() rollout.Policy {
	p := w.Policy
	p.ReadyThreshold, p.Strict, p.NoFailFast = w.set.Spec.ReadyThreshold, w.set.Spec.Strict, !w.set.Spec.FailFast
	p.WaitTermination = w.set.Spec.WaitTermination
	return p
}

// withoutSecrets takes the set's secrets out of what a record says to people.
func (w *work) withoutSecrets(rec deploy.Rollout) deploy.Rollout {
	rec.Images, rec.Reason = w.hide.Text(rec.Images), w.hide.Text(rec.Reason)
	return rec
}

// saveEnd stores a record, and says in the stage's log when it ended well.
// After a lost race it returns the stored one.
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

// took returns how long a rollout took, from the first apply to the end that the wait
// found: both are of one clock.
func took(rec deploy.Rollout) time.Duration {
	return max(0, rec.CompletedAt.Sub(rec.AppliedAt)).Round(10 * time.Millisecond)
}

// stageError ends a stage and says whether a rollback may follow.
type stageError struct {
	reason     string
	noRollback bool // nothing was done, or somebody else's change would be undone
}

func (e *stageError) Error() string { return e.reason }

// judge decides what the ends of the rollouts mean for the stage. One that
// failed counts more than one that somebody else took over.
func judge(ended []deploy.Rollout) error {
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

// ending says of which workload a reason is; the reason may begin with its name.
func ending(rec deploy.Rollout) string {
	return fmt.Sprintf("%s: %s", rec.Workload, strings.TrimPrefix(rec.Reason, rec.Workload.Name+": "))
}

// failure makes a stage's result of the error that ended it.
func failure(err error) deploy.StageResult {
	result := deploy.StageResult{Status: deploy.StageFailure, Reason: err.Error()}
	var r *stageError
	if errors.As(err, &r) {
		result.NoRollback = r.noRollback
	}
	return result
}

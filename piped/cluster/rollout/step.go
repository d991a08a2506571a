package rollout

import (
	"context"
	"fmt"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/c785c783/piped/piped/deploy"
)

// step evaluates one record and stores the result. It reads pods and a confirmed snapshot if
// the verdict requests them.
func (w *waiter) step(ctx context.Context, t *track) error {
	now := w.now()
	s, err := w.snapshot(ctx, t, now)
	if err != nil {
		return w.postpone(ctx, t, err)
	}
	askedPods, readAt := false, w.now()
	cached, cachedAt := Verdict{}, readAt
	for {
		v := Evaluate(t.rec, s, w.policy(), w.now())
		switch {
		case v.NeedPods && !askedPods:
			askedPods = true
			if w.readPods(ctx, t, &s, v); ctx.Err() != nil {
				return context.Cause(ctx) // a verdict without the pods would hide the reason known so far
			}
		case v.NeedConfirm:
			cached = v
			if s, err = w.confirm(ctx, t, s); err != nil {
				return w.postpone(ctx, t, err)
			}
			readAt = w.now()
		case v.Record.Phase == deploy.RolloutIntent:
			return deploy.Errorf(deploy.Internal, "wait for the rollout of %s: it was not applied", t.rec.Workload)
		default:
			if v.Mark {
				v.Record.CompletedAt = v.EndedAt(cached, cachedAt, readAt)
				v.Record = Measured(ctx, w.req.Observer, v.Record, s)
			}
			return w.accept(ctx, t, v)
		}
	}
}

// snapshot returns the cached snapshot. It returns a confirmed one instead if the cluster
// did not answer the last request, if none was read for pollInterval, or if the apply is not
// known to have happened.
func (w *waiter) snapshot(ctx context.Context, t *track, now time.Time) (Snapshot, error) {
	if t.blind || !now.Before(t.confirmBy) || t.rec.Phase == deploy.RolloutIntent {
		return w.confirm(ctx, t, Snapshot{})
	}
	return w.req.Observer.Cached(ctx, t.rec)
}

// confirm reads a snapshot from the API server and copies the troubles of the pods from s.
func (w *waiter) confirm(ctx context.Context, t *track, s Snapshot) (Snapshot, error) {
	fresh, err := w.req.Observer.Confirm(ctx, t.rec)
	if err != nil {
		return Snapshot{}, err
	}
	fresh.Confirmed = true
	fresh.Troubles, fresh.Stopping, fresh.StoppingUntil, fresh.PodsRead = s.Troubles, s.Stopping, s.StoppingUntil, s.PodsRead
	t.blind, t.retry = false, 0
	t.confirmBy = w.now().Add(pollInterval)
	return fresh, nil
}

// readPods adds the troubles of the pods to s. It reads the pods at most once per PodsAfter,
// unless the verdict could end the rollout. If they cannot be read, s remains without them.
func (w *waiter) readPods(ctx context.Context, t *track, s *Snapshot, v Verdict) {
	now := w.now()
	if t.podsAt.IsZero() || v.NeedConfirm || v.Mark || now.Sub(t.podsAt) >= w.req.Policy.PodsAfter {
		pods, events, err := w.req.Observer.Pods(ctx, t.rec, *s)
		if err != nil {
			return
		}
		t.troubles, t.podsAt = Explain(pods, events, now.Add(s.Skew)), now
		demote(t.troubles, pods, s.Workload)
		t.stopping, t.stopped = stoppingPods(pods)
		t.stopped = t.stopped.Add(-s.Skew)
	}
	s.Troubles, s.Stopping, s.StoppingUntil, s.PodsRead = t.troubles, t.stopping, t.stopped, true
}

// templateGenerationLabel is the pod label with the template generation of a DaemonSet's
// pod. The annotation appsv1.DeprecatedTemplateGeneration of the DaemonSet contains the
// newest generation.
const templateGenerationLabel = "pod-template-generation"

// demote clears Hard in the troubles of pods that the controller is about to replace in any
// state: they do not concern the rollout.
func demote(troubles []Trouble, pods []corev1.Pod, w *Workload) {
	for i := range troubles {
		at := slices.IndexFunc(pods, func(pod corev1.Pod) bool { return pod.Name == troubles[i].Pod })
		if at >= 0 && outdated(&pods[at], w) {
			troubles[i].Hard = false
		}
	}
}

// outdated reports whether a pod has an older revision and its controller replaces it
// without waiting for it to become ready. It returns false for Deployments, because
// Observer.Pods returns only their new and their terminating pods.
func outdated(pod *corev1.Pod, w *Workload) bool {
	revision := pod.Labels[revisionLabel(w)]
	return w.Kind != KindDeployment && !w.Ordered && w.UpdateRevision != "" && revision != "" && revision != w.UpdateRevision
}

// revisionLabel returns the label by which a StatefulSet or DaemonSet marks the revision of
// its pods. Its value is comparable with Workload.UpdateRevision.
func revisionLabel(w *Workload) string {
	if w.Kind == KindDaemonSet {
		return templateGenerationLabel
	}
	return appsv1.StatefulSetRevisionLabel
}

// postpone records that the cluster did not answer with err, and schedules the next attempt
// with exponential backoff. The record remains as it is. postpone returns an error if ctx
// has ended or if err is Invalid.
func (w *waiter) postpone(ctx context.Context, t *track, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if deploy.IsKind(err, deploy.Invalid) {
		return fmt.Errorf("wait for the rollout of %s: %w", t.rec.Workload, err)
	}
	now := w.now()
	w.presence.Lost(now, err)
	t.blind, t.retry = true, min(max(firstRetry, 2*t.retry), longestRetry)
	t.next = now.Add(t.retry)
	w.report(t, fmt.Sprintf("%s: cannot ask the cluster how it stands, still waiting: %v", t.rec.Workload.Name, err))
	return nil
}

// accept applies a verdict: it reports the progress, schedules the next evaluation and
// stores the record. A new phase or a followed restart is stored at once, other changes at
// most once per saveInterval.
func (w *waiter) accept(ctx context.Context, t *track, v Verdict) error {
	now := w.now()
	urgent := v.Record.Phase != t.rec.Phase || v.Record.Followed != t.rec.Followed
	t.next = t.confirmBy
	if v.WakeAfter > 0 {
		t.next = earliest(t.next, now.Add(v.WakeAfter))
	}
	if v.Note != "" && w.req.Progress != nil {
		w.req.Progress(v.Note)
	}
	if !v.Mark || !failed(v.Record.Phase) { // the stage reports the failure when it ends
		w.report(t, v.Progress)
	}
	switch {
	case !v.Changed:
		return nil
	case urgent || now.Sub(t.savedAt) >= saveInterval:
		return w.store(ctx, t, v.Record)
	default:
		t.rec = v.Record
		return nil
	}
}

// store stores rec as the record of t. If another evaluator has written the record, t
// continues with the stored one. If the store is unavailable, t stays as it is and is
// evaluated again soon. In both cases store returns nil.
func (w *waiter) store(ctx context.Context, t *track, rec deploy.Rollout) error {
	stored, err := w.req.Save(ctx, rec)
	switch {
	case err == nil:
		t.rec, t.savedAt = stored, w.now()
		if stored.Phase == deploy.RolloutComplete && t.woken > 0 && w.req.Marked != nil {
			w.req.Marked(t.savedAt.Sub(w.started) - t.woken)
		}
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case deploy.IsKind(err, deploy.Conflict):
		t.rec, t.next = stored, w.now()
	case deploy.IsKind(err, deploy.Unavailable):
		t.next = w.now().Add(firstRetry)
	default:
		return fmt.Errorf("store the rollout of %s: %w", rec.Workload, err)
	}
	return nil
}

// report passes a progress line to Request.Progress if it differs from the last one.
func (w *waiter) report(t *track, line string) {
	if line == t.line || line == "" {
		return
	}
	t.line = line
	if w.req.Progress != nil {
		w.req.Progress(line)
	}
}

func earliest(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

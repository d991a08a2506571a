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

// step looks at one record, asks further where the answer needs it, and stores
// what came out.
func (w *waiter) step(ctx context.Context, t *track) error {
	now := w.now()
	s, err := w.look(ctx, t, now)
	if err != nil {
		return w.blind(ctx, t, err)
	}
	askedPods, readAt := false, w.now()
	cached, cachedAt := Verdict{}, readAt
	for {
		v := Evaluate(t.rec, s, w.policy(), w.now())
		switch {
		case v.NeedPods && !askedPods:
			askedPods = true
			w.readPods(ctx, t, &s, v)
		case v.NeedConfirm:
			cached = v
			if s, err = w.confirm(ctx, t, s); err != nil {
				return w.blind(ctx, t, err)
			}
			readAt = w.now()
		case v.Record.Phase == deploy.RolloutIntent:
			return deploy.Errorf(deploy.Internal, "wait for the rollout of %s: it was not applied", t.rec.Workload)
		default:
			if v.Mark {
				v.Record.CompletedAt = v.EndedAt(cached, cachedAt, readAt)
				v.Record = Measured(ctx, w.req.Observer, v.Record, s)
			}
			return w.settle(ctx, t, v)
		}
	}
}

// look returns the cached snapshot, or asks the API server when it is time to.
func (w *waiter) look(ctx context.Context, t *track, now time.Time) (Snapshot, error) {
	if t.blind || !now.Before(t.confirmBy) || t.rec.Phase == deploy.RolloutIntent {
		return w.confirm(ctx, t, Snapshot{})
	}
	return w.req.Observer.Cached(ctx, t.rec)
}

// confirm reads the snapshot again from the API server; what pods said stays.
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

// readPods adds to s why its pods do not become ready. Pods that cannot be read
// only make the answer shorter.
func (w *waiter) readPods(ctx context.Context, t *track, s *Snapshot, v Verdict) {
	now := w.now()
	if t.podsAt.IsZero() || v.NeedConfirm || v.Mark || now.Sub(t.podsAt) >= w.req.Policy.PodsAfter {
		pods, events, err := w.req.Observer.Pods(ctx, t.rec, *s)
		if err != nil {
			return
		}
		t.troubles, t.podsAt = Explain(pods, events, now.Add(s.Skew)), now
		soften(t.troubles, pods, s.Workload)
		t.stopping, t.stopped = stoppingPods(pods)
		t.stopped = t.stopped.Add(-s.Skew)
	}
	s.Troubles, s.Stopping, s.StoppingUntil, s.PodsRead = t.troubles, t.stopping, t.stopped, true
}

// templateGenerationLabel holds, at a DaemonSet's pod, the number that the
// DaemonSet's annotation appsv1.DeprecatedTemplateGeneration holds of the newest.
const templateGenerationLabel = "pod-template-generation"

// soften takes the troubles of pods that are about to be replaced, whatever their
// state, for such as heal by waiting: they are not the rollout's.
func soften(troubles []Trouble, pods []corev1.Pod, w *Workload) {
	for i := range troubles {
		at := slices.IndexFunc(pods, func(pod corev1.Pod) bool { return pod.Name == troubles[i].Pod })
		if at >= 0 && outdated(&pods[at], w) {
			troubles[i].Hard = false
		}
	}
}

// outdated reports whether a pod is of an older revision that its workload replaces
// without waiting for it. Of a Deployment only new pods are looked at.
func outdated(pod *corev1.Pod, w *Workload) bool {
	revision := pod.Labels[revisionLabel(w)]
	return w.Kind != KindDeployment && !w.Ordered && w.UpdateRevision != "" && revision != "" && revision != w.UpdateRevision
}

// revisionLabel is the label of the pods of a StatefulSet or DaemonSet that holds what
// its UpdateRevision is of the newest.
func revisionLabel(w *Workload) string {
	if w.Kind == KindDaemonSet {
		return templateGenerationLabel
	}
	return appsv1.StatefulSetRevisionLabel
}

// blind notes that the cluster cannot be asked, and tries again later. Nothing
// is decided meanwhile.
func (w *waiter) blind(ctx context.Context, t *track, err error) error {
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
	w.say(t, fmt.Sprintf("%s: cannot ask the cluster how it stands, still waiting: %v", t.rec.Workload.Name, err))
	return nil
}

// settle takes over what Evaluate found. Phases are stored at once, mere counts
// of progress now and then.
func (w *waiter) settle(ctx context.Context, t *track, v Verdict) error {
	now := w.now()
	urgent := v.Record.Phase != t.rec.Phase || v.Record.Followed != t.rec.Followed
	t.next = t.confirmBy
	if v.WakeAfter > 0 {
		t.next = earliest(t.next, now.Add(v.WakeAfter))
	}
	if v.Note != "" && w.req.Progress != nil {
		w.req.Progress(v.Note)
	}
	if !v.Mark || !failed(v.Record.Phase) { // how it failed is told by the end of the stage
		w.say(t, v.Progress)
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

// store saves rec as the track's record. If another evaluator was first, its
// record is gone on with.
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

func (w *waiter) say(t *track, line string) {
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

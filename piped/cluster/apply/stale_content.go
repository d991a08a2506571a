package apply

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/c785c783/piped/piped/cluster/propagate"
	"github.com/c785c783/piped/piped/deploy"
)

// A ConfigMap or Secret that an apply restores had other content than Git's for some time. A
// container that started during that time has read the other content. Environment variables
// and the like retain it although the object is restored.

// findStalePods finds the running pods that have read other content than Git's from the
// ConfigMaps and Secrets that this apply restores, and do not see the restored content. It
// restarts the pods of workloads whose mode permits it, and logs the others.
func (r *applyRun) findStalePods(ctx context.Context) error {
	since, err := r.foreignSince(ctx)
	if err != nil || len(since) == 0 {
		return err
	}
	for _, t := range r.targets {
		if t.live == nil || t.isWorkload() && t.restarts {
			continue // it has no pods, or this apply restarts them anyway
		}
		for _, d := range t.config.decisions {
			ref := ConfigRef(d.Config.Kind, t.ref.Namespace, d.Config.Name)
			from, restored := since[ref]
			if !restored || d.Follows && d.Action != propagate.Restart {
				continue
			}
			pods, err := r.startedSince(ctx, t, from)
			if err != nil {
				return err
			}
			if len(pods) > 0 {
				r.restartStale(t, d, ref, from, pods)
			}
		}
	}
	return nil
}

// restartStale marks a target as changed and its pods as stale, so that decideRestarts
// restarts them. If the decision d does not permit a restart, it logs the pods. The content
// of ref may have been wrong since from.
func (r *applyRun) restartStale(t *target, d propagate.Decision, ref deploy.ObjectRef, from time.Time, pods []corev1.Pod) {
	var names, uids []string
	for _, pod := range pods {
		names, uids = append(names, pod.Name), append(uids, string(pod.UID))
	}
	what := fmt.Sprintf("%s has not had Git's content since %s; pods of %s that started since then have read it so: %s",
		ref, from.UTC().Format(time.RFC3339), t.ref, strings.Join(names, ", "))
	if d.Action != propagate.Restart {
		end := "restarted"
		if !t.isWorkload() {
			end = "replaced"
		}
		r.req.Log.Infof("%s. They keep what they read until they are %s: %s", what, end, d.Why)
		return
	}
	r.req.Log.Infof("%s. They are restarted", what)
	t.stalePods = append(t.stalePods, uids...)
	t.changed, t.restarts, t.done, t.item = true, true, "", deploy.InventoryItem{}
}

// restartedFor returns a config-hash that differs from hash, the one of the content, so that
// the pods with these UIDs, which may already have hash, are restarted.
func restartedFor(hash string, uids []string) string {
	return hashOf([]any{hash, uids})[:configHashLength]
}

// foreignSince returns the ConfigMaps and Secrets whose content this apply restores, with the
// time from which they may have had other content.
func (r *applyRun) foreignSince(ctx context.Context) (map[deploy.ObjectRef]time.Time, error) {
	since := map[deploy.ObjectRef]time.Time{}
	for _, t := range r.changed() {
		if !isConfig(t.ref) || !t.same {
			continue
		}
		hash, err := r.contentBefore(ctx, t)
		if err != nil {
			return nil, err
		}
		if hash != contentHash(t.desired) {
			since[ConfigRef(t.ref.Kind, t.ref.Namespace, t.ref.Name)] = r.foreignFrom(t)
		}
	}
	return since, nil
}

// foreignFrom returns the earliest time at which a restored object may have had other content
// than Git's: the earliest write of another field manager to its data, or the detection of the
// drift if that is earlier. If neither is known, it is the time of the last apply, because a
// manager that only removes keys owns no fields in managedFields.
func (r *applyRun) foreignFrom(t *target) time.Time {
	at := r.req.DriftedSince[t.ref.Key()]
	applied := t.recorded.UpdatedAt
	if t.live != nil {
		for _, e := range t.live.GetManagedFields() {
			switch {
			case e.Time == nil:
			case isOurs(e):
				applied = e.Time.Time
			case writesData(e) && (at.IsZero() || e.Time.Before(&metav1.Time{Time: at})):
				at = e.Time.Time
			}
		}
	}
	if at.IsZero() {
		return applied
	}
	return at.Truncate(time.Second) // the API server's times are in seconds
}

// writesData reports whether an entry of managed fields contains content of a ConfigMap or
// Secret.
func writesData(e metav1.ManagedFieldsEntry) bool {
	text := fieldsText(e)
	return slices.ContainsFunc([]string{"data", "binaryData", "stringData"}, func(field string) bool { return strings.Contains(text, `"f:`+field+`"`) })
}

// startedSince returns the running pods of a target with a container that started at from or
// later. Without the permission to list pods it logs that and returns none.
func (r *applyRun) startedSince(ctx context.Context, t *target, from time.Time) (found []corev1.Pod, err error) {
	var list *corev1.PodList
	err = r.cluster.Retry(ctx, r.wait, func(ctx context.Context) error {
		list, err = r.cluster.Typed().CoreV1().Pods(t.ref.Namespace).List(ctx, metav1.ListOptions{LabelSelector: podSelector(t.desired), FieldSelector: "status.phase=Running"})
		return err
	})
	if apierrors.IsForbidden(err) {
		r.req.Log.Infof("cannot check whether pods of %s read other content than Git's: %s", t.ref, err)
		return nil, nil
	}
	if err != nil {
		return nil, r.cluster.explain(t.source, "list the pods of", err)
	}
	for _, pod := range list.Items {
		if pod.DeletionTimestamp == nil && propagate.Of(&pod, t.ref) && lastStart(pod).Compare(from) >= 0 {
			found = append(found, pod)
		}
	}
	return found, nil
}

// lastStart returns the latest start of a container of a pod; zero if none has started.
func lastStart(pod corev1.Pod) (at time.Time) {
	for _, c := range slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses) {
		var started time.Time
		switch s := c.State; {
		case s.Running != nil:
			started = s.Running.StartedAt.Time
		case s.Terminated != nil:
			started = s.Terminated.StartedAt.Time
		}
		if started.After(at) {
			at = started
		}
	}
	return at
}

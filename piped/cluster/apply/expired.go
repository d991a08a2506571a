package apply

import (
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/c785c783/piped/piped/cluster"
	"github.com/c785c783/piped/piped/deploy"
)

// Expires reports whether an object is a Job with ttlSecondsAfterFinished, which Kubernetes
// deletes that many seconds after it has finished.
func Expires(u *unstructured.Unstructured) (seconds int64, ok bool) {
	seconds, ok, _ = unstructured.NestedInt64(u.Object, "spec", "ttlSecondsAfterFinished")
	return seconds, ok && cluster.IsJob(u.GroupVersionKind().GroupKind())
}

// leaveExpired reports whether a target is a Job that has finished and that Kubernetes has
// deleted since, and then marks it as unchanged: creating it would run it again. A missing Job
// has finished if it was applied in its present form before Request.LastSuccess, because that
// deployment waited for its end. When the application is adopted, every missing Job that
// Expires counts as finished.
func (r *applyRun) leaveExpired(t *target) bool {
	seconds, ok := Expires(t.desired)
	if !ok || t.live != nil {
		return false
	}
	switch {
	case t.recorded != nil && t.recorded.DesiredDigest == t.digest && !t.recorded.UpdatedAt.After(r.req.LastSuccess):
		t.item = *t.recorded
	case t.recorded == nil && r.req.Adopt:
		t.item = deploy.InventoryItem{
			ApplicationID: r.req.ApplicationID, Cluster: r.cluster.Name(), Variant: r.req.Variant, Object: t.ref,
			DesiredDigest: t.digest, DeploymentID: r.req.DeploymentID, UpdatedAt: r.cluster.Now(),
		}
	default:
		return false
	}
	t.expired, t.done = true, unchanged
	r.req.Log.Infof("%s finished earlier and was removed by its TTL (ttlSecondsAfterFinished: %d); it is not run again", t.ref, seconds)
	return true
}

package apply

import (
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/c785c783/piped/piped/cluster"
	"github.com/c785c783/piped/piped/deploy"
)

// Expires reports whether Kubernetes deletes an object some time after it has
// finished: a Job with ttlSecondsAfterFinished.
func Expires(u *unstructured.Unstructured) (seconds int64, ok bool) {
	seconds, ok, _ = unstructured.NestedInt64(u.Object, "spec", "ttlSecondsAfterFinished")
	return seconds, ok && cluster.IsJob(u.GroupVersionKind().GroupKind())
}

// leaveExpired leaves a Job alone that has done its work and expired: creating it
// again would run it again. It has if it was applied as it is now before the
// application's last success, which waited for its end; of what is taken over it is
// supposed.
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

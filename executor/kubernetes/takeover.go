package kubernetes

import (
	"context"

	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/manifest"
)

// onlyLive leaves out of the set what is not live, for a deployment that makes
// live objects of an earlier commit the application's own and no more: what the
// branch has removed or added since is the next deployment's.
func onlyLive(ctx context.Context, w *work) error {
	if !w.run.Deployment.Trigger.OwnershipOnly {
		return nil
	}
	refs := make([]deploy.ObjectRef, len(w.set.Objects))
	for i, o := range w.set.Objects {
		refs[i] = manifest.Ref(o.Unstructured)
	}
	live, err := w.cluster.Existing(ctx, refs)
	if err != nil {
		return err
	}
	var kept []manifest.Object
	for i, o := range w.set.Objects {
		if live[refs[i]] {
			kept = append(kept, o)
			continue
		}
		w.log.Infof("%s is not live, and is not created to be taken over", refs[i])
	}
	if len(kept) == 0 {
		return deploy.Errorf(deploy.Invalid, "nothing of commit %s is live any more: there is nothing to take over", deploy.ShortHash(w.set.Commit))
	}
	w.set.Objects = kept
	return nil
}

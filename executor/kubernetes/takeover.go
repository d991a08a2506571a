package kubernetes

import (
	"context"

	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/manifest"
)

// onlyLive removes the objects that are not live from the set, if the deployment only takes
// over live objects (Trigger.OwnershipOnly). The next deployment applies the newer changes
// of the branch.
func onlyLive(ctx context.Context, w *work) error {
	if !w.run.Deployment.Trigger.OwnershipOnly {
		return nil
	}
	refs := objectRefs(w.set.Objects)
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
		w.log.Infof("%s is not live; taking over creates no objects", refs[i])
	}
	if len(kept) == 0 {
		return deploy.Errorf(deploy.Invalid, "no object of commit %s is live any more: there is nothing to take over", deploy.ShortHash(w.set.Commit))
	}
	w.set.Objects = kept
	return nil
}

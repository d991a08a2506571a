package observe

import (
	"context"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/types"

	"github.com/c785c783/piped/piped/cluster/rollout"
	"github.com/c785c783/piped/piped/cluster/watch"
	"github.com/c785c783/piped/piped/cluster/workloads"
	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/store"
)

// prepareAll is prepare for an Observer of all workloads. It compares the cluster with what
// the store knows of it before it handles changes. If the store knows nothing of it, or of
// other namespaces, the present revisions count as recorded: no rollout is invented.
func (x *ExternalRollouts) prepareAll(ctx context.Context) error {
	if err := x.resume(ctx); err != nil {
		return err
	}
	byKind, revisions, err := x.cfg.Observer.WatchAll(ctx)
	if err != nil {
		return err
	}
	there, err := x.there(ctx, byKind)
	if err != nil {
		return err
	}
	for _, r := range there {
		x.present[r.UID] = r.Revision
	}
	watched, stored, err := x.cfg.Store.WatchedCluster(ctx, x.cluster())
	if err != nil && !deploy.IsKind(err, deploy.NotFound) {
		return err
	}
	if namespaces := x.namespaces(); err != nil || watched.Namespaces != namespaces {
		stored = there
		watched = store.WatchedCluster{Cluster: x.cluster(), Namespaces: namespaces, Since: x.cfg.Now().Add(x.cfg.Observer.Cluster().Skew())}
		if err := x.cfg.Store.WatchCluster(ctx, watched, slices.Collect(maps.Values(there))); err != nil {
			return err
		}
	}
	if err := x.recall(ctx, stored, there); err != nil {
		return err
	}
	x.since = watched.Since
	for kind, w := range byKind {
		if err := x.handle(ctx, kind, w); err != nil {
			return err
		}
	}
	for _, w := range revisions {
		if err := x.handleRevisions(ctx, w); err != nil {
			return err
		}
	}
	x.cfg.Logger.InfoContext(ctx, "every rollout of the cluster is recorded", "cluster", x.cluster())
	return nil
}

// namespaces returns the watched namespaces in one text, by which a change of the
// configuration is detected.
func (x *ExternalRollouts) namespaces() string {
	selection := x.cfg.Observer.All()
	names, excluded := slices.Sorted(slices.Values(selection.Namespaces)), slices.Sorted(slices.Values(selection.ExcludeNamespaces))
	return strings.Join(names, ",") + "!" + strings.Join(excluded, ",")
}

// there returns the newest revisions of the cached workloads, by key.
func (x *ExternalRollouts) there(ctx context.Context, byKind map[string]*watch.Scope) (map[string]deploy.WorkloadRevision, error) {
	found := map[string]deploy.WorkloadRevision{}
	for kind, w := range byKind {
		for _, obj := range w.List() {
			kept, ok := obj.(*workloads.Object)
			if !ok {
				continue
			}
			key := workloadKey{kind, types.NamespacedName{Namespace: kept.Namespace, Name: kept.Name}}
			app := deploy.Rollout{Cluster: x.cluster(), Workload: key.ref()}
			s, err := x.cfg.Observer.Cached(ctx, app)
			if err == nil {
				s, err = x.cfg.Observer.WithRevisions(ctx, app, s)
			}
			if err != nil {
				return nil, err
			}
			if s.Workload != nil {
				found[key.ref().Key()] = x.revisionOf(key, s)
			}
		}
	}
	return found, nil
}

// revisionOf returns the newest revision of a workload.
func (x *ExternalRollouts) revisionOf(key workloadKey, s rollout.Snapshot) deploy.WorkloadRevision {
	return deploy.WorkloadRevision{
		Cluster: x.cluster(), Workload: key.ref().Key(), UID: s.Workload.UID, Revision: newestRevision(s), Images: newestImages(s),
	}
}

// newestImages returns the images of the highest revision. They are not known, "", while the
// controller has not made the revision of the present template.
func newestImages(s rollout.Snapshot) string {
	if !rollout.HasCurrent(s) {
		return ""
	}
	return s.Workload.Images
}

// recall takes over the revisions in the store, and deletes those of workloads that are gone.
func (x *ExternalRollouts) recall(ctx context.Context, stored, there map[string]deploy.WorkloadRevision) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	for text, r := range stored {
		if _, ok := there[text]; !ok {
			if err := x.cfg.Store.ForgetWorkload(ctx, x.cluster(), text); err != nil {
				return err
			}
			continue
		}
		parts := strings.Split(text, "/") // deploy.ObjectRef.Key
		if len(parts) != 4 {
			continue
		}
		key := workloadKey{parts[1], types.NamespacedName{Namespace: parts[2], Name: parts[3]}}
		known := x.known[key]
		if known == nil {
			known = &knownWorkload{uid: r.UID}
			x.known[key] = known
		}
		if known.uid == r.UID {
			known.revision, known.images = r.Revision, r.Images
		}
	}
	return nil
}

// remember stores the newest revision of a workload, where all are watched.
func (x *ExternalRollouts) remember(ctx context.Context, key workloadKey, known *knownWorkload, s rollout.Snapshot) error {
	if !x.all() {
		return nil
	}
	known.images = newestImages(s)
	return x.cfg.Store.SaveWorkloadRevision(ctx, x.revisionOf(key, s))
}

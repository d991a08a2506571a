package drift

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"
	"unique"

	"github.com/c785c783/piped/piped/cluster/apply"
	config "github.com/c785c783/piped/piped/config/kubernetes"
	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/manifest"
)

// expected describes an application's expected objects, with just enough data to detect
// writes.
type expected struct {
	deploymentID string
	commit       string
	cluster      string              // of the expected objects; the inventory may contain others
	objects      map[string]*tracked // by key
	followed     map[string]Members  // by cluster: where the objects are watched
	conceal      apply.Concealer
	// problem is why the expected objects are unknown; "" when they are known.
	problem string
}

// tracked is an object that is expected or in the inventory.
type tracked struct {
	ref     deploy.ObjectRef
	cluster string

	uid, ownedHash, mark string // as recorded; "" when unknown
	// doubted: a deployment after the last success wrote it. The recorded data
	// describes that write, not whether it was rolled back.
	doubted bool

	wanted  bool // expected, not only in the inventory
	ignored bool // excluded from drift detection by its annotation
	expires bool // Kubernetes deletes it after completion
	variant bool // canary or baseline
}

// key identifies an object across clusters.
func key(cluster string, ref deploy.ObjectRef) string { return cluster + "\x00" + ref.Key() }

// material is the data from the store for comparisons. It is not retained.
type material struct {
	want      Expected
	inventory []deploy.InventoryItem // in all clusters
}

// inCluster returns the inventory items of one cluster.
func (m material) inCluster(cluster string) (items []deploy.InventoryItem) {
	for _, item := range m.inventory {
		if item.Cluster == cluster {
			items = append(items, item)
		}
	}
	return items
}

// read reads the inventory and the expected objects of a deployed application. provider is
// the platform provider of its last successful deployment. problem is why the expected
// objects are unknown, "" if they are known; retrying does not help.
func (d *Detector) read(ctx context.Context, app deploy.Application) (m material, provider, problem string, err error) {
	if m.inventory, err = d.Store.Inventory(ctx, app.ID); err != nil {
		return m, "", "", err
	}
	id := app.LastSuccessful.DeploymentID
	deployment, err := d.Store.Deployment(ctx, id)
	if deploy.IsKind(err, deploy.NotFound) {
		return m, app.Provider, "its last successful deployment is not stored any more", nil
	}
	if err != nil {
		return m, "", "", err
	}
	provider = deployment.Provider
	set, err := d.Store.AppliedSet(ctx, id)
	switch {
	case deploy.IsKind(err, deploy.NotFound) && len(m.inventory) == 0:
		return m, provider, "", nil // it applied nothing
	case deploy.IsKind(err, deploy.NotFound):
		return m, provider, "what its last successful deployment applied is not stored any more", nil
	case deploy.IsKind(err, deploy.Invalid):
		return m, provider, err.Error(), nil // the encryption key is lost
	case err != nil:
		return m, "", "", err
	}
	if m.want, err = d.Expected(set, deployment, m.inCluster(provider)); err != nil { // permanent
		return m, provider, fmt.Sprintf("what deployment %s applied cannot be determined: %v", id, err), nil
	}
	return m, provider, "", nil
}

// expect loads the expected objects of the application into s unless they are current. It
// returns the material that it read for this, nil if none. The caller holds s.mu.
func (d *Detector) expect(ctx context.Context, s *appState) (*material, error) {
	if e := s.expected; e != nil && e.deploymentID == s.app.LastSuccessful.DeploymentID {
		return nil, nil
	}
	m, provider, problem, err := d.read(ctx, s.app)
	if err != nil {
		return nil, err
	}
	s.expected, s.results = &expected{
		deploymentID: s.app.LastSuccessful.DeploymentID, commit: s.app.LastSuccessful.Trigger.Commit.Hash, cluster: provider,
		objects: map[string]*tracked{}, followed: map[string]Members{}, conceal: m.want.Conceal, problem: problem,
	}, map[string]result{}
	s.expected.add(m, s.app.LastSuccessful.CompletedAt)
	return &m, nil
}

// add adds the objects of m. since is the time of the last successful deployment.
func (e *expected) add(m material, since time.Time) {
	for _, item := range m.inventory {
		e.objects[key(item.Cluster, item.Object)] = &tracked{
			ref: shared(item.Object), cluster: share(item.Cluster), uid: item.UID, ownedHash: item.OwnedHash, mark: item.Mark,
			doubted: item.DeploymentID != e.deploymentID && item.UpdatedAt.After(since),
			variant: item.Variant == string(config.Canary) || item.Variant == string(config.Baseline),
		}
	}
	for _, o := range m.want.Objects {
		ref := shared(manifest.Ref(o.Unstructured))
		t := e.objects[key(e.cluster, ref)]
		if t == nil {
			t = &tracked{cluster: e.cluster}
			e.objects[key(e.cluster, ref)] = t
		}
		t.ref, t.wanted, t.variant = ref, true, false
		t.ignored = manifest.IgnoresDrift(o.GetAnnotations())
		_, t.expires = apply.Expires(o.Unstructured)
	}
}

// follow starts watches for the objects in a cluster, once for each value of members.
func (e *expected) follow(cluster string, members Members) {
	if e.followed[cluster] == members {
		return
	}
	e.followed[cluster] = members
	var refs []deploy.ObjectRef
	for _, t := range e.objects {
		if t.cluster == cluster {
			refs = append(refs, t.ref)
		}
	}
	members.Follow(refs)
}

// clusters returns the clusters where the application has, or should have, objects.
func (e *expected) clusters() []string {
	names := map[string]bool{e.cluster: true}
	for _, t := range e.objects {
		names[t.cluster] = true
	}
	return slices.Sorted(maps.Keys(names))
}

// shared returns ref with interned strings, except for its name, to save memory.
func shared(ref deploy.ObjectRef) deploy.ObjectRef {
	ref.Group, ref.Version, ref.Kind, ref.Namespace = share(ref.Group), share(ref.Version), share(ref.Kind), share(ref.Namespace)
	return ref
}

func share(text string) string { return unique.Make(text).Value() }

package drift

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"
	"unique"

	config "github.com/c785c783/piped/piped/config/kubernetes"
	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/kubernetes"
	"github.com/c785c783/piped/piped/manifest"
)

// expected is what is kept of what the clusters should hold of an application, in as
// little memory as tells whether they do.
type expected struct {
	deploymentID string
	commit       string
	cluster      string              // of what is expected; the inventory may name more
	objects      map[string]*tracked // by key
	followed     map[string]Members  // by cluster: which watch them
	conceal      kubernetes.Concealer
	// problem is why it is not known what is expected; "" when it is.
	problem string
}

// tracked is one object that is expected, or that the inventory names.
type tracked struct {
	ref     deploy.ObjectRef
	cluster string

	uid, ownedHash, mark string // as recorded; "" when nothing is
	// doubted: a deployment wrote it that came after the last success. What is recorded
	// tells what that one applied, and not whether it was put back.
	doubted bool

	wanted  bool // it is expected
	ignored bool // Git asks not to compare it
	expires bool // Kubernetes deletes it when it has finished
	variant bool // of the canary or the baseline
}

// key names an object among those of all clusters.
func key(cluster string, ref deploy.ObjectRef) string { return cluster + "\x00" + ref.Key() }

// material is what is read of the store to compare objects. It is not kept.
type material struct {
	want      Expected
	inventory []deploy.InventoryItem // in all clusters
}

// inCluster returns what of the inventory is in one cluster.
func (m material) inCluster(cluster string) (items []deploy.InventoryItem) {
	for _, item := range m.inventory {
		if item.Cluster == cluster {
			items = append(items, item)
		}
	}
	return items
}

// read reads what is expected of an application that has been deployed. Problem says
// why it is not known; provider is where it was deployed to.
func (d *Detector) read(ctx context.Context, app deploy.Application) (m material, provider, problem string, err error) {
	if m.inventory, err = d.Store.Inventory(ctx, app.ID); err != nil {
		return m, "", "", err
	}
	id := app.LastSuccessful.DeploymentID
	deployment, err := d.Store.Deployment(ctx, id)
	if deploy.IsKind(err, deploy.NotFound) {
		return m, app.Provider, "its last successful deployment is not kept any more", nil
	}
	if err != nil {
		return m, "", "", err
	}
	provider = deployment.Provider
	set, err := d.Store.AppliedSet(ctx, id)
	switch {
	case deploy.IsKind(err, deploy.NotFound) && len(m.inventory) == 0:
		return m, provider, "", nil // it applies nothing
	case deploy.IsKind(err, deploy.NotFound):
		return m, provider, "what its last successful deployment applied is not kept", nil
	case deploy.IsKind(err, deploy.Invalid):
		return m, provider, err.Error(), nil // the key is lost
	case err != nil:
		return m, "", "", err
	}
	if m.want, err = d.Expected(set, deployment, m.inCluster(provider)); err != nil { // it is the same whenever one asks
		return m, provider, fmt.Sprintf("what deployment %s has left cannot be told: %v", id, err), nil
	}
	return m, provider, "", nil
}

// expect makes sure that it is known what is expected of the application. What it has
// read for that is returned, too; nil if there was no need. S is locked.
func (d *Detector) expect(ctx context.Context, s *subject) (*material, error) {
	if e := s.expected; e != nil && e.deploymentID == s.app.LastSuccessful.DeploymentID {
		return nil, nil
	}
	m, provider, problem, err := d.read(ctx, s.app)
	if err != nil {
		return nil, err
	}
	s.expected, s.judged = &expected{
		deploymentID: s.app.LastSuccessful.DeploymentID, commit: s.app.LastSuccessful.Trigger.Commit.Hash, cluster: provider,
		objects: map[string]*tracked{}, followed: map[string]Members{}, conceal: m.want.Conceal, problem: problem,
	}, map[string]judged{}
	s.expected.add(m, s.app.LastSuccessful.CompletedAt)
	return &m, nil
}

// add fills in the objects; since is when what is expected was applied.
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
		_, t.expires = kubernetes.Expires(o.Unstructured)
	}
}

// follow has the objects watched that lie in a cluster.
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

// clusters returns where the application has objects, or should have.
func (e *expected) clusters() []string {
	names := map[string]bool{e.cluster: true}
	for _, t := range e.objects {
		names[t.cluster] = true
	}
	return slices.Sorted(maps.Keys(names))
}

// shared returns the reference in the memory that all have in common whose objects are
// of the same kind or namespace.
func shared(ref deploy.ObjectRef) deploy.ObjectRef {
	ref.Group, ref.Version, ref.Kind, ref.Namespace = share(ref.Group), share(ref.Version), share(ref.Kind), share(ref.Namespace)
	return ref
}

func share(text string) string { return unique.Make(text).Value() }

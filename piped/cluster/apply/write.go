package apply

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/c785c783/piped/piped/cluster"
	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/manifest"
)

const (
	// usableInterval and usableTimeout are the poll interval and the limit of awaitUsable.
	usableInterval = 50 * time.Millisecond
	usableTimeout  = time.Minute
)

// write sends the changed objects: namespaces and definitions first, then wave by wave. It
// calls Journal.AfterWave between the waves.
func (r *applyRun) write(ctx context.Context) error {
	if err := r.createNamespaces(ctx); err != nil {
		return err
	}
	definitions, waves := r.waves()
	if err := r.writeWave(ctx, definitions); err != nil {
		return err
	}
	for i, wave := range waves {
		if err := r.writeWave(ctx, wave); err != nil {
			return err
		}
		objects := sources(wave)
		if last := i == len(waves)-1; last || len(objects) == 0 {
			continue
		}
		if err := r.req.Journal.AfterWave(ctx, objects, r.outcome()); err != nil {
			return err
		}
	}
	return nil
}

// waves returns the targets in the order of writing: the namespaces and definitions, and the
// others grouped by manifest.Order.
func (r *applyRun) waves() (definitions []*target, waves [][]*target) {
	byOrder := map[int][]*target{}
	for _, t := range r.targets {
		if levelOf(manifest.GroupKind(t.ref)) == levelDefinitions {
			definitions = append(definitions, t)
			continue
		}
		order := manifest.Order(t.desired)
		byOrder[order] = append(byOrder[order], t)
	}
	for _, order := range slices.Sorted(maps.Keys(byOrder)) {
		waves = append(waves, byOrder[order])
	}
	return definitions, waves
}

// sources returns the objects of targets in Git, without the expired ones.
func sources(targets []*target) (out []manifest.Object) {
	for _, t := range targets {
		if !t.expired {
			out = append(out, t.source)
		}
	}
	return out
}

// writeWave sends the changed objects of a wave, level by level. After each level it waits
// until its namespaces and definitions are usable.
func (r *applyRun) writeWave(ctx context.Context, targets []*target) error {
	changed := slices.DeleteFunc(slices.Clone(targets), func(t *target) bool { return !t.changed })
	for _, group := range byLevel(changed, func(t *target) schema.GroupKind { return manifest.GroupKind(t.ref) }) {
		if err := together(each(group, func(t *target) error { return r.writeOne(ctx, t) })); err != nil {
			return err
		}
		if err := together(each(group, func(t *target) error { return r.awaitUsable(ctx, t) })); err != nil {
			return err
		}
	}
	return nil
}

// createNamespaces creates r.newNamespaces. They are not objects of the application: the agent
// does not mark them, record them in the inventory or delete them.
func (r *applyRun) createNamespaces(ctx context.Context) error {
	for _, name := range r.newNamespaces {
		err := r.cluster.RetryWrite(ctx, r.wait, func(ctx context.Context) error {
			ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
			_, err := r.cluster.Typed().CoreV1().Namespaces().Create(ctx, ns, metav1.CreateOptions{FieldManager: cluster.FieldManager})
			return err
		})
		if apierrors.IsAlreadyExists(err) {
			continue // another application created it concurrently
		}
		if err != nil {
			return fmt.Errorf("create namespace %q: %w", name, r.cluster.Classify(err))
		}
		r.req.Log.Infof("created namespace %s", name)
	}
	return nil
}

// writeOne sends one object and calls the journal before (workloads only) and after it. It
// first waits for a running deletion of the object, and deletes an object that is recreated.
func (r *applyRun) writeOne(ctx context.Context, t *target) error {
	if t.live != nil && t.live.GetDeletionTimestamp() != nil {
		if err := r.awaitEnd(ctx, t); err != nil {
			return err
		}
	}
	if t.isWorkload() {
		live := t.liveObject()
		if t.recreated != "" {
			live = nil // the live object is deleted first
		}
		if err := r.req.Journal.BeforeWrite(ctx, t.source, live, t.planned); err != nil {
			return fmt.Errorf("prepare to apply %s: %w", t.ref, err)
		}
	}
	if t.recreated != "" && t.live != nil {
		if err := r.remove(ctx, t); err != nil {
			return err
		}
	}
	if err := r.send(ctx, t); err != nil {
		return r.cluster.explain(t.source, "apply", err)
	}
	r.record(t)
	r.logRemoved(t)
	r.req.Log.Infof("applied %s (%s)", t.ref, t.done)
	whole, _ := t.result.(*unstructured.Unstructured)
	if err := r.req.Journal.AfterWrite(ctx, t.source, whole, t.item); err != nil {
		return fmt.Errorf("record that %s was applied: %w", t.ref, err)
	}
	return nil
}

// send applies one object, with retries. If the agent applies the live object for the first
// time, send first takes over the fields that kubectl owns. It also takes over the colliding
// items. The error is unclassified.
func (r *applyRun) send(ctx context.Context, t *target) error {
	live, first := t.live, r.firstContact(t)
	return r.cluster.RetryWrite(ctx, r.wait, func(ctx context.Context) error {
		if first {
			var err error
			if live, err = r.adopt(ctx, t, live); err != nil {
				return err
			}
		}
		if len(t.collisions) > 0 {
			if err := r.takeOwnership(ctx, t); err != nil {
				return err
			}
		}
		answer, err := r.cluster.patch(ctx, t)
		if whole, ok := answer.(*unstructured.Unstructured); ok && err == nil {
			t.answered(whole)
		}
		if t.crdInSet && apierrors.IsNotFound(err) {
			return apierrors.NewServiceUnavailable("the kind is defined but not served yet") // retried
		}
		return err
	})
}

// answered records the API server's answer to an apply: the values by which later changes are
// detected, and the result. Of objects that are not workloads it retains only the identity, so
// that the content of Secrets does not stay in memory.
func (t *target) answered(answer *unstructured.Unstructured) {
	t.owned, t.mark, t.values = baselineOf(answer)
	t.result, t.writtenAt = answer, lastWritten(answer)
	if !t.isWorkload() {
		t.result = &metav1.ObjectMeta{
			Namespace: answer.GetNamespace(), Name: answer.GetName(), UID: answer.GetUID(), ResourceVersion: answer.GetResourceVersion(),
		}
	}
}

// adopt takes over the fields of a live object that kubectl owns (function adopt) and returns
// the live object. It reads the object if live is nil. After an error it returns nil, so that
// a retry reads the object again.
func (r *applyRun) adopt(ctx context.Context, t *target, live metav1.Object) (metav1.Object, error) {
	client := r.cluster.ResourceClient(t.resource, t.ref.Namespace)
	if live == nil {
		u, err := client.Get(ctx, t.ref.Name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return nil, nil // the following apply creates it
		}
		if err != nil {
			return nil, err
		}
		live = u
	}
	if err := adopt(ctx, client, live); err != nil && !apierrors.IsNotFound(err) {
		return nil, err
	}
	return live, nil
}

// firstContact reports whether the agent applies the live object for the first time: the
// inventory does not contain its UID.
func (r *applyRun) firstContact(t *target) bool {
	return t.live != nil && (t.recorded == nil || t.recorded.UID != string(t.live.GetUID()))
}

// record sets done and the inventory item of an object that was just written.
func (r *applyRun) record(t *target) {
	t.done = configured
	switch {
	case t.recreated != "":
		t.done = recreated
	case t.live == nil:
		t.done = created
	case t.live.GetResourceVersion() == t.result.GetResourceVersion():
		t.done = unchanged
	}
	t.item = deploy.InventoryItem{
		ApplicationID: r.req.ApplicationID, Cluster: r.cluster.Name(), Variant: r.req.Variant, Object: t.ref,
		UID: string(t.result.GetUID()), DesiredDigest: t.digest, OwnedHash: t.owned, Mark: t.mark, ValuesDigest: t.values,
		ConfigHash: t.config.recorded(), DeploymentID: r.req.DeploymentID, CreatedBy: r.creatorOf(t), UpdatedAt: r.cluster.Now(),
	}
}

// creatorOf returns InventoryItem.CreatedBy: the deployment that created the object, "" when
// the object existed before the application's first apply. A recreated object retains its
// creator.
func (r *applyRun) creatorOf(t *target) string {
	uid := t.result.GetUID()
	switch {
	case t.recreated != "" && t.recorded != nil:
		return t.recorded.CreatedBy
	case t.recreated != "":
		return ""
	case t.live == nil || t.live.GetUID() != uid:
		return r.req.DeploymentID
	case t.recorded != nil && t.recorded.UID == string(uid):
		return t.recorded.CreatedBy
	case slices.Contains(r.req.Created, t.ref):
		return r.req.DeploymentID // an interrupted run of the deployment created it
	}
	return ""
}

// awaitEnd waits until an object that is being deleted is gone, because an apply to it would
// be lost. It waits at most goneFor; the error is then of kind Unavailable.
func (r *applyRun) awaitEnd(ctx context.Context, t *target) error {
	r.req.Log.Infof("%s is being deleted; waiting until it is gone", t.ref)
	client, uid := r.cluster.MetadataClient(t.resource, t.ref.Namespace), t.live.GetUID()
	err := wait.PollUntilContextTimeout(ctx, 200*time.Millisecond, goneFor, true, func(ctx context.Context) (bool, error) {
		live, err := client.Get(ctx, t.ref.Name, metav1.GetOptions{})
		return apierrors.IsNotFound(err) || err == nil && live.UID != uid, nil
	})
	if err == nil {
		t.live = nil
		return nil
	}
	if ctx.Err() != nil {
		return fmt.Errorf("wait for %s to be gone: %w", t.ref, context.Cause(ctx))
	}
	return deploy.Errorf(deploy.Unavailable, "%s (%s) is being deleted and waits for its finalizers %q; remove what holds it and sync again",
		t.ref, t.source.Origin, t.live.GetFinalizers())
}

// awaitUsable waits until other objects of the set can use this one: a definition is
// established and its kinds are served, a namespace is active. It returns at once for other
// kinds. After usableTimeout the error is of kind Unavailable.
func (r *applyRun) awaitUsable(ctx context.Context, t *target) error {
	var ready func(context.Context, *unstructured.Unstructured) (bool, error)
	switch manifest.GroupKind(t.ref) {
	case cluster.CRDKind():
		defer r.cluster.InvalidateKinds()
		ready = r.cluster.served
	case schema.GroupKind{Kind: "Namespace"}:
		ready = active
	default:
		return nil
	}
	client := r.cluster.ResourceClient(t.resource, "")
	err := wait.PollUntilContextTimeout(ctx, usableInterval, usableTimeout, true, func(ctx context.Context) (bool, error) {
		live, err := client.Get(ctx, t.ref.Name, metav1.GetOptions{})
		if err != nil {
			return false, nil // retried until the timeout
		}
		return ready(ctx, live)
	})
	if wait.Interrupted(err) && ctx.Err() == nil {
		return deploy.Errorf(deploy.Unavailable, "%s (%s) was applied but could not be used within %s", t.ref, t.source.Origin, usableTimeout)
	}
	if err != nil {
		return fmt.Errorf("wait until %s can be used: %w", t.ref, err)
	}
	return nil
}

// served reports whether all kinds of a CustomResourceDefinition are served. The API server
// serves them only shortly after the definition is established.
func (c *Client) served(ctx context.Context, crd *unstructured.Unstructured) (bool, error) {
	if ok, err := established(crd); !ok {
		return false, err
	}
	for _, resource := range cluster.KindsDefinedBy([]*unstructured.Unstructured{crd}) {
		_, err := c.Metadata().Resource(resource.GroupVersionResource).List(ctx, metav1.ListOptions{Limit: 1})
		if apierrors.IsNotFound(err) {
			return false, nil
		}
	}
	return true, nil
}

// established reports whether a CustomResourceDefinition is established. The error is of kind
// Invalid if its names conflict with those of another definition.
func established(crd *unstructured.Unstructured) (bool, error) {
	conditions, _, _ := unstructured.NestedSlice(crd.Object, "status", "conditions")
	for _, c := range conditions {
		condition, _ := c.(map[string]any)
		switch {
		case condition["type"] == "NamesAccepted" && condition["status"] == "False":
			return false, deploy.Errorf(deploy.Invalid, "CustomResourceDefinition %s cannot be used: %v", crd.GetName(), condition["message"])
		case condition["type"] == "Established" && condition["status"] == "True":
			return true, nil
		}
	}
	return false, nil
}

// active reports whether a Namespace is active.
func active(_ context.Context, ns *unstructured.Unstructured) (bool, error) {
	phase, _, _ := unstructured.NestedString(ns.Object, "status", "phase")
	return phase == string(corev1.NamespaceActive), nil
}

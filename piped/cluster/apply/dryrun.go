package apply

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/c785c783/piped/piped/cluster"
	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/manifest"
)

// findNamespaces checks that the namespace of every new object exists, is part of the set, or
// may be created (Request.AutoCreateNamespace). It adds the latter to r.newNamespaces, and
// excludes objects in new namespaces from the dry run.
func (r *applyRun) findNamespaces(ctx context.Context) error {
	inSet := map[string]*target{}
	for _, t := range r.targets {
		if t.ref.Group == "" && t.ref.Kind == "Namespace" {
			inSet[t.ref.Name] = t
		}
	}
	missing := map[string]bool{}
	for _, t := range r.changed() {
		name := t.ref.Namespace
		if t.live != nil || name == "" {
			continue // a live object proves that its namespace exists
		}
		if ns := inSet[name]; ns != nil {
			if ns.live == nil {
				t.untried = "its namespace is created first"
			}
			continue
		}
		if _, known := missing[name]; !known {
			exists, err := r.namespaceExists(ctx, name)
			if err != nil {
				return err
			}
			missing[name] = !exists
		}
		if !missing[name] {
			continue
		}
		if !r.req.AutoCreateNamespace {
			return deploy.Errorf(deploy.Invalid,
				"nothing was changed: namespace %q of %s (%s) does not exist in %s; create it, add it to the application, or set input.autoCreateNamespace: true",
				name, t.ref, t.source.Origin, r.cluster)
		}
		t.untried = "its namespace is created first"
		if !slices.Contains(r.newNamespaces, name) {
			r.newNamespaces = append(r.newNamespaces, name)
		}
	}
	return nil
}

// namespaceExists reports whether a namespace exists, which is assumed without the permission
// to read it. A namespace that is being deleted is an error of kind Invalid.
func (r *applyRun) namespaceExists(ctx context.Context, name string) (bool, error) {
	if name == metav1.NamespaceDefault {
		return true, nil
	}
	err := r.cluster.Retry(ctx, r.wait, func(ctx context.Context) error {
		ns, err := r.cluster.Typed().CoreV1().Namespaces().Get(ctx, name, metav1.GetOptions{})
		if err == nil && ns.DeletionTimestamp != nil {
			return deploy.Errorf(deploy.Invalid, "namespace %q in %s is being deleted; sync again when it is gone", name, r.cluster)
		}
		return err
	})
	switch {
	case apierrors.IsNotFound(err):
		return false, nil
	case err == nil, apierrors.IsForbidden(err): // a dry run detects a missing namespace
		return true, nil
	}
	return false, fmt.Errorf("look for namespace %q: %w", name, r.cluster.Classify(err))
}

// dryRun dry-runs every changed object, so that a set with an invalid object changes nothing.
// It sets planned, collisions and recreated of the targets. It skips objects that need other
// objects of the set, such as their namespace or kind, to exist first.
func (r *applyRun) dryRun(ctx context.Context) error {
	newCRDs := r.changedCRDs()
	for _, t := range r.changed() {
		if t.untried == "" && newCRDs[t.desired.GroupVersionKind().GroupKind()] {
			t.untried = "its kind is defined first"
		}
	}
	var mu sync.Mutex
	errs := each(r.changed(), func(t *target) error {
		if t.untried != "" {
			return nil
		}
		var planned *unstructured.Unstructured
		var err error
		if t.recreated == "" {
			planned, err = r.dryRunOne(ctx, t)
		}
		if err != nil {
			planned, err = r.resolveCollisions(ctx, t, err)
		}
		if t.recreated != "" || planRecreation(t, err) {
			r.req.Log.Infof("%s will be deleted and created anew, because %s", t.ref, t.recreated)
			if err = r.sendComplete(ctx, t); err != nil {
				return err
			}
			t.planned, err = r.dryRunCreate(ctx, t)
			return r.cluster.explain(t.source, "create", err)
		}
		if reason := r.cannotTry(t, err); reason != "" {
			mu.Lock()
			defer mu.Unlock()
			t.untried = reason
			r.req.Log.Infof("%s is not tried before it is applied: %s", t.ref, reason)
			return nil
		}
		if !r.firstContact(t) || !hasInherited(t.live) {
			t.planned = planned // otherwise it still contains the fields that adopt removes
		}
		return t.explainCollisions(r.cluster.explain(t.source, "apply", err))
	})
	return refused(together(errs))
}

// refused adds to the error of the dry runs that nothing was changed, unless the cluster did
// not answer.
func refused(err error) error {
	if err == nil || deploy.IsKind(err, deploy.Unavailable) {
		return err
	}
	return deploy.Errorf(deploy.KindOf(err), "nothing was changed: %w", err)
}

// dryRunOne dry-runs one object. Planned is the API server's answer for a workload, nil for
// other objects. The error is unclassified.
func (r *applyRun) dryRunOne(ctx context.Context, t *target) (planned *unstructured.Unstructured, err error) {
	err = r.cluster.Retry(ctx, r.wait, func(ctx context.Context) error {
		answer, err := r.cluster.patch(ctx, t, metav1.DryRunAll)
		planned, _ = answer.(*unstructured.Unstructured)
		return err
	})
	return planned, err
}

// serverSideApply applies object, a variant of t's desired object, by server-side apply and
// returns the API server's answer. It uses force: the agent becomes the owner of fields that
// conflict.
func (c *Client) serverSideApply(ctx context.Context, t *target, object *unstructured.Unstructured, dryRun ...string) (*unstructured.Unstructured, error) {
	return c.ResourceClient(t.resource, t.ref.Namespace).Apply(ctx, t.ref.Name, object,
		metav1.ApplyOptions{FieldManager: cluster.FieldManager, Force: true, DryRun: dryRun})
}

// patch applies t's desired object by server-side apply. The answer is a whole object
// (*unstructured.Unstructured). For a dry run of an object that is not a workload it is only
// metadata (*metav1.PartialObjectMetadata).
func (c *Client) patch(ctx context.Context, t *target, dryRun ...string) (metav1.Object, error) {
	if t.isWorkload() || len(dryRun) == 0 {
		answer, err := c.serverSideApply(ctx, t, t.desired, dryRun...)
		if err != nil {
			return nil, err
		}
		return answer, nil
	}
	data, err := t.desired.MarshalJSON()
	if err != nil {
		return nil, err
	}
	force := true
	answer, err := c.MetadataClient(t.resource, t.ref.Namespace).Patch(ctx, t.ref.Name, types.ApplyPatchType, data,
		metav1.PatchOptions{FieldManager: cluster.FieldManager, Force: &force, DryRun: dryRun})
	if err != nil {
		return nil, err
	}
	return answer, nil
}

// changedCRDs returns the kinds whose CustomResourceDefinitions this apply writes.
func (r *applyRun) changedCRDs() map[schema.GroupKind]bool {
	var crds []*unstructured.Unstructured
	for _, t := range r.changed() {
		crds = append(crds, t.desired)
	}
	kinds := map[schema.GroupKind]bool{}
	for gvk := range cluster.KindsDefinedBy(crds) {
		kinds[gvk.GroupKind()] = true
	}
	return kinds
}

// cannotTry returns the reason why the API server may accept the apply although it refused the
// dry run with err; "" if there is none.
func (r *applyRun) cannotTry(t *target, err error) string {
	switch {
	case err == nil:
		return ""
	case apierrors.IsBadRequest(err) && strings.Contains(err.Error(), "does not support dry run"):
		return err.Error()
	case (apierrors.IsForbidden(err) || apierrors.IsNotFound(err)) && needsPolicies(t) && r.createsPolicies():
		return "it may need an account, role or class that is created first"
	}
	return ""
}

// needsPolicies reports whether the admission of an object may depend on objects of
// levelPolicies, such as service accounts and roles.
func needsPolicies(t *target) bool {
	kind := manifest.GroupKind(t.ref)
	return kind == schema.GroupKind{Kind: "Pod"} || levelOf(kind) == levelBindings
}

// createsPolicies reports whether this apply creates objects of levelPolicies.
func (r *applyRun) createsPolicies() bool {
	return slices.ContainsFunc(r.changed(), func(t *target) bool {
		return t.live == nil && levelOf(manifest.GroupKind(t.ref)) == levelPolicies
	})
}

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

// findNamespaces checks that every namespace of the new objects exists, is part of the set,
// or may be created.
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
			continue // where an object lives there is a namespace
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
	case err == nil, apierrors.IsForbidden(err): // without the right to read it, the requests of the objects decide
		return true, nil
	}
	return false, fmt.Errorf("look for namespace %q: %w", name, r.cluster.Classify(err))
}

// dryRun dry-runs every changed object, so that a set with an invalid object changes nothing.
// It logs the objects that cannot be dry-run on their own.
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
		if !r.firstContact(t) || !hasClientSide(t.live) {
			t.planned = planned // else it still holds what adopting the object removes
		}
		return t.explainCollisions(r.cluster.explain(t.source, "apply", err))
	})
	return refused(together(errs))
}

// refused returns the error of a dry run because of which nothing was changed.
func refused(err error) error {
	if err == nil || deploy.IsKind(err, deploy.Unavailable) {
		return err // then nothing is known about the objects
	}
	return deploy.Errorf(deploy.KindOf(err), "nothing was changed: %w", err)
}

// dryRunOne dry-runs one object. Planned is the answer for a workload, nil for other objects,
// of which only a refusal matters.
func (r *applyRun) dryRunOne(ctx context.Context, t *target) (planned *unstructured.Unstructured, err error) {
	err = r.cluster.Retry(ctx, r.wait, func(ctx context.Context) error {
		answer, err := r.cluster.patch(ctx, t, metav1.DryRunAll)
		planned, _ = answer.(*unstructured.Unstructured)
		return err
	})
	return planned, err
}

// serverSideApply sends object, a variant of t's desired object, and returns the whole
// answer.
func (c *Client) serverSideApply(ctx context.Context, t *target, object *unstructured.Unstructured, dryRun ...string) (*unstructured.Unstructured, error) {
	return c.ResourceClient(t.resource, t.ref.Namespace).Apply(ctx, t.ref.Name, object,
		metav1.ApplyOptions{FieldManager: cluster.FieldManager, Force: true, DryRun: dryRun})
}

// patch sends one object by server-side apply. The answer is the whole object
// (*unstructured.Unstructured), except for a dry run of an object that is no workload,
// whose answer is metadata.
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

// changedCRDs returns the kinds whose definitions this apply writes.
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

// cannotTry explains why the refusal of a dry run does not imply that the apply would be
// refused; "" when it does.
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

// needsPolicies reports whether admission depends on other objects of the set.
func needsPolicies(t *target) bool {
	kind := manifest.GroupKind(t.ref)
	return kind == schema.GroupKind{Kind: "Pod"} || levelOf(kind) == levelBindings
}

func (r *applyRun) createsPolicies() bool {
	return slices.ContainsFunc(r.changed(), func(t *target) bool {
		return t.live == nil && levelOf(manifest.GroupKind(t.ref)) == levelPolicies
	})
}

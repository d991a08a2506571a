package apply

import (
	"context"
	"fmt"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/c785c783/piped/piped/cluster"
	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/manifest"
)

// listFrom is the number of objects of one kind and namespace from which a LIST is cheaper
// than GETs.
const listFrom = 4

// spot is the scope of one LIST: one kind in one namespace. Whole is target.whole; other
// objects are read as metadata, so that the content of Secrets is not read.
type spot struct {
	resource  cluster.ServedKind
	namespace string
	whole     bool
}

// readLive sets the live objects of all targets.
func (r *applyRun) readLive(ctx context.Context) error {
	spots := map[spot][]*target{}
	for _, t := range r.targets {
		p := spot{t.resource, t.ref.Namespace, t.whole}
		spots[p] = append(spots[p], t)
	}
	var single []*target
	for p, targets := range spots {
		if len(targets) < listFrom {
			single = append(single, targets...)
			continue
		}
		missing, err := r.list(ctx, p, targets)
		if err != nil {
			return err
		}
		single = append(single, missing...)
	}
	return together(each(single, func(t *target) error { return r.read(ctx, t) }))
}

// read sets the live object of a target, nil if it does not exist.
func (r *applyRun) read(ctx context.Context, t *target) error {
	err := r.cluster.Retry(ctx, r.wait, func(ctx context.Context) error {
		var live metav1.Object
		var err error
		if t.whole {
			live, err = r.cluster.ResourceClient(t.resource, t.ref.Namespace).Get(ctx, t.ref.Name, metav1.GetOptions{})
		} else {
			live, err = r.cluster.MetadataClient(t.resource, t.ref.Namespace).Get(ctx, t.ref.Name, metav1.GetOptions{})
		}
		t.live = nil
		if err == nil {
			t.live = live
		}
		return err
	})
	if err == nil || apierrors.IsNotFound(err) {
		return nil
	}
	return r.cluster.explain(t.source, "read", err)
}

// list sets the live objects of the targets of a spot by one LIST of the objects with the
// application's label. It returns the targets that are not in the answer: they do not exist
// or do not have the label.
func (r *applyRun) list(ctx context.Context, p spot, targets []*target) (missing []*target, err error) {
	found := map[string]metav1.Object{}
	options := metav1.ListOptions{LabelSelector: manifest.LabelApplication + "=" + r.req.ApplicationID}
	err = r.cluster.Retry(ctx, r.wait, func(ctx context.Context) error {
		if p.whole {
			list, err := r.cluster.ResourceClient(p.resource, p.namespace).List(ctx, options)
			if err != nil {
				return err
			}
			for i := range list.Items {
				found[list.Items[i].GetName()] = &list.Items[i]
			}
			return nil
		}
		list, err := r.cluster.MetadataClient(p.resource, p.namespace).List(ctx, options)
		if err != nil {
			return err
		}
		for i := range list.Items {
			found[list.Items[i].Name] = &list.Items[i]
		}
		return nil
	})
	if apierrors.IsNotFound(err) || apierrors.IsForbidden(err) {
		return targets, nil // the kind is not served yet, or the agent may not list it
	}
	if err != nil {
		return nil, fmt.Errorf("list %s: %w", p.resource.Resource, r.cluster.Classify(err))
	}
	for _, t := range targets {
		if live, ok := found[t.ref.Name]; ok {
			t.live = live
		} else {
			missing = append(missing, t)
		}
	}
	return missing, nil
}

// checkOwners returns an error of kind Invalid if a live object belongs to another
// application.
func (r *applyRun) checkOwners(context.Context) error {
	if r.req.TakeOver {
		return nil
	}
	var taken []string
	for _, t := range r.targets {
		if owner := r.foreignOwner(t.live); owner != "" {
			taken = append(taken, fmt.Sprintf("%s belongs to %s", t.ref, owner))
		}
	}
	if len(taken) == 0 {
		return nil
	}
	return deploy.Errorf(deploy.Invalid,
		"nothing was changed, because %s of piped %s may not touch objects of others: %s; take the objects out of one of them, or set takeOver: true",
		r.described(r.req.ApplicationID), r.req.PipedID, strings.Join(taken, "; "))
}

// claimObjects calls Request.Claim with all objects of the set.
func (r *applyRun) claimObjects(ctx context.Context) error {
	if r.req.Claim == nil {
		return nil
	}
	refs := make([]deploy.ObjectRef, len(r.targets))
	for i, t := range r.targets {
		refs[i] = t.ref
	}
	return r.req.Claim(ctx, refs)
}

// described returns the name of an application for a message (Request.Describe), or its ID.
func (r *applyRun) described(id string) string {
	if r.req.Describe != nil {
		if known := r.req.Describe(id); known != "" {
			return "application " + known
		}
	}
	return "application " + id
}

// foreignOwner returns the other application that owns a live object, for a message; "" if
// there is none, or if the object may be adopted or its owner no longer exists.
func (r *applyRun) foreignOwner(live metav1.Object) string {
	if live == nil {
		return ""
	}
	application, piped := live.GetAnnotations()[manifest.AnnotationApplication], live.GetAnnotations()[manifest.AnnotationPiped]
	switch {
	case r.req.Adopt && live.GetLabels()[manifest.LabelApplication] == "":
		return ""
	case piped != "" && piped != r.req.PipedID:
		return r.described(application) + " of piped " + piped
	case application == "" || application == r.req.ApplicationID:
		return ""
	case r.req.ApplicationExists != nil && !r.req.ApplicationExists(application):
		return ""
	}
	return r.described(application)
}

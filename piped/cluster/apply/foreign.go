package apply

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/c785c783/piped/piped/cluster"
	"github.com/c785c783/piped/piped/config"
	"github.com/c785c783/piped/piped/config/kubernetes"
	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/manifest"
)

// ForeignRequest describes an application whose foreign objects Foreign returns.
type ForeignRequest struct {
	ApplicationID string
	PipedID       string
	VariantKey    string // as in Request
	VariantValue  string
	Objects       []manifest.Object // as rendered
	Namespace     string            // as for Resolve
	Yield         []config.IgnoreRule
	Propagation   kubernetes.PropagationMode // as in Request
}

// Foreign returns the live objects that the application declares and that are not marked as
// its own, so that its first apply would take them over. They are sorted by key, and Changes
// shows by a dry run whether the apply would change their content. Foreign skips hooks and
// objects of unknown kinds, and writes nothing. The error is of kind Unavailable when the
// cluster does not answer, and Invalid when the agent may not read an object.
func (c *Client) Foreign(ctx context.Context, req ForeignRequest) ([]deploy.AdoptedObject, error) {
	known, err := c.placed(ctx, req)
	if err != nil {
		return nil, err
	}
	r := newApplyRun(c, Request{
		ApplicationID: req.ApplicationID, PipedID: req.PipedID, Objects: known, Log: quiet{},
		VariantKey: req.VariantKey, VariantValue: req.VariantValue, Variant: req.VariantValue, Yield: req.Yield, Propagation: req.Propagation,
	})
	ctx = cluster.WithWarnings(ctx, func(string) {})
	for _, step := range []func(context.Context) error{r.findResources, r.readLive} {
		if err := step(ctx); err != nil {
			return nil, err
		}
	}
	foreign := slices.DeleteFunc(slices.Clone(r.targets), func(t *target) bool { return t.live == nil || r.marked(t.live) })
	if len(foreign) == 0 {
		return nil, nil
	}
	for _, step := range []func(context.Context) error{r.selectChanged, r.prepare} {
		if err := step(ctx); err != nil {
			return nil, err
		}
	}
	out := make([]deploy.AdoptedObject, len(foreign))
	at := map[*target]int{}
	for i, t := range foreign {
		at[t] = i
		out[i] = deploy.AdoptedObject{Object: t.ref, Managers: managersOf(t.live), OwnerApplicationID: t.live.GetAnnotations()[manifest.AnnotationApplication]}
	}
	if err := together(each(foreign, func(t *target) (err error) {
		out[at[t]].Changes, err = r.changes(ctx, t)
		return err
	})); err != nil {
		return nil, err
	}
	slices.SortFunc(out, func(a, b deploy.AdoptedObject) int { return strings.Compare(a.Object.Key(), b.Object.Key()) })
	return out, nil
}

// placed returns copies of the objects, without hooks and unknown kinds, with their
// namespaces.
func (c *Client) placed(ctx context.Context, req ForeignRequest) ([]manifest.Object, error) {
	var mu sync.Mutex
	var out []manifest.Object
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(concurrency)
	for _, obj := range req.Objects {
		if obj.Hook.Phase != manifest.HookNone {
			continue
		}
		g.Go(func() error {
			var served cluster.ServedKind
			err := c.Retry(ctx, nil, func(ctx context.Context) (err error) {
				served, err = c.Lookup(ctx, obj.GroupVersionKind())
				return err
			})
			if errors.Is(err, cluster.ErrUnknownKind) {
				return nil
			}
			if err != nil {
				return deploy.Errorf(deploy.Unavailable, "%w", c.Classify(err))
			}
			mu.Lock()
			defer mu.Unlock()
			out = append(out, cluster.InNamespace(obj.Clone(), served.Namespaced, req.Namespace))
			return nil
		})
	}
	return out, g.Wait()
}

// marked reports whether a live object has the label and the annotations of the application.
func (r *applyRun) marked(live metav1.Object) bool {
	annotations := live.GetAnnotations()
	return annotations[manifest.AnnotationApplication] == r.req.ApplicationID && annotations[manifest.AnnotationPiped] == r.req.PipedID &&
		live.GetLabels()[manifest.LabelApplication] == r.req.ApplicationID
}

// managersOf returns the field managers of an object, sorted, without those that wrote only
// subresources.
func managersOf(live metav1.Object) (managers []string) {
	for _, e := range live.GetManagedFields() {
		if e.Subresource == "" {
			managers = append(managers, e.Manager)
		}
	}
	slices.Sort(managers)
	return slices.Compact(managers)
}

// changes reports, by a dry run, whether an apply would change the content of the object
// (sameContent). It returns true if the API server refuses the dry run.
func (r *applyRun) changes(ctx context.Context, t *target) (changed bool, err error) {
	client := r.cluster.ResourceClient(t.resource, t.ref.Namespace)
	err = r.cluster.Retry(ctx, nil, func(ctx context.Context) error {
		live, err := client.Get(ctx, t.ref.Name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		planned, err := r.cluster.serverSideApply(ctx, t, t.desired, metav1.DryRunAll)
		if err != nil {
			return err
		}
		if changed = !sameContent(live, planned); changed {
			return nil
		}
		reduced, some, err := withoutInherited(live, planned)
		if err != nil || !some {
			return err
		}
		planned, err = client.Update(ctx, reduced, metav1.UpdateOptions{FieldManager: cluster.FieldManager, DryRun: []string{metav1.DryRunAll}})
		changed = err == nil && !sameContent(live, planned)
		return err
	})
	switch {
	case err == nil:
		return changed, nil
	case apierrors.IsNotFound(err), apierrors.IsInvalid(err), apierrors.IsBadRequest(err), apierrors.IsForbidden(err):
		return true, nil
	}
	return false, r.cluster.explain(t.source, "find out what changes of", err)
}

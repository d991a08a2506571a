package apply

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/c785c783/piped/piped/cluster"
	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/manifest"
)

// DescribeExtra evaluates the objects of req.Only, which the application has applied and Git
// no longer contains. It returns a result for each, in the order of req.Only, and ignores
// req.Objects and req.Ignore. A live object is drift (DriftExtra), unless it is being deleted
// (Missing), is excluded by an annotation (Ignored), is not marked as the application's, or
// has a controller. An object that cannot be read has a Problem. The error is as in Compare.
func (c *Client) DescribeExtra(ctx context.Context, req CompareRequest) ([]Compared, error) {
	brief := c.brief()
	out := make([]Compared, len(req.Only))
	g, limited := errgroup.WithContext(cluster.WithWarnings(ctx, func(string) {}))
	g.SetLimit(concurrency)
	for i, ref := range req.Only {
		g.Go(func() (err error) {
			out[i], err = brief.describeExtra(limited, req, ref)
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return nil, c.endOf(ctx, err)
	}
	return out, nil
}

// describeExtra is DescribeExtra for one object. Its error is unclassified.
func (c *Client) describeExtra(ctx context.Context, req CompareRequest, ref deploy.ObjectRef) (Compared, error) {
	out := Compared{Object: ref}
	live, err := c.readExtra(ctx, ref, req.Diff)
	switch {
	case errors.Is(err, cluster.ErrUnknownKind), apierrors.IsNotFound(err):
		out.Missing = true
		return out, nil
	case err != nil && (ctx.Err() != nil || cluster.Unreachable(err)):
		return out, err
	case err != nil:
		out.Problem = fmt.Sprintf("read %s, which is no longer in Git: %v", ref, c.Classify(err))
		return out, nil
	}
	out.UID, out.ResourceVersion = string(live.GetUID()), live.GetResourceVersion()
	out.Missing = live.GetDeletionTimestamp() != nil
	out.Ignored = manifest.IgnoresDrift(live.GetAnnotations())
	if out.Missing || out.Ignored || !req.marks(live) || metav1.GetControllerOf(live) != nil {
		return out, nil
	}
	out.Drift = &deploy.ObjectDrift{Object: ref, Cluster: c.Name(), Kind: deploy.DriftExtra}
	if whole, ok := live.(*unstructured.Unstructured); ok {
		out.Drift.Diff = describer{conceal: req.Conceal}.diff(nil, redacted(whole), nil)
	}
	return out, nil
}

// redacted returns an object that is no longer in Git with its strings redacted, because the
// agent does not know which of them are decrypted secrets. The name, the labels, the agent's
// annotations and all field names remain. It returns Secrets unchanged: manifest.Difference
// redacts their content.
func redacted(u *unstructured.Unstructured) *unstructured.Unstructured {
	if manifest.Confidential(u.GetAPIVersion(), u.GetKind(), "") {
		return u
	}
	out := &unstructured.Unstructured{Object: map[string]any{}}
	for key, value := range u.Object {
		out.Object[key] = withoutTexts(value)
	}
	annotations := out.GetAnnotations()
	for key, text := range u.GetAnnotations() {
		if strings.HasPrefix(key, "pipecd.dev/") {
			annotations[key] = text
		}
	}
	out.SetAPIVersion(u.GetAPIVersion())
	out.SetKind(u.GetKind())
	out.SetName(u.GetName())
	out.SetNamespace(u.GetNamespace())
	out.SetLabels(u.GetLabels())
	out.SetAnnotations(annotations)
	return out
}

// withoutTexts returns a copy of a JSON value with all strings redacted.
func withoutTexts(v any) any {
	switch v := v.(type) {
	case string:
		return diffRedacted
	case map[string]any:
		out := map[string]any{}
		for key, value := range v {
			out[key] = withoutTexts(value)
		}
		return out
	case []any:
		out := make([]any, len(v))
		for i, item := range v {
			out[i] = withoutTexts(item)
		}
		return out
	}
	return v
}

// marks reports whether a live object has the label and the annotations of the application.
func (req CompareRequest) marks(live metav1.Object) bool {
	annotations := live.GetAnnotations()
	return live.GetLabels()[manifest.LabelApplication] == req.ApplicationID &&
		annotations[manifest.AnnotationApplication] == req.ApplicationID && annotations[manifest.AnnotationPiped] == req.PipedID
}

// readExtra reads an object, if whole is false only its metadata. The error is unclassified.
func (c *Client) readExtra(ctx context.Context, ref deploy.ObjectRef, whole bool) (live metav1.Object, err error) {
	err = c.Retry(ctx, nil, func(ctx context.Context) error {
		resource, err := c.FindKind(ctx, manifest.GVK(ref))
		if err != nil {
			return err
		}
		if whole {
			live, err = c.ResourceClient(resource, ref.Namespace).Get(ctx, ref.Name, metav1.GetOptions{})
		} else {
			live, err = c.MetadataClient(resource, ref.Namespace).Get(ctx, ref.Name, metav1.GetOptions{})
		}
		return err
	})
	return live, err
}

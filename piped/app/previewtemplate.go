package app

import (
	"context"
	"encoding/json"
	"maps"
	"os"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/c785c783/piped/piped/cluster"
	"github.com/c785c783/piped/piped/config"
	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/manifest"
)

// previewTemplate is what every namespace of a preview has.
type previewTemplate struct {
	labels, annotations map[string]string
	objects             []manifest.Object
}

// templateResources are the resources of the kinds that a template can have.
var templateResources = map[schema.GroupKind]schema.GroupVersionResource{
	{Kind: "ResourceQuota"}:                             {Version: "v1", Resource: "resourcequotas"},
	{Kind: "LimitRange"}:                                {Version: "v1", Resource: "limitranges"},
	{Group: "networking.k8s.io", Kind: "NetworkPolicy"}: {Group: "networking.k8s.io", Version: "v1", Resource: "networkpolicies"},
}

// readPreviewTemplate reads the file of a template; "" is none. Errors are of kind deploy.Invalid.
func readPreviewTemplate(file string) (t previewTemplate, err error) {
	if file == "" {
		return t, nil
	}
	data, err := os.ReadFile(file)
	if err != nil {
		return t, deploy.Errorf(deploy.Invalid, "read the template of namespaces (previews.namespaceTemplate): %w", err)
	}
	objects, err := manifest.Parse(file, data)
	if err != nil {
		return t, err
	}
	namespaces := 0
	for _, o := range objects {
		group := o.GroupVersionKind().GroupKind()
		switch {
		case group == schema.GroupKind{Kind: "Namespace"}:
			namespaces++
			t.labels, t.annotations = o.GetLabels(), o.GetAnnotations()
		case !config.IsOfPreviewTemplate(group.Group, group.Kind):
			return t, deploy.Errorf(deploy.Invalid, "%s: the template of namespaces has a %s: expected a Namespace, ResourceQuotas, LimitRanges and NetworkPolicies", o.Origin, o.GetKind())
		case o.GetName() == "" || o.GetNamespace() != "":
			return t, deploy.Errorf(deploy.Invalid, "%s: expected a name and no namespace of the %s, because each preview has a namespace of its own", o.Origin, o.GetKind())
		default:
			t.objects = append(t.objects, o)
		}
	}
	if namespaces > 1 {
		return t, deploy.Errorf(deploy.Invalid, "%s: expected one Namespace with the labels and annotations of all, found %d", file, namespaces)
	}
	for _, name := range slices.Concat(slices.Collect(maps.Keys(t.labels)), slices.Collect(maps.Keys(t.annotations))) {
		if strings.HasPrefix(name, "pipecd.dev/") {
			return t, deploy.Errorf(deploy.Invalid, "%s: %s is set by the agent: remove it", file, name)
		}
	}
	return t, nil
}

// apply makes a namespace have what the template says. uid is that of the namespace, so that one
// that was deleted meanwhile is not created.
func (t previewTemplate) apply(ctx context.Context, c *cluster.Cluster, namespace string, uid types.UID) error {
	options := metav1.PatchOptions{FieldManager: cluster.FieldManager + "-previews", Force: new(true)}
	if len(t.labels)+len(t.annotations) > 0 {
		o := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Namespace"}}
		o.SetName(namespace)
		o.SetUID(uid)
		o.SetLabels(t.labels)
		o.SetAnnotations(t.annotations)
		body, err := json.Marshal(o)
		if err != nil {
			return err
		}
		if _, err := c.Dynamic().Resource(schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}).Patch(ctx, namespace, types.ApplyPatchType, body, options); err != nil {
			return c.Classify(err)
		}
	}
	for _, o := range t.objects {
		body, err := json.Marshal(o.Unstructured)
		if err != nil {
			return err
		}
		resource := templateResources[o.GroupVersionKind().GroupKind()]
		if _, err := c.Dynamic().Resource(resource).Namespace(namespace).Patch(ctx, o.GetName(), types.ApplyPatchType, body, options); err != nil {
			return c.Classify(err)
		}
	}
	return nil
}

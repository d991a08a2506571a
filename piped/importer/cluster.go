package importer

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	"github.com/c785c783/piped/piped/manifest"
)

// Cluster reads a cluster. It writes nothing.
type Cluster struct {
	Client dynamic.Interface
	Mapper meta.RESTMapper
}

// clusterFile stands for the file of documents that were read from a cluster.
const clusterFile = "cluster"

// pageSize is how many objects are listed per request.
const pageSize = 200

// readKinds are the kinds that an import reads from a cluster. Applications of an ApplicationSet are
// read instead of the set.
var readKinds = []schema.GroupKind{
	{Group: groupArgo, Kind: "Application"},
	{Group: groupKustomize, Kind: "Kustomization"}, {Group: groupHelm, Kind: "HelmRelease"},
	{Group: groupSource, Kind: "GitRepository"}, {Group: groupSource, Kind: "HelmRepository"}, {Group: groupSource, Kind: "OCIRepository"},
	{Group: groupSource, Kind: "HelmChart"}, {Group: groupSource, Kind: "Bucket"},
}

// Documents returns what Argo CD and Flux deploy, with the sources and the ConfigMaps that it
// refers to. A namespace limits which applications are read.
func (c Cluster) Documents(ctx context.Context, namespace string) (out []Document, err error) {
	for _, kind := range readKinds {
		in := namespace
		if kind.Group == groupSource {
			in = "" // references lead to other namespaces
		}
		objects, err := c.list(ctx, kind, in)
		if err != nil {
			return nil, fmt.Errorf("list %s of %s: %w", kind.Kind, kind.Group, err)
		}
		for _, u := range objects {
			out = append(out, Document{clusterFile, u.Object})
		}
	}
	for _, d := range slices.Clone(out) {
		if d.kind() != "HelmRelease" {
			continue
		}
		values, err := c.values(ctx, d)
		if err != nil {
			return nil, err
		}
		out = append(out, values...)
	}
	return out, nil
}

// list returns the objects of a kind, none if the cluster does not serve it.
func (c Cluster) list(ctx context.Context, kind schema.GroupKind, namespace string) (out []unstructured.Unstructured, err error) {
	mapping, err := c.Mapper.RESTMapping(kind)
	if meta.IsNoMatchError(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	options := metav1.ListOptions{Limit: pageSize}
	for {
		page, err := c.Client.Resource(mapping.Resource).Namespace(namespace).List(ctx, options)
		if err != nil {
			return nil, err
		}
		out = append(out, page.Items...)
		if options.Continue = page.GetContinue(); options.Continue == "" {
			return out, nil
		}
		if len(out) > maxDocuments {
			return nil, fmt.Errorf("there are more than %d: limit the import with --namespace", maxDocuments)
		}
	}
}

// values returns the ConfigMaps with values of a HelmRelease.
func (c Cluster) values(ctx context.Context, d Document) (out []Document, err error) {
	references, _, err := unstructured.NestedSlice(d.Object, "spec", "valuesFrom")
	if err != nil {
		return nil, nil // the conversion reports it
	}
	for _, r := range references {
		ref, _ := r.(map[string]any)
		name, _ := ref["name"].(string)
		if ref["kind"] != "ConfigMap" || name == "" {
			continue
		}
		u, err := c.Client.Resource(schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}).Namespace(d.namespace()).Get(ctx, name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("read the values of %s: %w", d, err)
		}
		out = append(out, Document{clusterFile, u.Object})
	}
	return out, nil
}

// Managed returns the objects that another tool manages, by the tool and its application.
func (c Cluster) Managed(ctx context.Context, objects []manifest.Object) (map[string][]string, error) {
	out := map[string][]string{}
	for _, o := range objects {
		gvk := o.GroupVersionKind()
		mapping, err := c.Mapper.RESTMapping(gvk.GroupKind(), gvk.Version)
		if meta.IsNoMatchError(err) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("find the kind %s: %w", gvk.Kind, err)
		}
		var client dynamic.ResourceInterface = c.Client.Resource(mapping.Resource)
		shown := o.GetKind() + " " + o.GetName()
		if mapping.Scope.Name() == meta.RESTScopeNameNamespace {
			namespace := o.GetNamespace()
			if namespace == "" {
				namespace = metav1.NamespaceDefault
			}
			client, shown = c.Client.Resource(mapping.Resource).Namespace(namespace), o.GetKind()+" "+namespace+"/"+o.GetName()
		}
		live, err := client.Get(ctx, o.GetName(), metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("read %s: %w", shown, err)
		}
		if tool := manifest.OtherTool(live); tool != "" && !slices.Contains(out[tool], shown) {
			out[tool] = append(out[tool], shown)
		}
	}
	return out, nil
}

var errInventory = errors.New("not an entry of an inventory")

// inventory returns the objects that the other tool has recorded in the status of a document,
// without their content.
func inventory(d Document) (out []manifest.Object) {
	resources, _, _ := unstructured.NestedSlice(d.Object, "status", "resources") // what has another form is no record
	for _, r := range resources {
		if r, ok := r.(map[string]any); ok && r["hook"] != true {
			text := func(key string) string { s, _ := r[key].(string); return s }
			out = append(out, recorded(text("group"), text("version"), text("kind"), text("namespace"), text("name")))
		}
	}
	entries, _, _ := unstructured.NestedSlice(d.Object, "status", "inventory", "entries")
	for _, e := range entries {
		if o, err := entry(e); err == nil {
			out = append(out, o)
		}
	}
	return out
}

// entry reads an entry of Flux, whose ID is namespace_name_group_kind. In names of roles, __ stands
// for a colon.
func entry(e any) (manifest.Object, error) {
	fields, _ := e.(map[string]any)
	id, _ := fields["id"].(string)
	version, _ := fields["v"].(string)
	namespace, rest, ok := strings.Cut(id, "_")
	last := strings.LastIndex(rest, "_")
	if !ok || last < 0 {
		return manifest.Object{}, errInventory
	}
	rest, kind := rest[:last], rest[last+1:]
	at := strings.LastIndex(rest, "_")
	if at < 0 {
		return manifest.Object{}, errInventory
	}
	return recorded(rest[at+1:], version, kind, namespace, strings.ReplaceAll(rest[:at], "__", ":")), nil
}

// recorded returns an object without content.
func recorded(group, version, kind, namespace, name string) manifest.Object {
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(schema.GroupVersionKind{Group: group, Version: version, Kind: kind})
	u.SetNamespace(namespace)
	u.SetName(name)
	return manifest.Object{Unstructured: u}
}

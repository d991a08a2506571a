package apply

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/manifest"
)

// hashSuffix matches the end of the name of a ConfigMap or Secret that a generator has named
// by a hash of its content: kustomize's ten characters, or hex.
var hashSuffix = regexp.MustCompile(`-([2456789bcdfghkmt]{10}|[0-9a-f]{8,64})$`)

// Generated reports whether the object is a ConfigMap or Secret with a content hash in its
// name. Each content is another object, and earlier revisions of workloads reference earlier
// objects.
func Generated(ref deploy.ObjectRef) bool {
	return ref.Group == "" && (ref.Kind == "ConfigMap" || ref.Kind == "Secret") && hashSuffix.MatchString(ref.Name)
}

// InUse returns the candidates that are Generated and that a retained revision of a workload
// references; without them that revision could not start pods. A revision is a ReplicaSet or
// ControllerRevision that one of the owners, a set of UIDs, controls. The result maps
// deploy.ObjectRef.Key of a candidate to kind and name of a revision. Without Generated
// candidates, InUse sends no request.
func (c *Client) InUse(ctx context.Context, candidates []deploy.InventoryItem, owners map[string]bool) (map[string]string, error) {
	namespaces := map[string]bool{}
	for _, item := range candidates {
		if Generated(item.Object) {
			namespaces[item.Object.Namespace] = true
		}
	}
	used := map[string]string{}
	for _, namespace := range slices.Sorted(maps.Keys(namespaces)) {
		revisions, err := c.revisions(ctx, namespace)
		if err != nil {
			return nil, fmt.Errorf("list the revisions of workloads in namespace %s: %w", namespace, c.Classify(err))
		}
		for _, r := range revisions {
			if r.owner == nil || !owners[string(r.owner.UID)] {
				continue
			}
			for _, ref := range manifest.References(r.pods) {
				object := deploy.ObjectRef{Kind: ref.Kind, Namespace: namespace, Name: ref.Name}
				used[object.Key()] = r.name
			}
		}
	}
	maps.DeleteFunc(used, func(key, _ string) bool {
		return !slices.ContainsFunc(candidates, func(i deploy.InventoryItem) bool { return Generated(i.Object) && i.Object.Key() == key })
	})
	return used, nil
}

// revision is one pod template that the API server retains for a workload.
type revision struct {
	name  string // kind and name
	owner *metav1.OwnerReference
	pods  *unstructured.Unstructured // has the template in spec.template
}

// revisions returns the ReplicaSets and ControllerRevisions of a namespace.
func (c *Client) revisions(ctx context.Context, namespace string) (out []revision, err error) {
	err = c.Retry(ctx, nil, func(ctx context.Context) error {
		out = nil
		sets, err := c.Typed().AppsV1().ReplicaSets(namespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		for _, rs := range sets.Items {
			content, err := json.Marshal(map[string]any{"spec": map[string]any{"template": rs.Spec.Template}})
			if err != nil {
				return err
			}
			out = append(out, newRevision("ReplicaSet", &rs.ObjectMeta, content))
		}
		histories, err := c.Typed().AppsV1().ControllerRevisions(namespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		for _, h := range histories.Items {
			out = append(out, newRevision("ControllerRevision", &h.ObjectMeta, h.Data.Raw))
		}
		return nil
	})
	return out, err
}

// newRevision returns the revision whose content is JSON with spec.template. Content that is
// not such an object, which other controllers may store, references nothing.
func newRevision(kind string, meta *metav1.ObjectMeta, content []byte) revision {
	pods := &unstructured.Unstructured{}
	if json.Unmarshal(content, &pods.Object) != nil || pods.Object == nil {
		pods.Object = map[string]any{}
	}
	pods.SetKind("ReplicaSet")
	return revision{name: kind + " " + meta.Name, owner: metav1.GetControllerOf(meta), pods: pods}
}

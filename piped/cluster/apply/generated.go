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

// hashSuffix is how generators end the name of a ConfigMap or Secret whose name
// changes with its content: kustomize's ten characters, or a hash in hex.
var hashSuffix = regexp.MustCompile(`-([2456789bcdfghkmt]{10}|[0-9a-f]{8,64})$`)

// Generated reports whether the object is a ConfigMap or Secret with a hash in its
// name: there is another for each content, and earlier revisions of workloads use
// the earlier ones.
func Generated(ref deploy.ObjectRef) bool {
	return ref.Group == "" && (ref.Kind == "ConfigMap" || ref.Kind == "Secret") && hashSuffix.MatchString(ref.Name)
}

// InUse returns which candidates, of the ConfigMaps and Secrets with a hash in their name,
// a retained revision of a workload references: a ReplicaSet or ControllerRevision that
// one of the owners (UIDs) controls. Without them that revision could not start pods. The
// result maps keys of objects to the name of the revision. It sends no request without
// such a candidate.
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

// revision is one pod template that a workload keeps.
type revision struct {
	name  string // with its kind
	owner *metav1.OwnerReference
	pods  *unstructured.Unstructured // holds the template as a ReplicaSet does
}

// revisions returns what the workloads of a namespace keep of their templates.
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

// newRevision reads a revision's content, a part of a workload in JSON. One of no
// workload we know uses nothing.
func newRevision(kind string, meta *metav1.ObjectMeta, content []byte) revision {
	pods := &unstructured.Unstructured{}
	if json.Unmarshal(content, &pods.Object) != nil || pods.Object == nil {
		pods.Object = map[string]any{}
	}
	pods.SetKind("ReplicaSet")
	return revision{name: kind + " " + meta.Name, owner: metav1.GetControllerOf(meta), pods: pods}
}

package kubernetes

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"maps"
	"reflect"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/manifest"
)

// ConfigChange is the decision to give a workload's pod template another
// config-hash annotation, which restarts its pods.
type ConfigChange struct {
	Send string `json:"send"`          // the value it gets
	Was  string `json:"was,omitempty"` // the value it had, "" for none
	// Config is InventoryItem.ConfigHash as it was: the content that Was stood for;
	// "" when that was unknown.
	Config string `json:"config,omitempty"`
}

// configs are the ConfigMaps and Secrets of a set.
type configs map[deploy.ObjectRef]*unstructured.Unstructured

func newConfigs() configs { return configs{} }

func (c configs) add(ref deploy.ObjectRef, u *unstructured.Unstructured) {
	if ref.Group == "" && (ref.Kind == "ConfigMap" || ref.Kind == "Secret") {
		c[configRef(ref.Kind, ref.Namespace, ref.Name)] = u
	}
}

func configRef(kind, namespace, name string) deploy.ObjectRef {
	return deploy.ObjectRef{Kind: kind, Namespace: namespace, Name: name}
}

// of returns which of the set's ConfigMaps and Secrets reach the pods of a
// workload.
func (c configs) of(workload *unstructured.Unstructured) (found []deploy.ObjectRef) {
	for _, r := range manifest.ConfigReferences(workload) {
		if ref := configRef(r.Kind, workload.GetNamespace(), r.Name); c[ref] != nil {
			found = append(found, ref)
		}
	}
	return found
}

// stamp returns the hash of the configuration that a workload's pods get from the
// set, and writes its beginning into the pod template as config-hash, unless there
// is none.
func (c configs) stamp(workload *unstructured.Unstructured) string {
	type content struct {
		Ref  deploy.ObjectRef
		Data map[string]any
	}
	var all []content
	for _, ref := range c.of(workload) {
		all = append(all, content{ref, contentOf(c[ref])})
	}
	text, err := json.Marshal(all) // sorts keys
	if err != nil {
		// Unreachable for parsed objects: they hold only what JSON holds.
		panic("kubernetes: hash of a configuration that is no JSON: " + err.Error())
	}
	sum := sha256.Sum256(text)
	hash := hex.EncodeToString(sum[:])
	if len(all) > 0 {
		setConfigHash(workload, hash[:configHashLength])
	}
	return hash
}

// configHashLength is how much of a hash the annotation holds, as in PipeCD.
const configHashLength = 10

// contentOf returns what of a ConfigMap or Secret reaches pods.
func contentOf(u *unstructured.Unstructured) map[string]any {
	out := map[string]any{}
	for _, field := range []string{"data", "binaryData"} {
		data, ok := u.Object[field].(map[string]any)
		if !ok || len(data) == 0 {
			continue
		}
		if field == "binaryData" || u.GetKind() == "Secret" {
			data = decoded(data)
		}
		out[field] = data
	}
	return out
}

// decoded returns values without their base64, of which there is more than one way
// to write it. What is none is left for the API server to refuse.
func decoded(data map[string]any) map[string]any {
	out := make(map[string]any, len(data))
	for key, value := range data {
		out[key] = value
		if text, ok := value.(string); ok {
			if raw, err := base64.StdEncoding.DecodeString(text); err == nil {
				out[key] = raw
			}
		}
	}
	return out
}

// setConfigHash writes the config-hash annotation of a pod template; "" takes it
// away.
func setConfigHash(workload *unstructured.Unstructured, hash string) {
	path := []string{"spec", "template", "metadata", "annotations"}
	annotations, _, err := unstructured.NestedMap(workload.Object, path...)
	if err != nil {
		return // the API server refuses it with a better message
	}
	if annotations == nil {
		annotations = map[string]any{}
	}
	if hash == "" {
		delete(annotations, manifest.AnnotationConfigHash)
	} else {
		annotations[manifest.AnnotationConfigHash] = hash
	}
	if len(annotations) == 0 {
		unstructured.RemoveNestedField(workload.Object, path...)
		return
	}
	_ = unstructured.SetNestedMap(workload.Object, annotations, path...) // fails on a template that is none, which the API server refuses
}

// configHash returns the config-hash annotation of a pod template.
func configHash(workload *unstructured.Unstructured) string {
	hash, _, _ := unstructured.NestedString(workload.Object, "spec", "template", "metadata", "annotations", manifest.AnnotationConfigHash)
	return hash
}

// settleConfig decides for each changed workload that is live which config-hash it
// is sent with: the one it has, whoever wrote it, unless what its pods get from
// the set is other than when it was applied last. When that is not known, what is
// live of the configuration decides.
func (r *applyRun) settleConfig(ctx context.Context) error {
	set, live := newConfigs(), map[deploy.ObjectRef]*target{}
	for _, t := range r.targets {
		set.add(t.ref, t.desired)
		live[configRef(t.ref.Kind, t.ref.Namespace, t.ref.Name)] = t
	}
	r.restarts = maps.Clone(r.req.Restarts)
	for _, t := range r.changed() {
		workload := t.liveObject()
		if !t.isWorkload() || workload == nil {
			continue
		}
		was, wanted, known := configHash(workload), configHash(t.desired), ""
		if t.recorded != nil {
			known = t.recorded.ConfigHash
		}
		send := was
		undo, undone := r.req.Undo[t.ref.Key()]
		switch decided, ok := r.req.Restarts[t.ref.Key()]; {
		case ok:
			send = decided.Send
		case undone && undo.Config == t.config:
			send = undo.Was
		case wanted == "" || known == t.config:
		case known != "":
			send = wanted
		default:
			changed, err := r.configChanged(ctx, set.of(t.desired), live)
			if err != nil {
				return err
			}
			if changed {
				send = wanted
			}
		}
		setConfigHash(t.desired, send)
		if send != was && r.restarts[t.ref.Key()] == (ConfigChange{}) {
			if r.restarts == nil {
				r.restarts = map[string]ConfigChange{}
			}
			r.restarts[t.ref.Key()] = ConfigChange{Send: send, Was: was, Config: known}
		}
	}
	return nil
}

// configChanged reports whether the live content of these ConfigMaps and Secrets
// is other than what is about to be applied.
func (r *applyRun) configChanged(ctx context.Context, refs []deploy.ObjectRef, targets map[deploy.ObjectRef]*target) (bool, error) {
	for _, ref := range refs {
		t := targets[ref]
		if t.live == nil {
			return true, nil
		}
		var live *unstructured.Unstructured
		err := r.cluster.retry(ctx, r.wait, func(ctx context.Context) (err error) {
			live, err = r.cluster.objectsOf(t.resource, ref.Namespace).Get(ctx, ref.Name, metav1.GetOptions{})
			return err
		})
		if apierrors.IsNotFound(err) {
			return true, nil
		}
		if err != nil {
			return false, r.cluster.explain(t.source, "read the content of", err)
		}
		if !reflect.DeepEqual(contentOf(live), contentOf(t.desired)) {
			return true, nil
		}
	}
	return false, nil
}

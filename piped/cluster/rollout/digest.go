package rollout

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// Template identifies a pod template by its content.
type Template struct {
	// Digest covers everything but the pod-template-hash label.
	Digest string `json:"digest,omitempty"`
	// Base also omits the template's annotations. A restart (kubectl rollout restart)
	// changes only an annotation, so it changes Digest but not Base.
	Base string `json:"base,omitempty"`
}

// TemplateDigest returns the digest of a pod template. Two templates have the same digest
// exactly if the Deployment controller considers them equal. The template must be as the API
// server returned it, with defaults filled in.
func TemplateDigest(t *corev1.PodTemplateSpec) string { return templateOf(t).Digest }

// ObjectTemplate returns the identity of the pod template of a workload or ReplicaSet as the
// API server returned it, including fields unknown to the Go types. It returns the zero
// Template if the object has no pod template.
func ObjectTemplate(u *unstructured.Unstructured) Template {
	spec, _ := u.Object["spec"].(map[string]any)
	t, ok := spec["template"].(map[string]any)
	if !ok {
		return Template{}
	}
	return identify(t)
}

// templateOf returns the identity of a typed pod template.
func templateOf(t *corev1.PodTemplateSpec) Template {
	data, err := json.Marshal(t)
	if err != nil {
		return Template{} // cannot happen: a pod template can always be encoded
	}
	var fields map[string]any
	if err := json.Unmarshal(data, &fields); err != nil {
		return Template{}
	}
	return identify(fields)
}

// identify returns the identity of a pod template in JSON form, which it does not change.
func identify(template map[string]any) Template {
	fields, _ := canonical(template).(map[string]any)
	if meta, ok := fields["metadata"].(map[string]any); ok {
		if labels, ok := meta["labels"].(map[string]any); ok {
			delete(labels, appsv1.DefaultDeploymentUniqueLabelKey)
			dropEmpty(meta, "labels")
		}
		dropEmpty(fields, "metadata")
	}
	id := Template{Digest: digest(fields)}
	if meta, ok := fields["metadata"].(map[string]any); ok {
		delete(meta, "annotations")
		dropEmpty(fields, "metadata")
	}
	id.Base = digest(fields)
	return id
}

// digest returns half of the SHA-256 hash of the JSON form of v, in hexadecimal.
func digest(v any) string {
	data, err := json.Marshal(v) // keys sorted
	if err != nil {
		return ""
	}
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:16])
}

// plainEmpty names the fields in which {} means the same as absence. API servers of
// different versions differ in which form they return. In other fields, such as emptyDir and
// namespaceSelector, {} has a meaning.
var plainEmpty = map[string]bool{
	"metadata": true, "labels": true, "annotations": true, "nodeSelector": true,
	"resources": true, "limits": true, "requests": true, "spec": true, "status": true,
}

// canonical returns a deep copy of a JSON value without nulls, empty lists and the empty
// maps of plainEmpty. Quantities need no conversion: the API server has made them canonical.
func canonical(v any) any {
	switch v := v.(type) {
	case map[string]any:
		out := make(map[string]any, len(v))
		for key, value := range v {
			c := canonical(value)
			if list, ok := c.([]any); c == nil || ok && len(list) == 0 {
				continue
			}
			if m, ok := c.(map[string]any); ok && len(m) == 0 && plainEmpty[key] {
				continue
			}
			out[key] = c
		}
		return out
	case []any:
		out := make([]any, len(v))
		for i := range v {
			out[i] = canonical(v[i])
		}
		return out
	default:
		return v
	}
}

// dropEmpty deletes a key of m whose value is an empty map.
func dropEmpty(m map[string]any, key string) {
	if child, ok := m[key].(map[string]any); ok && len(child) == 0 {
		delete(m, key)
	}
}

package apply

import (
	"encoding/base64"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/c785c783/piped/piped/manifest"
)

// desired returns the object to apply for obj: a copy with the owner's annotations and label,
// and without status and the metadata that only the API server writes.
func desired(obj manifest.Object, owner manifest.Ownership) *unstructured.Unstructured {
	u := obj.DeepCopy()
	manifest.Annotate(u, owner)
	delete(u.Object, "status")
	for _, field := range []string{"uid", "resourceVersion", "generation", "managedFields", "creationTimestamp", "deletionTimestamp", "selfLink"} {
		unstructured.RemoveNestedField(u.Object, "metadata", field)
	}
	gvk := u.GroupVersionKind()
	if gvk.Group == "" && gvk.Kind == "Secret" {
		foldStringData(u.Object)
	}
	if builtIn(gvk) {
		dropNulls(u.Object)
	}
	dropInjected(u)
	return u
}

// builtIn reports whether a null field equals an absent one in objects of the kind, as in all
// kinds that the API server implements by Go types.
func builtIn(gvk schema.GroupVersionKind) bool {
	return !strings.Contains(gvk.Group, ".") || strings.HasSuffix(gvk.Group, ".k8s.io")
}

// dropNulls removes the null fields of v, a JSON value, at any depth. Templates write null for
// values that are not set, and the agent would own such fields after an apply.
func dropNulls(v any) {
	switch v := v.(type) {
	case map[string]any:
		for key, field := range v {
			if field == nil {
				delete(v, key)
				continue
			}
			dropNulls(field)
		}
	case []any:
		for _, item := range v {
			dropNulls(item)
		}
	}
}

// foldStringData moves stringData of a Secret into data, as the API server does. If stringData
// were applied, a key that Git removes later would remain in data.
func foldStringData(secret map[string]any) {
	plain, ok := secret["stringData"].(map[string]any)
	if !ok {
		return
	}
	data, ok := secret["data"].(map[string]any)
	if !ok {
		if secret["data"] != nil {
			return // the API server refuses it with a better message
		}
		data = map[string]any{}
	}
	for key, value := range plain {
		text, ok := value.(string)
		if !ok {
			return
		}
		data[key] = base64.StdEncoding.EncodeToString([]byte(text))
	}
	secret["data"] = data
	delete(secret, "stringData")
}

// merged sets a key of annotations and returns annotations.
func merged(annotations map[string]string, key, value string) map[string]string {
	annotations[key] = value
	return annotations
}

// setCommit sets the annotation of the commit that last changed u. U must have annotations.
func setCommit(u *unstructured.Unstructured, commit string) {
	u.SetAnnotations(merged(u.GetAnnotations(), manifest.AnnotationCommitHash, commit))
}

package apply

import (
	"encoding/base64"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/c785c783/piped/piped/manifest"
)

// desired returns what is sent to the API server for obj: a copy that is marked
// as owned and holds nothing that only a server writes.
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

// builtIn reports whether null and absent mean the same for objects of the kind,
// as they do for all kinds the API server holds in Go types.
func builtIn(gvk schema.GroupVersionKind) bool {
	return !strings.Contains(gvk.Group, ".") || strings.HasSuffix(gvk.Group, ".k8s.io")
}

// dropNulls removes the null fields of v, at any depth: templates write them for
// what is not set, and applied they would count as owned.
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

// foldStringData moves stringData into data as the API server would: applied as
// it is, a key removed from it later would stay in data.
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

// merged returns annotations, which are a copy already, with one more.
func merged(annotations map[string]string, key, value string) map[string]string {
	annotations[key] = value
	return annotations
}

// setCommit names the commit that last changed u, which is annotated.
func setCommit(u *unstructured.Unstructured, commit string) {
	u.SetAnnotations(merged(u.GetAnnotations(), manifest.AnnotationCommitHash, commit))
}

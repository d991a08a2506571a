package manifest

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
)

// Digest returns the hex SHA-256 of the declaration in u: its canonical JSON without
// status, server-generated metadata and the commit-hash annotation, with a Secret's
// stringData merged into data. Objects with equal digests are equal requests to the API
// server. Empty maps and nulls elsewhere are included, since they can differ from
// missing fields (an empty selector selects everything). u is not changed.
func Digest(u *unstructured.Unstructured) string {
	canonical, err := json.Marshal(declared(u)) // sorts keys
	if err != nil {
		// Unreachable for parsed objects, which contain only JSON values.
		panic("manifest: digest of an object that is no JSON: " + err.Error())
	}
	sum := sha256.Sum256(canonical)
	return hex.EncodeToString(sum[:])
}

// declared returns the declaration in u. It shares unchanged parts with u.
func declared(u *unstructured.Unstructured) map[string]any {
	object := make(map[string]any, len(u.Object))
	for k, v := range u.Object {
		if k != "status" {
			object[k] = v
		}
	}
	if metadata, ok := object["metadata"].(map[string]any); ok {
		object["metadata"] = declaredMetadata(metadata)
	}
	if isSecret(u) {
		foldStringData(object)
	}
	return object
}

// declaredMetadata returns a copy of an object's metadata without the fields that the API
// server sets, the commit annotation, and empty labels and annotations.
func declaredMetadata(metadata map[string]any) map[string]any {
	out := make(map[string]any, len(metadata))
	for k, v := range metadata {
		switch k {
		case "uid", "resourceVersion", "generation", "managedFields", "creationTimestamp", "selfLink":
			continue
		case "annotations":
			if annotations, ok := v.(map[string]any); ok {
				v = without(annotations, AnnotationCommitHash)
			}
		}
		if m, ok := v.(map[string]any); v == nil || ok && len(m) == 0 {
			continue // no labels or annotations, in any notation
		}
		out[k] = v
	}
	return out
}

// without returns m without a key. It does not change m.
func without(m map[string]any, key string) map[string]any {
	if _, ok := m[key]; !ok {
		return m
	}
	out := make(map[string]any, len(m))
	for k, v := range m {
		if k != key {
			out[k] = v
		}
	}
	return out
}

// foldStringData merges stringData into data, like the API server. It does not change invalid
// data, so that the server rejects it.
func foldStringData(object map[string]any) {
	plain, ok := object["stringData"].(map[string]any)
	if !ok {
		return
	}
	data, ok := object["data"].(map[string]any)
	if !ok && object["data"] != nil {
		return
	}
	data = runtime.DeepCopyJSON(data)
	if data == nil {
		data = make(map[string]any, len(plain))
	}
	for k, v := range plain {
		text, ok := v.(string)
		if !ok {
			return
		}
		data[k] = base64.StdEncoding.EncodeToString([]byte(text))
	}
	delete(object, "stringData")
	object["data"] = data
}

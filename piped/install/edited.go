package install

import (
	"crypto/sha256"
	"encoding/hex"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// annotationApplied is the digest of the configuration that an installation has applied: a person
// edits it afterwards.
const annotationApplied = "pipecd.dev/installed-config"

// isConfig reports whether an object is the ConfigMap with the agent's configuration.
func isConfig(o *unstructured.Unstructured) bool {
	return o.GetKind() == "ConfigMap" && o.GetName() == "piped"
}

// edited reports whether the configuration in the cluster, nil without any, is neither the wanted one
// nor what the last installation applied.
func edited(live, wanted *unstructured.Unstructured) bool {
	if live == nil {
		return false
	}
	now := digest(live)
	return now != digest(wanted) && now != live.GetAnnotations()[annotationApplied]
}

// record notes what is applied. An edit between the read and the write is a conflict, and not lost.
func record(wanted, live *unstructured.Unstructured) {
	annotations := maps.Clone(wanted.GetAnnotations())
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[annotationApplied] = digest(wanted)
	wanted.SetAnnotations(annotations)
	if live != nil {
		wanted.SetResourceVersion(live.GetResourceVersion())
	}
}

// digest returns the digest of a ConfigMap's data.
func digest(o *unstructured.Unstructured) string {
	data, _, _ := unstructured.NestedStringMap(o.Object, "data") // the API server has checked it
	sum := sha256.New()
	for _, key := range slices.Sorted(maps.Keys(data)) {
		for _, text := range []string{key, data[key]} {
			part := sha256.Sum256([]byte(text))
			sum.Write(part[:])
		}
	}
	return "sha256:" + hex.EncodeToString(sum.Sum(nil))
}

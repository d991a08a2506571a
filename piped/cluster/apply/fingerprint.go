package apply

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/c785c783/piped/piped/cluster"
)

// OwnedHash returns a hash of the fields that the agent owns by server-side
// apply, "" when it owns none. A field loses its owner when another manager changes or
// removes it, so an unchanged hash means that no manager changed what was applied. It does
// not cover changes that an admission webhook makes to writes of other managers.
func OwnedHash(fields []metav1.ManagedFieldsEntry) string {
	var owned []string
	for _, e := range fields {
		if isOurs(e) && e.FieldsV1 != nil {
			owned = append(owned, e.APIVersion+" "+canonical(e.FieldsV1.GetRawBytes()))
		}
	}
	if len(owned) == 0 {
		return ""
	}
	slices.Sort(owned)
	h := sha256.New()
	for _, o := range owned {
		h.Write([]byte(o))
		h.Write([]byte{0})
	}
	return hex.EncodeToString(h.Sum(nil))
}

func isOurs(e metav1.ManagedFieldsEntry) bool {
	return e.Manager == cluster.FieldManager && e.Operation == metav1.ManagedFieldsOperationApply && e.Subresource == ""
}

// canonical sorts the keys of a JSON object: the order differs between the
// encodings in which an object is read.
func canonical(raw []byte) string {
	var v map[string]any
	if json.Unmarshal(raw, &v) != nil {
		return string(raw)
	}
	sorted, err := json.Marshal(v)
	if err != nil {
		return string(raw)
	}
	return string(sorted)
}

package apply

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/c785c783/piped/piped/cluster"
)

// OwnedHash returns a hash of the names of the fields that the agent owns by server-side
// apply, "" when it owns none. A manager that changes or removes a field takes it from its
// owner, so an unchanged hash means that no other manager changed the applied fields. It does
// not detect changes that an admission webhook makes to the writes of other managers.
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

// isOurs reports whether an entry of managed fields is of the agent's server-side applies.
func isOurs(e metav1.ManagedFieldsEntry) bool {
	return e.Manager == cluster.FieldManager && e.Operation == metav1.ManagedFieldsOperationApply && e.Subresource == ""
}

// canonical returns a JSON object with sorted keys, because their order depends on the
// encoding (JSON or protobuf) in which an object was read.
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

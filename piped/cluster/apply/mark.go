package apply

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"hash"
	"slices"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
)

// Mark returns an identifier of the version of an object's specification, computed from its
// metadata. A write of the status does not change it, and neither does an autoscaler that sets
// the replicas through the scale subresource, except for the first time. Scaling with kubectl
// changes it. The Mark is never "". It is one of
//
//   - "g:" and metadata.generation, if the API server sets it and no autoscaler has scaled the
//     object. Changes of labels and annotations do not change it; OwnedHash shows those of
//     fields that the agent owned.
//   - "w:" and a hash of the managers, fields and times in managedFields. Two writes of one
//     manager within a second may have the same hash.
//   - "v:" and metadata.resourceVersion, if the object has neither.
func Mark(o metav1.Object) string {
	fields := o.GetManagedFields()
	if g := o.GetGeneration(); g != 0 && !slices.ContainsFunc(fields, isScaler) {
		return "g:" + strconv.FormatInt(g, 10)
	}
	if len(fields) == 0 {
		return "v:" + o.GetResourceVersion()
	}
	var written []string
	for _, e := range fields {
		if e.Subresource == "status" || isScaler(e) {
			continue
		}
		written = append(written, strings.Join([]string{
			e.Manager, string(e.Operation), e.APIVersion, e.Subresource, writtenAt(e), fieldsText(e),
		}, "\x00"))
	}
	slices.Sort(written)
	sum := sha256.Sum256([]byte(strings.Join(written, "\x01")))
	return "w:" + hex.EncodeToString(sum[:16])
}

// isScaler reports whether an entry of managed fields is of an autoscaler: it is of the scale
// subresource, and not of kubectl, which scales for a user.
func isScaler(e metav1.ManagedFieldsEntry) bool {
	return e.Subresource == "scale" && !strings.HasPrefix(e.Manager, "kubectl")
}

// writtenAt returns the time of an entry as text, "" without one.
func writtenAt(e metav1.ManagedFieldsEntry) string {
	if e.Time == nil {
		return ""
	}
	return e.Time.UTC().Format(time.RFC3339)
}

// fieldsText returns the fields of an entry as canonical JSON, "" without any.
func fieldsText(e metav1.ManagedFieldsEntry) string {
	if e.FieldsV1 == nil {
		return ""
	}
	return canonical(e.FieldsV1.GetRawBytes())
}

// ValuesDigest returns a digest of the values of the fields that the agent owns by
// server-side apply, in an object as returned by the API server; "" if it owns none. Two
// reads of an object in one API version have the same digest exactly if these values are
// equal. The values are those after defaulting and normalisation. The object must have been
// read as JSON: in protobuf, nested objects such as volume claim templates lose their kind.
//
// List items are addressed as in managedFields, by key or value, so that their order does not
// matter. The digest covers all of a value that is owned as a whole (an atomic list or map).
func ValuesDigest(u *unstructured.Unstructured) string {
	return valuesDigest(u, u.GetManagedFields())
}

func valuesDigest(u *unstructured.Unstructured, fields []metav1.ManagedFieldsEntry) string {
	owned, err := ownedOf(fields)
	if err != nil || owned.Empty() {
		return ""
	}
	h := sha256.New()
	digestOwned(h, owned, u.Object)
	return hex.EncodeToString(h.Sum(nil))
}

// baselineOf returns OwnedHash, Mark and ValuesDigest of an object.
func baselineOf(u *unstructured.Unstructured) (owned, mark, values string) {
	fields := u.GetManagedFields() // parse once: that costs more than the hashes
	meta := metav1.ObjectMeta{Generation: u.GetGeneration(), ResourceVersion: u.GetResourceVersion(), ManagedFields: fields}
	return OwnedHash(fields), Mark(&meta), valuesDigest(u, fields)
}

// ownedFields returns the fields of an object that the agent owns by server-side apply.
func ownedFields(o metav1.Object) (*fieldpath.Set, error) { return ownedOf(o.GetManagedFields()) }

// ownedOf is ownedFields for managed fields.
func ownedOf(fields []metav1.ManagedFieldsEntry) (*fieldpath.Set, error) {
	owned := fieldpath.NewSet()
	for _, e := range fields {
		if !isOurs(e) {
			continue
		}
		set, err := setOf(e)
		if err != nil {
			return nil, err
		}
		owned = owned.Union(set)
	}
	return owned, nil
}

// setOf returns the fields of an entry of managed fields.
func setOf(e metav1.ManagedFieldsEntry) (*fieldpath.Set, error) {
	set := &fieldpath.Set{}
	if e.FieldsV1 == nil {
		return set, nil
	}
	if err := set.FromJSON(bytes.NewReader(e.FieldsV1.GetRawBytes())); err != nil {
		return nil, fmt.Errorf("read its managed fields: %w", err)
	}
	return set, nil
}

// digestOwned writes the values in v, a JSON value, of a set of fields to h. Of a field with
// owned fields below, it writes only whether the field exists.
func digestOwned(h hash.Hash, set *fieldpath.Set, v any) {
	for e := range set.Members.All() {
		if _, below := set.Children.Get(e); !below {
			digestField(h, '=', e, found(v, e))
		}
	}
	for e := range set.Children.All() {
		below, _ := set.Children.Get(e)
		at := found(v, e)
		if len(at) != 1 {
			digestField(h, '*', e, at) // missing, or several items with the same key
			continue
		}
		digestField(h, '{', e, nil)
		digestOwned(h, below, at[0])
		h.Write([]byte{'}'})
	}
}

// digestField writes the address and the values of a field to h in an unambiguous form.
func digestField(h hash.Hash, kind byte, e fieldpath.PathElement, values []any) {
	address, err := fieldpath.SerializePathElement(e)
	if err != nil {
		// Unreachable: it was read from its serialized form.
		panic("kubernetes: digest of a field without an address: " + err.Error())
	}
	text, err := json.Marshal([]any{string(kind), address, values}) // sorts keys
	if err != nil {
		// Unreachable: the values were read as JSON.
		panic("kubernetes: digest of a value that is no JSON: " + err.Error())
	}
	h.Write(text)
}

// found returns the values at a path element of v, a JSON value: none if it is missing,
// several only if list items have the same key.
func found(v any, e fieldpath.PathElement) []any {
	switch v := v.(type) {
	case map[string]any:
		if e.FieldName != nil {
			if value, ok := v[*e.FieldName]; ok {
				return []any{value}
			}
		}
	case []any:
		if e.Index != nil && *e.Index >= 0 && *e.Index < len(v) {
			return []any{v[*e.Index]}
		}
		var items []any
		for _, item := range v {
			if selects(e, item) {
				items = append(items, item)
			}
		}
		return items
	}
	return nil
}

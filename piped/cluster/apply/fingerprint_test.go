package apply

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestOwnedHashSeesOnlyWhatWeApplied(t *testing.T) {
	entry := func(manager string, op metav1.ManagedFieldsOperationType, subresource, fields string) metav1.ManagedFieldsEntry {
		f := &metav1.FieldsV1{}
		f.SetRawBytes([]byte(fields))
		return metav1.ManagedFieldsEntry{Manager: manager, Operation: op, Subresource: subresource, APIVersion: "v1", FieldsV1: f}
	}
	ours := entry("piped", metav1.ManagedFieldsOperationApply, "", `{"f:data":{"f:a":{},"f:b":{}}}`)
	base := OwnedHash([]metav1.ManagedFieldsEntry{ours})
	cases := map[string]struct {
		fields []metav1.ManagedFieldsEntry
		want   string // "same", "none" or "other"
	}{
		"keys in another order":           {[]metav1.ManagedFieldsEntry{entry("piped", metav1.ManagedFieldsOperationApply, "", `{"f:data":{"f:b":{},"f:a":{}}}`)}, "same"},
		"another owner next to the agent": {[]metav1.ManagedFieldsEntry{entry("kubectl-edit", metav1.ManagedFieldsOperationUpdate, "", `{"f:data":{"f:c":{}}}`), ours}, "same"},
		"a field was taken away":          {[]metav1.ManagedFieldsEntry{entry("piped", metav1.ManagedFieldsOperationApply, "", `{"f:data":{"f:a":{}}}`)}, "other"},
		"an update in our name":           {[]metav1.ManagedFieldsEntry{entry("piped", metav1.ManagedFieldsOperationUpdate, "", `{"f:data":{"f:a":{},"f:b":{}}}`)}, "none"},
		"a subresource":                   {[]metav1.ManagedFieldsEntry{entry("piped", metav1.ManagedFieldsOperationApply, "status", `{"f:status":{}}`)}, "none"},
		"nothing applied by us":           {nil, "none"},
		"another version of ours":         {[]metav1.ManagedFieldsEntry{func() metav1.ManagedFieldsEntry { e := ours; e.APIVersion = "v2"; return e }()}, "other"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			hash := OwnedHash(c.fields)
			got := "other"
			switch hash {
			case base:
				got = "same"
			case "":
				got = "none"
			}
			if got != c.want {
				t.Errorf("hash is %s, want %s", got, c.want)
			}
		})
	}
}

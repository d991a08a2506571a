package apply

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/manifest"
)

// maxManagedFields bounds the fields that Managers returns of one manager.
const maxManagedFields = 500

// Present returns an object as YAML for users, without its managed fields. It masks the values
// of Secrets and the decrypted secrets that conceal knows. declared is the declaration in Git
// of a live object, or of the workload that created it; nil for none. A live value is masked,
// too, where the declaration has a decrypted secret, because it may be another secret.
func Present(u, declared *unstructured.Unstructured, conceal Concealer) string {
	d := describer{conceal: conceal}
	shown := manifest.Masked(u)
	unstructured.RemoveNestedField(shown.Object, "metadata", "managedFields")
	hidden := map[string]string{}
	if declared != nil && conceal != nil {
		hidden = d.hiddenTexts(declaredChanges(declared, u))
	}
	out, _ := d.hide(shown.Object, hidden).(map[string]any)
	return d.text(manifest.YAML(&unstructured.Unstructured{Object: out}))
}

// declaredChanges returns the declared values from which a live object differs. Of an object
// that the declared workload created, it compares the pods.
func declaredChanges(declared, live *unstructured.Unstructured) []manifest.Change {
	changes := manifest.Place{}.Diff(declared.Object, live.Object)
	if declared.GetKind() != live.GetKind() {
		changes = manifest.Place{}.Field("spec").Field("template").Field("spec").Diff(podSpec(declared), podSpec(live))
	}
	return slices.DeleteFunc(changes, func(c manifest.Change) bool { return c.Before == nil })
}

// podSpec returns manifest.PodSpec as a value: nil for kinds without pods.
func podSpec(u *unstructured.Unstructured) any {
	if spec := manifest.PodSpec(u); spec != nil {
		return spec
	}
	return nil
}

// Managers returns who manages which fields of a live object, the last writer first. Decrypted
// secrets in the paths are redacted.
func Managers(live metav1.Object, conceal Concealer) (out []deploy.FieldManager) {
	d := describer{conceal: conceal}
	for _, e := range live.GetManagedFields() {
		m := deploy.FieldManager{Manager: e.Manager, Operation: string(e.Operation), Subresource: e.Subresource}
		if e.Time != nil {
			m.ChangedAt = e.Time.UTC()
		}
		for _, l := range leavesOf(e) {
			m.Fields = append(m.Fields, d.text(l.path))
		}
		slices.Sort(m.Fields)
		if m.LeftOut = len(m.Fields) - maxManagedFields; m.LeftOut > 0 {
			m.Fields = m.Fields[:maxManagedFields]
		} else {
			m.LeftOut = 0
		}
		out = append(out, m)
	}
	slices.SortStableFunc(out, func(a, b deploy.FieldManager) int { return b.ChangedAt.Compare(a.ChangedAt) })
	return out
}

package rollout

import (
	"encoding/json"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
)

// FromControllerRevision converts a revision of a StatefulSet or DaemonSet. The template is
// the zero Template if the revision contains none.
func FromControllerRevision(c *appsv1.ControllerRevision) Revision {
	r := fromControllerRevision(c)
	var data struct {
		Spec struct {
			Template *corev1.PodTemplateSpec `json:"template"`
		} `json:"spec"`
	}
	if json.Unmarshal(c.Data.Raw, &data) == nil && data.Spec.Template != nil {
		r.Template = templateOf(data.Spec.Template)
	}
	return r
}

// ControllerRevisionFrom converts a ControllerRevision as the API server returned it. The
// template's identity includes fields that are unknown to the Go types.
func ControllerRevisionFrom(u *unstructured.Unstructured) (Revision, error) {
	template, _, _ := unstructured.NestedMap(u.Object, "data", "spec", "template")
	slim := map[string]any{}
	for k, v := range u.Object {
		if k != "data" {
			slim[k] = v
		}
	}
	var c appsv1.ControllerRevision
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(slim, &c); err != nil {
		return Revision{}, fmt.Errorf("read ControllerRevision %s/%s: %w", u.GetNamespace(), u.GetName(), err)
	}
	r := fromControllerRevision(&c)
	if template != nil {
		delete(template, "$patch") // of the patch that the revision is
		r.Template = identify(template)
		object := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"template": template}}}
		r.Images, r.Source = imagesIn(object), sourceIn(templateAnnotations(object))
	}
	return r, nil
}

// fromControllerRevision converts all but the data.
func fromControllerRevision(c *appsv1.ControllerRevision) Revision {
	r := Revision{UID: string(c.UID), Name: c.Name, Number: c.Revision, Created: c.CreationTimestamp.Time, Deleting: c.DeletionTimestamp != nil}
	if owner := metav1.GetControllerOfNoCopy(c); owner != nil {
		r.OwnerUID = string(owner.UID)
	}
	return r
}

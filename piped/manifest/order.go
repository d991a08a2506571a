package manifest

import (
	"fmt"
	"strconv"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// Order returns the apply wave of an object: the integer in its annotation
// pipecd.dev/order, 0 if missing or invalid.
func Order(u *unstructured.Unstructured) int {
	n, err := order(u)
	if err != nil {
		return 0
	}
	return int(n)
}

func order(u *unstructured.Unstructured) (int64, error) {
	return strconv.ParseInt(u.GetAnnotations()[AnnotationOrder], 10, 32)
}

// OrderWarning returns a warning if the annotation pipecd.dev/order of an object is not
// an integer, else "". The warning begins with the object's origin.
func OrderWarning(o Object) string {
	text, is := o.GetAnnotations()[AnnotationOrder]
	if _, err := order(o.Unstructured); !is || err == nil {
		return ""
	}
	return fmt.Sprintf("%s: %s: the annotation %s is %q, which is treated as 0; expected an integer, such as \"1\"", o.Origin, Ref(o.Unstructured), AnnotationOrder, text)
}

package manifest

import (
	"fmt"
	"strconv"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// Order returns the wave in which an object is applied: the integer of its
// annotation pipecd.dev/order; absent or no integer, it counts as 0.
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

// OrderWarning says that the annotation pipecd.dev/order of an object is no
// integer, as a line that begins with where the object is written; "" if there is
// nothing to say.
func OrderWarning(o Object) string {
	text, is := o.GetAnnotations()[AnnotationOrder]
	if _, err := order(o.Unstructured); !is || err == nil {
		return ""
	}
	return fmt.Sprintf("%s: %s: the annotation %s is %q, which counts as 0; expected an integer, such as \"1\"", o.Origin, Ref(o.Unstructured), AnnotationOrder, text)
}

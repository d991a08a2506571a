package manifest

import (
	"strconv"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// Order returns the wave in which an object is applied: the integer of its
// annotation pipecd.dev/order; absent or no integer, it counts as 0.
func Order(u *unstructured.Unstructured) int {
	n, err := strconv.ParseInt(u.GetAnnotations()[AnnotationOrder], 10, 32)
	if err != nil {
		return 0
	}
	return int(n)
}

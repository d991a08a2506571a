package app

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/c785c783/piped/piped/cluster"
	"github.com/c785c783/piped/piped/cluster/clustertest"
)

// mutateTries is how many changes are tried of an object for each that is wanted: the
// API server refuses many.
const mutateTries = 10

// mutate makes up to so many random changes to fields of an object that the agent
// owns, as somebody else and each in a write of its own. What says whose the object
// is stays. It returns the paths of these fields, and the object as it was.
func mutate(ctx context.Context, random *rand.Rand, client dynamic.ResourceInterface, name string, most int) (paths []string, was *unstructured.Unstructured, err error) {
	if was, err = client.Get(ctx, name, metav1.GetOptions{}); err != nil {
		return nil, nil, err
	}
	live := was
	for try := 0; len(paths) < most && try < most*mutateTries; try++ {
		all, err := clustertest.Mutations(live, cluster.FieldManager)
		if err != nil {
			return nil, nil, err
		}
		all = slices.DeleteFunc(all, func(m clustertest.Mutation) bool {
			return strings.Contains(m.Path, "pipecd.dev/") || slices.ContainsFunc(paths, func(p string) bool { return related(p, m.Owned) })
		})
		if len(all) == 0 {
			break
		}
		m := all[random.IntN(len(all))]
		answer, err := client.Patch(ctx, name, types.JSONPatchType, m.Patch, metav1.PatchOptions{FieldManager: "intruder"})
		if refused(err) {
			continue
		}
		if err != nil {
			return nil, nil, fmt.Errorf("%s %s: %s: %w", live.GetKind(), name, m.Patch, err)
		}
		if changed := !cmp.Equal(declared(live), declared(answer)); changed {
			paths = append(paths, m.Owned)
		}
		live = answer
	}
	return paths, was, nil
}

// refused reports whether the API server says that an object is not valid.
func refused(err error) bool {
	return apierrors.IsInvalid(err) || apierrors.IsBadRequest(err) || apierrors.IsForbidden(err) || apierrors.IsInternalError(err)
}

// declared is what of a live object others than its controllers decide.
func declared(u *unstructured.Unstructured) map[string]any {
	out := maps.Clone(u.Object)
	delete(out, "status")
	out["metadata"] = []any{u.GetLabels(), u.GetAnnotations()}
	return out
}

// related reports whether of two paths one is the other, or part of it.
func related(a, b string) bool {
	if len(a) > len(b) {
		a, b = b, a
	}
	rest, ok := strings.CutPrefix(b, a)
	return ok && (rest == "" || rest[0] == '.' || rest[0] == '[')
}

// restore gives an object back what it was, as somebody else.
func restore(ctx context.Context, client dynamic.ResourceInterface, was *unstructured.Unstructured) error {
	for {
		now, err := client.Get(ctx, was.GetName(), metav1.GetOptions{})
		if err != nil {
			return err
		}
		next := was.DeepCopy()
		next.SetResourceVersion(now.GetResourceVersion())
		annotations := now.GetAnnotations() // controllers write some
		if annotations == nil {
			annotations = map[string]string{}
		}
		maps.Copy(annotations, was.GetAnnotations())
		next.SetAnnotations(annotations)
		if _, err = client.Update(ctx, next, metav1.UpdateOptions{FieldManager: "intruder"}); !apierrors.IsConflict(err) {
			return err
		}
	}
}

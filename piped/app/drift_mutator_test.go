package app

import (
	"context"
	"encoding/json"
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

// mutateTries is the number of attempted changes per wanted change of an object: the API
// server refuses many.
const mutateTries = 10

// mutate makes up to most random changes to fields of an object that the agent owns, as
// another user and each in a separate write. It does not change the ownership of the
// object. It returns the paths of the changed fields, and the object as it was.
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
		patch, err := unlessChanged(m.Patch, live)
		if err != nil {
			return nil, nil, err
		}
		answer, err := client.Patch(ctx, name, types.JSONPatchType, patch, metav1.PatchOptions{FieldManager: "intruder"})
		if apierrors.IsConflict(err) { // a controller wrote it
			if live, err = client.Get(ctx, name, metav1.GetOptions{}); err != nil {
				return nil, nil, err
			}
			continue
		}
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

// unlessChanged returns a JSON patch that is in conflict if the object is not this version: what
// differs in the answer is what the patch has changed.
func unlessChanged(patch []byte, live *unstructured.Unstructured) ([]byte, error) {
	var operations []json.RawMessage
	if err := json.Unmarshal(patch, &operations); err != nil {
		return nil, fmt.Errorf("read the patch %s: %w", patch, err)
	}
	version := fmt.Sprintf(`{"op": "replace", "path": "/metadata/resourceVersion", "value": %q}`, live.GetResourceVersion())
	return json.Marshal(append(operations, json.RawMessage(version)))
}

// refused reports whether the API server rejected an object as invalid.
func refused(err error) bool {
	return apierrors.IsInvalid(err) || apierrors.IsBadRequest(err) || apierrors.IsForbidden(err) || apierrors.IsInternalError(err)
}

// declared returns the fields of a live object that its controllers do not set.
func declared(u *unstructured.Unstructured) map[string]any {
	out := maps.Clone(u.Object)
	delete(out, "status")
	out["metadata"] = []any{u.GetLabels(), u.GetAnnotations()}
	return out
}

// related reports whether two paths are equal or one contains the other.
func related(a, b string) bool {
	if len(a) > len(b) {
		a, b = b, a
	}
	rest, ok := strings.CutPrefix(b, a)
	return ok && (rest == "" || rest[0] == '.' || rest[0] == '[')
}

// restore restores an object to its former state, as another user.
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

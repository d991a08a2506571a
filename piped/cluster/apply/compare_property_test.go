package apply

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/c785c783/piped/piped/cluster"
	"github.com/c785c783/piped/piped/cluster/apply/applytest"
	"github.com/c785c783/piped/piped/cluster/clustertest"
	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/manifest"
)

// mutationsPerKind is the number of accepted mutations of our fields per kind.
const mutationsPerKind = 5

// TestEveryChangeOfOurFieldsIsFound: for all kinds, random changes of fields that we
// applied must be reported at their path, and nothing else. Additions by others are not
// reported.
func TestEveryChangeOfOurFieldsIsFound(t *testing.T) {
	t.Parallel()
	l := newEnv(t)
	manifests := applytest.EveryKind(t, l.Cluster, l.ns, l.items)
	l.apply(t, manifests)
	random := rand.New(rand.NewPCG(1, 2))
	kinds := map[string]int{}
	for _, obj := range l.request(t, manifests).Objects {
		p := &mutated{env: l, manifests: manifests, ref: manifest.Ref(obj.Unstructured), random: random}
		p.client = l.as("mutator").object(t, obj.GetAPIVersion(), obj.GetKind())
		p.foreign(t)
		kinds[obj.GetKind()] += p.run(t)
	}
	t.Log("reported:", kinds)
	some := slices.DeleteFunc(slices.Collect(maps.Values(kinds)), func(n int) bool { return n == 0 })
	if len(some) < 15 {
		t.Errorf("only %d kinds could be changed: %v", len(some), kinds)
	}
}

// mutated is one object that is mutated repeatedly.
type mutated struct {
	env       *env
	manifests string
	ref       deploy.ObjectRef
	random    *rand.Rand
	client    dynamic.ResourceInterface
}

// run changes our fields of the object and returns how many changes were reported.
func (p *mutated) run(t *testing.T) (reported int) {
	t.Helper()
	before := p.read(t)
	all, err := clustertest.Mutations(before, cluster.FieldManager)
	if err != nil {
		t.Fatal(err)
	}
	all = slices.DeleteFunc(all, func(m clustertest.Mutation) bool { return p.spared(m.Path) })
	p.random.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	for _, m := range all {
		if reported == mutationsPerKind {
			break
		}
		before = p.read(t)
		after, err := p.client.Patch(t.Context(), p.ref.Name, types.JSONPatchType, m.Patch, metav1.PatchOptions{FieldManager: "mutator"})
		if apierrors.IsInvalid(err) || apierrors.IsBadRequest(err) || apierrors.IsForbidden(err) || err != nil && cluster.IsSchemaError(err) {
			continue
		}
		if err != nil {
			t.Fatalf("%s %s: %v", p.ref, m.Patch, err)
		}
		changed := changedLeaves(before, after)
		p.check(t, m, changed)
		if len(changed) > 0 {
			reported++
		}
		p.restore(t, before)
	}
	return reported
}

// restore restores the object by an apply. A change that would conflict, such as a port
// with another number and the name of ours, is undone first.
func (p *mutated) restore(t *testing.T, before *unstructured.Unstructured) {
	t.Helper()
	takeOver := func(r *Request) { r.TakeOver = true }
	if _, err := p.env.tryApply(t, p.manifests, takeOver); err == nil {
		return
	}
	before.SetManagedFields(nil)
	clustertest.Eventually(t, "the change is undone", func() bool {
		before.SetResourceVersion(p.read(t).GetResourceVersion())
		_, err := p.client.Update(t.Context(), before, metav1.UpdateOptions{FieldManager: "mutator"})
		return err == nil
	})
	p.env.apply(t, p.manifests, takeOver)
}

// spared reports whether the test must not change a field: the change would be no drift,
// or would remove other objects of the test.
func (p *mutated) spared(path string) bool {
	switch {
	case strings.Contains(path, manifest.AnnotationCommitHash), strings.Contains(path, manifest.AnnotationConfigHash):
		return true
	case path == "spec.replicas" && p.ref.Kind == "StatefulSet": // its autoscaler scales it
		return true
	}
	return p.ref.Kind == "CustomResourceDefinition" && strings.HasPrefix(path, "spec")
}

// changedLeaves returns the paths of our fields whose values a write has changed.
func changedLeaves(before, after *unstructured.Unstructured) (paths []string) {
	ours, _ := leavesByOwner(before)
	for _, l := range ours {
		was, _ := get(before.Object, l.steps)
		is, there := get(after.Object, l.steps)
		if !there || !reflect.DeepEqual(was, is) {
			paths = append(paths, l.path)
		}
	}
	return paths
}

// check compares what is reported with what has changed.
func (p *mutated) check(t *testing.T, m clustertest.Mutation, changed []string) {
	t.Helper()
	got := p.env.compare(t, p.manifests, func(r *CompareRequest) { r.Only = []deploy.ObjectRef{p.ref} })[0]
	if got.Problem != "" || (got.Drift != nil) != (len(changed) > 0) {
		t.Errorf("%s: after %s, our fields %q differ, and the comparison reports %s", p.ref, m.Patch, changed, asText(got))
		return
	}
	if got.Drift == nil {
		return
	}
	related := func(path string) func(string) bool {
		return func(other string) bool { return covers(path, other) || covers(other, path) }
	}
	var fields []string
	for _, f := range got.Drift.Fields {
		fields = append(fields, f.Path)
		if !slices.ContainsFunc(changed, related(f.Path)) {
			t.Errorf("%s: after %s, the comparison reports %s, which has not changed", p.ref, m.Patch, f.Path)
		}
	}
	for _, path := range changed {
		if !slices.ContainsFunc(fields, related(path)) {
			t.Errorf("%s: after %s, the comparison does not report %s: %s", p.ref, m.Patch, path, asText(got))
		}
	}
}

func asText(c Compared) string {
	if c.Drift == nil {
		return fmt.Sprintf("nothing (problem %q, unchanged %t)", c.Problem, c.Unchanged)
	}
	text, err := json.Marshal(c.Drift)
	if err != nil {
		return err.Error()
	}
	return string(text)
}

// foreign adds fields that are not ours to the object; they must not be reported.
func (p *mutated) foreign(t *testing.T) {
	t.Helper()
	for _, patch := range []string{
		`{"metadata":{"labels":{"mutator":"yes"},"annotations":{"mutator":"yes"}}}`,
		`{"metadata":{"labels":{"mutator":"no"},"annotations":{"mutator":null}}}`,
	} {
		if _, err := p.client.Patch(t.Context(), p.ref.Name, types.MergePatchType, []byte(patch), metav1.PatchOptions{FieldManager: "mutator"}); err != nil {
			t.Fatal(err)
		}
		p.check(t, clustertest.Mutation{Patch: []byte(patch)}, nil)
	}
}

func (p *mutated) read(t *testing.T) *unstructured.Unstructured {
	t.Helper()
	u, err := p.client.Get(t.Context(), p.ref.Name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return u
}

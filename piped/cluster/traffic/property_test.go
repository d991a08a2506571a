package traffic

import (
	"fmt"
	"math/big"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"pgregory.net/rapid"

	"github.com/c785c783/piped/piped/config/kubernetes"
	"github.com/c785c783/piped/piped/manifest"
)

// dest is one destination of a drawn rule. Its name is a Service of a route, or a subset
// of the host of a VirtualService. "other" is neither.
type dest struct {
	Name   string
	Port   int
	Weight int // -1: absent
}

// drawn is a case: rules with destinations, and shares.
type drawn struct {
	routing Routing
	rules   [][]dest
	shares  Shares
}

func draw(rt *rapid.T) drawn {
	d := drawn{routing: Routing{Service: "stable", Canary: "canary", Baseline: "baseline", Route: &kubernetes.HTTPRoute{}, Istio: &kubernetes.Istio{Host: "web"}}}
	d.routing.Label = kubernetes.VariantLabel{Key: "v", PrimaryValue: "stable", CanaryValue: "canary", BaselineValue: "baseline"}
	d.routing.Method = rapid.SampledFrom([]kubernetes.Method{kubernetes.HTTPRouteMethod, kubernetes.GRPCRouteMethod, kubernetes.IstioMethod}).Draw(rt, "method")
	destination := rapid.Custom(func(rt *rapid.T) dest {
		return dest{
			Name:   rapid.SampledFrom([]string{"stable", "stable", "stable", "canary", "baseline", "other", "legacy"}).Draw(rt, "name"),
			Port:   rapid.IntRange(80, 82).Draw(rt, "port"),
			Weight: rapid.SampledFrom([]int{-1, 0, 1, 2, 7, 33, 60, 100, 999}).Draw(rt, "weight"),
		}
	})
	d.rules = rapid.SliceOfN(rapid.SliceOfN(destination, 1, 5), 1, 4).Draw(rt, "rules")
	d.shares.Canary = rapid.IntRange(0, 100).Draw(rt, "canary")
	d.shares.Baseline = rapid.IntRange(0, 100-d.shares.Canary).Draw(rt, "baseline")
	d.shares.Primary = 100 - d.shares.Canary - d.shares.Baseline
	return d
}

// object returns the case as declared in Git.
func (d drawn) object() manifest.Object {
	var rules []any
	for i, r := range d.rules {
		var list []any
		for _, to := range r {
			list = append(list, d.write(to))
		}
		rule := map[string]any{"name": fmt.Sprintf("r%d", i), "timeouts": map[string]any{"request": "1s"}}
		rule[d.field()] = list
		rules = append(rules, rule)
	}
	u := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"more": "stays", d.list(): rules}}}
	u.SetAPIVersion(GatewayGroup + "/v1")
	u.SetKind(d.routing.Kind())
	if d.istio() {
		u.SetAPIVersion("networking.istio.io/v1")
		u.SetKind("VirtualService")
	}
	u.SetName("web")
	return manifest.Object{Unstructured: u}
}

func (d drawn) istio() bool { return d.routing.Method == kubernetes.IstioMethod }

// list and field are the names of the fields that hold the rules, and the destinations of
// a rule.
func (d drawn) list() string {
	if d.istio() {
		return "http"
	}
	return "rules"
}

func (d drawn) field() string {
	if d.istio() {
		return "route"
	}
	return "backendRefs"
}

func (d drawn) write(to dest) any {
	m := map[string]any{"keep": fmt.Sprint("me on ", to.Port)}
	if to.Weight >= 0 {
		m["weight"] = int64(to.Weight)
	}
	if !d.istio() {
		m["name"], m["port"] = to.Name, int64(to.Port)
		return m
	}
	destination := map[string]any{"host": "web", "port": map[string]any{"number": int64(to.Port)}, "subset": to.Name}
	if to.Name == "other" {
		destination["host"] = "elsewhere"
	}
	m["destination"] = destination
	return m
}

// read is the reverse of write.
func (d drawn) read(v any, of int) dest {
	m := v.(map[string]any)
	to := dest{Weight: 1}
	if d.istio() {
		to.Weight = 0
		if of == 1 {
			to.Weight = 100
		}
		to.Name, _, _ = unstructured.NestedString(m, "destination", "subset")
		port, _, _ := unstructured.NestedInt64(m, "destination", "port", "number")
		to.Port = int(port)
	} else {
		to.Name, to.Port = m["name"].(string), int(m["port"].(int64))
	}
	if weight, ok := m["weight"].(int64); ok {
		to.Weight = int(weight)
	}
	return to
}

func (d drawn) rulesOf(o manifest.Object) [][]dest {
	rules, _, _ := unstructured.NestedSlice(o.Object, "spec", d.list())
	var out [][]dest
	for _, r := range rules {
		var list []dest
		all := r.(map[string]any)[d.field()].([]any)
		for _, v := range all {
			list = append(list, d.read(v, len(all)))
		}
		out = append(out, list)
	}
	return out
}

// weights sums up the weights of a rule's destinations: per variant, and together for the
// others.
func weights(rule []dest) map[string]int64 {
	out := map[string]int64{}
	for _, to := range rule {
		name := to.Name
		if !slices.Contains([]string{"stable", "canary", "baseline"}, name) {
			name = "unmanaged"
		}
		out[name] += int64(to.Weight)
	}
	return out
}

// TestShares: for all rules and shares, the variants together keep their part of each
// rule, divided by their shares; the other destinations keep theirs; and only weights and
// the variants' own destinations change.
func TestShares(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		d := draw(rt)
		git := []manifest.Object{d.object()}
		before := manifest.Clone(git)
		after, err := d.routing.Apply(git, d.shares)
		if diff := cmp.Diff(before, git); diff != "" {
			rt.Fatalf("the object of Git changed:\n%s", diff)
		}
		if stable, err := d.routing.Apply(git, Stable()); err != nil || cmp.Diff(before, stable) != "" {
			rt.Fatalf("stable shares give something else than Git: %v", err)
		}
		if err != nil {
			if slices.ContainsFunc(d.rulesOf(git[0]), shareable) {
				rt.Fatal(err)
			}
			return
		}
		if d.shares.Whole() {
			return // unchanged from Git, as checked above
		}
		for i, was := range d.rulesOf(git[0]) {
			if err := d.compare(was, d.rulesOf(after[0])[i]); err != nil {
				rt.Fatalf("rule %d of %s: %v", i, d.shares, err)
			}
		}
		if diff := cmp.Diff(d.unweighted(git[0]), d.unweighted(after[0])); diff != "" {
			rt.Fatalf("something else changed (-git +applied):\n%s", diff)
		}
	})
}

// shareable reports whether some of a rule's traffic goes to the primary and the other
// variants.
func shareable(rule []dest) bool {
	w := weights(rule)
	return w["stable"]+w["canary"]+w["baseline"] > 0 && slices.ContainsFunc(rule, func(to dest) bool { return to.Name == "stable" })
}

// compare checks the weights of one rule.
func (d drawn) compare(was, is []dest) error {
	before, after := weights(was), weights(is)
	total := func(w map[string]int64) int64 { return w["stable"] + w["canary"] + w["baseline"] + w["unmanaged"] }
	if !shareable(was) {
		if diff := cmp.Diff(before, after); diff != "" {
			return fmt.Errorf("none of its traffic is shared, and it changed:\n%s", diff)
		}
		return nil
	}
	if total(after) == 0 {
		return fmt.Errorf("its weights make 0")
	}
	equal := func(a, ofA, b, ofB int64) bool { return big.NewRat(a, ofA).Cmp(big.NewRat(b, ofB)) == 0 }
	if !equal(before["unmanaged"], total(before), after["unmanaged"], total(after)) {
		return fmt.Errorf("others had %d of %d and have %d of %d", before["unmanaged"], total(before), after["unmanaged"], total(after))
	}
	managed := total(after) - after["unmanaged"]
	for name, share := range map[string]int64{"canary": int64(d.shares.Canary), "baseline": int64(d.shares.Baseline)} {
		exact := equal(after[name], managed, share, 100)
		if rounded := share*managed/100 - after[name]; !exact && (!d.istio() || total(before) != 100 || rounded < 0 || rounded > int64(len(was))) {
			return fmt.Errorf("%s gets %d of %d", name, after[name], managed)
		}
	}
	return nil
}

// unweighted returns the object without the fields that may change: weights, and the
// destinations of canary and baseline.
func (d drawn) unweighted(o manifest.Object) map[string]any {
	u := o.Clone()
	rules, _, _ := unstructured.NestedSlice(u.Object, "spec", d.list())
	for _, r := range rules {
		rule := r.(map[string]any)
		all := rule[d.field()].([]any)
		rule[d.field()] = slices.DeleteFunc(all, func(v any) bool {
			name := d.read(v, len(all)).Name
			delete(v.(map[string]any), "weight")
			return name == "canary" || name == "baseline"
		})
	}
	if err := unstructured.SetNestedSlice(u.Object, rules, "spec", d.list()); err != nil {
		panic(err)
	}
	return u.Object
}

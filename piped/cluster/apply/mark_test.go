package apply

import (
	"bytes"
	"fmt"
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"pgregory.net/rapid"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
	"sigs.k8s.io/structured-merge-diff/v6/value"
	"sigs.k8s.io/yaml"

	"github.com/c785c783/piped/piped/cluster"
	"github.com/c785c783/piped/piped/cluster/apply/applytest"
)

func TestMark(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	const apply, update = metav1.ManagedFieldsOperationApply, metav1.ManagedFieldsOperationUpdate
	ours := applytest.Written("piped", apply, "", `{"f:data":{"f:a":{},"f:b":{}}}`, at)
	entries := func(e ...metav1.ManagedFieldsEntry) []metav1.ManagedFieldsEntry { return e }
	counted := metav1.ObjectMeta{Generation: 3, ResourceVersion: "10", ManagedFields: entries(ours)}
	plain := metav1.ObjectMeta{ResourceVersion: "10", ManagedFields: entries(ours)}
	bare := metav1.ObjectMeta{ResourceVersion: "10"}
	scaled := func(generation int64, at time.Time, more ...metav1.ManagedFieldsEntry) metav1.ObjectMeta {
		return metav1.ObjectMeta{Generation: generation, ManagedFields: append(entries(ours, applytest.Written("hpa", update, "scale", `{"f:spec":{"f:replicas":{}}}`, at)), more...)}
	}
	cases := map[string]struct {
		before, after metav1.ObjectMeta
		same          bool
	}{
		"the generation is the same":  {counted, metav1.ObjectMeta{Generation: 3, ResourceVersion: "11"}, true},
		"the generation has moved":    {counted, metav1.ObjectMeta{Generation: 4, ResourceVersion: "11", ManagedFields: entries(ours)}, false},
		"a generation and none":       {counted, plain, false},
		"read again":                  {plain, metav1.ObjectMeta{ResourceVersion: "10", ManagedFields: entries(ours)}, true},
		"keys in another order":       {plain, metav1.ObjectMeta{ManagedFields: entries(applytest.Written("piped", apply, "", `{"f:data":{"f:b":{},"f:a":{}}}`, at))}, true},
		"in another time zone":        {plain, metav1.ObjectMeta{ManagedFields: entries(applytest.Written("piped", apply, "", `{"f:data":{"f:a":{},"f:b":{}}}`, at.In(time.FixedZone("", 3600))))}, true},
		"the status was written":      {plain, metav1.ObjectMeta{ResourceVersion: "11", ManagedFields: entries(ours, applytest.Written("c", update, "status", `{"f:status":{}}`, at))}, true},
		"another subresource":         {plain, metav1.ObjectMeta{ManagedFields: entries(ours, applytest.Written("c", update, "resize", `{"f:spec":{}}`, at))}, false},
		"scaled for the first time":   {counted, scaled(4, at), false},
		"scaled again":                {scaled(4, at), scaled(5, at.Add(time.Second)), true},
		"scaled by a person":          {scaled(4, at), metav1.ObjectMeta{Generation: 5, ManagedFields: entries(ours, applytest.Written("kubectl", update, "scale", `{"f:spec":{"f:replicas":{}}}`, at))}, false},
		"scaled, and written":         {scaled(4, at), scaled(5, at, applytest.Written("kubectl", update, "", `{"f:spec":{}}`, at)), false},
		"another manager wrote, too":  {plain, metav1.ObjectMeta{ManagedFields: entries(ours, applytest.Written("kubectl", update, "", `{"f:data":{"f:c":{}}}`, at))}, false},
		"the same fields, later":      {plain, metav1.ObjectMeta{ManagedFields: entries(applytest.Written("piped", apply, "", `{"f:data":{"f:a":{},"f:b":{}}}`, at.Add(time.Second)))}, false},
		"other fields, by update":     {plain, metav1.ObjectMeta{ManagedFields: entries(applytest.Written("piped", update, "", `{"f:data":{"f:a":{},"f:b":{}}}`, at))}, false},
		"no managed fields, the same": {bare, bare, true},
		"no managed fields, written":  {bare, metav1.ObjectMeta{ResourceVersion: "11"}, false},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			before, after := Mark(&c.before), Mark(&c.after)
			if before == "" || after == "" || (before == after) != c.same {
				t.Errorf("%q, then %q: want the same %t", before, after, c.same)
			}
		})
	}
}

// ownedObject returns an object whose given fields the agent owns.
func ownedObject(t testing.TB, object map[string]any, fields string) *unstructured.Unstructured {
	t.Helper()
	u := &unstructured.Unstructured{Object: object}
	u.SetManagedFields([]metav1.ManagedFieldsEntry{applytest.Written(cluster.FieldManager, metav1.ManagedFieldsOperationApply, "", fields, time.Time{})})
	return u
}

func TestValuesDigest(t *testing.T) {
	const fields = `{
		"f:metadata":{"f:labels":{"f:app":{}},"f:finalizers":{"v:\"ours\"":{}}},
		"f:spec":{"f:replicas":{},"f:selector":{},"f:args":{},"f:empty":{},
			"f:containers":{"k:{\"name\":\"web\"}":{".":{},"f:name":{},"f:image":{},"f:ports":{"k:{\"containerPort\":80,\"protocol\":\"TCP\"}":{".":{},"f:containerPort":{}}}}}}}`
	const object = `
metadata: {labels: {app: web}, finalizers: [ours]}
spec:
  replicas: 3
  selector: {app: web}
  args: [a, b]
  empty: {}
  containers:
  - {name: web, image: "web:1", ports: [{containerPort: 80, protocol: TCP}]}
`
	cases := map[string]struct {
		change string // of the object, as YAML over it
		same   bool
	}{
		"a label of another":         {`metadata: {labels: {app: web, team: shop}, finalizers: [ours]}`, true},
		"a finalizer of another":     {`metadata: {labels: {app: web}, finalizers: [theirs, ours]}`, true},
		"our finalizer is gone":      {`metadata: {labels: {app: web}, finalizers: [theirs]}`, false},
		"our label is another":       {`metadata: {labels: {app: shop}, finalizers: [ours]}`, false},
		"our label is gone":          {`metadata: {finalizers: [ours]}`, false},
		"a field of another":         {"spec: {paused: true}", true},
		"a scalar":                   {"spec: {replicas: 4}", false},
		"a scalar of another type":   {`spec: {replicas: "3"}`, false},
		"a scalar that is null":      {"spec: {replicas: null}", false},
		"the same number":            {"spec: {replicas: 3.0}", true},
		"an atomic map has more":     {"spec: {selector: {app: web, x: y}}", false},
		"an atomic list is turned":   {"spec: {args: [b, a]}", false},
		"what was empty is filled":   {"spec: {empty: {by: webhook}}", false},
		"a container of another":     {`spec: {containers: [{name: istio, image: i}, {name: web, image: "web:1", ports: [{containerPort: 80, protocol: TCP}]}]}`, true},
		"a field of our container":   {`spec: {containers: [{name: web, image: "web:1", tty: true, ports: [{containerPort: 80, protocol: TCP}]}]}`, true},
		"the image of our container": {`spec: {containers: [{name: web, image: "web:2", ports: [{containerPort: 80, protocol: TCP}]}]}`, false},
		"our container is gone":      {`spec: {containers: [{name: istio, image: "web:1"}]}`, false},
		"a port of another":          {`spec: {containers: [{name: web, image: "web:1", ports: [{containerPort: 80, protocol: UDP}, {containerPort: 80, protocol: TCP}]}]}`, true},
		"our port is another":        {`spec: {containers: [{name: web, image: "web:1", ports: [{containerPort: 81, protocol: TCP}]}]}`, false},
		"our port is there twice":    {`spec: {containers: [{name: web, image: "web:1", ports: [{containerPort: 80, protocol: TCP}, {containerPort: 80, protocol: TCP}]}]}`, false},
		"a list has become a map":    {"spec: {containers: {}}", false},
		"the status":                 {"status: {ready: 3}", true},
	}
	parsed := func(t *testing.T, texts ...string) *unstructured.Unstructured {
		t.Helper()
		all := map[string]any{}
		for _, text := range texts {
			var m map[string]any
			if err := yaml.Unmarshal([]byte(text), &m); err != nil {
				t.Fatal(err)
			}
			for section, v := range m {
				if old, ok := all[section].(map[string]any); ok && section == "spec" {
					for k, v := range v.(map[string]any) {
						old[k] = v
					}
					continue
				}
				all[section] = v
			}
		}
		return ownedObject(t, all, fields)
	}
	base := ValuesDigest(parsed(t, object))
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			if got := ValuesDigest(parsed(t, object, c.change)); (got == base) != c.same {
				t.Errorf("same %t, want %t", got == base, c.same)
			}
		})
	}
	if got := ValuesDigest(ownedObject(t, map[string]any{}, `{}`)); base == "" || got != "" {
		t.Errorf("digest %q of an object without fields of ours", got)
	}
}

// sample is a generated object. The agent owns some of its fields.
type sample struct {
	object       map[string]any
	owned        *fieldpath.Set
	ours, theirs []change // possible changes of owned and of other fields
	fields       int
}

// change modifies an object.
type change struct {
	what string
	make func()
}

func drawSample(t *rapid.T) *sample {
	s := &sample{object: map[string]any{}, owned: fieldpath.NewSet()}
	// Add one field of each owner, so that both can be changed.
	s.leaf(t, s.object, nil, "ours", true)
	s.leaf(t, s.object, nil, "theirs", false)
	s.fill(t, s.object, nil, true, 0)
	return s
}

// fill gives a map some fields; mayOwn reports whether the agent can own some of them.
func (s *sample) fill(t *rapid.T, into map[string]any, at fieldpath.Path, mayOwn bool, depth int) {
	s.theirs = append(s.theirs, change{fmt.Sprintf("a new field of %s", at), func() { into["new"] = "theirs" }})
	for range rapid.IntRange(0, 4).Draw(t, "fields") {
		s.fields++
		name := fmt.Sprintf("f%d", s.fields)
		path := join(at, fieldpath.FieldNameElement(name))
		kind := rapid.SampledFrom([]string{"leaf", "map", "keyed", "set"}).Draw(t, name)
		switch {
		case kind == "map" && depth < 3:
			child := map[string]any{}
			into[name] = child
			s.fill(t, child, path, mayOwn, depth+1)
		case kind == "keyed" && depth < 3:
			s.keyed(t, into, path, name, mayOwn, depth)
		case kind == "set":
			s.set(t, into, path, name, mayOwn)
		default:
			s.leaf(t, into, at, name, mayOwn && rapid.Bool().Draw(t, name+" is ours"))
		}
	}
}

func join(at fieldpath.Path, e fieldpath.PathElement) fieldpath.Path {
	return append(slices.Clone(at), e)
}

// leaf adds a field with one value: a scalar or an atomic value.
func (s *sample) leaf(t *rapid.T, into map[string]any, at fieldpath.Path, name string, ours bool) {
	values := func(n int64) []any {
		return []any{n, fmt.Sprint(n), n%2 == 0, float64(n) + 0.5, []any{n, "x"}, map[string]any{"n": n}}
	}
	kind := rapid.IntRange(0, 5).Draw(t, name+" kind")
	into[name] = values(1)[kind]
	changes := []change{
		{name + " changed", func() { into[name] = values(2)[kind] }},
		{name + " of another type", func() { into[name] = values(1)[(kind+1)%6] }},
		{name + " removed", func() { delete(into, name) }},
	}
	if ours {
		s.owned.Insert(join(at, fieldpath.FieldNameElement(name)))
		s.ours = append(s.ours, changes...)
	} else {
		s.theirs = append(s.theirs, changes...)
	}
}

// keyed adds a list whose items have the key name.
func (s *sample) keyed(t *rapid.T, into map[string]any, at fieldpath.Path, name string, mayOwn bool, depth int) {
	var items []any
	for i := range rapid.IntRange(1, 3).Draw(t, name+" items") {
		key := fmt.Sprintf("i%d", i)
		item := map[string]any{"name": key}
		items = append(items, item)
		path := join(at, fieldpath.KeyElementByFields("name", key))
		ours := mayOwn && rapid.Bool().Draw(t, name+" "+key+" is ours")
		if ours {
			s.owned.Insert(path)
			s.owned.Insert(join(path, fieldpath.FieldNameElement("name")))
			s.ours = append(s.ours, change{name + "/" + key + " has another key", func() { item["name"] = "another" }})
		}
		s.fill(t, item, path, ours, depth+1)
	}
	into[name] = items
	s.theirs = append(s.theirs,
		change{name + " turned", func() { slices.Reverse(into[name].([]any)) }},
		change{name + " with one more", func() { into[name] = append([]any{map[string]any{"name": "one more"}}, into[name].([]any)...) }})
}

// set adds a list of values, each of which is an item.
func (s *sample) set(t *rapid.T, into map[string]any, at fieldpath.Path, name string, mayOwn bool) {
	var items []any
	for i := range rapid.IntRange(1, 3).Draw(t, name+" items") {
		item := fmt.Sprintf("s%d", i)
		items = append(items, item)
		replaced := change{name + " without " + item, func() { into[name].([]any)[i] = "another" }}
		if mayOwn && rapid.Bool().Draw(t, name+" "+item+" is ours") {
			s.owned.Insert(join(at, fieldpath.ValueElement(value.NewValueInterface(item))))
			s.ours = append(s.ours, replaced)
		} else {
			s.theirs = append(s.theirs, replaced)
		}
	}
	into[name] = items
	s.theirs = append(s.theirs, change{name + " turned", func() { slices.Reverse(into[name].([]any)) }})
}

func (s *sample) digest(t *rapid.T) string {
	var fields bytes.Buffer
	if err := s.owned.ToJSONStream(&fields); err != nil {
		t.Fatal(err)
	}
	u := &unstructured.Unstructured{Object: map[string]any{"spec": s.object}}
	u.SetManagedFields([]metav1.ManagedFieldsEntry{
		applytest.Written(cluster.FieldManager, metav1.ManagedFieldsOperationApply, "", `{"f:spec":`+fields.String()+`}`, time.Time{}),
		applytest.Written("kubectl", metav1.ManagedFieldsOperationUpdate, "", `{"f:spec":{"f:theirs":{}}}`, time.Time{}),
	})
	return ValuesDigest(u)
}

// TestValuesDigestDistinguishesOursFromTheirs: for any object, every change of an owned value
// must change the digest, and no other change may.
func TestValuesDigestDistinguishesOursFromTheirs(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := drawSample(t)
		before := s.digest(t)
		if before == "" {
			t.Fatal("no digest")
		}
		theirs := rapid.SampledFrom(s.theirs).Draw(t, "theirs")
		theirs.make()
		if s.digest(t) != before {
			t.Fatalf("%s: the digest has changed", theirs.what)
		}
	})
	rapid.Check(t, func(t *rapid.T) {
		s := drawSample(t)
		before := s.digest(t)
		ours := rapid.SampledFrom(s.ours).Draw(t, "ours")
		ours.make()
		if s.digest(t) == before {
			t.Fatalf("%s: the digest is the same", ours.what)
		}
	})
}

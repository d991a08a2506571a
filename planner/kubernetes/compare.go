package kubernetes

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/c785c783/piped/piped/config/kubernetes"
	"github.com/c785c783/piped/piped/manifest"
)

// comparison is what runs and what is to run, paired.
type comparison struct {
	workloads []pair // ordered by key
	configs   []pair // ConfigMaps and Secrets that count, likewise
	// hide takes the secrets of both out of a text; nil is for none.
	hide func(string) string
}

// pair is one object before and after; one of them may be missing.
type pair struct {
	name          string // such as "Deployment web"
	before, after *manifest.Object
}

func (p pair) changes() []manifest.Change {
	return manifest.Diff(p.before.Unstructured, p.after.Unstructured)
}

// comparisonOf pairs the workloads that refs name, every Deployment if there are
// none, and the ConfigMaps and Secrets their pods use, by name: the namespaces that
// manifests say are not always those they are applied to. In an application without
// workloads all ConfigMaps and Secrets count: they are what is deployed.
func comparisonOf(refs []kubernetes.Reference, before, after []manifest.Object) comparison {
	isWorkload := func(o manifest.Object) bool {
		return slices.ContainsFunc(refs, func(r kubernetes.Reference) bool {
			return r.Kind == o.GetKind() && (r.Name == "" || r.Name == o.GetName())
		}) || len(refs) == 0 && o.GetKind() == "Deployment"
	}
	used := map[manifest.Reference]bool{}
	for _, o := range after { // what only ran before has left a pod template
		if isWorkload(o) {
			for _, r := range manifest.References(o.Unstructured) {
				used[r] = true
			}
		}
	}
	c := comparison{workloads: pairs(before, after, isWorkload)}
	c.configs = pairs(before, after, func(o manifest.Object) bool {
		if o.GetAPIVersion() != "v1" || o.GetKind() != "ConfigMap" && o.GetKind() != "Secret" {
			return false
		}
		return len(c.workloads) == 0 || used[manifest.Reference{Kind: o.GetKind(), Name: o.GetName()}]
	})
	return c
}

// pairs pairs the objects that are asked for by kind, namespace and name, ordered
// by these.
func pairs(before, after []manifest.Object, wanted func(manifest.Object) bool) []pair {
	byKey := map[string]*pair{}
	at := func(o manifest.Object) *pair {
		key := o.GetKind() + "/" + cmp.Or(o.GetNamespace(), "default") + "/" + o.GetName()
		if byKey[key] == nil {
			byKey[key] = &pair{name: o.GetKind() + " " + o.GetName()}
		}
		return byKey[key]
	}
	for i := range before {
		if wanted(before[i]) {
			at(before[i]).before = &before[i]
		}
	}
	for i := range after {
		if wanted(after[i]) {
			at(after[i]).after = &after[i]
		}
	}
	var out []pair
	for _, key := range slices.Sorted(maps.Keys(byKey)) {
		out = append(out, *byKey[key])
	}
	return out
}

func workloadsCameOrWent(c comparison) choice {
	return cameOrWent(c.workloads)
}

// cameOrWent answers for what was added and what was removed.
func cameOrWent(list []pair) choice {
	var added, removed []string
	for _, p := range list {
		switch {
		case p.before == nil:
			added = append(added, p.name)
		case p.after == nil:
			removed = append(removed, p.name)
		}
	}
	var parts []string
	if len(added) > 0 {
		parts = append(parts, few(added)+verb(added, " is", " are")+" added")
	}
	if len(removed) > 0 {
		parts = append(parts, few(removed)+verb(removed, " is", " are")+" removed")
	}
	if len(parts) == 0 {
		return choice{}
	}
	return pipeline("%s", strings.Join(parts, "; "))
}

// maxNamed is how many things a sentence names.
const maxNamed = 3

func few(names []string) string {
	if more := len(names) - maxNamed; more > 0 {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:maxNamed], ", "), more)
	}
	return strings.Join(names, ", ")
}

// verb returns the form that goes with the number of things.
func verb(names []string, one, many string) string {
	if len(names) == 1 {
		return one
	}
	return many
}

// templateChanged answers for a change of what a workload says about its pods.
// New images are named, else the first workload that differs and where.
func templateChanged(c comparison) choice {
	var images []string
	var first string
	for _, p := range c.workloads {
		template := cmp.Or(manifest.PodTemplatePath(p.after.GetKind()), "spec.template")
		for _, change := range p.changes() {
			if change.Path != template && !strings.HasPrefix(change.Path, template+".") {
				continue
			}
			if first == "" {
				first = fmt.Sprintf("the pod template of %s has changed (%s)", p.name, change.Path)
			}
		}
		images = append(images, imageChanges(p, c.hide)...)
	}
	slices.Sort(images)
	switch images = slices.Compact(images); {
	case first == "":
		return choice{}
	case len(images) > 0:
		return pipeline("%s", few(images))
	}
	return pipeline("%s", first)
}

// imageChanges says which containers of a workload get another image.
func imageChanges(p pair, hide func(string) string) []string {
	running := map[string]string{}
	for _, c := range manifest.Containers(p.before.Unstructured) {
		running[c.Name] = c.Image
	}
	var out []string
	for _, c := range manifest.Containers(p.after.Unstructured) {
		if old, ok := running[c.Name]; ok && old != c.Image && old != "" && c.Image != "" {
			out = append(out, imageChange(manifest.ShownImage(old, hide), manifest.ShownImage(c.Image, hide)))
		}
	}
	return out
}

// imageChange names an image and its versions; where these are the same, what
// else differs.
func imageChange(before, after manifest.Image) string {
	switch {
	case before.Repository == after.Repository && before.Tag != after.Tag:
		return fmt.Sprintf("image %s is updated from %s to %s", after.Name(), before.Version(), after.Version())
	case before.Repository == after.Repository:
		return fmt.Sprintf("image %s is updated from %s to %s", after.Name(), cmp.Or(before.Digest, before.Version()), cmp.Or(after.Digest, after.Version()))
	case before.Name() != after.Name() || before.Version() != after.Version():
		return fmt.Sprintf("image %s %s takes the place of %s %s", after.Name(), after.Version(), before.Name(), before.Version())
	}
	return fmt.Sprintf("image %s comes from %s in place of %s", after.Name(), after.Repository, before.Repository)
}

func configChanged(c comparison) choice {
	if c := cameOrWent(c.configs); c != (choice{}) {
		return c
	}
	var names []string
	for _, p := range c.configs {
		if len(p.changes()) > 0 {
			names = append(names, p.name)
		}
	}
	if len(names) == 0 {
		return choice{}
	}
	return pipeline("%s%s changed", few(names), verb(names, " has", " have"))
}

func noWorkloads(c comparison) choice {
	if len(c.workloads) == 0 {
		return quick("the application has no workloads that a pipeline could bring out step by step")
	}
	return choice{}
}

func scaled(c comparison) choice {
	var names []string
	for _, p := range c.workloads {
		for _, change := range p.changes() {
			if change.Path == "spec.replicas" {
				names = append(names, fmt.Sprintf("%s from %s to %s", p.name, count(change.Before), count(change.After)))
			}
		}
	}
	if len(names) == 0 {
		return choice{}
	}
	return quick("scales %s", few(names))
}

func count(v any) string {
	if v == nil {
		return "unset"
	}
	return fmt.Sprint(v)
}

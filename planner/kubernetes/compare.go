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

// comparison pairs the running objects with the target objects.
type comparison struct {
	workloads []pair // ordered by key
	configs   []pair // relevant ConfigMaps and Secrets, ordered by key
	// redact removes the secrets of both sides from a text; nil removes none.
	redact func(string) string
}

// pair is one object before and after the change; either may be nil.
type pair struct {
	name          string // such as "Deployment web"
	before, after *manifest.Object
}

func (p pair) changes() []manifest.Change {
	return manifest.Diff(p.before.Unstructured, p.after.Unstructured)
}

// comparisonOf pairs the workloads named by refs, every Deployment if there are none,
// and the ConfigMaps and Secrets that their pods use. These are matched by name only,
// since a manifest's namespace can differ from the one it is applied to. Without any
// workload all ConfigMaps and Secrets are relevant.
func comparisonOf(refs []kubernetes.Reference, before, after []manifest.Object) comparison {
	isWorkload := func(o manifest.Object) bool {
		return slices.ContainsFunc(refs, func(r kubernetes.Reference) bool {
			return r.Kind == o.GetKind() && (r.Name == "" || r.Name == o.GetName())
		}) || len(refs) == 0 && o.GetKind() == "Deployment"
	}
	used := map[manifest.Reference]bool{}
	for _, o := range after { // objects missing in the target were removed from a pod template
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

// pairs pairs the wanted objects by kind, namespace and name, in that order.
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

// workloadsAddedOrRemoved chooses the pipeline if a workload was added or removed.
func workloadsAddedOrRemoved(c comparison) choice {
	return addedOrRemoved(c.workloads)
}

// addedOrRemoved chooses the pipeline if an object of the list was added or removed;
// otherwise it makes no choice.
func addedOrRemoved(list []pair) choice {
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
		parts = append(parts, listNames(added)+verb(added, " is", " are")+" added")
	}
	if len(removed) > 0 {
		parts = append(parts, listNames(removed)+verb(removed, " is", " are")+" removed")
	}
	if len(parts) == 0 {
		return choice{}
	}
	return pipeline("%s", strings.Join(parts, "; "))
}

// maxNamed bounds the number of names in a reason.
const maxNamed = 3

// listNames joins the names with commas. After the first maxNamed it only counts them.
func listNames(names []string) string {
	if more := len(names) - maxNamed; more > 0 {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:maxNamed], ", "), more)
	}
	return strings.Join(names, ", ")
}

// verb returns one for a single name, else many.
func verb(names []string, one, many string) string {
	if len(names) == 1 {
		return one
	}
	return many
}

// templateChanged chooses the pipeline if a pod template changed. The reason names new
// images, or else the first changed workload and field. An earlier rule has excluded
// added and removed workloads.
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
		images = append(images, imageChanges(p, c.redact)...)
	}
	slices.Sort(images)
	switch images = slices.Compact(images); {
	case first == "":
		return choice{}
	case len(images) > 0:
		return pipeline("%s", listNames(images))
	}
	return pipeline("%s", first)
}

// imageChanges describes the changed images of a workload's containers.
func imageChanges(p pair, redact func(string) string) []string {
	running := map[string]string{}
	for _, c := range manifest.Containers(p.before.Unstructured) {
		running[c.Name] = c.Image
	}
	var out []string
	for _, c := range manifest.Containers(p.after.Unstructured) {
		if old, ok := running[c.Name]; ok && old != c.Image && old != "" && c.Image != "" {
			out = append(out, imageChange(manifest.ShownImage(old, redact), manifest.ShownImage(c.Image, redact)))
		}
	}
	return out
}

// imageChange describes the change of an image: its version, or else its digest, name
// or repository.
func imageChange(before, after manifest.Image) string {
	switch {
	case before.Repository == after.Repository && before.Tag != after.Tag:
		return fmt.Sprintf("image %s is updated from %s to %s", after.Name(), before.Version(), after.Version())
	case before.Repository == after.Repository:
		return fmt.Sprintf("image %s is updated from %s to %s", after.Name(), cmp.Or(before.Digest, before.Version()), cmp.Or(after.Digest, after.Version()))
	case before.Name() != after.Name() || before.Version() != after.Version():
		return fmt.Sprintf("image %s %s replaces %s %s", after.Name(), after.Version(), before.Name(), before.Version())
	}
	return fmt.Sprintf("image %s now comes from %s instead of %s", after.Name(), after.Repository, before.Repository)
}

// configChanged chooses the pipeline if a relevant ConfigMap or Secret was added,
// removed or changed.
func configChanged(c comparison) choice {
	if c := addedOrRemoved(c.configs); c != (choice{}) {
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
	return pipeline("%s%s changed", listNames(names), verb(names, " has", " have"))
}

// noWorkloads chooses the quick sync if neither side has a workload.
func noWorkloads(c comparison) choice {
	if len(c.workloads) == 0 {
		return quick("the application has no workloads that a pipeline could roll out step by step")
	}
	return choice{}
}

// scaled chooses the quick sync if the replicas of a workload changed. Earlier rules
// have excluded changes of pod templates.
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
	return quick("scales %s", listNames(names))
}

// count formats a number of replicas; nil means that the field is missing.
func count(v any) string {
	if v == nil {
		return "unset"
	}
	return fmt.Sprint(v)
}

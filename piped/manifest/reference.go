package manifest

import (
	"cmp"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// Reference names a ConfigMap or a Secret in the namespace of what refers to it.
type Reference struct {
	Kind string // ConfigMap or Secret
	Name string
}

// References returns the ConfigMaps and Secrets that the pods of u use: in
// volumes, projected ones too, in env and envFrom of every container, and to pull
// images. Each stands once, ordered by kind and name.
func References(u *unstructured.Unstructured) []Reference {
	c := collector{}
	visitor(c.add).config(PodSpec(u))
	visitor(c.add).pullSecrets(PodSpec(u))
	return c.sorted()
}

// ConfigReferences returns the ConfigMaps and Secrets whose content reaches the
// containers of u's pods: those of References, without those that only pull
// images.
func ConfigReferences(u *unstructured.Unstructured) []Reference {
	c := collector{}
	visitor(c.add).config(PodSpec(u))
	return c.sorted()
}

// Way is how the content of a ConfigMap or Secret comes to a container.
type Way string

// The ways. Only what comes by volume follows a change while the container runs: the
// kubelet writes the files anew. All else is read once, before the container starts.
const (
	ByVolume  Way = "a volume"
	BySubPath Way = "a subPath mount"
	ByEnv     Way = "its environment"
	ByInit    Way = "an init container"
	ByDriver  Way = "a volume's driver"
)

// Use is one ConfigMap or Secret and the ways by which containers get at it, sorted.
type Use struct {
	Reference
	Ways []Way
}

// ConfigUses returns ConfigReferences with the ways of each, in the same order.
func ConfigUses(u *unstructured.Unstructured) []Use {
	ways := map[Reference][]Way{}
	note := func(way Way) visitor {
		return func(_ map[string]any, _ string, r Reference) { ways[r] = append(ways[r], way) }
	}
	spec := PodSpec(u)
	for _, volume := range items(spec["volumes"]) {
		for _, way := range waysOf(volume, spec) {
			note(way).volume(volume)
		}
	}
	for _, list := range containerLists() {
		way := ByEnv
		if list == "initContainers" {
			way = ByInit
		}
		for _, c := range items(spec[list]) {
			note(way).env(c)
		}
	}
	var out []Use
	for _, r := range ConfigReferences(u) {
		slices.Sort(ways[r])
		out = append(out, Use{r, slices.Compact(ways[r])})
	}
	return out
}

// waysOf returns how the containers of a pod spec get at what a volume holds. One that
// nothing mounts is kept up to date as well.
func waysOf(volume, spec map[string]any) []Way {
	if volume["configMap"] == nil && volume["secret"] == nil && volume["projected"] == nil {
		return []Way{ByDriver}
	}
	var ways []Way
	for _, list := range containerLists() {
		for _, c := range items(spec[list]) {
			for _, mount := range items(c["volumeMounts"]) {
				if mount["name"] != volume["name"] {
					continue
				}
				ways = append(ways, wayOf(list, mount))
			}
		}
	}
	if len(ways) == 0 {
		return []Way{ByVolume}
	}
	return ways
}

func wayOf(list string, mount map[string]any) Way {
	path, _ := mount["subPath"].(string)
	expr, _ := mount["subPathExpr"].(string)
	switch {
	case list == "initContainers":
		return ByInit
	case path != "" || expr != "":
		return BySubPath
	}
	return ByVolume
}

// RenameReferences changes u: its pods use what rename returns instead of each of
// their References. Rename may be asked for one of them several times.
func RenameReferences(u *unstructured.Unstructured, rename func(Reference) string) {
	set := visitor(func(holder map[string]any, field string, r Reference) { holder[field] = rename(r) })
	set.config(PodSpec(u))
	set.pullSecrets(PodSpec(u))
}

// collector keeps references.
type collector []Reference

func (c *collector) add(_ map[string]any, _ string, r Reference) { *c = append(*c, r) }

// sorted returns what was found, each once.
func (c *collector) sorted() []Reference {
	slices.SortFunc(*c, func(a, b Reference) int { return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Name, b.Name)) })
	return slices.Compact(*c)
}

// visitor is called for each place in a pod spec that names a ConfigMap or a
// Secret: the field of a mapping.
type visitor func(holder map[string]any, field string, r Reference)

// config visits what reaches containers.
func (v visitor) config(spec map[string]any) {
	for _, volume := range items(spec["volumes"]) {
		v.volume(volume)
	}
	for _, list := range containerLists() {
		for _, c := range items(spec[list]) {
			v.env(c)
		}
	}
}

// containerLists are the fields of a pod spec that hold containers.
func containerLists() []string {
	return []string{"initContainers", "containers", "ephemeralContainers"}
}

// env visits what a container has in its environment.
func (v visitor) env(container map[string]any) {
	for _, env := range items(container["env"]) {
		from := object(env["valueFrom"])
		v.visit("ConfigMap", from["configMapKeyRef"], "name")
		v.visit("Secret", from["secretKeyRef"], "name")
	}
	for _, from := range items(container["envFrom"]) {
		v.visit("ConfigMap", from["configMapRef"], "name")
		v.visit("Secret", from["secretRef"], "name")
	}
}

func (v visitor) pullSecrets(spec map[string]any) {
	for _, secret := range items(spec["imagePullSecrets"]) {
		v.visit("Secret", secret, "name")
	}
}

// volumeSecrets are the volume types that name a Secret in a field.
var volumeSecrets = map[string]string{
	"cephfs": "secretRef", "cinder": "secretRef", "csi": "nodePublishSecretRef", "flexVolume": "secretRef",
	"iscsi": "secretRef", "rbd": "secretRef", "scaleIO": "secretRef", "storageos": "secretRef",
}

func (v visitor) volume(volume map[string]any) {
	v.visit("ConfigMap", volume["configMap"], "name")
	v.visit("Secret", volume["secret"], "secretName")
	v.visit("Secret", volume["azureFile"], "secretName")
	for kind, field := range volumeSecrets {
		v.visit("Secret", object(volume[kind])[field], "name")
	}
	for _, source := range items(object(volume["projected"])["sources"]) {
		v.visit("ConfigMap", source["configMap"], "name")
		v.visit("Secret", source["secret"], "name")
	}
}

// visit tells what holder, a mapping, names in a field.
func (v visitor) visit(kind string, holder any, field string) {
	m := object(holder)
	if name, _ := m[field].(string); name != "" {
		v(m, field, Reference{Kind: kind, Name: name})
	}
}

func object(v any) map[string]any {
	m, _ := v.(map[string]any)
	return m
}

// items returns the mappings of a list.
func items(v any) []map[string]any {
	var out []map[string]any
	list, _ := v.([]any)
	for _, item := range list {
		if m, ok := item.(map[string]any); ok {
			out = append(out, m)
		}
	}
	return out
}

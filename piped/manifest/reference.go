package manifest

import (
	"cmp"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// Reference names a ConfigMap or a Secret in the namespace of the referring object.
type Reference struct {
	Kind string // ConfigMap or Secret
	Name string
}

// References returns the ConfigMaps and Secrets that the pods of u use: in volumes, including
// projected ones, in env and envFrom of every container, and as image pull secrets. Each is
// listed once, sorted by kind and name.
func References(u *unstructured.Unstructured) []Reference {
	c := collector{}
	visitor(c.add).config(PodSpec(u))
	visitor(c.add).pullSecrets(PodSpec(u))
	return c.sorted()
}

// ConfigReferences returns the ConfigMaps and Secrets whose content reaches the
// containers of u's pods: References without image pull secrets.
func ConfigReferences(u *unstructured.Unstructured) []Reference {
	c := collector{}
	visitor(c.add).config(PodSpec(u))
	return c.sorted()
}

// Way is how the content of a ConfigMap or Secret reaches a container.
type Way string

// The ways. The kubelet updates running containers only for ByVolume; in all other cases the
// content is read once, before the container starts.
const (
	ByVolume  Way = "a volume"
	BySubPath Way = "a subPath mount"
	ByEnv     Way = "its environment"
	ByInit    Way = "an init container"
	ByDriver  Way = "a volume's driver"
)

// Use is one ConfigMap or Secret with the sorted ways in which containers use it.
type Use struct {
	Reference
	Ways []Way
}

// ConfigUses returns ConfigReferences with the ways of each, in the same order.
func ConfigUses(u *unstructured.Unstructured) []Use {
	ways := map[Reference][]Way{}
	addProblem := func(way Way) visitor {
		return func(_ map[string]any, _ string, r Reference) { ways[r] = append(ways[r], way) }
	}
	spec := PodSpec(u)
	for _, volume := range items(spec["volumes"]) {
		for _, way := range waysOf(volume, spec) {
			addProblem(way).volume(volume)
		}
	}
	for _, list := range containerLists() {
		way := ByEnv
		if list == "initContainers" {
			way = ByInit
		}
		for _, c := range items(spec[list]) {
			addProblem(way).env(c)
		}
	}
	var out []Use
	for _, r := range ConfigReferences(u) {
		slices.Sort(ways[r])
		out = append(out, Use{r, slices.Compact(ways[r])})
	}
	return out
}

// waysOf returns how the containers of a pod spec use a volume. A volume without mounts counts
// as ByVolume.
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

// wayOf returns how a container in list uses a volume by mount.
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

// RenameReferences replaces the name of each of u's References by the result of rename. It may
// call rename several times for one reference.
func RenameReferences(u *unstructured.Unstructured, rename func(Reference) string) {
	set := visitor(func(holder map[string]any, field string, r Reference) { holder[field] = rename(r) })
	set.config(PodSpec(u))
	set.pullSecrets(PodSpec(u))
}

// collector collects references.
type collector []Reference

func (c *collector) add(_ map[string]any, _ string, r Reference) { *c = append(*c, r) }

// sorted returns the distinct references in order.
func (c *collector) sorted() []Reference {
	slices.SortFunc(*c, func(a, b Reference) int { return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Name, b.Name)) })
	return slices.Compact(*c)
}

// visitor is called for each field in a pod spec that names a ConfigMap or a Secret.
type visitor func(holder map[string]any, field string, r Reference)

// config visits the references whose content reaches containers.
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

// containerLists are the fields of a pod spec with containers.
func containerLists() []string {
	return []string{"initContainers", "containers", "ephemeralContainers"}
}

// env visits the references in a container's environment.
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

// volumeSecrets are the volume types with a field that names a Secret.
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

// visit calls v if the field of holder, a mapping, names an object.
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

// items returns the mappings in a list.
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

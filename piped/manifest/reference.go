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
	r := references{found: ConfigReferences(u)}
	for _, secret := range items(PodSpec(u)["imagePullSecrets"]) {
		r.add("Secret", secret, "name")
	}
	return r.sorted()
}

// ConfigReferences returns the ConfigMaps and Secrets whose content reaches the
// containers of u's pods: those of References, without those that only pull
// images.
func ConfigReferences(u *unstructured.Unstructured) []Reference {
	r := references{}
	spec := PodSpec(u)
	for _, volume := range items(spec["volumes"]) {
		r.volume(volume)
	}
	for _, list := range []string{"initContainers", "containers", "ephemeralContainers"} {
		for _, c := range items(spec[list]) {
			for _, env := range items(c["env"]) {
				from := object(env["valueFrom"])
				r.add("ConfigMap", from["configMapKeyRef"], "name")
				r.add("Secret", from["secretKeyRef"], "name")
			}
			for _, from := range items(c["envFrom"]) {
				r.add("ConfigMap", from["configMapRef"], "name")
				r.add("Secret", from["secretRef"], "name")
			}
		}
	}
	return r.sorted()
}

type references struct{ found []Reference }

// sorted returns what was found, each once.
func (r *references) sorted() []Reference {
	slices.SortFunc(r.found, func(a, b Reference) int { return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Name, b.Name)) })
	return slices.Compact(r.found)
}

// volumeSecrets are the volume types that name a Secret in a field.
var volumeSecrets = map[string]string{
	"cephfs": "secretRef", "cinder": "secretRef", "csi": "nodePublishSecretRef", "flexVolume": "secretRef",
	"iscsi": "secretRef", "rbd": "secretRef", "scaleIO": "secretRef", "storageos": "secretRef",
}

func (r *references) volume(volume map[string]any) {
	r.add("ConfigMap", volume["configMap"], "name")
	r.add("Secret", volume["secret"], "secretName")
	r.add("Secret", volume["azureFile"], "secretName")
	for kind, field := range volumeSecrets {
		r.add("Secret", object(volume[kind])[field], "name")
	}
	for _, source := range items(object(volume["projected"])["sources"]) {
		r.add("ConfigMap", source["configMap"], "name")
		r.add("Secret", source["secret"], "name")
	}
}

// add notes what v, a mapping, names in a field.
func (r *references) add(kind string, v any, field string) {
	if name, _ := object(v)[field].(string); name != "" {
		r.found = append(r.found, Reference{Kind: kind, Name: name})
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

package manifest

import (
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// PodTemplatePath returns the dotted path of a kind's pod template, such as
// spec.template; "" for kinds without pods.
func PodTemplatePath(kind string) string {
	switch kind {
	case "Pod":
		return "spec"
	case "CronJob":
		return "spec.jobTemplate.spec.template"
	case "Deployment", "StatefulSet", "DaemonSet", "ReplicaSet", "ReplicationController", "Job":
		return "spec.template"
	}
	return ""
}

// PodSpec returns the pod spec in u, nil for kinds without pods. It is not a copy.
func PodSpec(u *unstructured.Unstructured) map[string]any {
	path := PodTemplatePath(u.GetKind())
	if path == "" {
		return nil
	}
	if u.GetKind() != "Pod" {
		path += ".spec"
	}
	node := u.Object
	for _, key := range strings.Split(path, ".") {
		node, _ = node[key].(map[string]any)
	}
	return node
}

// Container is one container of a pod.
type Container struct {
	Name  string
	Init  bool
	Image string // "" if none is declared
}

// Containers returns the containers of u's pods, init containers first, in order of
// declaration.
func Containers(u *unstructured.Unstructured) []Container {
	var out []Container
	for _, c := range items(PodSpec(u)["initContainers"]) {
		out = append(out, container(c, true))
	}
	for _, c := range items(PodSpec(u)["containers"]) {
		out = append(out, container(c, false))
	}
	return out
}

func container(c map[string]any, init bool) Container {
	name, _ := c["name"].(string)
	image, _ := c["image"].(string)
	return Container{Name: name, Init: init, Image: image}
}

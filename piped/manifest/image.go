package manifest

import (
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/c785c783/piped/piped/deploy"
)

// Image is a container image reference in its parts.
type Image struct {
	Repository string // with the registry and its port, if any
	Tag        string
	Digest     string // such as sha256:...
}

// ParseImage splits an image reference.
func ParseImage(reference string) Image {
	repository, digest, _ := strings.Cut(reference, "@")
	tag := ""
	// A colon before the last slash belongs to the registry's port.
	if colon := strings.LastIndex(repository, ":"); colon > strings.LastIndex(repository, "/") {
		repository, tag = repository[:colon], repository[colon+1:]
	}
	return Image{Repository: repository, Tag: tag, Digest: digest}
}

// Name returns the last segment of the repository.
func (i Image) Name() string { return i.Repository[strings.LastIndex(i.Repository, "/")+1:] }

// Version returns the tag, else the digest, else "latest".
func (i Image) Version() string {
	switch {
	case i.Tag != "":
		return i.Tag
	case i.Digest != "":
		return i.Digest
	}
	return "latest"
}

// The kinds of artifact version.
const (
	kindContainerImage = "CONTAINER_IMAGE"
	kindUnknown        = "UNKNOWN"
)

// Versions returns the distinct images the objects run, init containers
// included, in the order they are declared. Without any it returns the one
// entry of kind UNKNOWN.
func Versions(objs []Object) []deploy.ArtifactVersion {
	var out []deploy.ArtifactVersion
	seen := map[string]bool{}
	for _, o := range objs {
		for _, reference := range Images(o.Unstructured) {
			if seen[reference] {
				continue
			}
			seen[reference] = true
			image := ParseImage(reference)
			out = append(out, deploy.ArtifactVersion{Kind: kindContainerImage, Version: image.Version(), Name: image.Name(), URL: reference})
		}
	}
	if len(out) == 0 {
		return []deploy.ArtifactVersion{{Kind: kindUnknown, Version: "unknown"}}
	}
	return out
}

// Images returns the image references of u's containers and init containers,
// for every kind that runs pods: what u declares in a pod template, or in a Pod.
func Images(u *unstructured.Unstructured) []string {
	spec := PodSpec(u)
	var out []string
	for _, list := range []string{"initContainers", "containers"} {
		containers, _ := spec[list].([]any)
		for _, c := range containers {
			container, _ := c.(map[string]any)
			if image, _ := container["image"].(string); image != "" {
				out = append(out, image)
			}
		}
	}
	return out
}

// PodSpec returns the pod spec that u holds, nil for kinds that run no pods.
// It is part of u, not a copy.
func PodSpec(u *unstructured.Unstructured) map[string]any {
	path := []string{"spec", "template", "spec"}
	switch u.GetKind() {
	case "Pod":
		path = []string{"spec"}
	case "CronJob":
		path = []string{"spec", "jobTemplate", "spec", "template", "spec"}
	case "Deployment", "StatefulSet", "DaemonSet", "ReplicaSet", "ReplicationController", "Job":
	default:
		return nil
	}
	node := u.Object
	for _, key := range path {
		node, _ = node[key].(map[string]any)
	}
	return node
}

package manifest

import (
	"strings"

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
		for _, c := range Containers(o.Unstructured) {
			reference := c.Image
			if reference == "" || seen[reference] {
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

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

// hidden stands for a part of an image reference that is a part of a secret.
const hidden = "[redacted]"

// ShownImage splits an image reference of which hide takes secrets out, nil for none.
// A secret may reach over several parts: none of them is shown then, for hide would not
// find a part of it.
func ShownImage(reference string, hide func(string) string) Image {
	image := ParseImage(reference)
	if hide == nil || hide(reference) == reference {
		return image
	}
	shown := ParseImage(hide(reference))
	if image.Tag != "" && shown.Tag == "" {
		shown.Tag = hidden
	}
	if image.Digest != "" && shown.Digest == "" {
		shown.Digest = hidden
	}
	return shown
}

// Versions returns the distinct images the objects run, init containers
// included, in the order they are declared. Without any it returns the one
// entry of kind UNKNOWN. Hide takes secrets out of an image reference; nil is for none.
func Versions(objs []Object, hide func(string) string) []deploy.ArtifactVersion {
	if hide == nil {
		hide = func(reference string) string { return reference }
	}
	var out []deploy.ArtifactVersion
	seen := map[string]bool{}
	for _, o := range objs {
		for _, c := range Containers(o.Unstructured) {
			if c.Image == "" || seen[c.Image] {
				continue
			}
			seen[c.Image] = true
			image := ShownImage(c.Image, hide)
			out = append(out, deploy.ArtifactVersion{Kind: kindContainerImage, Version: image.Version(), Name: image.Name(), URL: hide(c.Image)})
		}
	}
	if len(out) == 0 {
		return []deploy.ArtifactVersion{{Kind: kindUnknown, Version: "unknown"}}
	}
	return out
}

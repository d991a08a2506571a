package manifest

import (
	"strings"

	"github.com/c785c783/piped/piped/deploy"
)

// Image is an image reference split into its parts.
type Image struct {
	Repository string // including registry and port
	Tag        string
	Digest     string // such as sha256:...
}

// ParseImage splits an image reference.
func ParseImage(reference string) Image {
	repository, digest, _ := strings.Cut(reference, "@")
	tag := ""
	// A colon before the last slash precedes the registry's port.
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

// hidden replaces a part of an image reference that contains a secret.
const hidden = "[redacted]"

// ShownImage splits an image reference after redact has removed secrets from it; nil removes
// none. If a secret spans several parts, none of these is shown, because redact would not
// recognize a fragment.
func ShownImage(reference string, redact func(string) string) Image {
	image := ParseImage(reference)
	if redact == nil || redact(reference) == reference {
		return image
	}
	shown := ParseImage(redact(reference))
	if image.Tag != "" && shown.Tag == "" {
		shown.Tag = hidden
	}
	if image.Digest != "" && shown.Digest == "" {
		shown.Digest = hidden
	}
	return shown
}

// Versions returns the distinct images of the objects, including init containers, in
// order of declaration. Without any it returns one entry of kind UNKNOWN. redact
// removes secrets from an image reference; nil removes none.
func Versions(objs []Object, redact func(string) string) []deploy.ArtifactVersion {
	if redact == nil {
		redact = func(reference string) string { return reference }
	}
	var out []deploy.ArtifactVersion
	seen := map[string]bool{}
	for _, o := range objs {
		for _, c := range Containers(o.Unstructured) {
			if c.Image == "" || seen[c.Image] {
				continue
			}
			seen[c.Image] = true
			image := ShownImage(c.Image, redact)
			out = append(out, deploy.ArtifactVersion{Kind: kindContainerImage, Version: image.Version(), Name: image.Name(), URL: redact(c.Image)})
		}
	}
	if len(out) == 0 {
		return []deploy.ArtifactVersion{{Kind: kindUnknown, Version: "unknown"}}
	}
	return out
}

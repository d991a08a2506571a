package image

import (
	"bytes"
	"encoding/json"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/partial"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/c785c783/piped/examples/release/sbom"
)

// Types of what is attached.
const (
	TypeSBOM       types.MediaType = "application/spdx+json"
	TypeProvenance types.MediaType = "application/vnd.in-toto+json"

	typeEmpty types.MediaType = "application/vnd.oci.empty.v1+json"
)

// rootsModule is the Go module that the certificate authorities come from.
const rootsModule = "golang.org/x/crypto/x509roots/fallback"

// attach attaches a list of the components to the image of each platform, and the
// provenance to the index.
func (m materials) attach(made *Image, platforms []Platform) error {
	for _, p := range platforms {
		text, err := sbom.Make(sbom.Options{
			Name: "piped_" + m.source.Version + "_" + p.OS + "_" + p.Arch + "_image", Version: m.source.Version, Purpose: "CONTAINER",
			Source: GitAddress(m.source), Created: m.source.Time, Programs: p.Programs,
			Data: []sbom.Data{
				{Name: rootsModule, Version: m.roots, Module: true, Comment: "/etc/ssl/certs/ca-certificates.crt"},
				{Name: "time-zones-of-Go", Version: m.goVer, Comment: "/usr/share/zoneinfo"},
			},
		})
		if err != nil {
			return err
		}
		if err := made.add(m, TypeSBOM, text, made.Platforms[p.Target]); err != nil {
			return err
		}
	}
	text, err := m.provenance(made)
	if err != nil {
		return err
	}
	return made.add(m, TypeProvenance, text, made.Index)
}

// add attaches a text to an image or an index.
func (i *Image) add(m materials, kind types.MediaType, text []byte, to partial.Describable) error {
	subject, err := describe(to)
	if err != nil {
		return err
	}
	a, err := newArtifact(kind, text, subject, m.source.Time)
	if err != nil {
		return err
	}
	i.Attached = append(i.Attached, a)
	return nil
}

// artifact is a manifest with one blob that refers to another manifest, its subject.
type artifact struct {
	manifest []byte
	content  v1.Layer
}

// newArtifact makes the manifest as the OCI specification recommends for artifacts: its
// configuration is the empty object.
func newArtifact(kind types.MediaType, text []byte, subject v1.Descriptor, created time.Time) (v1.Image, error) {
	a := artifact{content: static.NewLayer(text, kind)}
	content, err := describe(a.content)
	if err != nil {
		return nil, err
	}
	config, err := describe(static.NewLayer(emptyObject, typeEmpty))
	if err != nil {
		return nil, err
	}
	a.manifest, err = json.Marshal(v1.Manifest{
		SchemaVersion: 2, MediaType: types.OCIManifestSchema1, ArtifactType: string(kind), Config: config, Layers: []v1.Descriptor{content},
		Subject: &subject, Annotations: map[string]string{"org.opencontainers.image.created": created.Format(time.RFC3339)},
	})
	if err != nil {
		return nil, err
	}
	return partial.CompressedToImage(a)
}

var emptyObject = []byte("{}")

// RawConfigFile returns the empty configuration.
func (a artifact) RawConfigFile() ([]byte, error) { return bytes.Clone(emptyObject), nil }

// MediaType returns that of the manifest.
func (a artifact) MediaType() (types.MediaType, error) { return types.OCIManifestSchema1, nil }

// RawManifest returns the manifest.
func (a artifact) RawManifest() ([]byte, error) { return a.manifest, nil }

// LayerByDigest returns the blob: there is one.
func (a artifact) LayerByDigest(v1.Hash) (partial.CompressedLayer, error) { return a.content, nil }

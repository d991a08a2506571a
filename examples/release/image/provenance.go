package image

import (
	"encoding/json"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/c785c783/piped/examples/release/build"
)

// The types of in-toto and SLSA, https://slsa.dev/spec/v1.0/provenance.
const (
	statementType = "https://in-toto.io/Statement/v1"
	predicateType = "https://slsa.dev/provenance/v1"
	buildType     = website + "/blob/main/docs/releases.md#image"
	builder       = website + "/examples/release"
)

type statement struct {
	Type          string     `json:"_type"`
	Subject       []resource `json:"subject"`
	PredicateType string     `json:"predicateType"`
	Predicate     provenance `json:"predicate"`
}

type resource struct {
	Name   string            `json:"name,omitempty"`
	URI    string            `json:"uri,omitempty"`
	Digest map[string]string `json:"digest,omitempty"`
}

type provenance struct {
	BuildDefinition buildDefinition `json:"buildDefinition"`
	RunDetails      runDetails      `json:"runDetails"`
}

type buildDefinition struct {
	BuildType            string         `json:"buildType"`
	ExternalParameters   map[string]any `json:"externalParameters"`
	ResolvedDependencies []resource     `json:"resolvedDependencies"`
}

type runDetails struct {
	Builder struct {
		ID string `json:"id"`
	} `json:"builder"`
}

// GitAddress returns where a source is, as SPDX and in-toto write it. A work tree that differs from
// its commit is in no repository.
func GitAddress(source build.Source) string {
	if source.Dirty {
		return "git+" + website
	}
	return "git+" + website + "@" + source.Commit
}

// sourceOf is the source as a dependency of the build, with its commit if it is one.
func sourceOf(source build.Source) resource {
	r := resource{URI: GitAddress(source)}
	if !source.Dirty {
		r.Digest = map[string]string{"gitCommit": source.Commit}
	}
	return r
}

// provenance states what the image was made from. It contains no time of the build and
// no machine: who repeats the build gets the same statement.
func (m materials) provenance(made *Image) ([]byte, error) {
	s := statement{Type: statementType, PredicateType: predicateType}
	platforms := []string{}
	index, err := made.Index.Digest()
	if err != nil {
		return nil, err
	}
	s.Subject = append(s.Subject, subject("piped", index))
	for _, target := range made.order {
		digest, err := made.Platforms[target].Digest()
		if err != nil {
			return nil, err
		}
		s.Subject = append(s.Subject, subject("piped "+target.String(), digest))
		platforms = append(platforms, target.String())
	}
	s.Predicate.BuildDefinition = buildDefinition{
		BuildType:          buildType,
		ExternalParameters: map[string]any{"version": m.source.Version, "platforms": platforms, "sourceDateEpoch": m.source.Time.Unix()},
		ResolvedDependencies: []resource{
			sourceOf(m.source),
			{URI: "pkg:golang/stdlib@" + strings.TrimPrefix(m.goVer, "go")},
			{URI: "pkg:golang/" + rootsModule + "@" + m.roots},
		},
	}
	s.Predicate.RunDetails.Builder.ID = builder
	return json.Marshal(s)
}

func subject(name string, digest v1.Hash) resource {
	return resource{Name: name, Digest: map[string]string{digest.Algorithm: digest.Hex}}
}

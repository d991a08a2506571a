package kustomize

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"sigs.k8s.io/kustomize/api/types"
	"sigs.k8s.io/yaml"
)

// kustomization is the content of a kustomization file. Its own fields are deprecated by
// Kustomize but still in use. They shadow the fields of the same names in the embedded type,
// which stay empty.
type kustomization struct {
	types.Kustomization   `json:",inline"`
	PatchesStrategicMerge []string      `json:"patchesStrategicMerge,omitempty"`
	PatchesJson6902       []types.Patch `json:"patchesJson6902,omitempty"`

	deprecated []string // warnings about deprecated fields, without the file name
}

// parse parses a kustomization as Kustomize does: keys are case-insensitive, and unknown keys
// are an error. It moves deprecated fields to their replacements, for example bases to
// resources.
func parse(data []byte) (*kustomization, error) {
	text, err := yaml.YAMLToJSON(data)
	if err != nil {
		return nil, err
	}
	k := new(kustomization)
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.DisallowUnknownFields()
	if err := dec.Decode(k); err != nil {
		return nil, err
	}
	k.deprecated = k.deprecations()
	k.FixKustomization()
	if problems := k.EnforceFields(); len(problems) > 0 {
		return nil, errors.New(strings.Join(problems, "; "))
	}
	return k, nil
}

// deprecations returns a warning for each deprecated field, with its replacement. Kustomize
// itself writes them to the agent's standard error, which users do not read.
func (k *kustomization) deprecations() []string {
	var out []string
	for _, field := range []struct {
		is             bool
		name, standsIn string
	}{
		//lint:ignore SA1019 what is deprecated is what is looked for
		{k.Bases != nil, "bases", "resources"},
		//lint:ignore SA1019 what is deprecated is what is looked for
		{k.CommonLabels != nil, "commonLabels", "labels"},
		//lint:ignore SA1019 what is deprecated is what is looked for
		{k.ImageTags != nil, "imageTags", "images"},
		{k.PatchesJson6902 != nil, "patchesJson6902", "patches"},
		{k.PatchesStrategicMerge != nil, "patchesStrategicMerge", "patches"},
		//lint:ignore SA1019 what is deprecated is what is looked for
		{k.Vars != nil, "vars", "replacements"},
	} {
		if field.is {
			out = append(out, fmt.Sprintf("%s is deprecated by Kustomize; use %s, to which kustomize edit fix changes it", field.name, field.standsIn))
		}
	}
	return out
}

package kustomize

import (
	"bytes"
	"errors"
	"fmt"
	"io"

	"gopkg.in/yaml.v3"
	"sigs.k8s.io/kustomize/api/types"
	sigsyaml "sigs.k8s.io/yaml"
)

// chartGenerator is a configuration of kind HelmChartInflationGenerator.
type chartGenerator struct {
	types.HelmGlobals `json:",inline"`
	types.HelmChart   `json:",inline"`
}

// generators rewrites the generators of a kustomization. It replaces charts by resources. The
// other documents of an entry with charts become an inline entry.
func (r *rewriter) generators(k *kustomization) {
	var entries []string
	for i, entry := range k.Generators {
		if r.err != nil {
			return
		}
		field := fmt.Sprintf("generators[%d]", i)
		charts, rest := r.chartGenerators(entry)
		for _, chart := range charts {
			r.chart(k, field, chart.HelmGlobals, chart.HelmChart)
		}
		if len(charts) > 0 {
			entry = rest
		}
		if entry != "" {
			r.plugin(field, &entry)
			entries = append(entries, entry)
		}
	}
	k.Generators = entries
}

// chartGenerators returns the charts in an entry of generators, which is a configuration or the
// name of its file, and the other documents of the entry as YAML.
func (r *rewriter) chartGenerators(entry string) (charts []chartGenerator, rest string) {
	data := []byte(entry)
	if !isMapping(entry) {
		name, ok := r.here(entry)
		if !ok || isDir(r.mount, name) {
			return nil, "" // handled as any other plugin
		}
		var err error
		if data, err = readFile(r.mount, name, r.plan.left.Bytes); err != nil {
			return nil, ""
		}
		if r.plan.left.Bytes -= int64(len(data)); r.plan.left.Bytes < 0 {
			r.errorf("generators", "the files of the build have more than %d bytes; split the application", r.plan.limits.Bytes)
		}
	}
	if r.err != nil || checkAliases(data) != nil {
		return nil, ""
	}
	var others bytes.Buffer
	for dec := yaml.NewDecoder(bytes.NewReader(data)); ; {
		var doc map[string]any
		if err := dec.Decode(&doc); errors.Is(err, io.EOF) {
			return charts, others.String()
		} else if err != nil {
			return nil, ""
		}
		text, err := yaml.Marshal(doc)
		if err != nil {
			return nil, ""
		}
		if doc["kind"] != helmGenerator {
			others.WriteString("---\n")
			others.Write(text)
			continue
		}
		var chart chartGenerator
		if err := sigsyaml.Unmarshal(text, &chart); err != nil {
			r.errorf("generators", "%s: %s", helmGenerator, firstLine(err.Error()))
			return nil, ""
		}
		charts = append(charts, chart)
	}
}

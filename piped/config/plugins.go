package config

import (
	"fmt"
	"slices"
	"strings"

	"gopkg.in/yaml.v3"

	"github.com/c785c783/piped/piped/config/strict"
)

// The plugins of PipeCD's v1 that are known by name.
const (
	pluginKubernetes = "kubernetes"
	pluginAnalysis   = "analysis"
)

// stagePlugins bring stages, which need nothing to be there.
func stagePlugins() []string { return []string{pluginAnalysis, "wait", "waitapproval", "scriptrun"} }

// otherPlatforms are plugins that deploy to a platform which this version has not.
func otherPlatforms() []string {
	return []string{"kubernetes_multicluster", "terraform", "cloudrun", "lambda", "ecs"}
}

// plugins is spec.plugins of an application as far as it is read.
type plugins struct {
	kubernetes *yaml.Node // the platform's options; nil when not written
	analysis   struct {
		AppCustomArgs map[string]string `yaml:"appCustomArgs"`
	}
}

// takePlugins removes spec.plugins and reads it. An application of kind Application
// without a plugin of a platform is one of Kubernetes, as its stages say.
func takePlugins(d *strict.Document) (plugins, error) {
	var out plugins
	written := take(d.Spec, "plugins")
	if written == nil || written.Kind == yaml.ScalarNode && written.Tag == "!!null" {
		return out, nil
	}
	if written.Kind != yaml.MappingNode {
		d.Decode(written, strict.Field{Base: "spec", Path: "plugins"}, &map[string]yaml.Node{}, strict.Rules{})
		return out, nil
	}
	out.kubernetes = take(written, pluginKubernetes)
	if own := take(written, pluginAnalysis); own != nil {
		d.Decode(own, strict.Field{Base: "spec", Path: "plugins.analysis"}, &out.analysis, strict.Rules{})
	}
	for i := 0; i+1 < len(written.Content); i += 2 {
		if err := out.other(d, written.Content[i], written.Content[i+1]); err != nil {
			return out, err
		}
	}
	return out, nil
}

// other reads a plugin that is neither Kubernetes' nor that of analyses.
func (p plugins) other(d *strict.Document, key, value *yaml.Node) error {
	name := key.Value
	platform := slices.ContainsFunc(otherPlatforms(), func(other string) bool { return strings.EqualFold(other, name) })
	switch {
	case slices.ContainsFunc(stagePlugins(), func(stage string) bool { return strings.EqualFold(stage, name) }):
		d.Decode(value, strict.Field{Base: "spec", Path: "plugins." + name}, &struct{}{}, strict.Rules{})
	case p.kubernetes == nil && (d.Kind == KindApplication || strings.EqualFold(name, "kubernetes_multicluster")):
		return &UnsupportedKind{File: d.File, Line: key.Line, Kind: d.Kind + " with plugin " + name}
	case platform && (d.Kind == KindApplication || strings.EqualFold(name, "kubernetes_multicluster")):
		return fmt.Errorf("%s:%d: spec.plugins.%s: one platform is possible, and spec.plugins.kubernetes is there too", d.File, key.Line, name)
	default:
		d.KeepOut(key.Line, "spec.plugins."+name, "the plugin is not known here, and its options are not read")
	}
	return nil
}

// fill gives the arguments of the application to every check with a template that does
// not set them itself.
func (p plugins) fill(pipeline *Pipeline) {
	if pipeline == nil || len(p.analysis.AppCustomArgs) == 0 {
		return
	}
	for _, s := range pipeline.Stages {
		switch with := s.With.(type) {
		case *AnalysisOptions:
			with.Checks.SetDefaultArgs(p.analysis.AppCustomArgs)
		case *TrafficRoutingOptions:
			if with.Analysis != nil {
				with.Analysis.Checks.SetDefaultArgs(p.analysis.AppCustomArgs)
			}
		}
	}
}

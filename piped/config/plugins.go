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

	pluginMulticluster = "kubernetes_multicluster"
)

// stagePlugins bring stages, which need nothing to be there.
func stagePlugins() []string { return []string{pluginAnalysis, "wait", "waitapproval", "scriptrun"} }

// isOtherPlatform reports whether a plugin deploys to a platform of PipeCD that is not
// among the kinds.
func (ks Kinds) isOtherPlatform(plugin string) bool {
	_, ours := ks.byPlugin(plugin)
	others := []string{pluginKubernetes, pluginMulticluster, "terraform", "cloudrun", "lambda", "ecs"}
	return !ours && slices.ContainsFunc(others, func(other string) bool { return strings.EqualFold(other, plugin) })
}

// byPlugin returns the kind of a plugin.
func (ks Kinds) byPlugin(plugin string) (Kind, bool) {
	return ks.find(func(k Kind) bool { return strings.EqualFold(k.Plugin, plugin) })
}

// plugins is spec.plugins of an application as far as it is read.
type plugins struct {
	kind     Kind       // of the application
	platform *yaml.Node // the options of its kind's plugin; nil when not written
	analysis struct {
		AppCustomArgs map[string]string `yaml:"appCustomArgs"`
	}
}

// takePlugins removes spec.plugins, reads it, and determines the kind of the application.
// One of kind Application without a plugin of a platform is of the first kind.
func (ks Kinds) takePlugins(d *strict.Document) (out plugins, err error) {
	if out.kind, err = ks.kindOf(d); err != nil {
		return out, err
	}
	written := take(d.Spec, "plugins")
	if written == nil || written.Kind == yaml.ScalarNode && written.Tag == "!!null" {
		return out, nil
	}
	if written.Kind != yaml.MappingNode {
		d.Decode(written, strict.Field{Base: "spec", Path: "plugins"}, &map[string]yaml.Node{}, strict.Rules{})
		return out, nil
	}
	if d.Kind == KindApplication {
		out.kind = ks.choose(written, out.kind)
	}
	out.platform = take(written, out.kind.Plugin)
	if own := take(written, pluginAnalysis); own != nil {
		d.Decode(own, strict.Field{Base: "spec", Path: "plugins.analysis"}, &out.analysis, strict.Rules{})
	}
	for i := 0; i+1 < len(written.Content); i += 2 {
		if err := out.other(d, written.Content[i], written.Content[i+1], ks); err != nil {
			return out, err
		}
	}
	return out, nil
}

// choose returns the first kind whose plugin is written, else the default.
func (ks Kinds) choose(written *yaml.Node, otherwise Kind) Kind {
	for i := 0; i+1 < len(written.Content); i += 2 {
		if kind, ok := ks.byPlugin(written.Content[i].Value); ok {
			return kind
		}
	}
	return otherwise
}

// other reads a plugin that is neither that of the application's kind nor that of
// analyses.
func (p plugins) other(d *strict.Document, key, value *yaml.Node, ks Kinds) error {
	name := key.Value
	_, known := ks.byPlugin(name)
	another := known || ks.isOtherPlatform(name)
	exclusive := d.Kind == KindApplication || strings.EqualFold(name, pluginMulticluster)
	switch {
	case slices.ContainsFunc(stagePlugins(), func(stage string) bool { return strings.EqualFold(stage, name) }):
		d.Decode(value, strict.Field{Base: "spec", Path: "plugins." + name}, &struct{}{}, strict.Rules{})
	case p.platform == nil && exclusive:
		return &UnsupportedKind{File: d.File, Line: key.Line, Kind: d.Kind + " with plugin " + name, Expected: ks.files()}
	case another && exclusive:
		return fmt.Errorf("%s:%d: spec.plugins.%s: one platform is possible, and spec.plugins.%s is there too", d.File, key.Line, name, p.kind.Plugin)
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

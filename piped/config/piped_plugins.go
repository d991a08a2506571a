package config

import (
	"fmt"
	"slices"
	"strings"

	"gopkg.in/yaml.v3"

	"github.com/c785c783/piped/piped/config/strict"
)

// pluginSpec is one entry of spec.plugins, in which PipeCD's v1 keeps what v0 has in
// platformProviders, chartRepositories, chartRegistries and analysisProviders. Where
// the plugin's program comes from has no meaning here.
type pluginSpec struct {
	// Name is the plugin: `kubernetes` and `analysis` are read; `wait`, `waitapproval` and
	// `scriptrun` need nothing; others are dropped with a warning.
	// Required.
	Name string `yaml:"name"`
	// Config holds `chartRepositories` and `chartRegistries` of `kubernetes`, and
	// `analysisProviders` of `analysis`, with the keys of this page.
	Config yaml.Node `yaml:"config"`
	// DeployTargets of `kubernetes` are platform providers of type `KUBERNETES`.
	DeployTargets []deployTargetSpec `yaml:"deployTargets"`

	settings pluginConfig
	targets  []providerSpec
}

// deployTargetSpec is what v1 calls a platform provider.
type deployTargetSpec struct {
	// Name is the name of the platform provider.
	// Required.
	Name string `yaml:"name"`
	// Labels are shown by the API.
	Labels map[string]string `yaml:"labels"`
	// Config is the `config` of the platform provider.
	Config yaml.Node `yaml:"config"`
}

// pluginConfig is plugins[].config of the plugins kubernetes and analysis together.
type pluginConfig struct {
	ChartRepositories []ChartRepository
	ChartRegistries   []ChartRegistry
	AnalysisProviders []AnalysisProvider
}

// decode reads the parts of a plugin that depend on its name into p.settings: charts and deploy
// targets of a platform, providers of analysis. It reports problems to d; at is the path of
// the plugin.
func (p *pluginSpec) decode(d *strict.Document, at string, kinds Kinds) {
	required(d, at+".name", p.Name)
	kind, platform := kinds.byPlugin(p.Name)
	switch name := strings.ToLower(p.Name); {
	case name == "" || slices.Contains([]string{"wait", "waitapproval", "scriptrun"}, name):
	case platform:
		if name == pluginKubernetes {
			p.decodeCharts(d, at)
		}
		p.decodeTargets(d, at, kind)
	case name == pluginAnalysis:
		var config struct {
			AnalysisProviders []AnalysisProvider `yaml:"analysisProviders"`
		}
		decodeBelow(d, &p.Config, at+".config", &config, strict.Rules{})
		p.settings.AnalysisProviders = config.AnalysisProviders
	default:
		d.Warnf(at+".name", "%s is not used by this version; the plugin is ignored", p.Name)
	}
}

func (p *pluginSpec) decodeCharts(d *strict.Document, at string) {
	var config struct {
		ChartRepositories []ChartRepository `yaml:"chartRepositories"`
		ChartRegistries   []ChartRegistry   `yaml:"chartRegistries"`
	}
	decodeBelow(d, &p.Config, at+".config", &config, strict.Rules{})
	p.settings.ChartRepositories, p.settings.ChartRegistries = config.ChartRepositories, config.ChartRegistries
}

func (p *pluginSpec) decodeTargets(d *strict.Document, at string, kind Kind) {
	for i, t := range p.DeployTargets {
		provider, at := kind.Provider(), fmt.Sprintf("%s.deployTargets[%d].config", at, i)
		decodeBelow(d, &t.Config, at, provider, strict.Rules{Ignored: kind.ignoredOfProvider("plugins[].deployTargets[].config")})
		p.targets = append(p.targets, providerSpec{Name: t.Name, Type: providerType(kind.Name), Labels: t.Labels, Config: provider})
	}
}

// decodeBelow reads what stands at a path of the spec, which was taken as it stands.
func decodeBelow(d *strict.Document, n *yaml.Node, at string, out any, rules strict.Rules) {
	if !n.IsZero() {
		d.Decode(n, strict.Field{Base: "spec", Path: at}, out, rules)
	}
}

// pluginRules returns the keys of plugins that are known but not read.
func pluginRules() map[string]string {
	const why = "has no meaning here, no plugins are run; ignored"
	return map[string]string{"plugins[].url": why, "plugins[].port": why}
}

func (s *pipedSpec) chartRepositories(d *strict.Document, r resolver) []ChartRepository {
	seen := names{d: d}
	out := completeChartRepositories("chartRepositories", s.ChartRepositories, &seen, d, r)
	for i, p := range s.Plugins {
		out = append(out, completeChartRepositories(fmt.Sprintf("plugins[%d].config.chartRepositories", i), p.settings.ChartRepositories, &seen, d, r)...)
	}
	return out
}

func (s *pipedSpec) chartRegistries(d *strict.Document) []ChartRegistry {
	seen := names{d: d}
	out := completeChartRegistries("chartRegistries", s.ChartRegistries, &seen, d)
	for i, p := range s.Plugins {
		out = append(out, completeChartRegistries(fmt.Sprintf("plugins[%d].config.chartRegistries", i), p.settings.ChartRegistries, &seen, d)...)
	}
	return out
}

func (s *pipedSpec) analysisProviders(d *strict.Document, r resolver) []AnalysisProvider {
	seen := names{d: d}
	out := completeAnalysisProviders("analysisProviders", s.AnalysisProviders, &seen, d, r)
	for i, p := range s.Plugins {
		out = append(out, completeAnalysisProviders(fmt.Sprintf("plugins[%d].config.analysisProviders", i), p.settings.AnalysisProviders, &seen, d, r)...)
	}
	return out
}

package config

import (
	"fmt"

	"gopkg.in/yaml.v3"

	"github.com/c785c783/piped/piped/config/strict"
)

// AnalysisProvider is a place to ask for metrics. Only the part that Type names
// is filled.
type AnalysisProvider struct {
	Name        string
	Type        AnalysisProviderType
	Prometheus  Prometheus
	Datadog     Datadog
	Stackdriver Stackdriver
}

// AnalysisProviderType says who answers.
type AnalysisProviderType string

// The types of analysis providers.
const (
	AnalysisPrometheus  AnalysisProviderType = "PROMETHEUS"
	AnalysisDatadog     AnalysisProviderType = "DATADOG"
	AnalysisStackdriver AnalysisProviderType = "STACKDRIVER"
)

// Values returns every type.
func (AnalysisProviderType) Values() []string {
	return []string{string(AnalysisPrometheus), string(AnalysisDatadog), string(AnalysisStackdriver)}
}

// Prometheus is the config of type PROMETHEUS.
type Prometheus struct {
	Address      string `yaml:"address"`
	UsernameFile string `yaml:"usernameFile"`
	PasswordFile string `yaml:"passwordFile"`
}

// Datadog is the config of type DATADOG. Keys are decoded: what the file holds
// in base64 is plain here.
type Datadog struct {
	Address            string        `yaml:"address"`
	APIKeyFile         string        `yaml:"apiKeyFile"`
	APIKeyData         strict.Secret `yaml:"apiKeyData"`
	ApplicationKeyFile string        `yaml:"applicationKeyFile"`
	ApplicationKeyData strict.Secret `yaml:"applicationKeyData"`
}

// Stackdriver is the config of type STACKDRIVER.
type Stackdriver struct {
	ServiceAccountFile string `yaml:"serviceAccountFile"`
}

// analysisSpec is an analysis provider as it is written.
type analysisSpec struct {
	Name   string               `yaml:"name"`
	Type   AnalysisProviderType `yaml:"type"`
	Config yaml.Node            `yaml:"config"` // its fields depend on the type
}

func defaultDatadog() Datadog { return Datadog{Address: "datadoghq.com"} }

func completeAnalysisProviders(specs []analysisSpec, d *strict.Document, r resolver) []AnalysisProvider {
	var out []AnalysisProvider
	seen := names{d: d}
	for i, s := range specs {
		at := fmt.Sprintf("analysisProviders[%d]", i)
		seen.add(at, "name", s.Name)
		p := AnalysisProvider{Name: s.Name, Type: s.Type, Datadog: defaultDatadog()}
		config := at + ".config"
		switch s.Type {
		case AnalysisPrometheus:
			decodeConfig(d, s.Config, config, &p.Prometheus)
			p.Prometheus.complete(d, r, config)
		case AnalysisDatadog:
			decodeConfig(d, s.Config, config, &p.Datadog)
			p.Datadog.complete(d, r, config)
		case AnalysisStackdriver:
			decodeConfig(d, s.Config, config, &p.Stackdriver)
			p.Stackdriver.ServiceAccountFile = r.path(config+".serviceAccountFile", p.Stackdriver.ServiceAccountFile)
		default:
			d.Problemf(at+".type", "required; expected %s", strict.Alternatives(s.Type.Values()))
		}
		if s.Type != AnalysisDatadog {
			p.Datadog = Datadog{}
		}
		out = append(out, p)
	}
	return out
}

// decodeConfig reads the config of something whose type says what it holds.
func decodeConfig(d *strict.Document, config yaml.Node, path string, out any) {
	if !config.IsZero() {
		d.Decode(&config, strict.Field{Base: "spec", Path: path}, out, strict.Rules{})
	}
}

func (p *Prometheus) complete(d *strict.Document, r resolver, at string) {
	required(d, at+".address", p.Address)
	pair(d, field{at + ".usernameFile", p.UsernameFile != ""}, field{at + ".passwordFile", p.PasswordFile != ""})
	p.UsernameFile, p.PasswordFile = r.path(at+".usernameFile", p.UsernameFile), r.path(at+".passwordFile", p.PasswordFile)
}

func (p *Datadog) complete(d *strict.Document, r resolver, at string) {
	exactlyOne(d, field{at + ".apiKeyFile", p.APIKeyFile != ""}, field{at + ".apiKeyData", !p.APIKeyData.IsEmpty()})
	exactlyOne(d, field{at + ".applicationKeyFile", p.ApplicationKeyFile != ""},
		field{at + ".applicationKeyData", !p.ApplicationKeyData.IsEmpty()})
	p.APIKeyFile, p.ApplicationKeyFile = r.path(at+".apiKeyFile", p.APIKeyFile), r.path(at+".applicationKeyFile", p.ApplicationKeyFile)
	p.APIKeyData = base64Secret(d, at+".apiKeyData", p.APIKeyData)
	p.ApplicationKeyData = base64Secret(d, at+".applicationKeyData", p.ApplicationKeyData)
}

package config

import (
	"fmt"

	"github.com/c785c783/piped/piped/config/analysis"
	"github.com/c785c783/piped/piped/config/strict"
)

// AnalysisProvider is a place to ask for metrics or logs.
type AnalysisProvider struct {
	// Name is the unique name by which stages select the provider.
	// Required.
	Name string `yaml:"name"`
	// Type is the kind of provider. `LOKI` is for logs and is not in PipeCD. `STACKDRIVER` is
	// accepted with a warning: an `ANALYSIS` that queries it fails, as PipeCD does not implement
	// it either.
	// Required.
	Type AnalysisProviderType `yaml:"type"`
	// Config depends on `type`.
	//
	// A *Prometheus, *Datadog, *Loki or *Stackdriver, as Type says; never nil.
	Config any `yaml:"config"`
}

// AnalysisProviderType says who answers.
type AnalysisProviderType string

// The types of analysis providers.
const (
	AnalysisPrometheus AnalysisProviderType = "PROMETHEUS"
	AnalysisDatadog    AnalysisProviderType = "DATADOG"
	AnalysisLoki       AnalysisProviderType = "LOKI" // for logs
	// AnalysisStackdriver is known, and cannot be asked.
	AnalysisStackdriver AnalysisProviderType = "STACKDRIVER"
)

// Values returns every type that can be had.
func (AnalysisProviderType) Values() []string {
	return []string{string(AnalysisPrometheus), string(AnalysisDatadog), string(AnalysisLoki), string(AnalysisStackdriver)}
}

// Prometheus is the config of type PROMETHEUS.
type Prometheus struct {
	// Address is the URL of Prometheus.
	// Required. Type: URL.
	Address string `yaml:"address"`
	// UsernameFile is the file of the user name for basic authentication. It is read at each
	// query.
	UsernameFile string `yaml:"usernameFile"`
	// PasswordFile is the file of the password. It is read at each query.
	PasswordFile string `yaml:"passwordFile"`
}

// Datadog is the config of type DATADOG. Keys are decoded: what the file holds
// in base64 is plain here.
type Datadog struct {
	// Address is Datadog's site, or the URL of a proxy for its API.
	Address string `yaml:"address"`
	// APIKeyFile is the file of the API key. Set this or `apiKeyData`.
	// Required, or `apiKeyData`.
	APIKeyFile string `yaml:"apiKeyFile"`
	// APIKeyData is the API key.
	APIKeyData strict.Secret `yaml:"apiKeyData"`
	// ApplicationKeyFile is the file of the application key. Set this or `applicationKeyData`.
	// Required, or `applicationKeyData`.
	ApplicationKeyFile string `yaml:"applicationKeyFile"`
	// ApplicationKeyData is the application key.
	ApplicationKeyData strict.Secret `yaml:"applicationKeyData"`
}

// Loki is the config of type LOKI.
type Loki struct {
	// Address is the URL of Loki.
	// Required. Type: URL.
	Address string `yaml:"address"`
	// UsernameFile is the file of the user name for basic authentication. It is read at each
	// query.
	UsernameFile string `yaml:"usernameFile"`
	// PasswordFile is the file of the password. It is read at each query.
	PasswordFile string `yaml:"passwordFile"`
	// Tenant is the value of the header `X-Scope-OrgID`.
	// Not in PipeCD.
	Tenant string `yaml:"tenant"`
}

// Stackdriver is the config of type STACKDRIVER, which is checked and not used.
type Stackdriver struct {
	// ServiceAccountFile has no effect in this version.
	ServiceAccountFile string `yaml:"serviceAccountFile"`
}

// Variants implements schema.Varied.
func (p *AnalysisProvider) Variants() (by string, of map[string]any) {
	return "type", map[string]any{
		string(AnalysisPrometheus): &Prometheus{},
		string(AnalysisDatadog):    &Datadog{Address: "datadoghq.com"},
		string(AnalysisLoki):       &Loki{},

		string(AnalysisStackdriver): &Stackdriver{},
	}
}

// Variant implements strict.Variant.
func (p *AnalysisProvider) Variant() any {
	_, of := p.Variants()
	return of[string(p.Type)]
}

// completeAnalysisProviders checks the providers of the list at a path; seen are the
// names of those before.
func completeAnalysisProviders(list string, providers []AnalysisProvider, seen *names, d *strict.Document, r resolver) []AnalysisProvider {
	for i := range providers {
		p, at := &providers[i], fmt.Sprintf("%s[%d]", list, i)
		seen.add(at, "name", p.Name)
		if p.Config == nil {
			p.Config = p.Variant()
		}
		at += ".config"
		switch config := p.Config.(type) {
		case *Prometheus:
			config.complete(d, r, at)
		case *Datadog:
			config.complete(d, r, at)
		case *Loki:
			config.complete(d, r, at)
		case *Stackdriver:
			d.Warnf(fmt.Sprintf("%s[%d].type", list, i), "%s is not supported by this version: an ANALYSIS that asks %s fails", p.Type, p.Name)
		default:
			d.Problemf(fmt.Sprintf("%s[%d].type", list, i), "required; expected %s", strict.Alternatives(p.Type.Values()))
		}
	}
	return providers
}

func (p *Prometheus) complete(d *strict.Document, r resolver, at string) {
	checkProviderURL(d, at+".address", p.Address)
	pair(d, field{at + ".usernameFile", p.UsernameFile != ""}, field{at + ".passwordFile", p.PasswordFile != ""})
	p.UsernameFile, p.PasswordFile = r.path(at+".usernameFile", p.UsernameFile), r.path(at+".passwordFile", p.PasswordFile)
}

func (l *Loki) complete(d *strict.Document, r resolver, at string) {
	checkProviderURL(d, at+".address", l.Address)
	pair(d, field{at + ".usernameFile", l.UsernameFile != ""}, field{at + ".passwordFile", l.PasswordFile != ""})
	l.UsernameFile, l.PasswordFile = r.path(at+".usernameFile", l.UsernameFile), r.path(at+".passwordFile", l.PasswordFile)
}

func checkProviderURL(d *strict.Document, at, address string) {
	required(d, at, address)
	if address != "" && analysis.CheckURL(address) != nil {
		d.Problemf(at, "expected a URL such as https://prometheus.example.com, found %q", address)
	}
}

func (p *Datadog) complete(d *strict.Document, r resolver, at string) {
	exactlyOne(d, field{at + ".apiKeyFile", p.APIKeyFile != ""}, field{at + ".apiKeyData", !p.APIKeyData.IsEmpty()})
	exactlyOne(d, field{at + ".applicationKeyFile", p.ApplicationKeyFile != ""},
		field{at + ".applicationKeyData", !p.ApplicationKeyData.IsEmpty()})
	p.APIKeyFile, p.ApplicationKeyFile = r.path(at+".apiKeyFile", p.APIKeyFile), r.path(at+".applicationKeyFile", p.ApplicationKeyFile)
	p.APIKeyData = base64Secret(d, at+".apiKeyData", p.APIKeyData)
	p.ApplicationKeyData = base64Secret(d, at+".applicationKeyData", p.ApplicationKeyData)
}

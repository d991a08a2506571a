package config

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/c785c783/piped/piped/config/kubernetes"
	"github.com/c785c783/piped/piped/config/strict"
	"github.com/c785c783/piped/piped/deploy"
)

// PlatformProvider is one place to deploy to.
type PlatformProvider struct {
	Name       string
	Type       string // KUBERNETES
	Labels     map[string]string
	Kubernetes kubernetes.Provider
}

// ProviderKubernetes is the type of Kubernetes providers.
const ProviderKubernetes = "KUBERNETES"

// providerSpec is a platform provider as it is written.
type providerSpec struct {
	// Name is the unique name by which applications select the provider (`platformProvider`).
	// Required.
	Name string `yaml:"name"`
	// Type must be `KUBERNETES`. The agent drops providers of PipeCD's other types with a warning.
	// Required.
	Type providerType `yaml:"type"`
	// Labels are shown by the API.
	Labels map[string]string `yaml:"labels"`
	// Config depends on `type`.
	//
	// A *kubernetes.Provider, or nil for other types.
	Config any `yaml:"config"`
}

// providerType is what a platform provider is of in PipeCD.
type providerType string

func (providerType) Values() []string {
	return []string{ProviderKubernetes, "TERRAFORM", "LAMBDA", "CLOUDRUN", "ECS"}
}

// Variants implements schema.Varied.
func (p *providerSpec) Variants() (by string, of map[string]any) {
	return "type", map[string]any{ProviderKubernetes: &kubernetes.Provider{}}
}

// Variant implements strict.Variant.
func (p *providerSpec) Variant() any {
	_, of := p.Variants()
	return of[string(p.Type)]
}

// Provider returns which of an agent's platform providers the application is
// deployed to: the one it names, else the only one there is. The error, of kind
// deploy.Invalid, says what to change.
func (g *Generic) Provider(configured []string) (string, error) {
	return g.ProviderOf(deploy.Application{}, configured)
}

// ProviderOf is Provider for an application that is known. Where the configuration
// names no provider, the one it was registered with counts, and after that the one that
// it has been assigned to: another provider in the agent's configuration moves nothing.
func (g *Generic) ProviderOf(known deploy.Application, configured []string) (string, error) {
	wanted := cmp.Or(g.PlatformProvider, known.Registration.Provider)
	there := strings.Join(slices.Sorted(slices.Values(configured)), ", ")
	switch {
	case wanted != "" && slices.Contains(configured, wanted):
		return wanted, nil
	case len(configured) == 0:
		return "", deploy.Errorf(deploy.Invalid, "spec.platformProvider: the agent has no platform provider: add one to spec.platformProviders of its configuration")
	case g.PlatformProvider != "":
		return "", deploy.Errorf(deploy.Invalid, "spec.platformProvider: no platform provider %q is configured; there are: %s", wanted, there)
	case wanted != "":
		return "", deploy.Errorf(deploy.Invalid, "the application was registered with the platform provider %q, and none of that name is configured; there are: %s: "+
			"name one of them in spec.platformProvider, or update the application", wanted, there)
	case known.Provider != "" && slices.Contains(configured, known.Provider):
		return known.Provider, nil
	case len(configured) == 1:
		return configured[0], nil
	}
	return "", deploy.Errorf(deploy.Invalid, "spec.platformProvider is missing, and the agent has several to choose from: %s", there)
}

func (s *pipedSpec) providers(d *strict.Document, r resolver) []PlatformProvider {
	var out []PlatformProvider
	seen := names{d: d}
	add := func(list string, specs []providerSpec) {
		for i, p := range specs {
			at := fmt.Sprintf("%s[%d]", list, i)
			seen.add(at, "name", p.Name)
			if provider, ok := p.complete(at, d, r); ok {
				out = append(out, provider)
			}
		}
	}
	add("platformProviders", s.Providers)
	add("cloudProviders", s.CloudProviders)
	for i, plugin := range s.Plugins {
		add(fmt.Sprintf("plugins[%d].deployTargets", i), plugin.targets)
	}
	return out
}

// providerNames returns the names of all providers that are written, of whatever
// type.
func (s *pipedSpec) providerNames() []string {
	var out []string
	all := slices.Concat(s.Providers, s.CloudProviders)
	for _, plugin := range s.Plugins {
		all = append(all, plugin.targets...)
	}
	for _, p := range all {
		out = append(out, p.Name)
	}
	return out
}

// complete reads the provider's config by its type. Not ok means that this
// version deploys to no such platform; a warning has been noted.
func (p providerSpec) complete(at string, d *strict.Document, r resolver) (PlatformProvider, bool) {
	switch p.Type {
	case ProviderKubernetes:
	case "":
		d.Problemf(at+".type", "required; expected %s", ProviderKubernetes)
		return PlatformProvider{}, false
	default:
		d.Warnf(at+".type", "%s is not used by this version; the provider is ignored", p.Type)
		return PlatformProvider{}, false
	}
	out := PlatformProvider{Name: p.Name, Type: string(p.Type), Labels: p.Labels}
	if config, ok := p.Config.(*kubernetes.Provider); ok {
		config.Complete(d, at+".config")
		config.KubeConfigPath = r.path(at+".config.kubeConfigPath", config.KubeConfigPath)
		out.Kubernetes = *config
	}
	return out, true
}

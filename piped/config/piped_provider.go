package config

import (
	"cmp"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/c785c783/piped/piped/config/strict"
	"github.com/c785c783/piped/piped/deploy"
)

// PlatformProvider is one place to deploy to.
type PlatformProvider struct {
	Name   string
	Type   string // the name of its kind, such as KUBERNETES
	Labels map[string]string
	Config ProviderConfig // as Kind.Provider returns it
}

// providerSpec is a platform provider as it is written.
type providerSpec struct {
	// Name is the unique name by which applications select the provider (`platformProvider`).
	// Required.
	Name string `yaml:"name"`
	// Type is `KUBERNETES`, `OPENTOFU` or `TERRAFORM`. The agent drops providers of PipeCD's other
	// types with a warning.
	// Required.
	Type providerType `yaml:"type"`
	// Labels are shown by the API.
	Labels map[string]string `yaml:"labels"`
	// Config depends on `type`.
	//
	// A ProviderConfig, or nil for types that are not deployed to.
	Config any `yaml:"config"`
}

// providerType is the type of a platform provider.
type providerType string

// Values lists PipeCD's types; Kinds may add others.
func (providerType) Values() []string {
	return []string{deploy.KindKubernetes, "TERRAFORM", "LAMBDA", "CLOUDRUN", "ECS"}
}

// Choice implements strict.Choice: the type decides what config is read into.
func (p *providerSpec) Choice() (key, value string) { return "type", string(p.Type) }

// providerConfigs returns what the config of a platform provider is read into, by type.
func (ks Kinds) providerConfigs() map[string]any {
	out := map[string]any{}
	for _, k := range ks {
		out[k.Name] = k.Provider()
	}
	return out
}

// providerTypes returns the types of platform providers that PipeCD does not have.
func (ks Kinds) providerTypes() map[reflect.Type][]string {
	own := slices.DeleteFunc(ks.Names(), func(name string) bool { return slices.Contains(providerType("").Values(), name) })
	return map[reflect.Type][]string{reflect.TypeFor[providerType](): own}
}

// ignoredOfProviders returns the keys of the config of providers, which is below parent,
// that are known but not read.
func (ks Kinds) ignoredOfProviders(parent string) map[string]string {
	out := map[string]string{}
	for _, k := range ks {
		maps.Copy(out, k.ignoredOfProvider(parent))
	}
	return out
}

func (k Kind) ignoredOfProvider(parent string) map[string]string {
	out := map[string]string{}
	for key, why := range k.IgnoredOfProvider {
		out[parent+"."+key] = why
	}
	return out
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

func (s *pipedSpec) providers(d *strict.Document, r resolver, kinds Kinds) []PlatformProvider {
	var out []PlatformProvider
	seen := names{d: d}
	add := func(list string, specs []providerSpec) {
		for i, p := range specs {
			at := fmt.Sprintf("%s[%d]", list, i)
			seen.add(at, "name", p.Name)
			if provider, ok := p.complete(at, d, r, kinds); ok {
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
func (p providerSpec) complete(at string, d *strict.Document, r resolver, kinds Kinds) (PlatformProvider, bool) {
	kind, ok := kinds.find(func(k Kind) bool { return k.Name == string(p.Type) })
	switch {
	case p.Type == "":
		d.Problemf(at+".type", "required; expected %s", strict.Alternatives(kinds.Names()))
		return PlatformProvider{}, false
	case !ok:
		d.Warnf(at+".type", "%s is not used by this version; the provider is ignored", p.Type)
		return PlatformProvider{}, false
	}
	config, ok := p.Config.(ProviderConfig)
	if !ok { // not written
		config = kind.Provider()
	}
	config.Complete(d, at+".config", r.path)
	return PlatformProvider{Name: p.Name, Type: kind.Name, Labels: p.Labels, Config: config}, true
}

package kubernetes

import (
	"fmt"

	"github.com/c785c783/piped/piped/config/strict"
)

// Provider is the config of a platform provider of type KUBERNETES. Without a
// kubeconfig the agent uses the cluster it runs in.
type Provider struct {
	MasterURL      string `yaml:"masterURL"`
	KubeConfigPath string `yaml:"kubeConfigPath"`
	// AppStateInformer is accepted for PipeCD's sake: what is watched follows
	// from what applications declare.
	AppStateInformer AppStateInformer `yaml:"appStateInformer"`
}

// AppStateInformer says which objects PipeCD watches.
type AppStateInformer struct {
	Namespace        string            `yaml:"namespace"` // "" is every namespace
	IncludeResources []ResourceMatcher `yaml:"includeResources"`
	ExcludeResources []ResourceMatcher `yaml:"excludeResources"`
}

// ResourceMatcher matches objects by their type. An empty Kind matches every one
// of the API version.
type ResourceMatcher struct {
	APIVersion string `yaml:"apiVersion"`
	Kind       string `yaml:"kind"`
}

// Complete reports to d every value that makes no sense, and what has no effect.
// field is the path of the provider's config.
func (p Provider) Complete(d *strict.Document, field string) {
	informer := field + ".appStateInformer"
	if !d.Has(informer) {
		return
	}
	d.Warnf(informer, "not used by this version")
	lists := map[string][]ResourceMatcher{"includeResources": p.AppStateInformer.IncludeResources, "excludeResources": p.AppStateInformer.ExcludeResources}
	for list, matchers := range lists {
		for i, m := range matchers {
			if m.APIVersion == "" {
				d.Problemf(fmt.Sprintf("%s.%s[%d].apiVersion", informer, list, i), "required")
			}
		}
	}
}

// ProviderRules returns the keys of a provider's config that are known but not
// read, by their path below parent.
func ProviderRules(parent string) strict.Rules {
	return strict.Rules{Ignored: map[string]string{
		parent + ".kubectlVersion": "has no meaning here, no kubectl is run; ignored",
	}}
}

package kubernetes

import (
	"fmt"

	"github.com/c785c783/piped/piped/config/strict"
)

// Provider is the config of a platform provider of type KUBERNETES. Without a
// kubeconfig the agent uses the cluster it runs in.
type Provider struct {
	// MasterURL replaces the address of the kubeconfig.
	MasterURL string `yaml:"masterURL"`
	// KubeConfigPath is the kubeconfig of the cluster. Without it and `masterURL` the provider is
	// the cluster that the agent runs in, as the service account of its pod.
	// Default: the pod's own cluster. Type: path.
	KubeConfigPath string `yaml:"kubeConfigPath"`
	// Context is the context of the kubeconfig.
	// Default: its current context. Not in PipeCD.
	Context string `yaml:"context"`
	// AppStateInformer is checked and has no effect in this version.
	AppStateInformer AppStateInformer `yaml:"appStateInformer"`
}

// AppStateInformer says which objects PipeCD watches.
type AppStateInformer struct {
	// Namespace is the namespace that PipeCD watches.
	// Default: all.
	Namespace string `yaml:"namespace"`
	// IncludeResources are kinds that PipeCD watches in addition.
	IncludeResources []ResourceMatcher `yaml:"includeResources"`
	// ExcludeResources are kinds that PipeCD does not watch.
	ExcludeResources []ResourceMatcher `yaml:"excludeResources"`
}

// ResourceMatcher matches objects by their type. An empty Kind matches every one
// of the API version.
type ResourceMatcher struct {
	// APIVersion is the API version of the kind.
	// Required.
	APIVersion string `yaml:"apiVersion"`
	// Kind is the kind.
	// Default: every kind.
	Kind string `yaml:"kind"`
}

// Complete reports to d every value that makes no sense or has no effect, and resolves
// relative paths. field is the path of the provider's config.
func (p *Provider) Complete(d *strict.Document, field string, resolve func(field, path string) string) {
	p.KubeConfigPath = resolve(field+".kubeConfigPath", p.KubeConfigPath)
	if p.Context != "" && p.KubeConfigPath == "" {
		d.Problemf(field+".context", "names a context of a kubeconfig, but kubeConfigPath is not set")
	}
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

// Files returns the files that the config names.
func (p *Provider) Files() []string { return []string{p.KubeConfigPath} }

// IgnoredOfProvider returns the keys of a provider's config that are known but not read.
func IgnoredOfProvider() map[string]string {
	return map[string]string{"kubectlVersion": "has no meaning here, no kubectl is run; ignored"}
}

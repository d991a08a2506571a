package kubernetes

import (
	"fmt"
	"regexp"

	"k8s.io/apimachinery/pkg/labels"

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
	// Rollouts says which rollouts and scalings of others are recorded.
	// Not in PipeCD.
	Rollouts Rollouts `yaml:"rollouts"`
	// AppStateInformer is checked and has no effect in this version.
	AppStateInformer AppStateInformer `yaml:"appStateInformer"`
}

// Rollouts says which rollouts that the agent did not begin are recorded.
type Rollouts struct {
	// Watch is `applications` for the workloads of applications, or `all` for every Deployment,
	// StatefulSet and DaemonSet of the cluster.
	// Default: `applications`.
	Watch RolloutWatch `yaml:"watch"`
	// Namespaces are names of namespaces, or patterns with `*`, whose workloads are recorded, of `all`.
	// Default: every namespace.
	Namespaces []string `yaml:"namespaces"`
	// ExcludeNamespaces are names of namespaces, or patterns with `*`, whose workloads are not recorded, of `all`.
	// Default: none.
	ExcludeNamespaces []string `yaml:"excludeNamespaces"`
	// LabelSelector selects workloads by their labels as kubectl does, such as `team in (a, b)`, of `all`.
	// Default: every workload.
	LabelSelector string `yaml:"labelSelector"`
}

// RolloutWatch says of which workloads rollouts are recorded.
type RolloutWatch string

// The workloads whose rollouts are recorded.
const (
	WatchApplications RolloutWatch = "applications"
	WatchAll          RolloutWatch = "all"
)

// Values implements strict.Enum.
func (RolloutWatch) Values() []string { return []string{string(WatchApplications), string(WatchAll)} }

// All reports whether the rollouts of all workloads are recorded.
func (r Rollouts) All() bool { return r.Watch == WatchAll }

// complete reports to d every value that makes no sense.
func (r Rollouts) complete(d *strict.Document, field string) {
	for list, names := range map[string][]string{"namespaces": r.Namespaces, "excludeNamespaces": r.ExcludeNamespaces} {
		for i, name := range names {
			if !namespacePattern.MatchString(name) {
				d.Problemf(fmt.Sprintf("%s.%s[%d]", field, list, i), "expected the name of a namespace, or a pattern such as team-a-*, found %q", name)
			}
		}
	}
	if _, err := labels.Parse(r.LabelSelector); err != nil {
		d.Problemf(field+".labelSelector", "expected a selector such as app=web,team in (a, b): %v", err)
	}
	for _, key := range []string{"namespaces", "excludeNamespaces", "labelSelector"} {
		if !r.All() && d.Has(field+"."+key) {
			d.Problemf(field+"."+key, "has no meaning without watch: all")
		}
	}
}

// namespacePattern matches the name of a namespace and patterns with *.
var namespacePattern = regexp.MustCompile(`^[a-z0-9*]([a-z0-9*-]{0,61}[a-z0-9*])?$`)

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
	p.Rollouts.complete(d, field+".rollouts")
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

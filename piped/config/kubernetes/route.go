package kubernetes

import "github.com/c785c783/piped/piped/config/strict"

// ResourceRoute says into which clusters objects go.
type ResourceRoute struct {
	// Provider is a platform provider by name, or all with the labels.
	Provider RouteProvider `yaml:"provider"`
	// Match is the objects of the route.
	// Default: every object.
	Match Reference `yaml:"match"`
}

// RouteProvider names a platform provider, or all those that have the labels.
type RouteProvider struct {
	// Name is the name of the provider.
	Name string `yaml:"name"`
	// Labels are labels of the providers.
	Labels map[string]string `yaml:"labels"`
}

func (r ResourceRoute) complete(d *strict.Document, at string) {
	if (r.Provider.Name == "") == (len(r.Provider.Labels) == 0) {
		d.Problemf(at+".provider", "expected either the name of a platform provider or labels")
	}
}

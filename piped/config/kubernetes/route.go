package kubernetes

import "github.com/c785c783/piped/piped/config/strict"

// ResourceRoute says into which clusters objects go.
type ResourceRoute struct {
	Provider RouteProvider `yaml:"provider"`
	Match    Reference     `yaml:"match"` // empty is every object
}

// RouteProvider names a platform provider, or all those that have the labels.
type RouteProvider struct {
	Name   string            `yaml:"name"`
	Labels map[string]string `yaml:"labels"`
}

func (r ResourceRoute) complete(d *strict.Document, at string) {
	if (r.Provider.Name == "") == (len(r.Provider.Labels) == 0) {
		d.Problemf(at+".provider", "expected either the name of a platform provider or labels")
	}
}

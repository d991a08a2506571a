package main

import (
	"cmp"

	"sigs.k8s.io/kustomize/kyaml/openapi"
	"sigs.k8s.io/kustomize/kyaml/yaml"

	"github.com/c785c783/piped/piped/config"
	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/manifest"
	"github.com/c785c783/piped/piped/source"
)

// tenancy says what the tenancy rules of the agents that are known forbid an
// application. Which repository its files are of cannot be told here: it is checked
// as one of each that the agents watch, and what one of them permits is in order.
func (c *checker) tenancy(at deploy.GitPath, src *source.Source) (refused []error) {
	for _, agent := range c.agents {
		repositories := agent.Repositories
		if len(repositories) == 0 {
			repositories = []config.Repository{{}}
		}
		for _, r := range repositories {
			at.RepoID = r.RepoID
			here := refusals(agent, at, src)
			if len(here) == 0 {
				return nil
			}
			if refused == nil {
				refused = here
			}
		}
	}
	return refused
}

// refusals says what an agent's rules forbid an application at a place.
func refusals(agent *config.Piped, at deploy.GitPath, src *source.Source) (out []error) {
	tenant := agent.Tenancy.Of(at)
	refuse := func(err error) {
		if err != nil {
			out = append(out, err)
		}
	}
	var providers []string
	for _, p := range agent.Providers {
		providers = append(providers, p.Name)
	}
	if provider, err := src.Config.Provider(providers); err == nil { // else it is said already
		refuse(tenant.CheckProvider(provider))
	}
	if src.Config.Pipeline != nil {
		for _, s := range src.Config.Pipeline.Stages {
			if s.Name == deploy.StageScriptRun || s.Name == deploy.StageCustomSync {
				refuse(tenant.CheckScripts(s.ID))
			}
		}
	}
	refuse(tenant.CheckObjects(forbiddable(tenant, src)))
	return out
}

// forbiddable returns the objects of an application as rules look at them. Whether
// kinds have a namespace is known of Kubernetes' own: one of another kind is left out
// unless it is forbidden with a namespace and without.
func forbiddable(tenant config.Tenant, src *source.Source) (out []config.TenantObject) {
	for _, o := range src.Objects {
		inside := config.TenantObject{Ref: manifest.Ref(o.Unstructured), Origin: o.Origin.String()}
		outside := inside
		outside.Ref.Namespace = ""
		inside.Ref.Namespace = cmp.Or(src.Config.Kubernetes.Input.Namespace, inside.Ref.Namespace, "default")
		namespaced, known := openapi.IsNamespaceScoped(yaml.TypeMeta{APIVersion: o.GetAPIVersion(), Kind: o.GetKind()})
		switch {
		case known && !namespaced:
			out = append(out, outside)
		case known, tenant.Forbids(outside) != "":
			out = append(out, inside)
		}
	}
	return out
}

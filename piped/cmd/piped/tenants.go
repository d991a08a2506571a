package main

import (
	"cmp"

	"sigs.k8s.io/kustomize/kyaml/openapi"
	"sigs.k8s.io/kustomize/kyaml/yaml"

	"github.com/c785c783/piped/piped/config"
	"github.com/c785c783/piped/piped/config/kubernetes"
	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/manifest"
	"github.com/c785c783/piped/piped/source"
)

// tenancy returns the violations of the known agents' tenancy rules by an application.
// The repository of the files is unknown here: the application is valid if the rules
// permit it in any of the watched repositories.
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

// refusals returns the violations of an agent's rules by an application at a Git path.
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
	if provider, err := src.Config.Provider(providers); err == nil { // otherwise reported already
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

// forbiddable returns the objects of an application as input of the rules. Whether
// custom resources are namespaced is unknown: one is omitted unless it is forbidden
// both with and without namespace.
func forbiddable(tenant config.Tenant, src *source.Source) (out []config.TenantObject) {
	for _, o := range src.Objects {
		inside := config.TenantObject{Ref: manifest.Ref(o.Unstructured), Origin: o.Origin.String()}
		outside := inside
		outside.Ref.Namespace = ""
		inside.Ref.Namespace = cmp.Or(namespaceOf(src.Config), inside.Ref.Namespace, "default")
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

// namespaceOf returns the namespace of every object of an application, "" for those that
// the objects name.
func namespaceOf(app *config.Application) string {
	if spec, ok := app.Platform.(*kubernetes.Spec); ok {
		return spec.Input.Namespace
	}
	return ""
}

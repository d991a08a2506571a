package main

import (
	"cmp"
	"fmt"

	"sigs.k8s.io/kustomize/kyaml/openapi"
	"sigs.k8s.io/kustomize/kyaml/yaml"

	"github.com/c785c783/piped/piped/config"
	"github.com/c785c783/piped/piped/config/kubernetes"
	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/manifest"
	"github.com/c785c783/piped/piped/source"
)

// declaration is the origin of an object: its application and provider.
type declaration struct{ application, provider string }

// declared finds objects that several applications of the same tree declare. On one
// platform provider that is a problem, as the agent rejects the second application
// without takeOver; with possibly different providers it is a warning. Whether kinds of
// custom resources are namespaced is unknown: their declared namespace counts.
func (c *checker) declared(t tree, name string, src *source.Source) (problems, warnings []string) {
	spec, ok := src.Config.Platform.(*kubernetes.Spec)
	if !ok || spec.TakeOver {
		return nil, nil
	}
	if c.declarations == nil {
		c.declarations = map[deploy.ObjectRef][]declaration{}
	}
	for _, o := range src.Objects {
		here := declaration{application: name, provider: c.providerOf(src.Config)}
		ref := manifest.Ref(o.Unstructured)
		ref.Version = "" // versions do not distinguish objects
		namespaced, known := openapi.IsNamespaceScoped(yaml.TypeMeta{APIVersion: o.GetAPIVersion(), Kind: o.GetKind()})
		switch {
		case known && !namespaced:
			ref.Namespace = ""
		case known:
			ref.Namespace = cmp.Or(spec.Input.Namespace, ref.Namespace, "default")
		}
		for _, other := range c.declarations[ref] {
			certain := here.provider != "" && other.provider == here.provider
			if !certain && here.provider != "" && other.provider != "" {
				continue
			}
			line := fmt.Sprintf("%s: %s is declared by the application of %s, too: keep it in one of them", o.Origin, ref, t.show(other.application))
			if certain {
				problems = append(problems, line)
			} else {
				warnings = append(warnings, line+", or deploy them to different platform providers")
			}
			break
		}
		c.declarations[ref] = append(c.declarations[ref], here)
	}
	return problems, warnings
}

// providerOf returns the platform provider of an application: the one it names, else
// the only one of the known agents; "" if unknown.
func (c *checker) providerOf(app *config.Application) string {
	var all []string
	for _, agent := range c.agents {
		for _, p := range agent.Providers {
			all = append(all, p.Name)
		}
	}
	if app.PlatformProvider == "" && len(all) == 1 {
		return all[0]
	}
	return app.PlatformProvider
}

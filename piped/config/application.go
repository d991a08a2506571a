package config

import (
	"fmt"
	"strings"

	"gopkg.in/yaml.v3"

	"github.com/c785c783/piped/piped/config/kubernetes"
	"github.com/c785c783/piped/piped/config/strict"
	"github.com/c785c783/piped/piped/deploy"
)

// APIVersion is the apiVersion of every file this package reads.
const APIVersion = "pipecd.dev/v1beta1"

// The kinds of application configuration this version deploys. The second form
// is PipeCD's newer one, with the platform's fields below spec.plugins.
const (
	KindKubernetesApp = "KubernetesApp"
	KindApplication   = "Application"
)

// Application is one app.pipecd.yaml, complete and valid.
type Application struct {
	Generic    `yaml:",inline"`
	Kubernetes kubernetes.Spec `yaml:",inline"`

	// Warnings name what is accepted but has no effect, one line each.
	Warnings []string `yaml:"-"`
	// Unread name what of the file is not read, one line each: unknown keys above all.
	Unread []string `yaml:"-"`
}

// UnsupportedKind is the error for an application configuration of a kind that
// this version cannot deploy.
type UnsupportedKind struct {
	File string
	Line int
	Kind string
}

// Error names the kind and what was expected.
func (e *UnsupportedKind) Error() string {
	return fmt.Sprintf("%s:%d: kind: %q is not supported by this version of piped; expected %s", e.File, e.Line, e.Kind, KindKubernetesApp)
}

// IsApplicationConfig reports whether a file's base name is that of an
// application configuration: app.pipecd.yaml, *.pipecd.yaml, or PipeCD's oldest one.
func IsApplicationConfig(base string) bool {
	return strings.HasSuffix(base, ".pipecd.yaml") || base == OldestName
}

// The names of an application's configuration that PipeCD gives it now and gave it at
// first.
const (
	DefaultName = "app.pipecd.yaml"
	OldestName  = ".pipe.yaml"
)

// ParseApplication reads an application's configuration; name stands for the
// file in errors. Errors are of kind deploy.Invalid and name every problem of
// the file, one a line; errors.As finds an *UnsupportedKind.
func ParseApplication(name string, data []byte) (*Application, error) {
	app, err := parseApplication(name, data)
	if err != nil {
		return nil, &deploy.Error{Kind: deploy.Invalid, Err: err}
	}
	return app, nil
}

func parseApplication(name string, data []byte) (*Application, error) {
	app, d, err := readApplication(name, data)
	if err != nil {
		return nil, err
	}
	refuseUnsupported(d)
	return app, d.Err()
}

// readApplication reads all that the language has, whether or not this version
// can honour it. What is wrong with the values is in the document.
func readApplication(name string, data []byte) (*Application, *strict.Document, error) {
	d, err := strict.Parse(name, data, APIVersion)
	if err != nil {
		return nil, nil, err
	}
	if d.Kind != KindKubernetesApp && d.Kind != KindApplication {
		if err := checkKind(name, d.KindLine, d.Kind, applicationKinds()...); err != nil {
			return nil, nil, err
		}
		return nil, nil, &UnsupportedKind{File: name, Line: d.KindLine, Kind: d.Kind}
	}
	app := &Application{Generic: defaultGeneric(), Kubernetes: kubernetes.DefaultSpec()}
	if err := app.decode(d); err != nil {
		return nil, nil, err
	}
	app.complete(d)
	app.Kubernetes.Complete(d, app.kubernetesStages())
	app.checkRollback(d)
	app.Warnings, app.Unread = d.Warnings(), d.Unread()
	return app, d, nil
}

// kubernetesStages returns the stages of the pipeline as config/kubernetes looks
// at them.
func (a *Application) kubernetesStages() []kubernetes.Stage {
	if a.Pipeline == nil {
		return nil
	}
	stages := make([]kubernetes.Stage, len(a.Pipeline.Stages))
	for i, s := range a.Pipeline.Stages {
		stages[i] = kubernetes.Stage{At: stageAt(i), Name: s.Name, Options: s.With}
		if o, ok := s.With.(*TrafficRoutingOptions); ok {
			stages[i].Options = &o.TrafficRoutingOptions
		}
	}
	return stages
}

// decode reads spec, and spec.plugins.kubernetes over it: a key below the plugin
// replaces the same key of spec as a whole.
func (a *Application) decode(d *strict.Document) error {
	plugins, err := takePlugins(d)
	if err != nil {
		return err
	}
	rules := kubernetes.Rules()
	plugin := plugins.kubernetes
	for i := 0; plugin != nil && plugin.Kind == yaml.MappingNode && i < len(plugin.Content); i += 2 {
		take(d.Spec, plugin.Content[i].Value)
	}
	d.Decode(d.Spec, strict.Field{Base: "spec"}, a, rules)
	if plugin != nil {
		d.Decode(plugin, strict.Field{Base: "spec.plugins.kubernetes"}, a, rules)
	}
	plugins.fill(a.Pipeline)
	return nil
}

// take removes a key, whatever its case, from a mapping and returns its value, nil
// when absent.
func take(mapping *yaml.Node, key string) *yaml.Node {
	if mapping.Kind != yaml.MappingNode {
		return nil
	}
	for i := 0; i+1 < len(mapping.Content); i += 2 {
		if strings.EqualFold(mapping.Content[i].Value, key) {
			value := mapping.Content[i+1]
			mapping.Content = append(mapping.Content[:i:i], mapping.Content[i+2:]...)
			return value
		}
	}
	return nil
}

func (a *Application) checkRollback(d *strict.Document) {
	p, in := a.Planner.AutoRollback, a.Kubernetes.Input.AutoRollback
	if p != nil && in != nil && *p != *in {
		d.Problemf("planner.autoRollback", "is %t, but input.autoRollback is %t; keep one of them", *p, *in)
	}
}

// AutoRollback reports whether a failed deployment is rolled back: what
// planner.autoRollback or input.autoRollback says, true when neither is written.
func (a *Application) AutoRollback() bool {
	for _, written := range []*bool{a.Planner.AutoRollback, a.Kubernetes.Input.AutoRollback} {
		if written != nil {
			return *written
		}
	}
	return true
}

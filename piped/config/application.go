package config

import (
	"fmt"
	"strings"

	"gopkg.in/yaml.v3"

	"github.com/c785c783/piped/piped/config/platform"
	"github.com/c785c783/piped/piped/config/strict"
	"github.com/c785c783/piped/piped/deploy"
)

// APIVersion is the apiVersion of every file this package reads.
const APIVersion = "pipecd.dev/v1beta1"

// Application is one app.pipecd.yaml, complete and valid.
type Application struct {
	Generic `yaml:",inline"`
	// Kind is the name of its kind, such as KUBERNETES.
	Kind string `yaml:"-"`
	// Platform is what only applications of its kind have, as Kind.Spec returns it.
	Platform Spec `yaml:",inline"`

	// Warnings name what is accepted but has no effect, one line each.
	Warnings []string `yaml:"-"`
	// Unread name what of the file is not read, one line each: unknown keys above all.
	Unread []string `yaml:"-"`
}

// UnsupportedKind is the error for an application configuration of a kind that
// this version cannot deploy.
type UnsupportedKind struct {
	File     string
	Line     int
	Kind     string
	Expected []string // kinds that it can deploy
}

// Error names the kind and what was expected.
func (e *UnsupportedKind) Error() string {
	return fmt.Sprintf("%s:%d: kind: %q is not supported by this version of piped; expected %s", e.File, e.Line, e.Kind, strict.Alternatives(e.Expected))
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

// ParseApplication reads the configuration of an application of one of the kinds; name
// stands for the file in errors. Errors are of kind deploy.Invalid and name every problem
// of the file, one a line; errors.As finds an *UnsupportedKind.
func (ks Kinds) ParseApplication(name string, data []byte) (*Application, error) {
	app, err := ks.parseApplication(name, data)
	if err != nil {
		return nil, &deploy.Error{Kind: deploy.Invalid, Err: err}
	}
	return app, nil
}

func (ks Kinds) parseApplication(name string, data []byte) (*Application, error) {
	app, d, err := ks.readApplication(name, data)
	if err != nil {
		return nil, err
	}
	kind, _ := ks.Find(app.Kind)
	refuseUnsupported(d, kind.Refused)
	return app, d.Err()
}

// readApplication reads all that the language has, whether or not this version
// can honour it. What is wrong with the values is in the document.
func (ks Kinds) readApplication(name string, data []byte) (*Application, *strict.Document, error) {
	d, err := strict.Parse(name, data, APIVersion)
	if err != nil {
		return nil, nil, err
	}
	plugins, err := ks.takePlugins(d)
	if err != nil {
		return nil, nil, err
	}
	app := plugins.kind.defaults()
	app.decode(d, plugins)
	app.complete(d, plugins.kind, ks)
	app.Platform.Complete(d, app.platformStages())
	app.checkRollback(d)
	app.Warnings, app.Unread = d.Warnings(), d.Unread()
	return app, d, nil
}

// kindOf returns the kind that a file names, before its plugins are read: of kind
// Application the first one.
func (ks Kinds) kindOf(d *strict.Document) (Kind, error) {
	if d.Kind == KindApplication {
		return ks[0], nil
	}
	if kind, ok := ks.find(func(k Kind) bool { return k.File == d.Kind }); ok {
		return kind, nil
	}
	known := append(ks.files(), KindApplication)
	if err := checkKind(d.File, d.KindLine, d.Kind, append(known, ks.otherFiles()...)...); err != nil {
		return Kind{}, err
	}
	return Kind{}, &UnsupportedKind{File: d.File, Line: d.KindLine, Kind: d.Kind, Expected: ks.files()}
}

// platformStages returns the stages of the pipeline as Spec.Complete expects them.
func (a *Application) platformStages() []platform.Stage {
	if a.Pipeline == nil {
		return nil
	}
	stages := make([]platform.Stage, len(a.Pipeline.Stages))
	for i, s := range a.Pipeline.Stages {
		stages[i] = platform.Stage{At: stageAt(i), Name: s.Name, Options: s.With}
		if o, ok := s.With.(*TrafficRoutingOptions); ok {
			stages[i].Options = &o.TrafficRoutingOptions
		}
	}
	return stages
}

// decode reads spec, and the plugin of the platform over it: a key below the plugin
// replaces the same key of spec as a whole.
func (a *Application) decode(d *strict.Document, plugins plugins) {
	rules, plugin := plugins.kind.rules(), plugins.platform
	for i := 0; plugin != nil && plugin.Kind == yaml.MappingNode && i < len(plugin.Content); i += 2 {
		take(d.Spec, plugin.Content[i].Value)
	}
	d.Decode(d.Spec, strict.Field{Base: "spec"}, a, rules)
	if plugin != nil {
		d.Decode(plugin, strict.Field{Base: "spec.plugins." + plugins.kind.Plugin}, a, rules)
	}
	plugins.fill(a.Pipeline)
}

// rules returns how the spec of an application of this kind is read.
func (k Kind) rules() strict.Rules {
	return strict.Rules{Ignored: k.Ignored, Choices: k.StageOptions}
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
	field, own := a.Platform.RollbackSwitch()
	if p := a.Planner.AutoRollback; p != nil && own != nil && *p != *own {
		d.Problemf("planner.autoRollback", "is %t, but %s is %t; keep one of them", *p, field, *own)
	}
}

// AutoRollback reports whether a failed deployment is rolled back: the value of
// planner.autoRollback or of the same field of the platform. When neither is written, it is the
// default of the platform, which is true for those that have none.
func (a *Application) AutoRollback() bool {
	_, own := a.Platform.RollbackSwitch()
	for _, written := range []*bool{a.Planner.AutoRollback, own} {
		if written != nil {
			return *written
		}
	}
	if p, ok := a.Platform.(interface{ DefaultAutoRollback() bool }); ok {
		return p.DefaultAutoRollback()
	}
	return true
}

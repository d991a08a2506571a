package config

import (
	"github.com/c785c783/piped/piped/config/kubernetes"
	"github.com/c785c783/piped/piped/config/schema"
	"github.com/c785c783/piped/piped/config/strict"
)

// ApplicationSchema returns the JSON Schema of application configurations, of
// kind KubernetesApp and of kind Application, as this version takes them.
func ApplicationSchema() schema.Schema {
	return applicationSchema(schema.Refused{Keys: unsupportedFields()})
}

func applicationSchema(without schema.Refused) schema.Schema {
	app := Application{Generic: defaultGeneric(), Kubernetes: kubernetes.DefaultSpec()}
	spec := schema.Object(&app, kubernetes.Rules(), without)
	spec["properties"].(schema.Schema)["plugins"] = pluginsSchema()
	return schema.Document("Application of piped", APIVersion, []string{KindKubernetesApp, KindApplication}, spec)
}

func pluginsSchema() schema.Schema {
	mapping := func(properties schema.Schema) schema.Schema {
		return schema.Schema{"type": []string{"object", "null"}, "properties": properties, "additionalProperties": false}
	}
	all := schema.Schema{}
	for _, name := range stagePlugins() {
		all[name] = mapping(schema.Schema{})
	}
	all[pluginAnalysis] = mapping(schema.Schema{
		"appCustomArgs": schema.Schema{"type": []string{"object", "null"}, "additionalProperties": schema.Schema{"type": []string{"string", "number", "boolean"}}},
	})
	all[pluginKubernetes] = schema.Schema{"$ref": "#/$defs/spec", "properties": schema.Schema{"plugins": false}}
	plugins := mapping(all)
	plugins["description"] = "the platform's fields, and those of plugins that bring stages"
	return plugins
}

// PipedSchema returns the JSON Schema of the agent's configuration.
func PipedSchema() schema.Schema {
	spec := defaultPipedSpec()
	return schema.Document("Configuration of piped", APIVersion, []string{KindPiped},
		schema.Object(&spec, pipedRules(), schema.Refused{}))
}

// ApplicationFields returns the keys of application configurations with the Go fields
// that describe them. The keys of plugins are not among them.
func ApplicationFields() []schema.Field {
	return schema.Fields(&Application{Generic: defaultGeneric(), Kubernetes: kubernetes.DefaultSpec()}, kubernetes.Rules())
}

// PipedFields returns the keys of the agent's configuration with the Go fields that
// describe them.
func PipedFields() []schema.Field {
	spec := defaultPipedSpec()
	return schema.Fields(&spec, pipedRules())
}

// Variants implements schema.Varied.
func (s *Stage) Variants() (by string, of map[string]any) { return "name", StageOptions() }

var _ interface { // the type both speak of
	schema.Varied
	strict.Variant
} = (*Stage)(nil)

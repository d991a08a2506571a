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
	spec["properties"].(schema.Schema)["plugins"] = schema.Schema{
		"description": "the platform's fields, with kind " + KindApplication,
		"properties": schema.Schema{"kubernetes": schema.Schema{
			"$ref": "#/$defs/spec", "properties": schema.Schema{"plugins": false},
		}},
	}
	file := schema.Document("Application of piped", APIVersion, []string{KindKubernetesApp, KindApplication}, spec)
	plugins := schema.Schema{"type": "object", "required": []string{"kubernetes"}, "propertyNames": schema.Schema{"const": "kubernetes"}}
	file["if"] = schema.Schema{"properties": schema.Schema{"kind": schema.Schema{"const": KindApplication}}}
	file["then"] = schema.Schema{"properties": schema.Schema{"spec": schema.Schema{
		"required": []string{"plugins"}, "properties": schema.Schema{"plugins": plugins},
	}}}
	return file
}

// PipedSchema returns the JSON Schema of the agent's configuration.
func PipedSchema() schema.Schema {
	spec := defaultPipedSpec()
	return schema.Document("Configuration of piped", APIVersion, []string{KindPiped},
		schema.Object(&spec, pipedRules(), schema.Refused{}))
}

// Variants implements schema.Varied.
func (s *Stage) Variants() (by string, of map[string]any) { return "name", StageOptions() }

var _ interface { // the type both speak of
	schema.Varied
	strict.Variant
} = (*Stage)(nil)

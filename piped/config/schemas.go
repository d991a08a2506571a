package config

import (
	"github.com/c785c783/piped/piped/config/schema"
)

// ApplicationSchema returns the JSON Schema of configurations of applications of the
// kind, also in the form of kind Application, as this version takes them.
func (k Kind) ApplicationSchema() schema.Schema {
	return k.applicationSchema(schema.Refused{Keys: k.Refused})
}

func (k Kind) applicationSchema(without schema.Refused) schema.Schema {
	spec := schema.Object(k.defaults(), k.rules(), without)
	spec["properties"].(schema.Schema)["plugins"] = k.pluginsSchema()
	return schema.Document("Application of piped", APIVersion, []string{k.File, KindApplication}, spec)
}

// defaults returns an application without a configuration.
func (k Kind) defaults() *Application {
	return &Application{Generic: defaultGeneric(), Kind: k.Name, Platform: k.Spec()}
}

func (k Kind) pluginsSchema() schema.Schema {
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
	all[k.Plugin] = schema.Schema{"$ref": "#/$defs/spec", "properties": schema.Schema{"plugins": false}}
	plugins := mapping(all)
	plugins["description"] = "the platform's fields, and those of plugins that bring stages"
	return plugins
}

// PipedSchema returns the JSON Schema of the agent's configuration.
func (ks Kinds) PipedSchema() schema.Schema {
	spec := defaultPipedSpec()
	return schema.Document("Configuration of piped", APIVersion, []string{KindPiped},
		schema.Object(&spec, ks.pipedRules(), schema.Refused{}))
}

// ApplicationFields returns the keys of application configurations of the kind with the
// Go fields that describe them. The keys of plugins are not among them.
func (k Kind) ApplicationFields() []schema.Field {
	return schema.Fields(k.defaults(), k.rules())
}

// PipedFields returns the keys of the agent's configuration with the Go fields that
// describe them.
func (ks Kinds) PipedFields() []schema.Field {
	spec := defaultPipedSpec()
	return schema.Fields(&spec, ks.pipedRules())
}

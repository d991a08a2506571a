package helm

import (
	"bytes"
	"context"
	"errors"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"helm.sh/helm/v4/pkg/chart/common"
	chart "helm.sh/helm/v4/pkg/chart/v2"

	"github.com/c785c783/piped/piped/deploy"
)

// checkSchemas validates the values of a chart and its dependencies by their
// values.schema.json. A schema may refer to http(s) URLs, but not to files, which would be
// files of the agent.
func (r *rendering) checkSchemas(ctx context.Context, c *chart.Chart, values map[string]any) error {
	var problems []error
	if len(c.Schema) > 0 {
		if err := r.checkSchema(ctx, c, values); err != nil {
			problems = append(problems, err)
		}
	}
	for _, d := range c.Dependencies() {
		var below map[string]any
		switch v := values[d.Name()].(type) {
		case common.Values:
			below = v
		case map[string]any:
			below = v
		default:
			continue
		}
		if err := r.checkSchemas(ctx, d, below); err != nil {
			problems = append(problems, err)
		}
	}
	return errors.Join(problems...)
}

func (r *rendering) checkSchema(ctx context.Context, c *chart.Chart, values map[string]any) error {
	name := c.ChartFullPath() + "/values.schema.json"
	const at = "chart:///values.schema.json"
	document, err := jsonschema.UnmarshalJSON(bytes.NewReader(c.Schema))
	if err != nil {
		return deploy.Errorf(deploy.Invalid, "%s: %w", name, err)
	}
	web := webSchemas{ctx, r}
	compiler := jsonschema.NewCompiler()
	compiler.UseLoader(jsonschema.SchemeURLLoader{"http": web, "https": web})
	boundSchema(compiler)
	if err := compiler.AddResource(at, document); err != nil {
		return deploy.Errorf(deploy.Invalid, "%s: %w", name, err)
	}
	schema, err := compiler.Compile(at)
	if err != nil {
		if deploy.IsKind(err, deploy.Unavailable) {
			return deploy.Errorf(deploy.Unavailable, "%s: %w", name, err)
		}
		return deploy.Errorf(deploy.Invalid, "%s: %w", name, err)
	}
	if err := validate(schema, values); err != nil {
		why := strings.TrimSpace(strings.TrimPrefix(err.Error(), "jsonschema validation failed with '"+at+"#'"))
		return deploy.Errorf(deploy.Invalid, "the values do not fit %s: %s", name, strings.ReplaceAll(shortened(why), "\n", ";"))
	}
	return nil
}

// maxWhy is the maximum length of a validation error in bytes.
const maxWhy = 4000

func shortened(text string) string {
	if len(text) > maxWhy {
		return strings.ToValidUTF8(text[:maxWhy], "") + "..."
	}
	return text
}

// maxSchemaSteps is the maximum number of steps of a validation. A step validates one value by
// one subschema. A small schema that refers to itself twice per level causes exponentially
// many steps.
const maxSchemaSteps = 100_000

// boundSchema makes schemas of the compiler count their steps. A step is counted after the
// subschema was evaluated, but not inside of a negation that fails.
func boundSchema(c *jsonschema.Compiler) {
	left := maxSchemaSteps
	c.RegisterVocabulary(&jsonschema.Vocabulary{
		URL: "urn:piped:steps",
		Compile: func(*jsonschema.CompilerContext, map[string]any) (jsonschema.SchemaExt, error) {
			return schemaStep{&left}, nil
		},
	})
	c.AssertVocabs()
}

// schemaStep counts the evaluations of a subschema.
type schemaStep struct{ left *int }

// Validate implements jsonschema.SchemaExt. It panics if no step is left, because the library
// cannot be canceled in another way.
func (s schemaStep) Validate(*jsonschema.ValidatorContext, any) {
	if *s.left--; *s.left < 0 {
		panic(s)
	}
}

// validate validates values by a schema within maxSchemaSteps.
func validate(schema *jsonschema.Schema, values map[string]any) (err error) {
	defer func() {
		switch cause := recover().(type) {
		case nil:
		case schemaStep:
			err = limitf("that takes more than %d steps; make the schema or the values smaller", maxSchemaSteps)
		default:
			panic(cause)
		}
	}()
	return schema.Validate(values)
}

// webSchemas downloads schemas that other schemas refer to.
type webSchemas struct {
	ctx context.Context
	r   *rendering
}

// Load implements jsonschema.URLLoader.
func (w webSchemas) Load(url string) (any, error) {
	if err := w.r.online(url); err != nil {
		return nil, err
	}
	data, err := w.r.remotes.client.get(w.ctx, url, access{}, maxValues)
	if err != nil {
		return nil, err
	}
	return jsonschema.UnmarshalJSON(bytes.NewReader(data))
}

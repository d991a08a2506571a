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

// checkSchemas checks the values of a chart and its dependencies against their
// values.schema.json. Such a schema may name others on the web, but no files:
// they would be the agent's.
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

// maxWhy bounds the bytes of the reported problems of values.
const maxWhy = 4000

func shortened(text string) string {
	if len(text) > maxWhy {
		return strings.ToValidUTF8(text[:maxWhy], "") + "..."
	}
	return text
}

// maxSchemaSteps bounds how often parts of a schema are held against parts of the
// values: those of a small one that refers to itself twice on each level are more
// than anyone can wait for.
const maxSchemaSteps = 100_000

// boundSchema makes what is compiled count its steps. A step is counted where a
// part was held against a value, though not inside of a negation that fails.
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

// schemaStep counts one part of a schema.
type schemaStep struct{ left *int }

// Validate implements jsonschema.SchemaExt. The library cannot be cancelled otherwise.
func (s schemaStep) Validate(*jsonschema.ValidatorContext, any) {
	if *s.left--; *s.left < 0 {
		panic(s)
	}
}

// validate holds values against a schema, within its steps.
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

// webSchemas loads schemas that others name.
type webSchemas struct {
	ctx context.Context
	r   *rendering
}

// Load implements jsonschema.URLLoader.
func (w webSchemas) Load(url string) (any, error) {
	w.r.remote = true
	data, err := w.r.remotes.client.get(w.ctx, url, access{}, maxValues)
	if err != nil {
		return nil, err
	}
	return jsonschema.UnmarshalJSON(bytes.NewReader(data))
}

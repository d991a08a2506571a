package opentofu

import (
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	hcljson "github.com/hashicorp/hcl/v2/json"
	"github.com/zclconf/go-cty/cty"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/manifest"
)

// Description is what is known of a configuration without the program.
type Description struct {
	Required []string // the constraints of required_version
	Modules  []Module
}

// Module is a call of a module.
type Module struct {
	Name    string
	Source  string
	Version string // constraint; "" for none
}

// IsLocal reports whether the module is in the repository of the application.
func (m Module) IsLocal() bool {
	return strings.HasPrefix(m.Source, "./") || strings.HasPrefix(m.Source, "../")
}

// Describe describes the files of an application. What is not literal is left out.
func Describe(objects []manifest.Object) (out Description, err error) {
	for _, o := range objects {
		d, err := describe(o)
		if err != nil {
			return out, err
		}
		out.Required = append(out.Required, d.Required...)
		out.Modules = append(out.Modules, d.Modules...)
	}
	return out, nil
}

var (
	rootSchema = &hcl.BodySchema{Blocks: []hcl.BlockHeaderSchema{
		{Type: "terraform"}, {Type: "module", LabelNames: []string{"name"}},
	}}
	terraformSchema = &hcl.BodySchema{Attributes: []hcl.AttributeSchema{{Name: "required_version"}}}
	moduleSchema    = &hcl.BodySchema{Attributes: []hcl.AttributeSchema{{Name: "source"}, {Name: "version"}}}
)

// describe describes one file. The error, of kind deploy.Invalid, names the line.
func describe(o manifest.Object) (out Description, err error) {
	name := o.GetName()
	text, _, _ := unstructured.NestedString(o.Object, fieldText)
	var file *hcl.File
	var problems hcl.Diagnostics
	switch {
	case strings.HasSuffix(name, ".tf"), strings.HasSuffix(name, ".tofu"):
		file, problems = hclsyntax.ParseConfig([]byte(text), o.Origin.File, hcl.InitialPos)
	case strings.HasSuffix(name, ".tf.json"), strings.HasSuffix(name, ".tofu.json"):
		file, problems = hcljson.Parse([]byte(text), o.Origin.File)
	default:
		return out, nil
	}
	if problems.HasErrors() {
		return out, deploy.Errorf(deploy.Invalid, "%s", problems[0].Error())
	}
	content, _, problems := file.Body.PartialContent(rootSchema)
	if problems.HasErrors() {
		return out, deploy.Errorf(deploy.Invalid, "%s", problems[0].Error())
	}
	for _, block := range content.Blocks {
		if block.Type == "terraform" {
			if v := literal(block.Body, terraformSchema, "required_version"); v != "" {
				out.Required = append(out.Required, v)
			}
			continue
		}
		out.Modules = append(out.Modules, Module{block.Labels[0], literal(block.Body, moduleSchema, "source"), literal(block.Body, moduleSchema, "version")})
	}
	return out, nil
}

// literal returns the value of an attribute that is a string without variables, else "".
func literal(body hcl.Body, schema *hcl.BodySchema, name string) string {
	content, _, _ := body.PartialContent(schema) // what cannot be read is left to the program
	if content == nil || content.Attributes[name] == nil {
		return ""
	}
	value, problems := content.Attributes[name].Expr.Value(nil)
	if problems.HasErrors() || value.IsNull() || !value.IsKnown() || value.Type() != cty.String {
		return ""
	}
	return value.AsString()
}

package replace

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/hashicorp/hcl/v2/hclwrite"
	"github.com/zclconf/go-cty/cty"
)

// inHCL replaces a field of an HCL file. The path consists of the types and labels of the
// enclosing blocks, the field's name, and the keys inside it, separated by dots:
// module.web.version, locals.images.web. A leading $. is ignored.
func inHCL(content []byte, field, value string) ([]byte, error) {
	steps, err := parsePath("$." + strings.TrimPrefix(field, "$."))
	if err != nil {
		return nil, err
	}
	for _, s := range steps {
		if s.deep || s.index == every {
			return nil, fmt.Errorf("HCLField %s: only names and indexes lead to a field of HCL", field)
		}
	}
	file, diags := hclsyntax.ParseConfig(content, "", hcl.InitialPos)
	if diags.HasErrors() {
		return nil, fmt.Errorf("read the file as HCL: line %d: %s", diagLine(diags), diags[0].Summary)
	}
	found := inBody(file.Body.(*hclsyntax.Body), steps)
	switch len(found) {
	case 0:
		return nil, notFound("HCLField", field)
	case 1:
	default:
		return nil, fmt.Errorf("HCLField %s is in the file %d times; name one of them", field, len(found))
	}
	form, err := hclForm(found[0], value)
	if err != nil {
		return nil, fmt.Errorf("HCLField %s, line %d: %w", field, found[0].Range().Start.Line, err)
	}
	at := found[0].Range()
	return spliced(content, splice{at.Start.Byte, at.End.Byte, form}), nil
}

func diagLine(diags hcl.Diagnostics) int {
	if diags[0].Subject == nil {
		return 1
	}
	return diags[0].Subject.Start.Line
}

// inBody returns the expressions at the path in a file or block.
func inBody(body *hclsyntax.Body, steps []step) (found []hclsyntax.Expression) {
	if len(steps) == 0 || !steps[0].isName() {
		return nil
	}
	if attr := body.Attributes[steps[0].name]; attr != nil {
		found = inExpression(attr.Expr, steps[1:], found)
	}
	for _, block := range body.Blocks {
		if rest, ok := intoBlock(append([]string{block.Type}, block.Labels...), steps); ok {
			found = append(found, inBody(block.Body, rest)...)
		}
	}
	return found
}

// intoBlock matches the first steps with names, the type and labels of a block, and returns
// the remaining steps. ok is false if a step differs or no step remains.
func intoBlock(names []string, steps []step) (rest []step, ok bool) {
	if len(steps) <= len(names) {
		return nil, false
	}
	return steps[len(names):], slices.EqualFunc(names, steps[:len(names)], func(name string, s step) bool { return s.isName() && s.name == name })
}

// inExpression appends to found the expressions at the path steps below e: e itself without
// steps, none if e is neither an object nor a list. Several items of an object may have the
// same key.
func inExpression(e hclsyntax.Expression, steps []step, found []hclsyntax.Expression) []hclsyntax.Expression {
	if len(steps) == 0 {
		return append(found, e)
	}
	switch e := e.(type) {
	case *hclsyntax.ObjectConsExpr:
		for _, item := range e.Items {
			if key, ok := keyOf(item.KeyExpr); ok && steps[0].isName() && key == steps[0].name {
				found = inExpression(item.ValueExpr, steps[1:], found)
			}
		}
	case *hclsyntax.TupleConsExpr:
		if i := steps[0].index; i >= 0 && i < len(e.Exprs) {
			found = inExpression(e.Exprs[i], steps[1:], found)
		}
	}
	return found
}

// keyOf returns the key of an object's item if it is a literal.
func keyOf(e hclsyntax.Expression) (string, bool) {
	v, diags := e.Value(nil)
	if diags.HasErrors() || v.IsNull() || !v.IsKnown() || v.Type() != cty.String {
		return "", false
	}
	return v.AsString(), true
}

// hclForm returns the text of value in place of an expression.
func hclForm(was hclsyntax.Expression, value string) (string, error) {
	switch was := was.(type) {
	case *hclsyntax.LiteralValueExpr:
		switch was.Val.Type() {
		case cty.Number:
			if _, err := strconv.ParseFloat(value, 64); err == nil && isHCLNumber(value) {
				return value, nil
			}
		case cty.Bool:
			if value == "true" || value == "false" {
				return value, nil
			}
		}
	case *hclsyntax.TemplateExpr:
		if !was.IsStringLiteral() && len(was.Parts) > 0 {
			return "", errors.New("it is a template of other values; name a field with a literal value")
		}
	default:
		return "", errors.New("it is computed or holds other fields; name one that is a single value")
	}
	return string(hclwrite.TokensForValue(cty.StringVal(value)).Bytes()), nil
}

// isHCLNumber reports whether value has the syntax of an HCL number.
func isHCLNumber(value string) bool {
	e, diags := hclsyntax.ParseExpression([]byte(value), "", hcl.InitialPos)
	literal, ok := e.(*hclsyntax.LiteralValueExpr)
	return !diags.HasErrors() && ok && literal.Val.Type() == cty.Number
}

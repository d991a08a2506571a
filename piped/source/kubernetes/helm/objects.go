package helm

import (
	"bytes"
	"cmp"
	"regexp"
	"slices"
	"strconv"
	"strings"

	chart "helm.sh/helm/v4/pkg/chart/v2"
	releaseutil "helm.sh/helm/v4/pkg/release/v1/util"
	"sigs.k8s.io/yaml"

	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/manifest"
)

// objects parses the objects in a chart's crds/ and in the rendered templates, which may have
// limit bytes in total. If as is not nil, it selects objects as helm template does and treats
// hooks as normal objects.
func objects(c *chart.Chart, rendered []output, limit int64, as *Template) (Result, error) {
	var result Result
	add := func(name, text string) ([]manifest.Object, error) {
		if result.Bytes += int64(len(text)); result.Bytes > limit {
			return nil, deploy.Errorf(deploy.Invalid, "%s: the chart renders to more than %d bytes", name, limit)
		}
		return parseRendered(name, text)
	}
	for _, f := range crds(c) {
		if as != nil && !as.CRDs {
			break
		}
		more, err := add(f.name, f.text)
		if err != nil {
			return Result{}, err
		}
		result.Objects = append(result.Objects, more...)
	}
	var own, hooks []manifest.Object
	for _, f := range rendered {
		more, err := add(f.name, f.text)
		if err != nil {
			return Result{}, err
		}
		for _, o := range more {
			at := hooksOf(o)
			if as != nil {
				if as.leavesOut(o, at) {
					continue
				}
				at = nil
			}
			if len(at) == 0 {
				own = append(own, o)
			}
			for _, hook := range at {
				each := o.Clone()
				each.Hook = hook
				hooks = append(hooks, each)
			}
		}
	}
	rank := ranks()
	byKind := func(a, b manifest.Object) int {
		return cmp.Or(rank(a)-rank(b), cmp.Compare(a.GetKind(), b.GetKind()), cmp.Compare(a.GetName(), b.GetName()))
	}
	slices.SortStableFunc(own, byKind)
	slices.SortStableFunc(hooks, func(a, b manifest.Object) int { return cmp.Or(byHook(a.Hook, b.Hook), byKind(a, b)) })
	result.Objects = slices.Concat(result.Objects, own, hooks)
	if len(result.Objects) == 0 && as == nil {
		return Result{}, deploy.Errorf(deploy.Invalid, "it renders to no objects with these values")
	}
	return result, nil
}

// crds returns the files in crds/ of a chart and its dependencies, the chart's own first. They
// are not templates.
func crds(c *chart.Chart) []output {
	var out []output
	for _, f := range c.CRDObjects() {
		out = append(out, output{name: f.Filename, text: string(f.File.Data)})
	}
	return out
}

// ranks returns a function that returns the position of an object's kind in Helm's order of
// installation. Unknown kinds come last.
func ranks() func(manifest.Object) int {
	order := map[string]int{}
	for i, kind := range releaseutil.InstallOrder {
		order[kind] = i
	}
	return func(o manifest.Object) int {
		if n, ok := order[o.GetKind()]; ok {
			return n
		}
		return len(order)
	}
}

// separator matches where Helm splits a text into documents, also if content follows the
// dashes on the same line because a template trimmed the newline.
var separator = regexp.MustCompile(`(?m)^---[ \t]*`)

// parseRendered parses the objects in a rendered text. If a mapping has duplicate keys, the
// last one takes effect, as in Helm; many charts have them.
func parseRendered(name, text string) ([]manifest.Object, error) {
	var out []manifest.Object
	begin := 0
	for _, cut := range append(separator.FindAllStringIndex(text, -1), []int{len(text), len(text)}) {
		end := cut[0]
		content := begin + len(text[begin:end]) - len(strings.TrimLeft(text[begin:end], "\r\n"))
		more, err := document(name, text[content:end], 1+strings.Count(text[:content], "\n"))
		if err != nil {
			return nil, err
		}
		out = append(out, more...)
		begin = cut[1]
	}
	return out, nil
}

// yamlLine matches the line number in an error of the YAML parser.
var yamlLine = regexp.MustCompile(`line (\d+): `)

// document parses the objects in one document, which begins at the given line of a rendered
// template.
func document(name, text string, line int) ([]manifest.Object, error) {
	const where = "in what a template renders to: "
	if strings.TrimSpace(text) == "" {
		return nil, nil
	}
	data, err := yaml.YAMLToJSON([]byte(text))
	if err != nil {
		why := strings.TrimPrefix(strings.TrimPrefix(err.Error(), "error converting YAML to JSON: "), "yaml: ")
		if at := yamlLine.FindStringSubmatchIndex(why); at != nil {
			n, _ := strconv.Atoi(why[at[2]:at[3]])
			line, why = line+n-1, why[at[1]:]
		}
		return nil, deploy.Errorf(deploy.Invalid, where+"%s:%d: not valid YAML: %s; mostly the indentation of a value is wrong", name, line, why)
	}
	// The line breaks make errors refer to the document's first line.
	objects, err := manifest.Parse(name, append(bytes.Repeat([]byte("\n"), line-1), data...))
	if err != nil {
		return nil, deploy.Errorf(deploy.Invalid, where+"%w", err)
	}
	for i := range objects {
		objects[i].Origin.Line = 0 // a line of rendered text does not help the user
	}
	return objects, nil
}

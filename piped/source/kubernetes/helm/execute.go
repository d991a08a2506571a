package helm

import (
	"context"
	"errors"
	"path"
	"slices"
	"strings"
	"text/template"

	chartapi "helm.sh/helm/v4/pkg/chart"
	"helm.sh/helm/v4/pkg/chart/common"
	chart "helm.sh/helm/v4/pkg/chart/v2"

	"github.com/c785c783/piped/piped/deploy"
)

// ErrSlow is wrapped by the error of templates that exceeded the time limit. A later attempt
// may succeed if the machine was overloaded.
var ErrSlow = errors.New("the templates were stopped")

// templateFile is one file of templates/ of a chart or of one of its dependencies.
type templateFile struct {
	name  string // the path, beginning with the root chart's name
	base  string // the path of its chart's templates directory
	text  string
	scope map[string]any
}

// output is the rendered text of a template file.
type output struct {
	name string
	text string
}

// execute executes the templates of a chart and its dependencies within limits. It returns
// the outputs sorted by name, without partials (_*) and NOTES.txt.
func execute(ctx context.Context, c *chart.Chart, scope common.Values, limits Limits) ([]output, error) {
	ctx, stop := context.WithTimeoutCause(ctx, limits.Time, deploy.Errorf(deploy.Invalid,
		"%w after %s; a loop in them may have no end", ErrSlow, limits.Time))
	defer stop()
	files := templateFiles(c, scope)
	g := newGuard(ctx, 16*limits.Output)
	t := g.functions(template.New("gotpl").Option("missingkey=zero"))
	for _, f := range files {
		if len(f.text) > maxTemplate {
			return nil, deploy.Errorf(deploy.Invalid, "%s: the template has %d bytes; expected at most %d", f.name, len(f.text), maxTemplate)
		}
		if _, err := g.parse(t.New(f.name), f.text); err != nil {
			return nil, deploy.Errorf(deploy.Invalid, "%s", strings.TrimPrefix(err.Error(), "template: "))
		}
	}
	var out []output
	for _, f := range files {
		if base := path.Base(f.name); strings.HasPrefix(base, "_") || base == "NOTES.txt" {
			continue
		}
		f.scope["Template"] = common.Values{"Name": f.name, "BasePath": f.base}
		text, err := g.execute(t, f.name, f.scope)
		if err != nil {
			return nil, templateError(ctx, f.name, err)
		}
		out = append(out, output{f.name, text})
	}
	slices.SortFunc(out, func(a, b output) int { return strings.Compare(a.name, b.name) })
	return out, nil
}

// maxTemplate is the maximum size of a template in bytes. It bounds the parser's recursion.
const maxTemplate = 1 << 20

// templateFiles returns the templates in the order in which Helm parses them, the most deeply
// nested first. The order matters because the last definition of a name takes effect.
func templateFiles(c *chart.Chart, scope common.Values) []templateFile {
	var files []templateFile
	collect(c, scope, &files)
	slices.SortFunc(files, func(a, b templateFile) int {
		if n := strings.Count(b.name, "/") - strings.Count(a.name, "/"); n != 0 {
			return n
		}
		return strings.Compare(b.name, a.name)
	})
	return files
}

// collect appends the templates of c and its dependencies to files, each with the scope of its
// chart. It returns the scope of c.
func collect(c *chart.Chart, parent common.Values, files *[]templateFile) map[string]any {
	accessor, err := chartapi.NewAccessor(c)
	if err != nil {
		panic(err) // unreachable: the SDK created the chart
	}
	about := accessor.MetadataAsMap()
	about["IsRoot"] = c.IsRoot()
	below := map[string]any{}
	scope := map[string]any{
		"Chart": about, "Files": newChartFiles(c.Files), "Release": parent["Release"], "Capabilities": parent["Capabilities"],
		"Values": common.Values{}, "Subcharts": below,
	}
	if c.IsRoot() {
		scope["Values"] = parent["Values"]
	} else if values, err := parent.Table("Values." + c.Name()); err == nil {
		scope["Values"] = values
	}
	for _, d := range c.Dependencies() {
		below[d.Name()] = collect(d, scope, files)
	}
	at := c.ChartFullPath()
	for _, f := range c.Templates {
		if accessor.IsLibraryChart() && !strings.HasPrefix(path.Base(f.Name), "_") {
			continue
		}
		*files = append(*files, templateFile{name: path.Join(at, f.Name), base: path.Join(at, "templates"), text: string(f.Data), scope: scope})
	}
	return scope
}

// templateError converts the error of executing a template to one of kind deploy.Invalid that
// names the file and, if known, the position. If ctx was canceled, it returns the cause.
func templateError(ctx context.Context, file string, err error) error {
	var failed *failError
	var spent *limitError
	switch {
	case ctx.Err() != nil:
		cause := context.Cause(ctx)
		if deploy.IsKind(cause, deploy.Invalid) {
			return deploy.Errorf(deploy.Invalid, "%s: %w", file, cause)
		}
		return cause
	case errors.As(err, &spent):
		return deploy.Errorf(deploy.Invalid, "%s: %w", file, spent)
	case errors.As(err, &failed):
		return deploy.Errorf(deploy.Invalid, "%s: %s", position(err, file), failed.text)
	}
	var chain []string
	for ; err != nil; err = errors.Unwrap(err) {
		if text := strings.TrimPrefix(err.Error(), "template: "); len(chain) == 0 || !strings.HasSuffix(chain[len(chain)-1], text) {
			chain = append(chain, text)
		}
	}
	return deploy.Errorf(deploy.Invalid, "%s", chain[0])
}

// position returns the file, line and column at which the outermost template failed, or file
// if the error has no position.
func position(err error, file string) string {
	text := strings.TrimPrefix(err.Error(), "template: ")
	if at, _, ok := strings.Cut(text, ": "); ok {
		return at
	}
	return file
}

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

// ErrSlow is in the error of templates that took too long, which may be the
// machine's fault.
var ErrSlow = errors.New("the templates were stopped")

// templateFile is one file of templates/ of a chart or of one of its dependencies.
type templateFile struct {
	name  string // from the chart's directory on
	base  string // the directory of its chart's templates
	text  string
	scope map[string]any
}

// output is what a template file rendered to.
type output struct {
	name string
	text string
}

// execute executes the templates of a chart and its dependencies, and returns
// what each rendered to, sorted by name. Partials and NOTES.txt are left out.
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

// maxTemplate bounds the parser's recursion.
const maxTemplate = 1 << 20

// templateFiles returns the templates in the order in which Helm parses and
// executes them, the deepest first: of definitions of one name the last counts.
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

// collect adds the templates of c and its dependencies, each with the values
// that its chart sees, and returns those of c.
func collect(c *chart.Chart, parent common.Values, files *[]templateFile) map[string]any {
	accessor, err := chartapi.NewAccessor(c)
	if err != nil {
		panic(err) // it is a chart that the SDK has made
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

// templateError returns the error of a template with the place where it failed.
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

// position is the file, line and column at which the outermost template failed.
func position(err error, file string) string {
	text := strings.TrimPrefix(err.Error(), "template: ")
	if at, _, ok := strings.Cut(text, ": "); ok {
		return at
	}
	return file
}

package analysis

import (
	"context"
	"strings"
	"sync"
	"testing"
	"testing/fstest"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/c785c783/piped/executor/analysis/provider"
	"github.com/c785c783/piped/piped/config/analysis"
	"github.com/c785c783/piped/piped/deploy"
)

func TestRender(t *testing.T) {
	f := renderer{app: "web", env: "prod", namespace: "shop"}
	plain := f.data(map[string]string{"job": "web-job"}, "", nil)
	canary := f.data(nil, "canary", map[string]string{"pod": "web-canary"})
	for name, c := range map[string]struct {
		text string
		data map[string]any
		want string
		err  string
	}{
		"nothing to fill in":      {`rate(errors{app="web"}[1m])`, plain, `rate(errors{app="web"}[1m])`, ""},
		"every value":             {`{{ .App.Name }} {{ .App.Env }} {{ .K8s.Namespace }} {{ .AppCustomArgs.job }}`, plain, "web prod shop web-job", ""},
		"of a variant":            {`{{ .Variant.Name }} {{ .VariantCustomArgs.pod }}`, canary, "canary web-canary", ""},
		"conditions":              {`{{ if eq .Variant.Name "canary" }}a{{ else }}b{{ end }}{{ with .App.Name }}{{ . }}{{ end }}`, canary, "aweb", ""},
		"an index":                {`{{ index .AppCustomArgs "job" | print }}`, plain, "web-job", ""},
		"a comment alone":         {`{{/* nothing */}}`, plain, "", ""},
		"an argument missing":     {`{{ .AppCustomArgs.jbo }}`, plain, "", `map has no entry for key "jbo"; available: .App.Env, .App.Name, .AppCustomArgs.job, .K8s.Namespace`},
		"a variant without one":   {`{{ .Variant.Name }}`, plain, "", `map has no entry for key "Variant"`},
		"a root missing":          {`{{ .Deployment.ID }}`, plain, "", `map has no entry for key "Deployment"`},
		"no template":             {`{{ .App.Name `, plain, "", "cannot be read as a template"},
		"a loop":                  {`{{ range 1000000000000 }}{{ end }}`, plain, "", "is not available in a query"},
		"a loop in a condition":   {`{{ if .App.Name }}{{ range 10 }}x{{ end }}{{ end }}`, plain, "", "is not available in a query"},
		"a template":              {`{{ define "x" }}x{{ end }}{{ template "x" }}`, plain, "", "define and block are not available in a query"},
		"only a template":         {`{{ define "x" }}x{{ end }}`, plain, "", "define and block are not available in a query"},
		"a block":                 {`{{ block "x" . }}x{{ end }}`, plain, "", "define and block are not available in a query"},
		"an undefined template":   {`{{ template "x" }}`, plain, "", "is not available in a query"},
		"a function that is long": {`{{ printf "%999999999d" 1 }}`, plain, "", "function printf is not available in a query; available: and, or, not"},
		"hidden in parentheses":   {`{{ (printf "%9d" 1).X }}`, plain, "", "function printf is not available"},
		"hidden in an else":       {`{{ with .App.Name }}{{ else }}{{ printf "%9d" 1 }}{{ end }}`, plain, "", "function printf is not available"},
		"call":                    {`{{ call .App.Name }}`, plain, "", "function call is not available"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := render("errors", c.text, c.data)
			if got != c.want || (err == nil) != (c.err == "") {
				t.Fatalf("filled in as %q, %v; want %q, %q", got, err, c.want, c.err)
			}
			if err != nil && (!strings.Contains(err.Error(), c.err) || !strings.HasPrefix(err.Error(), "errors: ") || !deploy.IsKind(err, deploy.Invalid)) {
				t.Errorf("error %q, want one of the query that says %q", err, c.err)
			}
		})
	}
}

func FuzzRender(f *testing.F) {
	for _, seed := range []string{"up", "{{ .App.Name }}", "{{ range 9 }}{{ end }}", `{{ with $x := 1 }}{{ $x }}{{ end }}`, `{{ (index .App "Name").X }}`, `{{ define "a" }}{{ end }}`} {
		f.Add(seed)
	}
	data := renderer{app: "web"}.data(nil, "canary", nil)
	f.Fuzz(func(t *testing.T, text string) {
		if _, err := render("q", text, data); err != nil && !deploy.IsKind(err, deploy.Invalid) {
			t.Errorf("%q: error of kind %s", text, deploy.KindOf(err))
		}
	})
}

const templates = `
apiVersion: pipecd.dev/v1beta1
kind: AnalysisTemplate
spec:
  metrics:
    errors:
      interval: 10s
      provider: p
      failureLimit: 1
      expected: {max: 0.5}
      query: errors{app="{{ .App.Name }}",job="{{ .AppCustomArgs.job }}"}
    incomplete: {provider: p}
  https:
    health: {url: "https://{{ .App.Name }}.example.com/", interval: 1m}
`

// TestTemplates: the templates of a repository become checks.
func TestTemplates(t *testing.T) {
	broken := &fstest.MapFile{Data: []byte("kind: AnalysisTemplate\nspec: {metrics: {later: {intervall: 1m}}}\napiVersion: pipecd.dev/v1beta1\n")}
	good := &fstest.MapFile{Data: []byte(templates)}
	entry := func(template string) analysis.Metric {
		return analysis.Metric{Check: analysis.Check{Template: analysis.TemplateRef{Name: template, AppArgs: map[string]string{"job": "j"}}}}
	}
	for name, c := range map[string]struct {
		tree  fstest.MapFS
		entry analysis.Metric
		query string
		err   string
		says  string
	}{
		"one file":                 {fstest.MapFS{".pipe/analysis.yaml": good}, entry("errors"), `errors{app="web",job="j"}`, "", "errors: every 10s, 1 failure is tolerated"},
		"another name of files":    {fstest.MapFS{".pipe/a.yml": good}, entry("errors"), `errors{app="web",job="j"}`, "", ""},
		"the entry decides":        {fstest.MapFS{".pipe/a.yaml": good}, analysis.Metric{Query: "mine", Check: entry("errors").Check}, "mine", "", ""},
		"another broken file":      {fstest.MapFS{".pipe/a.yaml": good, ".pipe/b.yaml": broken}, entry("errors"), `errors{app="web",job="j"}`, "", "Warning: a template file that this analysis does not use cannot be read: .pipe/b.yaml:2: spec.metrics.later.intervall: unknown field"},
		"other kinds, directories": {fstest.MapFS{".pipe/a.yaml": good, ".pipe/dir/b.yaml": broken, ".pipe/README": broken, ".pipe/e.yaml": {Data: []byte("apiVersion: pipecd.dev/v1beta1\nkind: EventWatcher\nspec: {}\n")}}, entry("errors"), `errors{app="web",job="j"}`, "", ""},
		"no directory":             {fstest.MapFS{}, entry("errors"), "", `metrics[0]: there is no template "errors" in metrics: write it into a file of kind AnalysisTemplate in .pipe/`, ""},
		"no such template":         {fstest.MapFS{".pipe/a.yaml": good}, entry("error"), "", `metrics[0]: there is no template "error" in metrics: name one of errors or incomplete`, ""},
		"it is in a broken file":   {fstest.MapFS{".pipe/b.yaml": broken}, entry("later"), "", ".pipe/b.yaml:2: spec.metrics.later.intervall: unknown field", ""},
		"a missing field":          {fstest.MapFS{".pipe/a.yaml": good}, entry("incomplete"), "", "metrics[0] with template \"incomplete\": interval: required; neither the stage nor the template says it", ""},
		"two files say it":         {fstest.MapFS{".pipe/a.yaml": good, ".pipe/b.yaml": good}, entry("errors"), "", ".pipe/b.yaml: spec.metrics.errors: the template is also in .pipe/a.yaml", ""},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var mu sync.Mutex
				var asked []string
				e := newEnv(t, script(func(_ context.Context, query string, _ provider.Window) ([]float64, error) {
					mu.Lock()
					defer mu.Unlock()
					asked = append(asked, query)
					return []float64{0}, nil
				}))
				e.tree = c.tree
				o := analysis.Options{Duration: seconds(10), Checks: analysis.Checks{Metrics: []analysis.Metric{c.entry}}}
				result, took := e.execute(t.Context(), o)
				if c.err != "" {
					if result.Status != deploy.StageFailure || !strings.Contains(result.Reason, c.err) || took != 0 {
						t.Errorf("ended as %+v after %s, want FAILURE at once: %s", result, took, c.err)
					}
					return
				}
				if result.Status != deploy.StageSuccess || took != 10*time.Second {
					t.Errorf("ended as %+v after %s", result, took)
				}
				if diff := cmp.Diff([]string{c.query}, asked); diff != "" {
					t.Errorf("asked (-want +got):\n%s", diff)
				}
				if log := strings.Join(e.log.Lines(), "\n"); !strings.Contains(log, c.says) || c.says == "" && strings.Contains(log, "Warning") {
					t.Errorf("the log does not say %q:\n%s", c.says, log)
				}
			})
		})
	}
}

// TestVariants: a comparison queries both variants, each with its own arguments.
func TestVariants(t *testing.T) {
	for strategy, other := range map[analysis.Strategy]string{analysis.CanaryBaseline: "baseline", analysis.CanaryPrimary: "primary"} {
		synctest.Test(t, func(t *testing.T) {
			var asked []string
			e := newEnv(t, script(func(_ context.Context, query string, _ provider.Window) ([]float64, error) {
				asked = append(asked, query)
				if strings.Contains(query, "canary") {
					return []float64{1, 2, 3, 4, 5}, nil
				}
				return []float64{9, 9, 9, 9, 9}, nil
			}))
			m := atMost(0, seconds(10))
			m.Expected, m.Strategy, m.Deviation = analysis.Expected{}, strategy, analysis.High
			m.Query = `errors{variant="{{ .Variant.Name }}",pod="{{ .VariantCustomArgs.pod }}"}`
			m.CanaryArgs, m.BaselineArgs, m.PrimaryArgs = map[string]string{"pod": "c"}, map[string]string{"pod": "b"}, map[string]string{"pod": "p"}
			if result, _ := e.execute(t.Context(), options(seconds(10), m)); result.Status != deploy.StageSuccess {
				t.Errorf("%s: a lower canary with deviation HIGH ended as %+v", strategy, result)
			}
			m.Deviation = analysis.Low
			if result, _ := e.execute(t.Context(), options(seconds(10), m)); result.Status != deploy.StageFailure {
				t.Errorf("%s: a lower canary with deviation LOW ended as %+v", strategy, result)
			}
			want := []string{`errors{variant="canary",pod="c"}`, `errors{variant="` + other + `",pod="` + other[:1] + `"}`}
			if diff := cmp.Diff(append(want, want...), asked); diff != "" {
				t.Errorf("%s asked (-want +got):\n%s", strategy, diff)
			}
			m.Query = "errors"
			if result, _ := e.execute(t.Context(), options(seconds(10), m)); !strings.Contains(result.Reason, "errors: the query is the same for the canary and for "+other) {
				t.Errorf("%s: one query for both ended as %+v", strategy, result)
			}
		})
	}
}

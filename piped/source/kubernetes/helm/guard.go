package helm

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"text/template"
)

// guard executes templates within limits. Package text/template has none, so the guard inserts
// steps (calls of functions) into the parsed templates: one into the body of each loop, which
// checks the time limit, and two around the body of each template, which count the depth of
// calls. The guard also counts the bytes of outputs and of function results.
type guard struct {
	ctx     context.Context
	left    int64 // remaining bytes
	limit   int64
	depth   int
	steps   steps
	hazards hazards
}

func newGuard(ctx context.Context, limit int64) *guard {
	return &guard{ctx: ctx, left: limit, limit: limit, steps: newSteps(), hazards: newHazards()}
}

// Limits of nesting.
const (
	maxDepth = 1000 // of template calls; Helm has the same limit for include
	maxInner = 200  // of blocks and parentheses in a template
)

// limitError says which limit was exceeded.
type limitError struct{ text string }

func (e *limitError) Error() string { return e.text }

func limitf(format string, args ...any) error {
	return &limitError{fmt.Sprintf(format, args...)}
}

// failError is the message of fail and required.
type failError struct{ text string }

func (e *failError) Error() string { return e.text }

// functions adds Helm's functions, with limits, and the steps to t and returns t.
func (g *guard) functions(t *template.Template) *template.Template {
	all := functionMap()
	for name, f := range all {
		all[name] = g.bounded(name, f)
	}
	maps.Copy(all, template.FuncMap{
		stepTurn: func() (string, error) { return "", g.alive() },
		stepEnter: func() (string, error) {
			if g.depth++; g.depth > maxDepth {
				return "", limitf("templates call each other more than %d deep", maxDepth)
			}
			return "", g.alive()
		},
		stepLeave: func() string { g.depth--; return "" },
	})
	t.Funcs(all)
	g.bind(t)
	return t
}

// bind adds the functions include and tpl, which execute templates of t, to t.
func (g *guard) bind(t *template.Template) {
	t.Funcs(template.FuncMap{
		"include": func(name string, data any) (string, error) { return g.execute(t, name, data) },
		"tpl":     func(text string, data any) (string, error) { return g.tpl(t, text, data) },
	})
}

// tpl executes a text as a template that can call the templates of parent.
func (g *guard) tpl(parent *template.Template, text string, data any) (string, error) {
	if len(text) > maxTemplate {
		return "", limitf("tpl is given a template of %d bytes; expected at most %d", len(text), maxTemplate)
	}
	t, err := parent.Clone()
	if err != nil {
		return "", fmt.Errorf("cannot clone template: %w", err)
	}
	g.bind(t.Option("missingkey=zero"))
	if t, err = g.parse(t.New(parent.Name()), text); err != nil {
		return "", fmt.Errorf("cannot parse the template that tpl is given: %w", err)
	}
	w := &sink{guard: g}
	if err := t.Execute(w, data); err != nil {
		return "", fmt.Errorf("error in the template that tpl is given: %w", err)
	}
	return w.text(), nil
}

// execute executes the named template of t and returns its output.
func (g *guard) execute(t *template.Template, name string, data any) (string, error) {
	w := &sink{guard: g}
	err := t.ExecuteTemplate(w, name, data)
	return w.text(), err
}

// parse parses a text as template t and inserts the steps.
func (g *guard) parse(t *template.Template, text string) (*template.Template, error) {
	t, err := t.Parse(text)
	if err != nil {
		return nil, err
	}
	for _, each := range append(t.Templates(), t) {
		if each.Tree == nil || each.Root == nil {
			continue
		}
		if err := g.steps.into(each.Root); err != nil {
			return nil, fmt.Errorf("template: %s: %w", each.Name(), err)
		}
	}
	return t, nil
}

func (g *guard) alive() error {
	if g.ctx.Err() != nil {
		return context.Cause(g.ctx)
	}
	return nil
}

// spend subtracts n bytes from the rest, and returns an error if the limit is exceeded.
func (g *guard) spend(n int) error {
	if g.left -= int64(n); g.left < 0 {
		return limitf("the templates make more than %d bytes; a loop in them may have no end", g.limit)
	}
	return nil
}

// sink collects the output of a template and counts its bytes.
type sink struct {
	guard *guard
	out   strings.Builder
}

func (w *sink) Write(p []byte) (int, error) {
	if err := w.guard.spend(len(p)); err != nil {
		return 0, err
	}
	return w.out.Write(p)
}

// text returns the output. Missing values are replaced by "", as in Helm.
func (w *sink) text() string { return strings.ReplaceAll(w.out.String(), "<no value>", "") }

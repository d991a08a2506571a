package analysis

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"
	"text/template"
	"text/template/parse"

	"github.com/c785c783/piped/piped/config"
	"github.com/c785c783/piped/piped/config/analysis"
	"github.com/c785c783/piped/piped/config/kubernetes"
	"github.com/c785c783/piped/piped/deploy"
)

// maxTemplateFile bounds the size of a template file, in bytes.
const maxTemplateFile = 1 << 20

// ReadTemplates reads the templates of a repository: the YAML and JSON files directly
// in .pipe/ of kind AnalysisTemplate. Unreadable files are listed in the result as
// broken.
func ReadTemplates(tree fs.FS) (config.AnalysisTemplates, error) {
	var all config.AnalysisTemplates
	entries, err := fs.ReadDir(tree, config.SharedDir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return all, fmt.Errorf("read the templates in %s: %w", config.SharedDir, err)
	}
	for _, entry := range entries {
		name := path.Join(config.SharedDir, entry.Name())
		if entry.IsDir() || !config.IsShared(name) {
			continue
		}
		info, err := fs.Stat(tree, name)
		if err == nil && info.Size() > maxTemplateFile {
			err = fmt.Errorf("it has %d bytes; expected at most %d", info.Size(), maxTemplateFile)
		}
		var data []byte
		if err == nil {
			data, err = fs.ReadFile(tree, name)
		}
		if err != nil {
			all.Broken = append(all.Broken, fmt.Errorf("%s: %w", name, err))
			continue
		}
		all.Add(name, data)
	}
	return all, nil
}

// resolve returns the checks of an analysis. It replaces template references by the
// templates of the deployed commit.
func (p *session) resolve(ctx context.Context, o analysis.Options) (analysis.Checks, error) {
	var templates config.AnalysisTemplates
	if metrics, logs, https := o.Used(); len(metrics)+len(logs)+len(https) > 0 {
		tree, err := p.Tree(p.run.Deployment.Git.RepoID, p.run.Deployment.Trigger.Commit.Hash)
		if err == nil {
			templates, err = ReadTemplates(tree)
		}
		if err != nil {
			return analysis.Checks{}, err
		}
	}
	checks, err := templates.Resolve(o)
	if err != nil {
		return checks, err
	}
	for _, w := range templates.Warnings {
		p.run.Log.Infof("Warning: %s", w)
	}
	for _, broken := range templates.Broken {
		p.run.Log.Infof("Warning: a template file that this analysis does not use cannot be read: %v", broken)
	}
	return checks, ctx.Err()
}

// renderer renders queries.
type renderer struct {
	app, env, namespace string
}

// newRenderer returns the renderer for the deployed application.
func (p *session) newRenderer(ctx context.Context) (renderer, error) {
	cfg, err := p.Sources.Config(ctx, p.run.Deployment.Git, p.run.Deployment.Trigger.Commit.Hash)
	if err != nil {
		return renderer{}, err
	}
	f := renderer{app: p.run.Deployment.ApplicationName, env: p.run.Deployment.Labels["env"]}
	if spec, ok := cfg.Platform.(*kubernetes.Spec); ok {
		f.namespace = spec.Input.Namespace
	}
	if f.namespace == "" {
		f.namespace = "default"
	}
	return f, nil
}

// data returns the template data; variant is "" without a comparison of variants.
func (f renderer) data(appArgs map[string]string, variant string, variantArgs map[string]string) map[string]any {
	data := map[string]any{
		"App":           map[string]string{"Name": f.app, "Env": f.env},
		"K8s":           map[string]string{"Namespace": f.namespace},
		"AppCustomArgs": copied(appArgs),
	}
	if variant != "" {
		data["Variant"] = map[string]string{"Name": variant}
		data["VariantCustomArgs"] = copied(variantArgs)
	}
	return data
}

// copied returns a copy of args that is not nil, so that templates can index it.
func copied(args map[string]string) map[string]string {
	if args == nil {
		return map[string]string{}
	}
	return maps.Clone(args)
}

// render renders a query as a Go template. Loops and nested templates are forbidden, so
// that rendering takes bounded time.
func render(what, text string, data map[string]any) (string, error) {
	if !strings.Contains(text, "{{") {
		return text, nil
	}
	t, err := template.New(what).Option("missingkey=error").Parse(text)
	if err != nil {
		return "", deploy.Errorf(deploy.Invalid, "%s: the query cannot be read as a template: %w", what, err)
	}
	if err := checkTemplate(t); err != nil {
		return "", deploy.Errorf(deploy.Invalid, "%s: %w", what, err)
	}
	var out strings.Builder
	if err := t.Execute(&out, data); err != nil {
		return "", deploy.Errorf(deploy.Invalid, "%s: %w; available: %s", what, err, available(data))
	}
	return out.String(), nil
}

// available lists the names that a query may use.
func available(data map[string]any) string {
	var names []string
	for _, outer := range slices.Sorted(maps.Keys(data)) {
		inner := slices.Sorted(maps.Keys(data[outer].(map[string]string)))
		for _, name := range inner {
			names = append(names, "."+outer+"."+name)
		}
	}
	return strings.Join(names, ", ")
}

// functions are the template functions that a query may call.
var functions = []string{"and", "or", "not", "eq", "ne", "index", "len", "urlquery", "print"}

// checkTemplate rejects template features of unbounded cost.
func checkTemplate(t *template.Template) error {
	for _, each := range t.Templates() {
		if each.Name() != t.Name() {
			return errors.New("define and block are not available in a query")
		}
	}
	return checkNode(t.Root)
}

// checkNode rejects forbidden nodes and functions in a part of a template.
func checkNode(node parse.Node) error {
	switch n := node.(type) {
	case *parse.ListNode:
		if n == nil {
			return nil
		}
		for _, child := range n.Nodes {
			if err := checkNode(child); err != nil {
				return err
			}
		}
	case *parse.IfNode:
		return errors.Join(checkNode(n.Pipe), checkNode(n.List), checkNode(n.ElseList))
	case *parse.WithNode:
		return errors.Join(checkNode(n.Pipe), checkNode(n.List), checkNode(n.ElseList))
	case *parse.ActionNode:
		return checkNode(n.Pipe)
	case *parse.PipeNode:
		for _, command := range n.Cmds {
			for _, arg := range command.Args {
				if err := checkNode(arg); err != nil {
					return err
				}
			}
		}
	case *parse.ChainNode:
		return checkNode(n.Node)
	case *parse.IdentifierNode:
		if !slices.Contains(functions, n.Ident) {
			return fmt.Errorf("function %s is not available in a query; available: %s", n.Ident, strings.Join(functions, ", "))
		}
	case *parse.RangeNode, *parse.TemplateNode, *parse.BreakNode, *parse.ContinueNode:
		return fmt.Errorf("%s is not available in a query", n)
	}
	return nil
}

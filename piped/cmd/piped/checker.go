package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/c785c783/piped/executor/analysis"
	"github.com/c785c783/piped/piped/app"
	"github.com/c785c783/piped/piped/config"
	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/git"
	"github.com/c785c783/piped/piped/source"
	"github.com/c785c783/piped/piped/source/kubernetes"
	"github.com/c785c783/piped/piped/source/opentofu"
	"github.com/c785c783/piped/piped/source/render"
	"github.com/c785c783/piped/piped/source/secret"
)

// checker reads files like the agent does and collects their problems.
type checker struct {
	files    []string // checked files, as displayed
	problems []string
	warnings []string
	agents   []*config.Piped // valid agent configurations among the paths
	read     []string        // files of agents, with the same index
	strict   bool            // unread parts of files are problems

	apps []deploy.Application // names and labels of the checked applications

	declarations map[deploy.ObjectRef][]declaration // of the current tree
}

// unread records unread parts of a file, as lines that begin with its name.
func (c *checker) unread(lines []string) {
	if c.strict {
		c.problems = append(c.problems, lines...)
	} else {
		c.warnings = append(c.warnings, lines...)
	}
}

// check checks the paths: agent configurations first, since applications are checked
// against them. Errors are about the paths themselves.
func (c *checker) check(ctx context.Context, paths []string) error {
	var rest []string
	for _, path := range paths {
		info, err := os.Stat(path)
		if err != nil {
			return &failure{exitUsage, fmt.Errorf("find the files to check: %w", err)}
		}
		if info.IsDir() {
			rest = append(rest, path)
			continue
		}
		data, err := os.ReadFile(path)
		switch {
		case err != nil:
			return &failure{exitUsage, fmt.Errorf("read the files to check: %w", err)}
		case isAgent(data):
			if agent := c.agent(filepath.Clean(path), data); agent != nil {
				c.agents, c.read = append(c.agents, agent), append(c.read, path)
			}
		default:
			rest = append(rest, path)
		}
	}
	for _, path := range rest {
		if err := c.applications(ctx, path); err != nil {
			return err
		}
	}
	c.roles()
	if len(c.files) == 0 {
		return &failure{exitUsage, fmt.Errorf("there is nothing to check in %s: no app.pipecd.yaml, *.pipecd.yaml or piped.yaml", strings.Join(paths, ", "))}
	}
	return nil
}

var agentKind = regexp.MustCompile(`(?m)^kind:[ \t]*["']?` + config.KindPiped + `\b`)

// isAgent reports whether a file, which may be invalid, is an agent's configuration.
func isAgent(data []byte) bool { return agentKind.Match(data) }

// agent checks an agent's configuration and returns it, nil if invalid.
func (c *checker) agent(name string, data []byte) *config.Piped {
	if !c.begin(name) {
		return nil
	}
	agent, warnings, err := app.Kinds().ParsePiped(name, data)
	if err != nil {
		c.warnings = append(c.warnings, warnings...)
		c.problems = append(c.problems, strings.Split(err.Error(), "\n")...)
		return nil
	}
	c.warnings = append(c.warnings, warnings[:len(warnings)-len(agent.Unread)]...)
	c.unread(agent.Unread)
	return agent
}

// begin records that a file is checked; it returns false if it already was.
func (c *checker) begin(name string) bool {
	if slices.Contains(c.files, name) {
		return false
	}
	c.files = append(c.files, name)
	return true
}

// applications checks a file, or all files below a directory or in the HEAD of a bare
// repository.
func (c *checker) applications(ctx context.Context, path string) error {
	head, err := git.OpenHead(path)
	switch {
	case err == nil:
		t := tree{fsys: head, dir: ".", show: func(name string) string { return path + ":" + name }}
		return errors.Join(c.tree(ctx, t), head.Close())
	case !deploy.IsKind(err, deploy.NotFound):
		return &failure{exitUsage, err}
	}
	t, root, err := openTree(path)
	if err != nil {
		return &failure{exitUsage, fmt.Errorf("read the files to check: %w", err)}
	}
	return errors.Join(c.tree(ctx, t), root.Close())
}

func (c *checker) tree(ctx context.Context, t tree) error {
	files, err := t.find()
	if err != nil {
		return &failure{exitUsage, fmt.Errorf("find the files to check: %w", err)}
	}
	for _, name := range files.agents {
		data, err := fs.ReadFile(t.fsys, name)
		if err == nil && !isAgent(data) {
			err = config.CheckAgentKind(name, data)
		}
		switch {
		case err != nil:
			c.begin(t.show(name))
			c.problems = append(c.problems, t.lines(name, err.Error())...)
		case isAgent(data):
			c.agent(t.show(name), data)
		}
	}
	templates, err := analysis.ReadTemplates(t.fsys)
	if err != nil {
		return &failure{exitUsage, fmt.Errorf("find the files to check: %w", err)}
	}
	for _, name := range files.shared {
		c.shared(t, name)
	}
	charts, err := newOfflineCharts()
	if err != nil {
		return err
	}
	loader := &source.Loader{
		Tree: func(string, string) (fs.FS, error) { return t.fsys, nil }, Secrets: secret.New(secret.Placeholders()), Kinds: app.Kinds(),
		Renderers: map[string]render.Renderer{
			deploy.KindKubernetes: kubernetes.New(kubernetes.Config{Charts: charts, Remotes: offline{}}), deploy.KindOpenTofu: opentofu.Renderer{}, deploy.KindTerraform: opentofu.Renderer{},
		},
	}
	c.declarations = nil
	for _, name := range files.applications {
		if !c.begin(t.show(name)) {
			continue
		}
		if err := c.application(ctx, t, loader, &templates, name); err != nil {
			return err
		}
	}
	return nil
}

// shared checks a file that applications share, if its kind can be checked.
func (c *checker) shared(t tree, name string) {
	data, err := fs.ReadFile(t.fsys, name)
	shown := t.show(name)
	if err != nil {
		c.problems = append(c.problems, shown+": "+err.Error())
		return
	}
	switch {
	case config.IsShared(name) && config.IsAnalysisTemplates(data):
		if c.begin(shown) {
			err = c.templates(shown, data)
		}
	case config.IsEventRules(data):
		if c.begin(shown) {
			var unread []string
			_, unread, err = config.ParseEventRules(shown, data)
			c.unread(unread)
		}
	default:
		if err = config.CheckSharedKind(shown, data); err != nil {
			c.begin(shown)
		}
	}
	if err != nil {
		c.problems = append(c.problems, strings.Split(err.Error(), "\n")...)
	}
}

// templates checks a file of kind AnalysisTemplate.
func (c *checker) templates(shown string, data []byte) error {
	all, warnings, err := config.ParseAnalysisTemplates(shown, data)
	if all != nil {
		warnings = warnings[:len(warnings)-len(all.Unread)]
		c.unread(all.Unread)
	}
	c.warnings = append(c.warnings, warnings...)
	return err
}

// application checks one application. It returns an error only if ctx has ended.
func (c *checker) application(ctx context.Context, t tree, loader *source.Loader, templates *config.AnalysisTemplates, name string) error {
	at := gitPath(name)
	app, err := loader.Config(ctx, at, "")
	if err == nil {
		c.apps = append(c.apps, deploy.Application{Name: cmp.Or(app.Name, path.Base(at.Dir)), Labels: app.Labels, Git: at})
		c.warnings = append(c.warnings, t.lines(name, strings.Join(app.Warnings, "\n"))...)
		c.unread(t.lines(name, strings.Join(app.Unread, "\n")))
		c.problems = append(c.problems, c.provider(t, name, app)...)
		if err := app.CheckTemplates(templates); err != nil {
			c.problems = append(c.problems, t.lines(name, err.Error())...)
		}
		if config.IsApplicationConfig(at.ConfigFile) {
			err = c.source(ctx, t, loader, name)
		} else {
			c.warnings = append(c.warnings, t.show(name)+": the agent finds only files named app.pipecd.yaml or *.pipecd.yaml")
		}
	}
	var unsupported *config.UnsupportedKind
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case errors.As(err, &unsupported):
		c.warnings = append(c.warnings, t.lines(name, err.Error()+"; the agent leaves the application alone")...)
	case errors.Is(err, errOffline):
		c.warnings = append(c.warnings, t.lines(name, err.Error())...)
	case err != nil:
		c.problems = append(c.problems, t.lines(name, err.Error())...)
	}
	return nil
}

// source checks the manifests of an application.
func (c *checker) source(ctx context.Context, t tree, loader *source.Loader, name string) error {
	src, err := loader.Load(ctx, gitPath(name), "")
	if err != nil {
		return err
	}
	c.warnings = append(c.warnings, t.lines(name, strings.Join(src.Warnings, "\n"))...)
	for _, err := range c.tenancy(gitPath(name), src) {
		c.problems = append(c.problems, t.lines(name, err.Error())...)
	}
	problems, warnings := c.declared(t, name, src)
	c.problems = append(c.problems, t.lines(name, strings.Join(problems, "\n"))...)
	c.warnings = append(c.warnings, t.lines(name, strings.Join(warnings, "\n"))...)
	for _, o := range src.Objects {
		for _, line := range c.fields(t, o) {
			c.problems = append(c.problems, t.lines(name, src.Redactor.Text(line))...)
		}
	}
	return nil
}

// provider returns what is wrong with the application's platform provider, if agents
// are known and none of them can deploy it.
func (c *checker) provider(t tree, name string, app *config.Application) []string {
	var all []string
	for _, agent := range c.agents {
		var own []string
		for _, p := range agent.Providers {
			own = append(own, p.Name)
		}
		if _, err := app.Provider(own); err == nil {
			return nil
		}
		all = append(all, own...)
	}
	if len(c.agents) == 0 {
		return nil
	}
	_, err := app.Provider(all)
	return []string{fmt.Sprintf("%s%s: %v", t.show(name), t.providerLine(name), err)}
}

var position = regexp.MustCompile(`^(.*?):(\d+): `)

// sorted returns the distinct lines by file and line number.
func sorted(lines []string) []string {
	key := func(line string) (file string, number int) {
		if m := position.FindStringSubmatch(line); m != nil {
			number, _ = strconv.Atoi(m[2])
			return m[1], number
		}
		file, _, _ = strings.Cut(line, ": ")
		return file, 0
	}
	slices.SortFunc(lines, func(a, b string) int {
		fileA, lineA := key(a)
		fileB, lineB := key(b)
		if fileA != fileB {
			return strings.Compare(fileA, fileB)
		}
		if lineA != lineB {
			return lineA - lineB
		}
		return strings.Compare(a, b)
	})
	return slices.Compact(lines)
}

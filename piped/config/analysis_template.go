package config

import (
	"errors"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/c785c783/piped/piped/config/analysis"
	"github.com/c785c783/piped/piped/config/strict"
	"github.com/c785c783/piped/piped/deploy"
)

// KindAnalysisTemplate is the kind of the files that hold templates of ANALYSIS.
const KindAnalysisTemplate = "AnalysisTemplate"

// SharedDir is the directory, at the root of a repository, of the files that its
// applications share.
const SharedDir = ".pipe"

var templateKind = regexp.MustCompile(`(?m)(?:^|[{,])[ \t]*["']?kind["']?:[ \t]*["']?` + KindAnalysisTemplate + `\b`)

// IsAnalysisTemplates reports whether a file, which may be broken, is meant to hold
// templates of ANALYSIS.
func IsAnalysisTemplates(data []byte) bool { return templateKind.Match(data) }

// IsShared reports whether the file of that name, from the root of the repository,
// is one of those that applications share: it stands directly in SharedDir and is
// YAML or JSON.
func IsShared(name string) bool {
	return path.Dir(name) == SharedDir && slices.Contains([]string{".yaml", ".yml", ".json"}, path.Ext(name))
}

// ParseAnalysisTemplates reads a file of SharedDir; name stands for the file in
// errors and warnings. It returns nil for a file of another kind. Errors are of
// kind deploy.Invalid and name every problem of the file, one a line.
func ParseAnalysisTemplates(name string, data []byte) (_ *analysis.Templates, warnings []string, err error) {
	d, err := strict.Parse(name, data, APIVersion)
	if err != nil {
		return nil, nil, &deploy.Error{Kind: deploy.Invalid, Err: err}
	}
	if d.Kind != KindAnalysisTemplate {
		return nil, nil, nil
	}
	var t analysis.Templates
	d.Decode(d.Spec, strict.Field{Base: "spec"}, &t, strict.Rules{})
	t.Complete(d)
	if err := d.Err(); err != nil {
		return nil, nil, &deploy.Error{Kind: deploy.Invalid, Err: err}
	}
	t.Unread = d.Unread()
	return &t, append(d.Warnings(), t.Unread...), nil
}

// AnalysisTemplates are the templates of a repository: those of all files of
// SharedDir together.
type AnalysisTemplates struct {
	analysis.Templates
	Warnings []string
	// Broken are the files that could not be read, which may hold templates.
	Broken []error

	files map[string]string // by kind and name: the file of a template
}

// Add reads one more file. One that is not meant to hold templates is passed over.
func (a *AnalysisTemplates) Add(name string, data []byte) {
	if !IsAnalysisTemplates(data) {
		return
	}
	t, warnings, err := ParseAnalysisTemplates(name, data)
	a.Warnings = append(a.Warnings, warnings...)
	if err == nil && t != nil {
		err = errors.Join(
			addTemplates(a, name, "metrics", &a.Metrics, t.Metrics),
			addTemplates(a, name, "logs", &a.Logs, t.Logs),
			addTemplates(a, name, "https", &a.HTTPS, t.HTTPS))
	}
	if err != nil {
		a.Broken = append(a.Broken, err)
	}
}

// addTemplates adds the templates of a file, unless another file has one of that
// name.
func addTemplates[T any](a *AnalysisTemplates, file, kind string, all *map[string]T, more map[string]T) (err error) {
	if a.files == nil {
		a.files = map[string]string{}
	}
	if *all == nil {
		*all = map[string]T{}
	}
	for name, t := range more {
		key := kind + "." + name
		if first, twice := a.files[key]; twice {
			err = errors.Join(err, deploy.Errorf(deploy.Invalid, "%s: spec.%s: the template is also in %s; keep one of them", file, key, first))
			delete(*all, name) // neither is meant more than the other
			continue
		}
		a.files[key], (*all)[name] = file, t
	}
	return err
}

// Resolve returns the checks of an analysis with their templates filled in. The
// error is of kind deploy.Invalid and names all that is missing or makes no sense,
// and the broken files if a template is missing that may be in them.
func (a *AnalysisTemplates) Resolve(o analysis.Options) (analysis.Checks, error) {
	checks, err := o.Checks.Resolve(a.Templates, o.Duration)
	if err != nil {
		err = deploy.Errorf(deploy.Invalid, "%w", errors.Join(append([]error{err}, a.hint(o)...)...))
	}
	return checks, err
}

// hint returns the broken files if they may hold a template that is missing.
func (a *AnalysisTemplates) hint(o analysis.Options) (hints []error) {
	if !a.lacks(o) {
		return nil
	}
	for _, err := range a.Broken {
		hints = append(hints, fmt.Errorf("and this file was not read: %w", err))
	}
	return hints
}

// lacks reports whether a template is missing that an analysis names.
func (a *AnalysisTemplates) lacks(o analysis.Options) bool {
	metrics, logs, https := o.Used()
	return missing(a.Metrics, metrics) || missing(a.Logs, logs) || missing(a.HTTPS, https)
}

func missing[T any](all map[string]T, names []string) bool {
	for _, name := range names {
		if _, ok := all[name]; !ok {
			return true
		}
	}
	return false
}

// CheckTemplates holds the analyses in the application's pipeline against the
// templates of its repository. The error is of kind deploy.Invalid and names what
// cannot be run, one a line.
func (a *Application) CheckTemplates(templates *AnalysisTemplates) error {
	if a.Pipeline == nil {
		return nil
	}
	var errs []error
	for i, s := range a.Pipeline.Stages {
		var o *analysis.Options
		switch with := s.With.(type) {
		case *AnalysisOptions:
			o = &with.Options
		case *TrafficRoutingOptions:
			o = with.Analysis
		}
		if o == nil {
			continue
		}
		if _, err := o.Checks.Resolve(templates.Templates, o.Duration); err != nil {
			for line := range strings.SplitSeq(err.Error(), "\n") {
				errs = append(errs, fmt.Errorf("spec.%s: %s", stageAt(i), line))
			}
		}
	}
	if len(errs) == 0 {
		return nil
	}
	return deploy.Errorf(deploy.Invalid, "%w", errors.Join(errs...))
}

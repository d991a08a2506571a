package config

import (
	"fmt"
	"path"
	"path/filepath"
	"regexp"

	"github.com/c785c783/piped/piped/config/strict"
	"github.com/c785c783/piped/piped/deploy"
)

// KindEventWatcher is the kind of the files below SharedDir that say, in PipeCD's
// older form, what events change in Git.
const KindEventWatcher = "EventWatcher"

var eventKind = regexp.MustCompile(`(?m)(?:^|[{,])[ \t]*["']?kind["']?:[ \t]*["']?` + KindEventWatcher + `\b`)

// eventFile is a file of kind EventWatcher.
type eventFile struct {
	Events []struct {
		Name         string            `yaml:"name"`
		Labels       map[string]string `yaml:"labels"`
		Replacements []Replacement     `yaml:"replacements"`
	} `yaml:"events"`
}

// IsEventRules reports whether a file, which may be broken, is meant to be of kind
// EventWatcher.
func IsEventRules(data []byte) bool { return eventKind.Match(data) }

// ParseEventRules reads a file below SharedDir; name stands for the file in errors.
// It returns nothing for a file that is not meant to be of kind EventWatcher. The
// files that the rules name are relative to the repository's root. Unread names what of
// the file is not read, one line each. Errors are of kind deploy.Invalid and name every
// problem of the file, one a line.
func ParseEventRules(name string, data []byte) (rules []EventRule, unread []string, err error) {
	if !IsEventRules(data) {
		return nil, nil, nil
	}
	d, err := strict.Parse(name, data, APIVersion)
	if err != nil {
		return nil, nil, &deploy.Error{Kind: deploy.Invalid, Err: err}
	}
	if d.Kind != KindEventWatcher {
		return nil, nil, nil
	}
	var f eventFile
	d.Decode(d.Spec, strict.Field{Base: "spec"}, &f, strict.Rules{})
	for i, e := range f.Events {
		at := fmt.Sprintf("events[%d]", i)
		if e.Name == "" {
			d.Problemf(at+".name", "required; expected an event's name")
		}
		if len(e.Replacements) == 0 {
			d.Problemf(at+".replacements", "expected at least one replacement")
		}
		for j, r := range e.Replacements {
			at := fmt.Sprintf("%s.replacements[%d]", at, j)
			if !filepath.IsLocal(r.File) || path.Clean(r.File) == "." {
				d.Problemf(at+".file", "expected the path of a file from the repository's root, found %q", r.File)
			}
			r.complete(d, at)
		}
		rules = append(rules, EventRule{
			Matcher: EventMatcher{Name: e.Name, Labels: e.Labels},
			Handler: EventHandler{Type: HandlerGitUpdate, Config: GitUpdate{Replacements: e.Replacements}},
		})
	}
	if err := d.Err(); err != nil {
		return nil, nil, &deploy.Error{Kind: deploy.Invalid, Err: err}
	}
	return rules, d.Unread(), nil
}

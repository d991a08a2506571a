package config

import (
	"fmt"
	"regexp"
	"strings"
	"text/template"

	"github.com/c785c783/piped/piped/config/strict"
)

// EventRule is one entry of spec.eventWatcher: what an event changes in Git.
type EventRule struct {
	Matcher EventMatcher `yaml:"matcher"`
	Handler EventHandler `yaml:"handler"`
}

// Default implements strict.Defaulter.
func (w *EventRule) Default() { w.Handler.Type = HandlerGitUpdate }

// EventMatcher selects events that have the name and exactly the labels.
type EventMatcher struct {
	Name   string            `yaml:"name"`
	Labels map[string]string `yaml:"labels"`
}

// EventHandler says what is done with an event.
type EventHandler struct {
	Type   HandlerType `yaml:"type"`
	Config GitUpdate   `yaml:"config"`
}

// HandlerType is a kind of handler.
type HandlerType string

// HandlerGitUpdate commits to the application's repository.
const HandlerGitUpdate HandlerType = "GIT_UPDATE"

// Values lists the kinds of handler.
func (HandlerType) Values() []string { return []string{string(HandlerGitUpdate)} }

// GitUpdate is the commit an event makes.
type GitUpdate struct {
	CommitMessage   string        `yaml:"commitMessage"` // "" is one that names the event; .Value and .EventName are filled in
	MakePullRequest bool          `yaml:"makePullRequest"`
	Replacements    []Replacement `yaml:"replacements"`
}

// Replacement writes the event's data into a file, at the one of the four places
// that is written.
type Replacement struct {
	File      string `yaml:"file"` // inside the application's directory
	YAMLField string `yaml:"yamlField"`
	JSONField string `yaml:"jsonField"`
	HCLField  string `yaml:"HCLField"`
	// Regex replaces the first group of every match.
	Regex string `yaml:"regex"`
}

func (w EventRule) complete(d *strict.Document, at string) {
	if w.Matcher.Name == "" {
		d.Problemf(at+".matcher.name", "required; expected an event's name")
	}
	if len(w.Handler.Config.Replacements) == 0 {
		d.Problemf(at+".handler.config.replacements", "expected at least one replacement")
	}
	for i, r := range w.Handler.Config.Replacements {
		at := fmt.Sprintf("%s.handler.config.replacements[%d]", at, i)
		checkFile(d, at+".file", r.File)
		r.complete(d, at)
	}
	checkMessage(d, at+".handler.config.commitMessage", w.Handler.Config.CommitMessage)
}

// checkMessage reports a commit message that is no template.
func checkMessage(d *strict.Document, at, message string) {
	if _, err := template.New("").Parse(message); err != nil {
		d.Problemf(at, "expected a text in which {{ .Value }} and {{ .EventName }} may stand: %s", strings.TrimPrefix(err.Error(), "template: :"))
	}
}

func (r Replacement) complete(d *strict.Document, at string) {
	places := 0
	for _, place := range []string{r.YAMLField, r.JSONField, r.HCLField, r.Regex} {
		if place != "" {
			places++
		}
	}
	if places != 1 {
		d.Problemf(at, "expected exactly one of yamlField, jsonField, HCLField and regex, found %d", places)
	}
	for field, path := range map[string]string{"yamlField": r.YAMLField, "jsonField": r.JSONField} {
		if path != "" && !strings.HasPrefix(path, "$") {
			d.Problemf(at+"."+field, "expected a path such as $.spec.replicas, found %q", path)
		}
	}
	if r.Regex == "" {
		return
	}
	if re, err := regexp.Compile(r.Regex); err != nil {
		d.Problemf(at+".regex", "expected a regular expression, found %q: %s", r.Regex, err)
	} else if re.NumSubexp() == 0 {
		d.Problemf(at+".regex", "expected a group, such as image:(.*), which is what is replaced; found %q", r.Regex)
	}
}

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
	// Matcher selects events.
	Matcher EventMatcher `yaml:"matcher"`
	// Handler is what is done with an event.
	Handler EventHandler `yaml:"handler"`
}

// Default implements strict.Defaulter.
func (w *EventRule) Default() { w.Handler.Type = HandlerGitUpdate }

// EventMatcher selects events that have the name and exactly the labels.
type EventMatcher struct {
	// Name is the name of the event.
	// Required.
	Name string `yaml:"name"`
	// Labels are exactly the labels of the event.
	Labels map[string]string `yaml:"labels"`
}

// EventHandler says what is done with an event.
type EventHandler struct {
	// Type is the kind of handler.
	Type HandlerType `yaml:"type"`
	// Config is the commit that the event makes.
	Config GitUpdate `yaml:"config"`
}

// HandlerType is a kind of handler.
type HandlerType string

// HandlerGitUpdate commits to the application's repository.
const HandlerGitUpdate HandlerType = "GIT_UPDATE"

// Values lists the kinds of handler.
func (HandlerType) Values() []string { return []string{string(HandlerGitUpdate)} }

// GitUpdate is the commit an event makes.
type GitUpdate struct {
	// CommitMessage is the commit message. `{{ .Value }}` and `{{ .EventName }}` are filled in.
	// Default: one that names the event.
	CommitMessage string `yaml:"commitMessage"`
	// MakePullRequest pushes a branch, and opens a pull request where `gitHosts` names the host.
	MakePullRequest bool `yaml:"makePullRequest"`
	// Replacements are the places in files that get the event's data.
	// Required.
	Replacements []Replacement `yaml:"replacements"`
}

// Replacement writes the event's data into a file, at the one of the four places
// that is written.
type Replacement struct {
	// File is an existing file inside the application's directory. Below `.pipe/` it is relative
	// to the root of the repository.
	// Required. Type: path.
	File string `yaml:"file"`
	// YAMLField is a path such as `$.image.tag`, in every document of the file that has it. Set
	// this or one of the following.
	YAMLField string `yaml:"yamlField"`
	// JSONField is a path such as `$.version`.
	JSONField string `yaml:"jsonField"`
	// HCLField is blocks, labels and keys with dots between them: `module.web.version`.
	HCLField string `yaml:"HCLField"`
	// Regex is a regular expression. The first group of every match is replaced.
	Regex string `yaml:"regex"`
}

// complete reports the missing and malformed fields of the rule to d; at is its path.
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

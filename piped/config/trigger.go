package config

import (
	"strings"
	"time"
)

// Trigger is spec.trigger: what makes a deployment.
type Trigger struct {
	// OnCommit is for commits that touch the application.
	OnCommit OnCommit `yaml:"onCommit"`
	// OnCommand is for syncs by hand. Turned off, they are refused.
	OnCommand Switch `yaml:"onCommand"`
	// OnOutOfSync is self-healing: an application that differs from Git is deployed again.
	OnOutOfSync OnOutOfSync `yaml:"onOutOfSync"`
	// OnChain permits deployment chains to deploy the application.
	OnChain Switch `yaml:"onChain"`
	// Queue is what a new deployment does to the application's others: `newest` supersedes those
	// that wait, `all` runs one after another, `replace` also cancels the running one.
	// Not in PipeCD.
	Queue Queue `yaml:"queue"`
}

// Switch turns one kind of trigger off.
type Switch struct {
	// Disabled turns the trigger off.
	Disabled bool `yaml:"disabled"`
}

// OnCommit is spec.trigger.onCommit. Patterns are relative to the repository's
// root.
type OnCommit struct {
	// Disabled turns deployments by commits off.
	Disabled bool `yaml:"disabled"`
	// Paths are further files of the repository that count as the application's.
	Paths Patterns `yaml:"paths"`
	// Ignores are files that do not count.
	Ignores Patterns `yaml:"ignores"`
}

// Touched reports whether changed files concern the application in dir, and names
// one that does. Files matched by Ignores do not count at all; of the others count
// those below dir and those matched by Paths. Unlike in PipeCD, an ignored file
// vetoes nothing but itself. Whether the trigger is disabled does not matter.
func (o OnCommit) Touched(dir string, changed []string) (file string, ok bool) {
	prefix := dir + "/"
	if dir == "." || dir == "" {
		prefix = ""
	}
	for _, file = range changed {
		if (strings.HasPrefix(file, prefix) || o.Paths.Match(file)) && !o.Ignores.Match(file) {
			return file, true
		}
	}
	return "", false
}

// OnOutOfSync is spec.trigger.onOutOfSync.
type OnOutOfSync struct {
	// Disabled turns self-healing off.
	Disabled bool `yaml:"disabled"`
	// MinWindow is the least time since the last deployment; at least 5 s pass.
	MinWindow time.Duration `yaml:"minWindow"`
}

// Queue says what a new deployment does to those that wait or run.
type Queue string

// The queues. Newest supersedes what waits, All runs one by one, Replace also
// cancels what runs.
const (
	QueueNewest  Queue = "newest"
	QueueAll     Queue = "all"
	QueueReplace Queue = "replace"
)

// Values lists the queues.
func (Queue) Values() []string {
	return []string{string(QueueNewest), string(QueueAll), string(QueueReplace)}
}

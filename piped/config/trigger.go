package config

import (
	"strings"
	"time"
)

// Trigger is spec.trigger: what makes a deployment.
type Trigger struct {
	OnCommit    OnCommit    `yaml:"onCommit"`
	OnCommand   Switch      `yaml:"onCommand"`
	OnOutOfSync OnOutOfSync `yaml:"onOutOfSync"`
	OnChain     Switch      `yaml:"onChain"`
	Queue       Queue       `yaml:"queue"`
}

// Switch turns one kind of trigger off.
type Switch struct {
	Disabled bool `yaml:"disabled"`
}

// OnCommit is spec.trigger.onCommit. Patterns are relative to the repository's
// root.
type OnCommit struct {
	Disabled bool     `yaml:"disabled"`
	Paths    Patterns `yaml:"paths"`
	Ignores  Patterns `yaml:"ignores"`
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
	Disabled  bool          `yaml:"disabled"`
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

package config

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/c785c783/piped/piped/config/strict"
)

// Generic is the part of an application's configuration that every kind of
// application has.
type Generic struct {
	Name        string            `yaml:"name"`
	Labels      map[string]string `yaml:"labels"`
	Description string            `yaml:"description"`
	Planner     Planner           `yaml:"planner"`
	Trigger     Trigger           `yaml:"trigger"`
	// Timeout bounds a deployment from its start to the end of its last stage.
	Timeout time.Duration `yaml:"timeout"`
	// PlatformProvider names where to deploy; "" means the only provider.
	PlatformProvider string         `yaml:"platformProvider"`
	Rollback         Rollback       `yaml:"rollback"`
	DriftDetection   DriftDetection `yaml:"driftDetection"`
	Notification     Notification   `yaml:"notification"`
}

// Planner is spec.planner.
type Planner struct {
	AlwaysUsePipeline bool `yaml:"alwaysUsePipeline"`
	// AutoRollback is nil when not written; see Application.AutoRollback.
	AutoRollback *bool `yaml:"autoRollback"`
}

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

// UnmarshalText reads a queue's name.
func (q *Queue) UnmarshalText(text []byte) error {
	switch v := Queue(text); v {
	case QueueNewest, QueueAll, QueueReplace:
		*q = v
		return nil
	}
	return fmt.Errorf("expected %s, found %q", q.Expected(), text)
}

// Expected says what a Queue is read from.
func (q Queue) Expected() string { return "newest, all or replace" }

// Rollback is spec.rollback.
type Rollback struct {
	// Timeout bounds the rollback; it is Timeout of the deployment when not written.
	Timeout time.Duration `yaml:"timeout"`
}

// DriftDetection is spec.driftDetection.
type DriftDetection struct {
	// IgnoreFields are "apiVersion:kind:namespace:name#path", as in PipeCD.
	IgnoreFields []string `yaml:"ignoreFields"`
}

// Notification is spec.notification.
type Notification struct {
	Mentions []Mention `yaml:"mentions"`
}

// Mention says whom to mention for an event.
type Mention struct {
	Event       string   `yaml:"event"` // "*" or an event's name
	Slack       []string `yaml:"slack"`
	SlackUsers  []string `yaml:"slackusers"`
	SlackGroups []string `yaml:"slackgroups"`
	Email       []string `yaml:"email"`
}

// mentionEvents returns the events a mention may name.
func mentionEvents() []string {
	return []string{"*",
		"DEPLOYMENT_TRIGGERED", "DEPLOYMENT_PLANNED", "DEPLOYMENT_STARTED", "DEPLOYMENT_APPROVED",
		"DEPLOYMENT_WAIT_APPROVAL", "DEPLOYMENT_ROLLING_BACK", "DEPLOYMENT_SUCCEEDED", "DEPLOYMENT_FAILED",
		"DEPLOYMENT_CANCELLED", "DEPLOYMENT_TRIGGER_FAILED",
		"APPLICATION_SYNCED", "APPLICATION_OUT_OF_SYNC", "APPLICATION_HEALTHY",
		"PIPED_STARTED", "PIPED_STOPPED",
		"STAGE_STARTED", "STAGE_SKIPPED", "STAGE_SUCCEEDED", "STAGE_FAILED", "STAGE_CANCELLED"}
}

func defaultGeneric() Generic {
	return Generic{
		Trigger: Trigger{
			OnOutOfSync: OnOutOfSync{Disabled: true, MinWindow: 5 * time.Minute},
			OnChain:     Switch{Disabled: true},
			Queue:       QueueNewest,
		},
		Timeout: 6 * time.Hour,
	}
}

// genericRules returns the generic keys of spec that are known but not read. One
// goes from the list when its feature comes.
func genericRules() strict.Rules {
	return strict.Rules{Unsupported: []string{
		"pipeline", "commitMatcher", "encryption", "attachment", "postSync", "eventWatcher", "syncWindows",
		"driftDetection.ignoreRules",
	}}
}

// complete fills what depends on other fields and reports every value that
// makes no sense to d.
func (g *Generic) complete(d *strict.Document) {
	if strings.TrimSpace(g.Name) == "" {
		d.Problemf("name", "required; expected the application's name")
	}
	if g.Timeout <= 0 {
		d.Problemf("timeout", "expected a duration above 0, found %s", g.Timeout)
	}
	if !d.Has("rollback.timeout") {
		g.Rollback.Timeout = g.Timeout
	} else if g.Rollback.Timeout <= 0 {
		d.Problemf("rollback.timeout", "expected a duration above 0, found %s", g.Rollback.Timeout)
	}
	if g.Trigger.OnOutOfSync.MinWindow < 0 {
		d.Problemf("trigger.onOutOfSync.minWindow", "expected a duration of 0 or more, found %s", g.Trigger.OnOutOfSync.MinWindow)
	}
	for i, f := range g.DriftDetection.IgnoreFields {
		key, path, ok := strings.Cut(f, "#")
		if !ok || strings.Contains(path, "#") || strings.Count(key, ":") != 3 || path == "" {
			d.Problemf(fmt.Sprintf("driftDetection.ignoreFields[%d]", i), "expected apiVersion:kind:namespace:name#path, found %q", f)
		}
	}
	for i, m := range g.Notification.Mentions {
		if !slices.Contains(mentionEvents(), m.Event) {
			d.Problemf(fmt.Sprintf("notification.mentions[%d].event", i), "expected * or an event such as DEPLOYMENT_FAILED, found %q", m.Event)
		}
	}
}

package config

import (
	"fmt"
	"slices"

	"github.com/c785c783/piped/piped/config/strict"
)

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

func (n Notification) complete(d *strict.Document) {
	for i, m := range n.Mentions {
		at := fmt.Sprintf("notification.mentions[%d]", i)
		if !slices.Contains(mentionEvents(), m.Event) {
			d.Problemf(at+".event", "expected * or an event such as DEPLOYMENT_FAILED, found %q", m.Event)
		}
		if d.Has(at + ".email") {
			d.Warnf(at+".email", "not used; mention people with slackusers")
		}
	}
}

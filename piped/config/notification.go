package config

import (
	"fmt"
	"slices"

	"github.com/c785c783/piped/piped/config/strict"
	"github.com/c785c783/piped/piped/deploy"
)

// Notification is spec.notification.
type Notification struct {
	// Mentions are lists of users for events.
	Mentions []Mention `yaml:"mentions"`
}

// Mention says whom to mention for an event.
type Mention struct {
	// Event is `*`, or an event such as `DEPLOYMENT_FAILED`.
	// Required.
	Event string `yaml:"event"`
	// Slack is PipeCD's older name of `slackusers`.
	Slack []string `yaml:"slack"`
	// SlackUsers are Slack's IDs of users.
	SlackUsers []string `yaml:"slackusers"`
	// SlackGroups are Slack's IDs of groups.
	SlackGroups []string `yaml:"slackgroups"`
	// Email has no effect.
	Email []string `yaml:"email"`
}

// mentionEvents returns the events a mention may name.
func mentionEvents() []string { return append([]string{"*"}, NotificationEvent("").Values()...) }

// Whom returns whom to mention, as a deployment carries it.
func (n Notification) Whom() []deploy.Mention {
	var out []deploy.Mention
	for _, m := range n.Mentions {
		out = append(out, deploy.Mention{Event: m.Event, Slack: m.Slack, SlackUsers: m.SlackUsers, SlackGroups: m.SlackGroups})
	}
	return out
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

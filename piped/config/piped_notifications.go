package config

import (
	"fmt"
	"net/url"
	"slices"
	"strings"

	"github.com/c785c783/piped/piped/config/strict"
)

// Notifications is spec.notifications: who is told what.
type Notifications struct {
	Routes    []NotificationRoute    `yaml:"routes"`
	Receivers []NotificationReceiver `yaml:"receivers"`
}

// NotificationRoute leads events to a receiver. Of each condition that is there
// an event must fulfil one, and of the ignore conditions none; of Labels all.
type NotificationRoute struct {
	Name         string              `yaml:"name"`
	Receiver     string              `yaml:"receiver"`
	Events       []NotificationEvent `yaml:"events"`
	IgnoreEvents []NotificationEvent `yaml:"ignoreEvents"`
	Groups       []NotificationGroup `yaml:"groups"`
	IgnoreGroups []NotificationGroup `yaml:"ignoreGroups"`
	Apps         []string            `yaml:"apps"`
	IgnoreApps   []string            `yaml:"ignoreApps"`
	Labels       map[string]string   `yaml:"labels"`
	IgnoreLabels map[string]string   `yaml:"ignoreLabels"`
}

// NotificationEvent is the name of an event people can be told of.
type NotificationEvent string

// Values returns every event.
func (NotificationEvent) Values() []string {
	return slices.DeleteFunc(mentionEvents(), func(name string) bool { return name == "*" })
}

// NotificationGroup is the name of a group of events.
type NotificationGroup string

// Values returns every group.
func (NotificationGroup) Values() []string {
	return []string{"DEPLOYMENT", "APPLICATION_SYNC", "APPLICATION_HEALTH", "PIPED", "STAGE"}
}

// NotificationReceiver is told events, over Slack or a webhook.
type NotificationReceiver struct {
	Name    string           `yaml:"name"`
	Slack   *SlackReceiver   `yaml:"slack"`
	Webhook *WebhookReceiver `yaml:"webhook"`
}

// SlackReceiver posts to Slack: to HookURL, or with a token to a channel. Tokens
// are decoded: what the file holds in base64 is plain here.
type SlackReceiver struct {
	HookURL        strict.Secret `yaml:"hookURL"`
	OAuthToken     strict.Secret `yaml:"oauthToken"`
	OAuthTokenData strict.Secret `yaml:"oauthTokenData"`
	OAuthTokenFile string        `yaml:"oauthTokenFile"`
	ChannelID      string        `yaml:"channelID"`
	// MentionedAccounts have no leading @, MentionedGroups are bare IDs.
	MentionedAccounts []string `yaml:"mentionedAccounts"`
	MentionedGroups   []string `yaml:"mentionedGroups"`
}

// WebhookReceiver posts JSON to a URL, with a header that proves who sends it.
type WebhookReceiver struct {
	URL                string        `yaml:"url"`
	SignatureKey       string        `yaml:"signatureKey"` // the header's name
	SignatureValue     strict.Secret `yaml:"signatureValue"`
	SignatureValueFile string        `yaml:"signatureValueFile"`
}

// Default implements strict.Defaulter.
func (w *WebhookReceiver) Default() { w.SignatureKey = "PipeCD-Signature" }

func (n Notifications) complete(d *strict.Document, r resolver) Notifications {
	receivers := names{d: d}
	for i := range n.Receivers {
		receiver, at := &n.Receivers[i], fmt.Sprintf("notifications.receivers[%d]", i)
		receivers.add(at, "name", receiver.Name)
		if receiver.Slack == nil && receiver.Webhook == nil {
			d.Problemf(at, "expected slack or webhook")
		}
		if receiver.Slack != nil {
			receiver.Slack.complete(d, r, at+".slack")
		}
		if receiver.Webhook != nil {
			receiver.Webhook.complete(d, r, at+".webhook")
		}
	}
	routes := names{d: d}
	for i, route := range n.Routes {
		at := fmt.Sprintf("notifications.routes[%d]", i)
		if route.Name != "" {
			routes.add(at, "name", route.Name)
		}
		if _, known := receivers.seen[route.Receiver]; route.Receiver == "" {
			d.Problemf(at+".receiver", "required; expected the name of a receiver")
		} else if !known {
			d.Problemf(at+".receiver", "%q is no receiver below notifications.receivers", route.Receiver)
		}
	}
	return n
}

func (s *SlackReceiver) complete(d *strict.Document, r resolver, at string) {
	hook := field{at + ".hookURL", !s.HookURL.IsEmpty()}
	tokens := []field{
		{at + ".oauthToken", !s.OAuthToken.IsEmpty()},
		{at + ".oauthTokenData", !s.OAuthTokenData.IsEmpty()},
		{at + ".oauthTokenFile", s.OAuthTokenFile != ""},
	}
	exactlyOne(d, hook, tokens...)
	channel := field{at + ".channelID", s.ChannelID != ""}
	if hook.set {
		unfit(d, "hookURL", channel)
	} else if slices.ContainsFunc(tokens, func(f field) bool { return f.set }) {
		required(d, channel.path, s.ChannelID)
	}
	s.OAuthTokenData = base64Secret(d, at+".oauthTokenData", s.OAuthTokenData)
	s.OAuthTokenFile = r.path(at+".oauthTokenFile", s.OAuthTokenFile)
	for i, account := range s.MentionedAccounts {
		s.MentionedAccounts[i] = strings.TrimPrefix(account, "@")
	}
	for i, group := range s.MentionedGroups {
		s.MentionedGroups[i] = strings.TrimSuffix(strings.TrimPrefix(group, "<!subteam^"), ">")
	}
}

func (w *WebhookReceiver) complete(d *strict.Document, r resolver, at string) {
	if u, err := url.Parse(w.URL); err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		d.Problemf(at+".url", "expected http://... or https://... (the value is not shown)")
	}
	if w.SignatureKey == "" {
		w.Default()
	}
	exclusive(d, field{at + ".signatureValue", !w.SignatureValue.IsEmpty()}, field{at + ".signatureValueFile", w.SignatureValueFile != ""})
	w.SignatureValueFile = r.path(at+".signatureValueFile", w.SignatureValueFile)
}

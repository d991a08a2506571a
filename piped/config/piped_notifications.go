package config

import (
	"fmt"
	"net/url"
	"slices"
	"strings"

	"github.com/c785c783/piped/piped/config/strict"
	"github.com/c785c783/piped/piped/deploy"
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
func (NotificationEvent) Values() []string { return textsOf(deploy.EventTypes()) }

// NotificationGroup is the name of a group of events.
type NotificationGroup string

// Values returns every group.
func (NotificationGroup) Values() []string { return textsOf(deploy.EventGroups()) }

func textsOf[T ~string](list []T) []string {
	out := make([]string, len(list))
	for i, v := range list {
		out[i] = string(v)
	}
	return out
}

// NotificationReceiver is told events, over Slack or else a webhook.
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

// Load returns the token: empty if there is a HookURL instead, else never. Errors are
// of kind deploy.Invalid and do not show the content of OAuthTokenFile.
func (s SlackReceiver) Load() (strict.Secret, error) {
	switch {
	case s.OAuthTokenFile != "":
		return readSecret(s.OAuthTokenFile, strings.TrimSpace, "the token for Slack", "write the bot's token into it")
	case !s.OAuthTokenData.IsEmpty():
		return s.OAuthTokenData, nil
	}
	return s.OAuthToken, nil
}

// WebhookReceiver posts JSON to a URL: with PipeCD's header, whose value is sent as it
// is, and with a signature by the HMAC secret, which is never sent.
type WebhookReceiver struct {
	URL                string        `yaml:"url"`
	SignatureKey       string        `yaml:"signatureKey"` // the header's name
	SignatureValue     strict.Secret `yaml:"signatureValue"`
	SignatureValueFile string        `yaml:"signatureValueFile"`
	HMACSecret         strict.Secret `yaml:"hmacSecret"`
	HMACSecretFile     string        `yaml:"hmacSecretFile"`
}

// Load returns the value of the header, empty if none is configured. Errors are of kind
// deploy.Invalid and do not show the content of SignatureValueFile.
func (w WebhookReceiver) Load() (strict.Secret, error) {
	if w.SignatureValueFile == "" {
		return w.SignatureValue, nil
	}
	return readSecret(w.SignatureValueFile, withoutLineEnd, "the signature value of a webhook", "write the secret that the receiver knows into it")
}

// LoadHMAC returns the secret that messages are signed with, empty if none is configured.
// Errors are of kind deploy.Invalid and do not show the content of HMACSecretFile.
func (w WebhookReceiver) LoadHMAC() (strict.Secret, error) {
	if w.HMACSecretFile == "" {
		return w.HMACSecret, nil
	}
	return readSecret(w.HMACSecretFile, withoutLineEnd, "the HMAC secret of a webhook", "write the secret that the receiver checks signatures with into it")
}

func withoutLineEnd(text string) string { return strings.TrimRight(text, "\r\n") }

// Default implements strict.Defaulter.
func (w *WebhookReceiver) Default() { w.SignatureKey = "PipeCD-Signature" }

func (n Notifications) complete(d *strict.Document, r resolver) Notifications {
	receivers := names{d: d}
	for i := range n.Receivers {
		receiver, at := &n.Receivers[i], fmt.Sprintf("notifications.receivers[%d]", i)
		receivers.add(at, "name", receiver.Name)
		switch {
		case receiver.Slack == nil && receiver.Webhook == nil:
			d.Problemf(at, "expected slack or webhook")
		case receiver.Slack != nil && receiver.Webhook != nil:
			d.Warnf(at+".webhook", "not used beside slack; make it a receiver of its own")
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

// files are what the receivers read, "" for nothing.
func (n Notifications) files() []string {
	var out []string
	for _, r := range n.Receivers {
		if r.Slack != nil {
			out = append(out, r.Slack.OAuthTokenFile)
		}
		if r.Webhook != nil {
			out = append(out, r.Webhook.SignatureValueFile, r.Webhook.HMACSecretFile)
		}
	}
	return out
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
	exclusive(d, field{at + ".hmacSecret", !w.HMACSecret.IsEmpty()}, field{at + ".hmacSecretFile", w.HMACSecretFile != ""})
	w.HMACSecretFile = r.path(at+".hmacSecretFile", w.HMACSecretFile)
}

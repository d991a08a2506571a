package config

import (
	"fmt"
	"net/url"
	"slices"
	"strings"

	"github.com/c785c783/piped/piped/config/strict"
	"github.com/c785c783/piped/piped/deploy"
)

// Notifications is spec.notifications: which receivers get which events.
type Notifications struct {
	// Routes send events to receivers. An event follows a route when all conditions of the route
	// hold.
	Routes []NotificationRoute `yaml:"routes"`
	// Receivers get notifications. Each has `slack` or `webhook`.
	Receivers []NotificationReceiver `yaml:"receivers"`
}

// NotificationRoute leads events to a receiver. Of each condition that is there
// an event must fulfil one, and of the ignore conditions none; of Labels all.
type NotificationRoute struct {
	// Name is a unique name.
	Name string `yaml:"name"`
	// Receiver is the name of a receiver.
	// Required.
	Receiver string `yaml:"receiver"`
	// Events are the events to send, such as `DEPLOYMENT_FAILED`.
	// Default: all.
	Events []NotificationEvent `yaml:"events"`
	// IgnoreEvents are events not to send.
	// Default: none.
	IgnoreEvents []NotificationEvent `yaml:"ignoreEvents"`
	// Groups are the groups of events to send: `DEPLOYMENT`, `APPLICATION_SYNC`,
	// `APPLICATION_HEALTH`, `PIPED`, `STAGE`, and `ROLLOUT`, which is not in PipeCD.
	// Default: all.
	Groups []NotificationGroup `yaml:"groups"`
	// IgnoreGroups are groups of events not to send.
	// Default: none.
	IgnoreGroups []NotificationGroup `yaml:"ignoreGroups"`
	// Apps are names of applications whose events are sent.
	// Default: all.
	Apps []string `yaml:"apps"`
	// IgnoreApps are names of applications whose events are not sent.
	// Default: none.
	IgnoreApps []string `yaml:"ignoreApps"`
	// Labels are labels that the application must have, all of them.
	// Default: all.
	Labels map[string]string `yaml:"labels"`
	// IgnoreLabels are labels of which the application must have none.
	// Default: none.
	IgnoreLabels map[string]string `yaml:"ignoreLabels"`
	// Previews is whether events of previews of pull requests are sent: `none`, `also`, or `only`.
	// Default: `none`. Not in PipeCD.
	Previews RoutePreviews `yaml:"previews"`
}

// RoutePreviews is what a route does with events of previews of pull requests; "" is
// PreviewsNone.
type RoutePreviews string

// The values of RoutePreviews.
const (
	PreviewsNone RoutePreviews = "none"
	PreviewsAlso RoutePreviews = "also"
	PreviewsOnly RoutePreviews = "only"
)

// Values returns every value.
func (RoutePreviews) Values() []string {
	return []string{string(PreviewsNone), string(PreviewsAlso), string(PreviewsOnly)}
}

// NotificationEvent is the name of an event that can be notified.
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

// NotificationReceiver gets events by Slack or by a webhook.
type NotificationReceiver struct {
	// Name is the unique name that routes use.
	// Required.
	Name string `yaml:"name"`
	// Slack posts to Slack.
	Slack *SlackReceiver `yaml:"slack"`
	// Webhook posts JSON to a URL.
	Webhook *WebhookReceiver `yaml:"webhook"`
}

// SlackReceiver posts to Slack: to HookURL, or with a token to a channel. Tokens
// are decoded: what the file holds in base64 is plain here.
type SlackReceiver struct {
	// HookURL is the URL of an incoming webhook. Set this, or one token with `channelID`.
	// Type: URL.
	HookURL strict.Secret `yaml:"hookURL"`
	// OAuthToken is the token of a bot with the scope `chat:write`.
	OAuthToken strict.Secret `yaml:"oauthToken"`
	// OAuthTokenData is that token in base64.
	OAuthTokenData strict.Secret `yaml:"oauthTokenData"`
	// OAuthTokenFile is the file of that token.
	OAuthTokenFile string `yaml:"oauthTokenFile"`
	// ChannelID is the ID of the channel, such as `C0123456789`. The bot must be in it.
	// Required with a token.
	ChannelID string `yaml:"channelID"`
	// MentionedAccounts are Slack's IDs of users who are mentioned in every message.
	//
	// They have no leading @.
	MentionedAccounts []string `yaml:"mentionedAccounts"`
	// MentionedGroups are Slack's IDs of groups that are mentioned in every message.
	//
	// They are bare IDs.
	MentionedGroups []string `yaml:"mentionedGroups"`
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
	// URL is where the messages are posted.
	// Required. Type: URL.
	URL string `yaml:"url"`
	// SignatureKey is the name of a header whose value is `signatureValue` itself, as in PipeCD.
	// Default: `PipeCD-Signature`.
	SignatureKey string `yaml:"signatureKey"`
	// SignatureValue is the value of that header. Anyone who sees a message knows it.
	SignatureValue strict.Secret `yaml:"signatureValue"`
	// SignatureValueFile is the file of that value.
	SignatureValueFile string `yaml:"signatureValueFile"`
	// HMACSecret signs each message and is never sent. Set this or `hmacSecretFile`.
	// Default: none. Not in PipeCD.
	HMACSecret strict.Secret `yaml:"hmacSecret"`
	// HMACSecretFile is the file of that secret.
	// Default: none. Not in PipeCD.
	HMACSecretFile string `yaml:"hmacSecretFile"`
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
			d.Warnf(at+".webhook", "not used together with slack; make it a receiver of its own")
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

package slack

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/slack-go/slack"

	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/notify"
)

// timeout limits a request.
const timeout = 10 * time.Second

// Notes stores values of a receiver by key; they survive restarts. *store.Store implements it.
type Notes interface {
	ReceiverNote(ctx context.Context, receiver, key string) (string, error)
	PutReceiverNote(ctx context.Context, receiver, key, value string) error
}

// Config holds the destination and the credentials: HookURL, or Token and ChannelID.
type Config struct {
	Receiver string // the receiver's name, under which its notes are stored

	HookURL          string
	Token, ChannelID string
	APIURL           string // default: Slack's API

	Accounts, Groups []string // IDs of the users and user groups that every message mentions

	Page      notify.Page // what messages link to
	ProjectID string
	Notes     Notes
	Now       func() time.Time
}

// Sender posts messages. It implements notify.Sender.
type Sender struct {
	Config
	http *http.Client
	api  *slack.Client
}

// New returns a sender.
func New(c Config) *Sender {
	s := &Sender{Config: c, http: notify.NewClient(timeout)}
	if c.HookURL == "" {
		options := []slack.Option{slack.OptionHTTPClient(s.http)}
		if c.APIURL != "" {
			options = append(options, slack.OptionAPIURL(c.APIURL))
		}
		s.api = slack.New(c.Token, options...)
	}
	return s
}

// Deliver posts n.
func (s *Sender) Deliver(ctx context.Context, n notify.Notice) error {
	text, attachment := s.compose(n)
	if s.api == nil {
		return s.hook(ctx, text, attachment)
	}
	return s.post(ctx, n, slack.MsgOptionText(text, false), slack.MsgOptionAttachments(attachment))
}

// hook posts to the incoming webhook.
func (s *Sender) hook(ctx context.Context, text string, attachment slack.Attachment) error {
	body, err := json.Marshal(slack.WebhookMessage{Username: username, Text: text, Attachments: []slack.Attachment{attachment}})
	if err != nil {
		return fmt.Errorf("compose the message: %w", err)
	}
	_, answer, err := notify.Post(ctx, s.http, s.HookURL, http.Header{}, body, s.Now())
	if err == nil {
		return nil
	}
	if known := refusals[strings.TrimSpace(answer)]; known != nil {
		return known(strings.TrimSpace(answer))
	}
	return err
}

// post posts through the API. The first message of a deployment starts a thread; later ones
// are posted to that thread.
func (s *Sender) post(ctx context.Context, n notify.Notice, options ...slack.MsgOption) error {
	note := ""
	thread := ""
	if n.Event.DeploymentID != "" {
		note = "thread/" + s.ChannelID + "/" + n.Event.DeploymentID
		var err error
		if thread, err = s.Notes.ReceiverNote(ctx, s.Receiver, note); err != nil {
			return err
		}
	}
	if thread != "" {
		answer := append(options[:len(options):len(options)], slack.MsgOptionTS(thread))
		if ended(n.Event.Type) {
			answer = append(answer, slack.MsgOptionBroadcast())
		}
		if _, err := s.send(ctx, answer...); !errors.Is(err, errThreadGone) {
			return err
		}
	}
	begun, err := s.send(ctx, options...)
	if err != nil || note == "" {
		return err
	}
	return s.Notes.PutReceiverNote(ctx, s.Receiver, note, begun)
}

// send posts a message and returns its timestamp, which identifies it in its channel.
func (s *Sender) send(ctx context.Context, options ...slack.MsgOption) (timestamp string, err error) {
	_, timestamp, err = s.api.PostMessageContext(ctx, s.ChannelID, options...)
	return timestamp, s.explain(err)
}

// errThreadGone is the error when the first message of the thread was deleted.
var errThreadGone = errors.New("the thread was deleted")

// explain converts an error of the API into one with a kind and an instruction.
func (s *Sender) explain(err error) error {
	var limited *slack.RateLimitedError
	var status slack.StatusCodeError
	var response slack.SlackErrorResponse
	switch {
	case err == nil:
		return nil
	case errors.As(err, &limited):
		return notify.RetryAt(deploy.Errorf(deploy.Unavailable, "Slack's rate limit is reached; it accepts no messages for %s", limited.RetryAfter), s.Now().Add(limited.RetryAfter))
	case errors.As(err, &status):
		return deploy.Errorf(deploy.Unavailable, "Slack's answer is %d %s", status.Code, http.StatusText(status.Code))
	case errors.As(err, &response):
		if response.Err == "thread_not_found" || response.Err == "cannot_reply_to_message" || response.Err == "message_not_found" {
			return errThreadGone
		}
		if known := refusals[response.Err]; known != nil {
			return known(response.Err)
		}
		return deploy.Errorf(deploy.Unavailable, "Slack answers %s", response.Err)
	}
	return notify.Unreachable(err)
}

// refusals are the errors by Slack's error code.
var refusals = refusalsOf(map[deploy.Kind]map[string]string{
	deploy.Denied: {
		"the token is not accepted: write a valid bot token into oauthToken, oauthTokenData or oauthTokenFile of the receiver":                 "invalid_auth not_authed account_inactive token_revoked token_expired",
		"the bot is not allowed to post: give it the scope chat:write and reinstall the app":                                                   "missing_scope no_permission restricted_action not_allowed_token_type",
		"the bot cannot find the channel: set channelID to the channel's ID, such as C0123456789, and invite the bot to it":                    "channel_not_found",
		"the bot is not in the channel: invite it, or give it the scope chat:write.public":                                                     "not_in_channel",
		"the channel is archived: set channelID, or hookURL, to another one":                                                                   "is_archived channel_is_archived",
		"the incoming webhook no longer exists or is not allowed to post: create a new one and write its address into hookURL of the receiver": "invalid_token no_service no_service_id no_team team_disabled action_prohibited posting_to_general_channel_denied",
	},
	deploy.Invalid: {
		"Slack rejects this message": "msg_too_long no_text invalid_payload invalid_attachments too_many_attachments invalid_blocks msg_blocks_too_long",
	},
})

func refusalsOf(texts map[deploy.Kind]map[string]string) map[string]func(code string) error {
	out := map[string]func(string) error{}
	for kind, meanings := range texts {
		for meaning, codes := range meanings {
			for code := range strings.FieldsSeq(codes) {
				out[code] = func(code string) error { return deploy.Errorf(kind, "Slack answers %s: %s", code, meaning) }
			}
		}
	}
	return out
}

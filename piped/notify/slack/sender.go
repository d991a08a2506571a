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

// timeout of a request.
const timeout = 10 * time.Second

// Notes remember what a receiver notes under a key, over restarts. A *store.Store
// does.
type Notes interface {
	ReceiverNote(ctx context.Context, receiver, key string) (string, error)
	PutReceiverNote(ctx context.Context, receiver, key, value string) error
}

// Config says where to and how: HookURL, or Token and ChannelID.
type Config struct {
	Receiver string // its name, for its notes

	HookURL          string
	Token, ChannelID string
	APIURL           string // default Slack's

	Accounts, Groups []string // who is mentioned in each message: user IDs, IDs of user groups

	ProjectID string
	Notes     Notes
	Now       func() time.Time
}

// Sender posts messages. It is a notify.Sender.
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

// post posts through the API, into the thread of the deployment if n is about one.
// The first message of a deployment begins its thread.
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

// send returns the timestamp of the message, which names it in its channel.
func (s *Sender) send(ctx context.Context, options ...slack.MsgOption) (timestamp string, err error) {
	_, timestamp, err = s.api.PostMessageContext(ctx, s.ChannelID, options...)
	return timestamp, s.explain(err)
}

// errThreadGone: the message that began the thread was deleted.
var errThreadGone = errors.New("the thread is gone")

// explain gives an error of the API its kind and says what to do.
func (s *Sender) explain(err error) error {
	var limited *slack.RateLimitedError
	var status slack.StatusCodeError
	var said slack.SlackErrorResponse
	switch {
	case err == nil:
		return nil
	case errors.As(err, &limited):
		return notify.RetryAt(deploy.Errorf(deploy.Unavailable, "Slack takes no more messages for %s", limited.RetryAfter), s.Now().Add(limited.RetryAfter))
	case errors.As(err, &status):
		return deploy.Errorf(deploy.Unavailable, "Slack's answer is %d %s", status.Code, http.StatusText(status.Code))
	case errors.As(err, &said):
		if said.Err == "thread_not_found" || said.Err == "cannot_reply_to_message" || said.Err == "message_not_found" {
			return errThreadGone
		}
		if known := refusals[said.Err]; known != nil {
			return known(said.Err)
		}
		return deploy.Errorf(deploy.Unavailable, "Slack answers %s", said.Err)
	}
	return notify.Unreachable(err)
}

// refusals are the errors for what Slack answers, by its code.
var refusals = refusalsOf(map[deploy.Kind]map[string]string{
	deploy.Denied: {
		"the token is not accepted: write a valid bot token into oauthToken, oauthTokenData or oauthTokenFile of the receiver":                  "invalid_auth not_authed account_inactive token_revoked token_expired",
		"the bot may not post: give it the scope chat:write and install the app again":                                                          "missing_scope no_permission restricted_action not_allowed_token_type",
		"there is no such channel for the bot: set channelID to the channel's ID, such as C0123456789, and invite the bot to it":                "channel_not_found",
		"the bot is not in the channel: invite it, or give it the scope chat:write.public":                                                      "not_in_channel",
		"the channel is archived: set channelID, or hookURL, to another one":                                                                    "is_archived channel_is_archived",
		"the incoming webhook does not exist any more or may not post there: make a new one and write its address into hookURL of the receiver": "invalid_token no_service no_service_id no_team team_disabled action_prohibited posting_to_general_channel_denied",
	},
	deploy.Invalid: {
		"Slack does not take this message": "msg_too_long no_text invalid_payload invalid_attachments too_many_attachments invalid_blocks msg_blocks_too_long",
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

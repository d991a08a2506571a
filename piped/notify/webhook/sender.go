package webhook

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/c785c783/piped/piped/notify"
)

// The headers of our own. The signature is "sha256=" and, in hexadecimal digits, the
// HMAC-SHA256 with Config.HMACSecret as key of what the timestamp, the delivery, the event
// and the body are, with a line feed between them: none is in a header, so that what is
// signed can be read in one way only.
const (
	HeaderEvent     = "Piped-Event"         // such as DEPLOYMENT_SUCCEEDED
	HeaderDelivery  = "Piped-Delivery"      // the idempotency key
	HeaderTimestamp = "Piped-Timestamp"     // of this attempt, in unix seconds; with a signature only
	HeaderSignature = "Piped-Signature-256" // only where an HMAC secret is configured
)

// timeout of a request. It is PipeCD's.
const timeout = 5 * time.Second

// Config says where to and how.
type Config struct {
	URL string
	// SignatureKey is the name of PipeCD's header, SignatureValue its value: whoever
	// sees a message can send others with it.
	SignatureKey, SignatureValue string
	HMACSecret                   string // signs each message, and is never sent; empty: nothing is signed

	PipedID, ProjectID string // of the agent, as the messages name it
	Now                func() time.Time
}

// Sender posts notices. It is a notify.Sender.
type Sender struct {
	Config
	client *http.Client
}

// New returns a sender.
func New(c Config) *Sender { return &Sender{c, notify.NewClient(timeout)} }

// Deliver posts n. An answer of 2xx is a success; see notify.Post for all others.
func (s *Sender) Deliver(ctx context.Context, n notify.Notice) error {
	body, err := json.Marshal(s.message(n))
	if err != nil {
		return fmt.Errorf("compose the message: %w", err)
	}
	now := s.Now()
	header := http.Header{}
	header.Set(s.SignatureKey, s.SignatureValue)
	header.Set(HeaderEvent, string(n.Event.Type))
	header.Set(HeaderDelivery, n.Key)
	if s.HMACSecret != "" {
		header.Set(HeaderTimestamp, strconv.FormatInt(now.Unix(), 10))
		header.Set(HeaderSignature, signature(s.HMACSecret, header, body))
	}
	_, _, err = notify.Post(ctx, s.client, s.URL, header, body, now)
	return err
}

func signature(secret string, header http.Header, body []byte) string {
	mac := hmac.New(sha256.New, []byte(secret))
	fmt.Fprintf(mac, "%s\n%s\n%s\n%s", header.Get(HeaderTimestamp), header.Get(HeaderDelivery), header.Get(HeaderEvent), body)
	return "sha256=" + hex.EncodeToString(mac.Sum(nil))
}

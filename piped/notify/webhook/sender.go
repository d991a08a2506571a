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

// Headers that this agent adds. The signature is "sha256=" and the hexadecimal
// HMAC-SHA256, with Config.HMACSecret as key, of timestamp, delivery, event and body,
// joined by line feeds. No header value contains a line feed, so the signed text is
// unambiguous.
const (
	HeaderEvent     = "Piped-Event"         // event type, such as DEPLOYMENT_SUCCEEDED
	HeaderDelivery  = "Piped-Delivery"      // idempotency key
	HeaderTimestamp = "Piped-Timestamp"     // of this attempt, in Unix seconds; only with a signature
	HeaderSignature = "Piped-Signature-256" // only if an HMAC secret is configured
)

// timeout limits a request, as in PipeCD.
const timeout = 5 * time.Second

// Config holds the destination and the credentials.
type Config struct {
	URL string
	// SignatureKey and SignatureValue are the name and value of PipeCD's header. The value
	// is sent in plain text, so anyone who sees a message can forge others.
	SignatureKey, SignatureValue string
	HMACSecret                   string // key of the signature, never sent; empty: messages are not signed

	PipedID, ProjectID string // of the agent
	Now                func() time.Time
}

// Sender posts notices. It implements notify.Sender.
type Sender struct {
	Config
	client *http.Client
}

// New returns a sender.
func New(c Config) *Sender { return &Sender{c, notify.NewClient(timeout)} }

// Deliver posts n. It returns nil for a 2xx response, else the error of notify.Post.
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

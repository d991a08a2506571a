package signin

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net/url"
	"strings"
	"time"

	"github.com/c785c783/piped/piped/deploy"
)

// Issuer signs users in. Its methods are safe for concurrent use. Their errors are of kind
// Denied if the issuer or its configuration refuses the user, Unavailable if the issuer
// cannot be reached, and else of another kind: the issuer's answer cannot be trusted or the
// configuration is wrong.
type Issuer interface {
	// Name is the configured name.
	Name() string
	// Away returns why the issuer could not be reached when the agent tried last, or nil.
	Away() error
	// AuthURL returns the address of the issuer's sign-in page for an attempt.
	AuthURL(ctx context.Context, a Attempt) (string, error)
	// Finish completes an attempt with the query of the callback.
	Finish(ctx context.Context, a Attempt, callback url.Values) (Identity, error)
	// Reread returns the present groups of a user, with the Refresh of the last identity.
	Reread(ctx context.Context, user deploy.User, refresh []byte) (Identity, error)
	// StartDevice begins a sign-in on another device. NotFound: the issuer has no device flow.
	StartDevice(ctx context.Context) (Device, error)
	// PollDevice asks once whether the user has signed in: ErrPending, ErrSlowDown, or an
	// identity.
	PollDevice(ctx context.Context, d Device) (Identity, error)

	// probe contacts the issuer, if that is useful, so that Away is current.
	probe(ctx context.Context)
	// same reports whether another issuer has the same configuration.
	same(other Issuer) bool
}

// Identity is a user who has signed in.
type Identity struct {
	User deploy.User
	// Refresh reads the groups again. It is a secret; nil if the issuer gave nothing for it.
	Refresh []byte
}

// Attempt is one sign-in through a browser. Its values are secrets, and are used once.
type Attempt struct {
	State    string
	Nonce    string
	Verifier string // of PKCE
}

// NewAttempt draws an attempt from rand (crypto/rand.Reader).
func NewAttempt(rand io.Reader) (a Attempt, err error) {
	for _, value := range []*string{&a.State, &a.Nonce, &a.Verifier} {
		if *value, err = NewToken(rand); err != nil {
			return Attempt{}, err
		}
	}
	return a, nil
}

// NewToken returns 256 bits from rand (crypto/rand.Reader) as 43 characters that need no
// escaping in URLs and cookies.
func NewToken(rand io.Reader) (string, error) {
	var random [32]byte
	if _, err := io.ReadFull(rand, random[:]); err != nil {
		return "", fmt.Errorf("draw a random token: %w", err)
	}
	return base64.RawURLEncoding.EncodeToString(random[:]), nil
}

// Challenge returns the S256 challenge of a verifier, as defined by RFC 7636.
func Challenge(verifier string) string {
	sum := sha256.Sum256([]byte(verifier))
	return base64.RawURLEncoding.EncodeToString(sum[:])
}

// Device is a sign-in on another device, as defined by RFC 8628.
type Device struct {
	Code            string // secret, for PollDevice
	UserCode        string // what the user types
	VerificationURI string // where
	// Complete is VerificationURI with the code; "" if the issuer has none.
	Complete string
	Interval time.Duration // the least time between two polls
	Expires  time.Time
}

// Answers to PollDevice while the user has not signed in.
var (
	ErrPending  = errors.New("the user has not signed in yet")
	ErrSlowDown = errors.New("the issuer was asked too often")
)

// maxGroups limits the groups of a user, and maxText the bytes of each name.
const (
	maxGroups = 1000
	maxText   = 256
)

// check reports a user that the issuer should not have let in.
func check(u deploy.User) error {
	switch {
	case u.Subject == "":
		return deploy.Errorf(deploy.Denied, "issuer %s does not say who the user is", u.Issuer)
	case u.Subject == "*" || !plain(u.Subject):
		return deploy.Errorf(deploy.Denied, "issuer %s names a user %q, which cannot be a subject", u.Issuer, clip(u.Subject))
	case len(u.Groups) > maxGroups:
		return deploy.Errorf(deploy.Denied, "%s is in %d groups, of which %d are read; make the issuer report only the groups that roles name", u.Subject, len(u.Groups), maxGroups)
	}
	for _, group := range u.Groups {
		if !plain(group) {
			return deploy.Errorf(deploy.Denied, "%s is in a group %q, which cannot be the name of a group", u.Subject, clip(group))
		}
	}
	return nil
}

// plain reports whether a name can be shown and stored.
func plain(name string) bool {
	return len(name) <= maxText && strings.ToValidUTF8(name, "") == name && !strings.ContainsFunc(name, func(r rune) bool { return r < ' ' || r == 0x7f })
}

// clip shortens a text of another party for errors.
func clip(text string) string {
	if len(text) > maxText {
		text = text[:maxText] + "..."
	}
	return strings.ToValidUTF8(text, "?")
}

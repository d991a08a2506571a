package signin

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"io"
	"time"

	"github.com/c785c783/piped/piped/access/signin"
	"github.com/c785c783/piped/piped/deploy"
)

// Kinds of tickets. The ticket of one kind cannot be used as one of another.
const (
	ticketAttempt = "attempt" // the state parameter of an attempt at an issuer
	ticketConfirm = "confirm" // a user who must confirm that pipectl signs in
	ticketCode    = "code"    // what pipectl exchanges for a token
	ticketDevice  = "device"  // a device flow
	ticketLink    = "link"    // a link that signs in
)

// tickets are values that are stored until they are taken once.
type tickets struct {
	states States
	rand   io.Reader
	now    func() time.Time
}

// ticketHash returns what a ticket is stored under: reading the store gives no valid ticket.
func ticketHash(kind, ticket string) []byte {
	sum := sha256.Sum256([]byte(kind + ":" + ticket))
	return sum[:]
}

// issue stores a value under a new ticket.
func (t tickets) issue(ctx context.Context, kind string, value any, lifetime time.Duration) (ticket string, err error) {
	if ticket, err = signin.NewToken(t.rand); err != nil {
		return "", err
	}
	return ticket, t.put(ctx, kind, ticket, value, t.now().Add(lifetime))
}

// put stores a value under a ticket.
func (t tickets) put(ctx context.Context, kind, ticket string, value any, expires time.Time) error {
	payload, err := json.Marshal(value)
	if err != nil {
		return err
	}
	return t.states.PutSignInState(ctx, ticketHash(kind, ticket), payload, expires)
}

// take reads the value of a ticket into value, a pointer. Afterwards the ticket is invalid.
func (t tickets) take(ctx context.Context, kind, ticket string, value any) error {
	if ticket == "" {
		return deploy.Errorf(deploy.NotFound, "there is no ticket of kind %s", kind)
	}
	payload, err := t.states.TakeSignInState(ctx, ticketHash(kind, ticket))
	if err != nil {
		return err
	}
	return json.Unmarshal(payload, value)
}

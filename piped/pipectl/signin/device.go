package signin

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"time"
)

// Device is a sign-in on another device that is under way.
type Device struct {
	Handle   string `json:"handle"` // a secret
	UserCode string `json:"user_code"`
	URI      string `json:"verification_uri"`
	// Complete is URI with the code; "" if the issuer has none.
	Complete  string `json:"verification_uri_complete"`
	Interval  int    `json:"interval"`   // seconds between two polls
	ExpiresIn int    `json:"expires_in"` // seconds
}

// Values of RFC 8628 for what a response leaves out.
const (
	usualInterval = 5 * time.Second
	slowDown      = 5 * time.Second
)

// Device signs in on another device: it calls show with what the user needs there, and waits up
// to a time. issuer can be "" if the agent has only one.
func (c *Client) Device(ctx context.Context, issuer string, patience time.Duration, show func(Device)) (Grant, error) {
	var d Device
	if err := c.post(ctx, "/sign-in/device", map[string]string{"issuer": issuer}, &d); err != nil {
		return Grant{}, err
	}
	if d.Handle == "" || d.UserCode == "" || !isPage(d.URI) || d.Complete != "" && !isPage(d.Complete) {
		return Grant{}, fmt.Errorf("%s sent no address for the other device", c.web)
	}
	if limit := time.Duration(d.ExpiresIn) * time.Second; limit > 0 {
		patience = min(patience, limit)
	}
	d.UserCode = printable(d.UserCode)
	ctx, cancel := context.WithTimeoutCause(ctx, patience, errNoAnswer)
	defer cancel()
	show(d)
	return c.poll(ctx, d)
}

// isPage reports whether text is the address of a web page, which a terminal can show.
func isPage(text string) bool {
	u, err := url.Parse(text)
	return err == nil && (u.Scheme == "https" || u.Scheme == "http") && u.Host != "" && printable(text) == text
}

// poll asks until the user has signed in.
func (c *Client) poll(ctx context.Context, d Device) (Grant, error) {
	interval := time.Duration(d.Interval) * time.Second
	if interval <= 0 {
		interval = usualInterval
	}
	for {
		if err := c.sleep(ctx, interval); err != nil {
			return Grant{}, err
		}
		g, err := c.grant(ctx, "/sign-in/device/token", map[string]string{"handle": d.Handle})
		var r *refusal
		var network net.Error
		switch {
		case err == nil:
			return g, nil
		case ctx.Err() != nil:
			return Grant{}, context.Cause(ctx)
		case errors.As(err, &r) && r.Code == "authorization_pending":
		case errors.As(err, &r) && (r.Code == "slow_down" || r.Code == "temporarily_unavailable"), errors.As(err, &network):
			interval += slowDown
		default:
			return Grant{}, err
		}
	}
}

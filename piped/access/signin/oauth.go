package signin

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"strings"
	"time"

	"golang.org/x/oauth2"

	"github.com/c785c783/piped/piped/deploy"
)

// deviceGrant is the grant type of RFC 8628.
const deviceGrant = "urn:ietf:params:oauth:grant-type:device_code"

// leastInterval is the interval between polls if the issuer names none, as defined by RFC 8628.
const leastInterval = 5 * time.Second

// callbackCode returns the authorization code of a callback, or the issuer's refusal.
func callbackCode(issuer string, callback url.Values) (string, error) {
	if refusal := callback.Get("error"); refusal != "" {
		return "", deploy.Errorf(deploy.Denied, "issuer %s refuses the sign-in: %q %q", issuer, clip(refusal), clip(callback.Get("error_description")))
	}
	code := callback.Get("code")
	if code == "" {
		return "", deploy.Errorf(deploy.Invalid, "the callback of issuer %s has no code", issuer)
	}
	return code, nil
}

// tokenError classifies an error of a token endpoint. The result contains no part of the
// response but the error code and its description, in which some issuers repeat what they were
// sent: the secrets of the request are redacted.
func tokenError(issuer, doing string, err error, secrets ...string) error {
	var answer *oauth2.RetrieveError
	if !errors.As(err, &answer) {
		return deploy.Errorf(deploy.Unavailable, "%s at issuer %s: %w", doing, issuer, err)
	}
	description := answer.ErrorDescription
	for _, secret := range secrets {
		if secret != "" {
			description = strings.ReplaceAll(description, secret, "(redacted)")
		}
	}
	kind, reason := deploy.Internal, fmt.Errorf("%q %q", clip(answer.ErrorCode), clip(description))
	switch answer.ErrorCode {
	case "authorization_pending":
		return ErrPending
	case "slow_down":
		return ErrSlowDown
	case "invalid_grant", "access_denied", "expired_token", "login_required", "interaction_required", "consent_required",
		"bad_verification_code", "bad_refresh_token", "incorrect_device_code": // the last three are GitHub's
		kind = deploy.Denied
	case "invalid_client", "unauthorized_client", "incorrect_client_credentials", "redirect_uri_mismatch", "unsupported_grant_type",
		"invalid_scope", "device_flow_disabled":
		kind = deploy.Invalid
	case "temporarily_unavailable", "server_error":
		kind = deploy.Unavailable
	case "":
		kind, reason = deploy.Unavailable, errors.New("no answer of OAuth 2.0")
		if answer.Response != nil {
			reason = fmt.Errorf("the answer is HTTP %d", answer.Response.StatusCode)
		}
	}
	return deploy.Errorf(kind, "%s at issuer %s: %w", doing, issuer, reason)
}

// startDevice begins a device flow.
func startDevice(ctx context.Context, issuer string, c oauth2.Config, now time.Time, opts ...oauth2.AuthCodeOption) (Device, error) {
	if c.Endpoint.DeviceAuthURL == "" {
		return Device{}, deploy.Errorf(deploy.NotFound, "issuer %s has no device flow", issuer)
	}
	got, err := c.DeviceAuth(ctx, opts...)
	if err != nil {
		return Device{}, tokenError(issuer, "begin a device flow", err, c.ClientSecret)
	}
	d := Device{
		Code: got.DeviceCode, UserCode: got.UserCode, VerificationURI: got.VerificationURI, Complete: got.VerificationURIComplete,
		Interval: max(leastInterval, time.Duration(got.Interval)*time.Second), Expires: now.Add(10 * time.Minute),
	}
	if !got.Expiry.IsZero() {
		d.Expires = now.Add(time.Until(got.Expiry))
	}
	for _, address := range []string{d.VerificationURI, d.Complete} {
		if address != "" && !secureURL(address) {
			return Device{}, deploy.Errorf(deploy.Internal, "issuer %s sends users to %q, which is not https", issuer, clip(address))
		}
	}
	if d.Code == "" || !plain(d.UserCode) || d.UserCode == "" || d.VerificationURI == "" {
		return Device{}, deploy.Errorf(deploy.Internal, "issuer %s begins a device flow without the codes and address that it needs", issuer)
	}
	return d, nil
}

// pollDevice asks a token endpoint once.
func pollDevice(ctx context.Context, issuer string, c oauth2.Config, d Device) (*oauth2.Token, error) {
	token, err := c.Exchange(ctx, "", oauth2.SetAuthURLParam("grant_type", deviceGrant), oauth2.SetAuthURLParam("device_code", d.Code))
	if err != nil {
		return nil, tokenError(issuer, "complete a device flow", err, d.Code, c.ClientSecret)
	}
	return token, nil
}

// secureURL reports whether an address is https, or http on a loopback address.
func secureURL(address string) bool {
	u, err := url.Parse(address)
	if err != nil || u.Host == "" || u.User != nil {
		return false
	}
	ip, err := netip.ParseAddr(u.Hostname())
	return u.Scheme == "https" || u.Scheme == "http" && (u.Hostname() == "localhost" || err == nil && ip.IsLoopback())
}

package notify

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/c785c783/piped/piped/deploy"
)

// maxAnswer limits how many bytes of a response body are read.
const maxAnswer = 300

// NewClient returns the HTTP client of a receiver. It keeps no idle connections, since
// notifications are rare. It follows no redirects, so that messages and credentials are
// sent only to the configured address.
func NewClient(timeout time.Duration) *http.Client {
	return &http.Client{
		Transport: &http.Transport{
			Proxy: http.ProxyFromEnvironment, DisableKeepAlives: true, ForceAttemptHTTP2: true, TLSHandshakeTimeout: timeout,
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		Timeout:       timeout,
	}
}

// Post sends body as JSON. It returns the HTTP status, 0 when there was no response, and
// the beginning of the response body. Any status but 2xx is an error. The error contains
// neither the address nor the body, since both may hold a secret. Its kind is
// deploy.Invalid if the receiver can never accept the message (410, 413), deploy.Denied
// if a user has to act first (3xx, 401, 403, 404), else deploy.Unavailable, with the
// time of a Retry-After header if there is one.
func Post(ctx context.Context, client *http.Client, address string, header http.Header, body []byte, now time.Time) (status int, answer string, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, address, bytes.NewReader(body))
	if err != nil {
		return 0, "", deploy.Errorf(deploy.Denied, "the address is not a valid URL; correct it in the configuration of the receiver")
	}
	req.Header = header.Clone()
	req.Header.Set("Content-Type", "application/json")
	resp, err := client.Do(req)
	if err != nil {
		return 0, "", Unreachable(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil && resp.StatusCode > 299 {
		text = nil // the status is sufficient
	}
	return resp.StatusCode, string(text), statusError(resp, now)
}

// Unreachable returns err, the error of a request without a response, without the address.
func Unreachable(err error) error {
	var u *url.Error
	if errors.As(err, &u) {
		err = u.Err
	}
	return deploy.Errorf(deploy.Unavailable, "no answer: %w", err)
}

// statusError returns the error of a response by its status, nil for 2xx.
func statusError(resp *http.Response, now time.Time) error {
	status := strconv.Itoa(resp.StatusCode) + " " + http.StatusText(resp.StatusCode)
	switch code := resp.StatusCode; {
	case code >= 200 && code <= 299:
		return nil
	case code >= 300 && code <= 399:
		return deploy.Errorf(deploy.Denied, "the answer is %s, and redirects are not followed: set the redirect's target as the address in the configuration of the receiver", status)
	case code == http.StatusUnauthorized || code == http.StatusForbidden:
		return deploy.Errorf(deploy.Denied, "the answer is %s: the credentials are not accepted; correct them in the configuration of the receiver", status)
	case code == http.StatusNotFound:
		return deploy.Errorf(deploy.Denied, "the answer is %s: there is no webhook at that address; correct it in the configuration of the receiver", status)
	case code == http.StatusGone:
		return deploy.Errorf(deploy.Invalid, "the answer is %s: the webhook was removed permanently; remove the receiver from the configuration", status)
	case code == http.StatusRequestEntityTooLarge:
		return deploy.Errorf(deploy.Invalid, "the answer is %s: raise the receiver's limit on the size of requests", status)
	}
	return RetryAt(deploy.Errorf(deploy.Unavailable, "the answer is %s", status), parseRetryAfter(resp.Header.Get("Retry-After"), now))
}

// parseRetryAfter parses a Retry-After header, in seconds or as a date. It returns the
// zero time when the header is absent or malformed.
func parseRetryAfter(text string, now time.Time) time.Time {
	if seconds, err := strconv.Atoi(text); err == nil && seconds >= 0 {
		return now.Add(time.Duration(seconds) * time.Second)
	}
	at, err := http.ParseTime(text)
	if err != nil {
		return time.Time{}
	}
	return at
}

// RetryAt returns err with the time of the next attempt; err itself when at is zero.
func RetryAt(err error, at time.Time) error {
	if at.IsZero() {
		return err
	}
	return &retryLater{err, at}
}

type retryLater struct {
	error
	at time.Time
}

// Unwrap returns the error without the time.
func (e *retryLater) Unwrap() error { return e.error }

// RetryAt returns the time of the next attempt.
func (e *retryLater) RetryAt() time.Time { return e.at }

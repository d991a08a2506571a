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

// answerShown bounds what is read of an answer.
const answerShown = 300

// NewClient returns the HTTP client of a receiver. It keeps no connection, for there
// is not much to tell, and follows no redirect: what is told, and what proves who
// tells it, goes nowhere but to the address that was configured.
func NewClient(timeout time.Duration) *http.Client {
	return &http.Client{
		Transport: &http.Transport{
			Proxy: http.ProxyFromEnvironment, DisableKeepAlives: true, ForceAttemptHTTP2: true, TLSHandshakeTimeout: timeout,
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		Timeout:       timeout,
	}
}

// Post sends body as JSON. It returns the status, 0 when there was no answer, and the
// begin of what was answered. Anything but a status of 2xx is an error that names
// neither the address nor what was answered: both may hold a secret. It is of kind
// deploy.Invalid if the message will never be taken (410, 413), deploy.Denied if
// somebody must do something first (3xx, 401, 403, 404), else deploy.Unavailable, and
// says when to try again if the answer has a Retry-After.
func Post(ctx context.Context, client *http.Client, address string, header http.Header, body []byte, now time.Time) (status int, answer string, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, address, bytes.NewReader(body))
	if err != nil {
		return 0, "", deploy.Errorf(deploy.Denied, "the address cannot be used; correct it in the configuration of the receiver")
	}
	req.Header = header.Clone()
	req.Header.Set("Content-Type", "application/json")
	resp, err := client.Do(req)
	if err != nil {
		return 0, "", Unreachable(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, answerShown))
	if err != nil && resp.StatusCode > 299 {
		text = nil // the status says enough
	}
	return resp.StatusCode, string(text), refusal(resp, now)
}

// Unreachable is the error of a request that was not answered, without the address.
func Unreachable(err error) error {
	var u *url.Error
	if errors.As(err, &u) {
		err = u.Err
	}
	return deploy.Errorf(deploy.Unavailable, "no answer: %w", err)
}

func refusal(resp *http.Response, now time.Time) error {
	said := strconv.Itoa(resp.StatusCode) + " " + http.StatusText(resp.StatusCode)
	switch code := resp.StatusCode; {
	case code >= 200 && code <= 299:
		return nil
	case code >= 300 && code <= 399:
		return deploy.Errorf(deploy.Denied, "the answer is %s, and redirects are not followed: write the address it leads to into the configuration of the receiver", said)
	case code == http.StatusUnauthorized || code == http.StatusForbidden:
		return deploy.Errorf(deploy.Denied, "the answer is %s: what proves who sends is not accepted; correct it in the configuration of the receiver", said)
	case code == http.StatusNotFound:
		return deploy.Errorf(deploy.Denied, "the answer is %s: nothing takes notifications at that address; correct it in the configuration of the receiver", said)
	case code == http.StatusGone:
		return deploy.Errorf(deploy.Invalid, "the answer is %s: no notification will be taken there any more; remove the receiver from the configuration", said)
	case code == http.StatusRequestEntityTooLarge:
		return deploy.Errorf(deploy.Invalid, "the answer is %s: let the receiver take larger messages", said)
	}
	return RetryAt(deploy.Errorf(deploy.Unavailable, "the answer is %s", said), after(resp.Header.Get("Retry-After"), now))
}

// after reads a Retry-After: seconds, or a time; the zero time if it says nothing.
func after(text string, now time.Time) time.Time {
	if seconds, err := strconv.Atoi(text); err == nil && seconds >= 0 {
		return now.Add(time.Duration(seconds) * time.Second)
	}
	at, err := http.ParseTime(text)
	if err != nil {
		return time.Time{}
	}
	return at
}

// RetryAt returns err as an error that says when to try again; err itself when at is
// zero.
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

// RetryAt returns when to try again.
func (e *retryLater) RetryAt() time.Time { return e.at }

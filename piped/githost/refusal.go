package githost

import (
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/c785c783/piped/piped/deploy"
)

// refusedBy is the error for an answer of a host that is not what was asked for.
func refusedBy(status int, message string) error {
	if message = strings.Join(strings.Fields(message), " "); len(message) > 300 {
		message = strings.ToValidUTF8(message[:300], "")
	}
	switch {
	case status == http.StatusUnauthorized, status == http.StatusForbidden:
		return deploy.Errorf(deploy.Denied, "the host does not accept the token (status %d: %s); give spec.gitHosts one that may do this", status, message)
	case status == http.StatusNotFound:
		return deploy.Errorf(deploy.Denied, "the host knows no such repository (status 404: %s); check apiURL, and that the token of spec.gitHosts may see it", message)
	case status >= http.StatusMultipleChoices && status < http.StatusBadRequest:
		return deploy.Errorf(deploy.Denied, "the host sends on to another address (status %d), which is not asked: the token is not for it; set apiURL of spec.gitHosts to where the API is", status)
	case status == http.StatusTooManyRequests, status >= http.StatusInternalServerError:
		return deploy.Errorf(deploy.Unavailable, "the host answers with status %d: %s", status, message)
	}
	return deploy.Errorf(deploy.Invalid, "the host refuses it (status %d: %s)", status, message)
}

// limited is the error for a host that permits no more calls for now.
type limited struct{ until time.Time }

// Error says until when.
func (e *limited) Error() string {
	return "the host permits no more calls until " + e.until.UTC().Format(time.RFC3339)
}

// RetryAt returns when the host permits calls again.
func (e *limited) RetryAt() time.Time { return e.until }

// defaultWait is how long a host is left alone that permits no more calls and does
// not say for how long; GitHub asks for at least that.
const defaultWait = time.Minute

// limitedUntil is the error for a host that permits no calls before a time; one that
// is not known is defaultWait from now.
func limitedUntil(until time.Time) error {
	if until.IsZero() {
		until = time.Now().Add(defaultWait)
	}
	return &deploy.Error{Kind: deploy.Unavailable, Err: &limited{until}}
}

// limitedFor is limitedUntil a while from now.
func limitedFor(wait *time.Duration) error {
	if wait == nil {
		return limitedUntil(time.Time{})
	}
	return limitedUntil(time.Now().Add(*wait))
}

// limitedBy returns the error for an answer that says that the caller calls too
// often, nil for any other. The headers are those of GitHub, GitLab, and of the
// proxies that stand before a Gitea.
func limitedBy(status int, h http.Header, message string) error {
	exhausted := h.Get("X-RateLimit-Remaining") == "0" || h.Get("RateLimit-Remaining") == "0"
	told := h.Get("Retry-After") != "" || strings.Contains(strings.ToLower(message), "rate limit")
	if status != http.StatusTooManyRequests && (status != http.StatusForbidden || !exhausted && !told) {
		return nil
	}
	now := time.Now()
	if after := h.Get("Retry-After"); after != "" {
		if seconds, err := strconv.Atoi(after); err == nil && seconds >= 0 {
			return limitedUntil(now.Add(time.Duration(min(seconds, maxWait)) * time.Second))
		}
		if at, err := http.ParseTime(after); err == nil {
			return limitedUntil(at)
		}
	}
	for _, header := range []string{"X-RateLimit-Reset", "RateLimit-Reset"} {
		if at, err := strconv.ParseInt(h.Get(header), 10, 64); err == nil && at > now.Unix() && exhausted {
			return limitedUntil(time.Unix(min(at, now.Unix()+maxWait), 0))
		}
	}
	return limitedUntil(time.Time{})
}

// maxWait bounds, in seconds, how long a host is believed that it wants to be left
// alone: GitHub's limits are of an hour.
const maxWait = 2 * 60 * 60

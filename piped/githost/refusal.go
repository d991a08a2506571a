package githost

import (
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/c785c783/piped/piped/deploy"
)

// refusedBy returns the error for an unsuccessful status of a host.
func refusedBy(status int, message string) error {
	if message = strings.Join(strings.Fields(message), " "); len(message) > 300 {
		message = strings.ToValidUTF8(message[:300], "")
	}
	switch {
	case status == http.StatusUnauthorized, status == http.StatusForbidden:
		return deploy.Errorf(deploy.Denied, "the host does not accept the token (status %d: %s); set one in spec.gitHosts that has this permission", status, message)
	case status == http.StatusNotFound:
		return deploy.Errorf(deploy.Denied, "the host does not know the repository (status 404: %s); check apiURL, and that the token of spec.gitHosts has access to it", message)
	case status >= http.StatusMultipleChoices && status < http.StatusBadRequest:
		return deploy.Errorf(deploy.Denied, "the host redirects to another address (status %d), which is not followed in order to protect the token; set apiURL of spec.gitHosts to the address of the API", status)
	case status == http.StatusTooManyRequests, status >= http.StatusInternalServerError:
		return deploy.Errorf(deploy.Unavailable, "the host answers with status %d: %s", status, message)
	}
	return deploy.Errorf(deploy.Invalid, "the host rejects the request (status %d: %s)", status, message)
}

// limited is the error of a reached rate limit.
type limited struct{ until time.Time }

// Error returns a text with the end of the limit.
func (e *limited) Error() string {
	return "the host's rate limit is reached until " + e.until.UTC().Format(time.RFC3339)
}

// RetryAt returns the end of the limit.
func (e *limited) RetryAt() time.Time { return e.until }

// defaultWait is the pause after a rate limit without a time; GitHub asks for at least
// that.
const defaultWait = time.Minute

// limitedUntil returns the error of a rate limit that ends at a time; the zero time means
// after defaultWait.
func limitedUntil(until time.Time) error {
	if until.IsZero() {
		until = time.Now().Add(defaultWait)
	}
	return &deploy.Error{Kind: deploy.Unavailable, Err: &limited{until}}
}

// limitedFor is like limitedUntil with a duration from now.
func limitedFor(wait *time.Duration) error {
	if wait == nil {
		return limitedUntil(time.Time{})
	}
	return limitedUntil(time.Now().Add(*wait))
}

// limitedBy returns the error of a rate limit, nil for any other response. The headers are
// those of GitHub, GitLab, and of proxies in front of Gitea.
func limitedBy(status int, h http.Header, message string) error {
	exhausted := h.Get("X-RateLimit-Remaining") == "0" || h.Get("RateLimit-Remaining") == "0"
	rateLimited := h.Get("Retry-After") != "" || strings.Contains(strings.ToLower(message), "rate limit")
	if status != http.StatusTooManyRequests && (status != http.StatusForbidden || !exhausted && !rateLimited) {
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

// maxWait limits, in seconds, the pause that a host can ask for; GitHub's limits last an
// hour.
const maxWait = 2 * 60 * 60

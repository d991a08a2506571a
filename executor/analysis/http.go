package analysis

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"regexp"
	"strings"
	"time"

	"github.com/c785c783/piped/piped/config/analysis"
	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/outbound"
)

// maxBody bounds the evaluated part of a response body, in bytes.
const maxBody = 1 << 20

// newClient returns the client for HTTP checks. It does not follow redirects, because a
// check evaluates the response of its own URL.
func newClient() *http.Client {
	return &http.Client{
		Transport: &http.Transport{
			Proxy:               http.ProxyFromEnvironment,
			DialContext:         (&net.Dialer{Timeout: 10 * time.Second, Control: outbound.NotMetadata}).DialContext,
			TLSHandshakeTimeout: 10 * time.Second,
			IdleConnTimeout:     30 * time.Second,
			MaxIdleConnsPerHost: 2,
			ForceAttemptHTTP2:   true,
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// httpCheck evaluates the response to a request.
type httpCheck struct {
	analysis.HTTP // rendered
	client        *http.Client
	pattern       *regexp.Regexp // must match the body; nil for none
}

// evaluate implements check.evaluate.
func (h *httpCheck) evaluate(ctx context.Context, _ instant) (outcome, error) {
	req, err := http.NewRequestWithContext(ctx, h.Method, h.URL, nil)
	if err != nil {
		return outcome{}, deploy.Errorf(deploy.Invalid, "make the request: %w", err)
	}
	for _, header := range h.Headers {
		req.Header.Add(header.Key, header.Value)
		if http.CanonicalHeaderKey(header.Key) == "Host" {
			req.Host = header.Value
		}
	}
	resp, err := h.client.Do(req)
	if err != nil {
		return outcome{}, noAnswer(ctx, err)
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxBody+1))
	if err = errors.Join(err, resp.Body.Close()); err != nil {
		return outcome{}, noAnswer(ctx, err)
	}
	return h.compare(resp.StatusCode, body), nil
}

// noAnswer returns an Unavailable error for a failed request. If ctx has ended, its cause
// replaces err.
func noAnswer(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	return deploy.Errorf(deploy.Unavailable, "no answer: %w", err)
}

// compare compares a response with the expected one.
func (h *httpCheck) compare(code int, body []byte) outcome {
	out := outcome{verdict: deploy.AnalysisOK, values: []float64{float64(code)}, text: fmt.Sprintf("status %d (expected %d)", code, h.ExpectedCode)}
	switch {
	case code != h.ExpectedCode:
		out.verdict = deploy.AnalysisFailed
	case h.ExpectedResponse == "":
	case len(body) > maxBody:
		out.verdict, out.text = deploy.AnalysisFailed, fmt.Sprintf("the body has more than %d bytes (expected %s)", maxBody, shortLine(h.ExpectedResponse))
	case !h.matches(string(body)):
		out.verdict, out.text = deploy.AnalysisFailed, fmt.Sprintf("status %d, but the body is not as expected (expected %s)", code, shortLine(h.ExpectedResponse))
	default:
		out.text = fmt.Sprintf("status %d, and the body is as expected", code)
	}
	return out
}

// matches reports whether a body equals the expected one, apart from surrounding white
// space, or matches the pattern.
func (h *httpCheck) matches(body string) bool {
	if h.pattern != nil {
		return h.pattern.MatchString(body)
	}
	return strings.TrimSpace(body) == strings.TrimSpace(h.ExpectedResponse)
}

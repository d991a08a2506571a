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

// maxBody is how much of an answer is looked at, in bytes.
const maxBody = 1 << 20

// newClient returns the client of HTTP checks. It follows no redirect: the check
// is about the answer at its URL.
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

// httpCheck looks at the answer to a request.
type httpCheck struct {
	analysis.HTTP // filled in
	client        *http.Client
	pattern       *regexp.Regexp // that must be found in the body; nil if there is none
}

// look implements check.look.
func (h *httpCheck) look(ctx context.Context, _ moment) (outcome, error) {
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
	return h.judge(resp.StatusCode, body), nil
}

func noAnswer(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	return deploy.Errorf(deploy.Unavailable, "no answer: %w", err)
}

// judge holds an answer against what is expected.
func (h *httpCheck) judge(code int, body []byte) outcome {
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

// matches reports whether a body is the one expected, but for white space around
// it, or holds what the pattern describes.
func (h *httpCheck) matches(body string) bool {
	if h.pattern != nil {
		return h.pattern.MatchString(body)
	}
	return strings.TrimSpace(body) == strings.TrimSpace(h.ExpectedResponse)
}

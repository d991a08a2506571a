package page

import (
	"bytes"
	"compress/gzip"
	"io"
	"net/http"
	"os"
	"regexp"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"

	"github.com/c785c783/piped/proto/pipecd/apiservice"
	controlv1 "github.com/c785c783/piped/proto/piped/control/v1"
)

var (
	fingerprints = regexp.MustCompile(`(/assets/\w+)-[0-9a-f]+\.`)
	froms        = regexp.MustCompile(`from=[0-9a-f]+`)
	drawings     = regexp.MustCompile(`(?s)<svg.*?</svg>`)
)

// TestHeaders: no page permits code of others, frames or caching, and each view says the same.
func TestHeaders(t *testing.T) {
	f := calm(t)
	for _, target := range []string{"/", "/applications", "/nowhere", "/actions/nothing"} {
		header := f.get(target).Header
		for _, directive := range []string{"default-src 'none'", "script-src 'self'", "style-src 'self'", "frame-ancestors 'none'", "base-uri 'none'"} {
			if csp := header.Get("Content-Security-Policy"); !strings.Contains(csp, directive) || strings.Contains(csp, "unsafe") {
				t.Errorf("%s has the policy %q", target, csp)
			}
		}
		if header.Get("Cache-Control") != "no-store" || header.Get("X-Content-Type-Options") != "nosniff" || header.Get("Referrer-Policy") != "same-origin" {
			t.Errorf("%s has the headers %v", target, header)
		}
	}
}

// calm returns the API of an agent with one application that is synced.
func calm(t *testing.T, permissions ...string) *fakeAPI {
	return newFake(t, append(permissions, "view")...).
		on("SearchApplications", &controlv1.SearchApplicationsResponse{Total: 0, Facets: []*controlv1.Facet{{Name: "state", Values: []*controlv1.FacetCount{{Value: "SYNCED", Count: 1}}}}}).
		on("GetStatus", &controlv1.GetStatusResponse{}).
		on("GetDeliveryFigures", &controlv1.GetDeliveryFiguresResponse{Total: &controlv1.DeliveryFigures{}}).
		on("ListDeployments", &apiservice.ListDeploymentsResponse{})
}

// TestNoInlineCode: pages contain neither scripts nor styles nor handlers, which the policy would
// block, and load nothing from other hosts.
func TestNoInlineCode(t *testing.T) {
	for _, target := range []string{"/", "/applications"} {
		body := bodyOf(t, calm(t, "sync").get(target))
		for _, pattern := range []string{`<script[^>]*>[^<]`, `<style`, `\sstyle=`, `\son\w+=`, `hx-on`, `(src|href)="(https?:)?//`} {
			if found := regexp.MustCompile(pattern).FindString(body); found != "" {
				t.Errorf("%s contains %q", target, found)
			}
		}
	}
}

// TestSignIn: a view without a session leads to the sign-in page and back; an action says that
// nothing was done, and where to go on.
func TestSignIn(t *testing.T) {
	h := calm(t).page()
	r := request(http.MethodGet, "/applications?q=web&state=FAILED", "")
	r.Header.Del("Cookie")
	if resp := answerOf(h, r); resp.StatusCode != http.StatusSeeOther || resp.Header.Get("Location") != "/sign-in?next=%2Fapplications%3Fq%3Dweb%26state%3DFAILED" {
		t.Errorf("%s to %q", resp.Status, resp.Header.Get("Location"))
	}
	expired := newFake(t).fails("GetCaller", codes.Unauthenticated, "Unauthenticated").page()
	r = request(http.MethodPost, "/actions/sync", "application=a")
	r.Header.Set("HX-Request", "true")
	r.Header.Set("HX-Current-URL", "http://piped.example.com/applications?q=web")
	resp := answerOf(expired, r)
	if body := bodyOf(t, resp); resp.StatusCode != http.StatusUnauthorized || !strings.Contains(body, "Nothing was done") || !strings.Contains(body, `href="/sign-in?next=%2Fapplications%3Fq%3Dweb"`) || strings.Contains(body, "<html") {
		t.Errorf("%s: %s", resp.Status, body)
	}
	r = request(http.MethodGet, "/live", "")
	resp = answerOf(expired, r)
	if body := bodyOf(t, resp); resp.Header.Get("Content-Type") != "text/event-stream; charset=utf-8" || !strings.Contains(body, `hx-target="#notice"`) || !strings.HasSuffix(body, "event: end\ndata:\n\n") {
		t.Errorf("a stream: %s: %s", resp.Status, body)
	}
}

// TestForeignOrigins: a form of another site does nothing, and nothing leads a browser elsewhere.
func TestForeignOrigins(t *testing.T) {
	f := calm(t, "sync")
	r := request(http.MethodPost, "/actions/sync", "application=a")
	r.Header.Set("Sec-Fetch-Site", "cross-site")
	if resp := answerOf(f.page(), r); resp.StatusCode != http.StatusForbidden || len(f.calls) != 0 {
		t.Errorf("%s after the calls %v", resp.Status, f.calls)
	}
	for _, target := range []string{"https://evil.example", "//evil.example", `/\evil.example`, "javascript:alert(1)", "", "x"} {
		if got := localPath(target); got != "" {
			t.Errorf("localPath(%q) = %q", target, got)
		}
	}
	if got := localPath("/applications?q=a&q=b"); got != "/applications?q=a&q=b" {
		t.Errorf("a local path became %q", got)
	}
}

// TestFailures: each error of the API becomes a page with the status, the reason and, if it helps,
// a way to try again.
func TestFailures(t *testing.T) {
	cases := map[codes.Code]int{
		codes.PermissionDenied: http.StatusForbidden, codes.NotFound: http.StatusNotFound, codes.InvalidArgument: http.StatusBadRequest,
		codes.Unavailable: http.StatusServiceUnavailable, codes.ResourceExhausted: http.StatusTooManyRequests, codes.Internal: http.StatusInternalServerError,
		codes.FailedPrecondition: http.StatusConflict,
	}
	for code, want := range cases {
		resp := calm(t).fails("SearchApplications", code, "the store <b>sleeps</b>").get("/applications?state=FAILED")
		body := bodyOf(t, resp)
		if resp.StatusCode != want || !strings.Contains(body, "the store &lt;b&gt;sleeps&lt;/b&gt;") {
			t.Errorf("%s: %s: %s", code, resp.Status, body)
		}
		if retry := strings.Contains(body, `href="/applications?state=FAILED"`); retry != (want >= 500 || want == http.StatusTooManyRequests || want == http.StatusConflict) {
			t.Errorf("%s: offers to try again: %t", code, retry)
		}
		if logged := strings.Contains(body, "log has the error under request "); logged != (want >= 500) {
			t.Errorf("%s: names the request in the log: %t", code, logged)
		}
	}
}

// TestAssets: a page names assets by their content; they may be cached for good, and are
// compressed for those who accept that.
func TestAssets(t *testing.T) {
	f := calm(t)
	names := regexp.MustCompile(`/assets/[\w.-]+`).FindAllString(bodyOf(t, f.get("/")), -1)
	if len(names) != 5 {
		t.Fatalf("the page names the assets %q", names)
	}
	for _, name := range names {
		r := request(http.MethodGet, name, "")
		plain := answerOf(f.page(), r)
		if plain.StatusCode != http.StatusOK || plain.Header.Get("Cache-Control") != "public, max-age=31536000, immutable" {
			t.Errorf("%s: %s %v", name, plain.Status, plain.Header)
		}
		r.Header.Set("Accept-Encoding", "gzip, br")
		small := answerOf(f.page(), r)
		unzipped, err := gzip.NewReader(small.Body)
		if err != nil {
			t.Fatal(err)
		}
		got, err := io.ReadAll(unzipped)
		if err != nil || string(got) != bodyOf(t, plain) {
			t.Errorf("%s differs when it is compressed: %v", name, err)
		}
	}
	if resp := f.get("/assets/page-000000000000.js"); resp.StatusCode != http.StatusNotFound {
		t.Errorf("an asset with another content: %s", resp.Status)
	}
}

// TestTransferred: the first visit stays below 150 KiB and later ones below 30 KiB.
func TestTransferred(t *testing.T) {
	f := calm(t)
	r := request(http.MethodGet, "/", "")
	r.Header.Set("Accept-Encoding", "gzip")
	body := bodyOf(t, answerOf(f.page(), r))
	if len(body) > 30<<10 {
		t.Errorf("a later visit transfers %d bytes", len(body))
	}
	total := len(body)
	for _, a := range newAssets().files {
		total += len(a.small)
	}
	if total > 150<<10 {
		t.Errorf("the first visit transfers %d bytes", total)
	}
}

// TestOwnScriptsAreShort: what the server can do, the browser need not.
func TestOwnScriptsAreShort(t *testing.T) {
	total := 0
	for _, name := range []string{"page.js", "figures.js"} {
		script, err := os.ReadFile("assets/" + name)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.HasPrefix(script, []byte("// @ts-check\n")) {
			t.Errorf("the types of %s are not checked", name)
		}
		total += bytes.Count(script, []byte("\n"))
	}
	if total > 300 {
		t.Errorf("the scripts have %d lines, and up to 300 are permitted", total)
	}
}

// TestStyleSheet: other pages of the agent can use the style sheet.
func TestStyleSheet(t *testing.T) {
	resp := calm(t).get(StyleSheet())
	if resp.StatusCode != http.StatusOK || resp.Header.Get("Content-Type") != "text/css; charset=utf-8" {
		t.Errorf("%s is answered with %s, %s", StyleSheet(), resp.Status, resp.Header.Get("Content-Type"))
	}
}

package page

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// browserWith is a browser that has a filters cookie.
type browserWith struct {
	t      *testing.T
	page   *Handler
	cookie *http.Cookie
}

// submit sends the form of saved filters, and stores the cookie that comes back.
func (b *browserWith) submit(form url.Values) *http.Response {
	b.t.Helper()
	r := request(http.MethodPost, "/applications/filters", form.Encode())
	if b.cookie != nil {
		r.AddCookie(b.cookie)
	}
	resp := answerOf(b.page, r)
	for _, c := range resp.Cookies() {
		b.cookie = c
	}
	return resp
}

// filters returns what the browser has saved.
func (b *browserWith) filters() []savedFilter {
	if b.cookie == nil {
		return nil
	}
	return decodeFilters(b.cookie.Value)
}

// TestSavedFilters: a filter is saved under a name, found in the list, renamed and removed. The
// browser is led back to the filter that it shows.
func TestSavedFilters(t *testing.T) {
	b := &browserWith{t: t, page: busy(t).page()}
	save := url.Values{"do": {"save"}, "name": {"  Failing\tcore "}, "query": {"state=FAILED&q=web&label:team=core&sort=name&state=DRIFTED&cursor=9&seen=x&next=//evil.example"}}
	const query = "label%3Ateam=core&q=web&sort=name&state=DRIFTED&state=FAILED"
	resp := b.submit(save)
	if resp.StatusCode != http.StatusSeeOther || resp.Header.Get("Location") != "/applications?"+query {
		t.Errorf("%s to %q", resp.Status, resp.Header.Get("Location"))
	}
	c := b.cookie
	if c.Path != "/applications" || !c.HttpOnly || c.Secure || c.SameSite != http.SameSiteLaxMode || c.MaxAge != int(365*24*time.Hour/time.Second) {
		t.Errorf("the cookie is %v", c)
	}
	if diff := cmp.Diff([]savedFilter{{"Failing core", query}}, b.filters()); diff != "" {
		t.Error(diff)
	}
	r := request(http.MethodGet, "/applications?state=DRIFTED&state=FAILED&label:team=core&q=web&sort=name", "")
	r.AddCookie(b.cookie)
	body := golden(t, "saved", answerOf(b.page, r))
	for _, want := range []string{"Edit filters", `aria-current="true"><bdi>Failing core</bdi>`} {
		if !strings.Contains(body, want) {
			t.Errorf("the list lacks %q", want)
		}
	}
	b.submit(url.Values{"do": {"rename"}, "old": {"Failing core"}, "name": {"Core"}, "query": {"state=HELD"}})
	if diff := cmp.Diff([]savedFilter{{"Core", query}}, b.filters()); diff != "" {
		t.Error("renamed:", diff)
	}
	b.submit(url.Values{"do": {"save"}, "name": {"Core"}, "query": {"state=HELD"}})
	if diff := cmp.Diff([]savedFilter{{"Core", "state=HELD"}}, b.filters()); diff != "" {
		t.Error("saved again:", diff)
	}
	resp = b.submit(url.Values{"do": {"remove"}, "old": {"Core"}, "name": {"something else"}})
	if len(b.filters()) != 0 || b.cookie.MaxAge != -1 || resp.Header.Get("Location") != "/applications" {
		t.Errorf("removed: %v, to %q", b.cookie, resp.Header.Get("Location"))
	}
	if body := bodyOf(t, busy(t).get("/applications")); strings.Contains(body, `class="saved"`) {
		t.Error("there is nothing to save, but the list offers it")
	}
	if body := bodyOf(t, busy(t).get("/applications?state=HELD")); !strings.Contains(body, `name="query" value="state=HELD"`) {
		t.Error("the filter of the address cannot be saved")
	}
}

// TestSavedFiltersOverTLS: the cookie is for encrypted connections only if the request is.
func TestSavedFiltersOverTLS(t *testing.T) {
	f := busy(t)
	h := New(Config{Conn: f, Token: func(*http.Request) string { return "token" }, Secure: func(*http.Request) bool { return true }})
	b := &browserWith{t: t, page: h}
	b.submit(url.Values{"do": {"save"}, "name": {"a"}, "query": {"q=a"}})
	if b.cookie == nil || !b.cookie.Secure {
		t.Errorf("the cookie is %v", b.cookie)
	}
}

// TestLimitsOfSavedFilters: what is too much or makes no sense is refused, and nothing changes.
func TestLimitsOfSavedFilters(t *testing.T) {
	b := &browserWith{t: t, page: busy(t).page()}
	for n := range 20 {
		if resp := b.submit(url.Values{"do": {"save"}, "name": {fmt.Sprint("filter ", n)}, "query": {"state=HELD"}}); resp.StatusCode != http.StatusSeeOther {
			t.Fatal(resp.Status)
		}
	}
	for name, c := range map[string]struct {
		form url.Values
		want int
	}{
		"one more than 20":     {url.Values{"do": {"save"}, "name": {"more"}, "query": {"state=HELD"}}, http.StatusConflict},
		"a long name":          {url.Values{"do": {"save"}, "name": {strings.Repeat("ä", 61)}, "query": {"state=HELD"}}, http.StatusBadRequest},
		"no name":              {url.Values{"do": {"rename"}, "old": {"filter 1"}, "name": {" \x00 "}}, http.StatusBadRequest},
		"the name of another":  {url.Values{"do": {"rename"}, "old": {"filter 1"}, "name": {"filter 2"}}, http.StatusConflict},
		"an unknown one":       {url.Values{"do": {"rename"}, "old": {"nothing"}, "name": {"x"}}, http.StatusNotFound},
		"no known parameter":   {url.Values{"do": {"save"}, "name": {"filter 1"}, "query": {"next=//evil.example&cursor=5"}}, http.StatusBadRequest},
		"no query":             {url.Values{"do": {"save"}, "name": {"filter 1"}, "query": {"%zz"}}, http.StatusBadRequest},
		"too long a query":     {url.Values{"do": {"save"}, "name": {"filter 1"}, "query": {"q=" + strings.Repeat("w", 4000)}}, http.StatusConflict},
		"an unknown operation": {url.Values{"do": {"explode"}, "name": {"filter 1"}}, http.StatusBadRequest},
	} {
		resp := b.submit(c.form)
		if resp.StatusCode != c.want || len(resp.Cookies()) != 0 {
			t.Errorf("%s: %s, sets %v", name, resp.Status, resp.Cookies())
		}
	}
	if resp := b.submit(url.Values{"do": {"rename"}, "old": {"filter 1"}, "name": {strings.Repeat("ä", 60)}}); resp.StatusCode != http.StatusSeeOther {
		t.Errorf("a name of 60 characters: %s", resp.Status)
	}
}

// TestForeignFormsSaveNothing: a form of another site changes no saved filter.
func TestForeignFormsSaveNothing(t *testing.T) {
	r := request(http.MethodPost, "/applications/filters", "do=save&name=a&query=q%3Da")
	r.Header.Set("Sec-Fetch-Site", "cross-site")
	if resp := answerOf(busy(t).page(), r); resp.StatusCode != http.StatusForbidden || len(resp.Cookies()) != 0 {
		t.Errorf("%s, sets %v", resp.Status, resp.Cookies())
	}
}

// TestHostileFiltersCookie: what a cookie has beyond names and filters is left out, and the list is
// shown with any cookie.
func TestHostileFiltersCookie(t *testing.T) {
	const attack = `<script>alert(1)</script>"'><img src=x>`
	long := make([]savedFilter, 50)
	for n := range long {
		long[n] = savedFilter{fmt.Sprint(n), "q=a"}
	}
	for name, c := range map[string]struct {
		cookie string
		want   int
	}{
		"no base64": {"%%%", 0}, "no JSON": {encodeFilters(nil)[:2] + "x", 0},
		"foreign parameters only": {encodeFilters([]savedFilter{{"a", "next=//evil.example"}}), 0},
		"an address":              {encodeFilters([]savedFilter{{"a", "//evil.example"}, {"b", "https://evil.example/?q=1"}}), 0},
		"no query":                {encodeFilters([]savedFilter{{"a", "q=%zz"}}), 0},
		"a name twice":            {encodeFilters([]savedFilter{{"a", "q=1"}, {" a ", "q=2"}}), 1},
		"50 filters":              {encodeFilters(long), 20},
		"hostile text":            {encodeFilters([]savedFilter{{attack, url.Values{"q": {attack}, "label:" + attack: {attack}}.Encode()}}), 1},
	} {
		r := request(http.MethodGet, "/applications", "")
		r.AddCookie(&http.Cookie{Name: filtersCookie, Value: c.cookie})
		resp := answerOf(busy(t).page(), r)
		body := bodyOf(t, resp)
		if got := strings.Count(body, "<bdi>"); resp.StatusCode != http.StatusOK || got != c.want {
			t.Errorf("%s: %s with %d filters, want %d", name, resp.Status, got, c.want)
		}
		for _, forbidden := range []string{"evil.example", "<script>alert", "<img"} {
			if strings.Contains(body, forbidden) {
				t.Errorf("%s: the list contains %q", name, forbidden)
			}
		}
	}
}

package page

import (
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"
)

// TestColumns: the form of the list stores which columns are shown and the density, and leads back
// to the same view, which then has them.
func TestColumns(t *testing.T) {
	for name, c := range map[string]struct {
		form    url.Values
		cookie  string
		classes string
	}{
		"without images, compact": {url.Values{"column": {"live-commit", "last", "reason"}, "density": {"compact"}}, "images.compact", "table applications without-images compact"},
		"none":                    {url.Values{"density": {"comfortable"}}, "live-commit.images.last.reason", "table applications without-live-commit without-images without-last without-reason"},
		"all":                     {url.Values{"column": {"live-commit", "images", "last", "reason", "other"}, "density": {"comfortable"}}, "", "table applications"},
	} {
		h := busy(t).page()
		c.form.Set("query", "q=web&cursor=9&state=FAILED")
		resp := answerOf(h, request(http.MethodPost, "/applications/columns", c.form.Encode()))
		if resp.StatusCode != http.StatusSeeOther || resp.Header.Get("Location") != "/applications?cursor=9&q=web&state=FAILED" {
			t.Errorf("%s: %s to %q", name, resp.Status, resp.Header.Get("Location"))
		}
		stored := resp.Cookies()[0]
		life := int(365 * 24 * time.Hour / time.Second)
		if c.cookie == "" {
			life = -1
		}
		if stored.Name != "piped-columns" || stored.Value != c.cookie || stored.Path != "/applications" || !stored.HttpOnly || stored.Secure || stored.SameSite != http.SameSiteLaxMode || stored.MaxAge != life {
			t.Errorf("%s: the cookie is %v", name, stored)
		}
		r := request(http.MethodGet, "/applications", "")
		r.AddCookie(stored)
		body := bodyOf(t, answerOf(h, r))
		if !strings.Contains(body, `<table class="`+c.classes+`">`) {
			t.Errorf("%s: the table lacks the classes %q", name, c.classes)
		}
		for _, column := range listColumns() {
			if got, want := strings.Contains(body, `name="column" value="`+column.name+`" checked`), c.form.Has("column") && strings.Contains(strings.Join(c.form["column"], " "), column.name); got != want {
				t.Errorf("%s: the form has checked %s: %v", name, column.name, got)
			}
		}
	}
}

// TestHostileColumns: a cookie changes nothing but known columns, a form of another site nothing, and
// a form leads to the list only. The cookie is for encrypted connections if the request is.
func TestHostileColumns(t *testing.T) {
	f := busy(t)
	r := request(http.MethodGet, "/applications", "")
	r.AddCookie(&http.Cookie{Name: columnsCookie, Value: `<b>.last.pick.name.last`})
	if body := bodyOf(t, answerOf(f.page(), r)); !strings.Contains(body, `<table class="table applications without-last">`) {
		t.Error("the table has other classes")
	}
	r = request(http.MethodPost, "/applications/columns", "density=compact")
	r.Header.Set("Sec-Fetch-Site", "cross-site")
	if resp := answerOf(f.page(), r); resp.StatusCode != http.StatusForbidden || len(resp.Cookies()) != 0 {
		t.Errorf("of another site: %s, sets %v", resp.Status, resp.Cookies())
	}
	resp := answerOf(f.page(), request(http.MethodPost, "/applications/columns", "query=%2F%2Fevil.example%2F"))
	if got := resp.Header.Get("Location"); got != "/applications?%2F%2Fevil.example%2F=" {
		t.Errorf("it leads to %q", got)
	}
	if resp := answerOf(f.page(), request(http.MethodPost, "/applications/columns", "query=%25zz")); resp.StatusCode != http.StatusBadRequest || len(resp.Cookies()) != 0 {
		t.Errorf("without a query: %s, sets %v", resp.Status, resp.Cookies())
	}
	secure := New(Config{Conn: f, Token: func(*http.Request) string { return "token" }, Secure: func(*http.Request) bool { return true }})
	if resp := answerOf(secure, request(http.MethodPost, "/applications/columns", "density=compact")); !resp.Cookies()[0].Secure {
		t.Errorf("the cookie is %v", resp.Cookies())
	}
}

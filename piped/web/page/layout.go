package page

import (
	"cmp"
	"net/url"
	"strings"
	"unicode/utf8"

	"github.com/a-h/templ"
)

// frame is what surrounds a view.
type frame struct {
	title   string
	nav     []navLink
	subject string
	issuer  string
	live    string // address of the stream of changes; "" for none
	search  string // text in the search field
	list    bool   // the view is the list of applications
	strip   *strip // nil for none
	assets  map[string]string
}

type navLink struct {
	label, path, key string
	current          bool
}

// tab is a link to a part of a view.
type tab struct {
	label, path, count string
	current            bool
	more               templ.Attributes // of the link
}

// frameOf returns the frame of a screen.
func frameOf(v *visit, s *screen) frame {
	f := frame{title: s.title, subject: v.caller.GetSubject(), issuer: v.caller.GetIssuer(), assets: v.assets.paths}
	if v.caller == nil {
		return f
	}
	for _, r := range routes() {
		if r.nav != "" {
			f.nav = append(f.nav, navLink{label: r.nav, path: r.path(), key: r.key, current: r.nav == s.nav})
		}
	}
	if f.list = v.r.URL.Path == "/applications"; f.list {
		f.search = v.r.URL.Query().Get("q")
	}
	if s.strip == nil {
		s.strip, _ = v.readStrip() // the view itself shows why the API fails
	}
	if f.strip = s.strip; f.strip != nil {
		f.live = s.stream()
	}
	return f
}

// stream returns the address of the stream of a screen. It says what is shown, so that the
// stream begins with what has changed since.
func (s *screen) stream() string {
	path, query, _ := strings.Cut(cmp.Or(s.live, "/strip/live"), "?")
	q, err := url.ParseQuery(query)
	if err != nil { // made by url.Values
		return s.live
	}
	q.Set("from", keyOfParts(append([]part{s.strip.part()}, s.parts...)))
	return withQuery(path, q)
}

// find returns what makes the list of applications search as the user types. On other views the
// field opens the command palette.
func (f frame) find() templ.Attributes {
	if !f.list {
		return templ.Attributes{"data-palette": true}
	}
	return templ.Attributes{
		"hx-get": "/applications", "hx-trigger": "input changed", "hx-target": ".found", "hx-swap": "innerMorph",
		"hx-include": "#filters", "hx-replace-url": "true", "hx-sync": "this:replace", "data-find": true,
	}
}

// findPath returns where the field in the bar leads to, findText what it is for.
func (f frame) findPath() string {
	if f.list {
		return "/applications"
	}
	return "/search"
}

func (f frame) findText() string {
	if f.list {
		return "Search applications"
	}
	return "Search or command"
}

// scrolling returns the attributes of an element that is scrolled sideways on narrow screens, with
// the keyboard, too.
func scrolling(label string) templ.Attributes {
	return templ.Attributes{"class": "scroll", "tabindex": "0", "role": "region", "aria-label": label}
}

// initials returns what stands for a user in the bar.
func initials(subject string) string {
	name, _, _ := strings.Cut(subject, "@")
	r, _ := utf8.DecodeRuneInString(name)
	if r == utf8.RuneError {
		return "?"
	}
	return strings.ToUpper(string(r))
}

// filterPath returns the address of the list of applications in a state.
func filterPath(states ...string) string {
	return withQuery("/applications", url.Values{"state": states})
}

package page

import (
	"cmp"
	"encoding/base64"
	"encoding/json"
	"net/url"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Limits of the saved filters. Browsers drop a cookie of more than 4096 bytes.
const (
	filtersCookie = "piped-filters"
	filtersKept   = 20
	filterName    = 60 // runes
	filtersBytes  = 3800
)

// savedFilter is a name for a query of the list of applications. The browser stores it in a
// cookie, which is not trusted: its filters are checked as those of an address are.
type savedFilter struct {
	Name  string `json:"n"`
	Query string `json:"q"` // canonical
}

func (f savedFilter) path() string { return listPath(f.Query) }

// listPath returns the address of the list with a canonical query.
func listPath(query string) string {
	if query == "" {
		return "/applications"
	}
	return "/applications?" + query
}

// canonicalFilter returns what of a query is a filter: known facets, the text and the order.
// Equal filters have equal results; "" filters nothing.
func canonicalFilter(q url.Values) string {
	kept := url.Values{}
	for name, values := range q {
		sorted := slices.Sorted(slices.Values(values))
		sorted = slices.DeleteFunc(slices.Compact(sorted), func(v string) bool { return v == "" || !utf8.ValidString(v) })
		if len(sorted) > 0 && isFacet(name) && utf8.ValidString(name) {
			kept[name] = sorted
		}
	}
	if text := strings.TrimSpace(q.Get("q")); text != "" && utf8.ValidString(text) {
		kept.Set("q", text)
	}
	for i, o := range listOrders() {
		if i > 0 && o.name == q.Get("sort") {
			kept.Set("sort", o.name)
		}
	}
	return kept.Encode()
}

// cleanName returns a name in one line; "" if it is none or too long.
func cleanName(name string) string {
	name = strings.Join(strings.Fields(strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(name, ""))), " ")
	if utf8.RuneCountInString(name) > filterName {
		return ""
	}
	return name
}

// savedFilters returns the saved filters of the browser. What cannot be read is left out.
func (v *visit) savedFilters() []savedFilter {
	c, err := v.r.Cookie(filtersCookie)
	if err != nil {
		return nil
	}
	return decodeFilters(c.Value)
}

func decodeFilters(value string) []savedFilter {
	text, err := base64.RawURLEncoding.DecodeString(value)
	var read, out []savedFilter
	if err != nil || json.Unmarshal(text, &read) != nil {
		return nil
	}
	for _, f := range read {
		q, err := url.ParseQuery(f.Query)
		f = savedFilter{cleanName(f.Name), canonicalFilter(q)}
		if err == nil && f.Name != "" && f.Query != "" && indexOfFilter(out, f.Name) < 0 && len(out) < filtersKept {
			out = append(out, f)
		}
	}
	return out
}

func encodeFilters(filters []savedFilter) string {
	text, err := json.Marshal(filters)
	if err != nil { // strings only
		panic(err)
	}
	return base64.RawURLEncoding.EncodeToString(text)
}

func indexOfFilter(filters []savedFilter, name string) int {
	return slices.IndexFunc(filters, func(f savedFilter) bool { return f.Name == name })
}

// changeFilters saves, renames or removes a filter, and leads back to the list.
func changeFilters(v *visit) (*screen, error) {
	if err := v.r.ParseForm(); err != nil {
		return nil, status.Error(codes.InvalidArgument, "the form cannot be read: "+err.Error())
	}
	form := v.r.PostForm
	q, err := url.ParseQuery(form.Get("query"))
	if err != nil {
		return nil, status.Error(codes.InvalidArgument, "the form has no valid query: "+err.Error())
	}
	shown := canonicalFilter(q)
	filters, err := changedFilters(v.savedFilters(), form, shown)
	if err != nil {
		return nil, err
	}
	value := ""
	if len(filters) > 0 {
		value = encodeFilters(filters)
	}
	if len(value) > filtersBytes {
		return nil, status.Error(codes.FailedPrecondition, "the saved filters are too long for a cookie: remove one, or shorten this one")
	}
	v.remember(filtersCookie, value)
	return &screen{to: listPath(shown)}, nil
}

// changedFilters returns the filters after what a form asks for.
func changedFilters(filters []savedFilter, form url.Values, shown string) ([]savedFilter, error) {
	name, at := cleanName(form.Get("name")), indexOfFilter(filters, cleanName(cmp.Or(form.Get("old"), form.Get("name"))))
	switch do := form.Get("do"); {
	case do == "remove" && at >= 0:
		return slices.Delete(filters, at, at+1), nil
	case do == "remove": // in another tab
		return filters, nil
	case name == "":
		return nil, status.Errorf(codes.InvalidArgument, "a filter needs a name of 1 to %d characters", filterName)
	case do == "rename" && at < 0:
		return nil, status.Errorf(codes.NotFound, "There is no saved filter %q", form.Get("old"))
	case do == "rename":
		if other := indexOfFilter(filters, name); other >= 0 && other != at {
			return nil, status.Errorf(codes.AlreadyExists, "another filter is called %q", name)
		}
		filters[at].Name = name
		return filters, nil
	case do != "save":
		return nil, status.Errorf(codes.InvalidArgument, "a form cannot %q a filter", do)
	case shown == "":
		return nil, status.Error(codes.InvalidArgument, "there is no filter to save: choose one first")
	case at >= 0:
		filters[at].Query = shown
		return filters, nil
	case len(filters) >= filtersKept:
		return nil, status.Errorf(codes.FailedPrecondition, "%d filters are saved, and more are not possible: remove one first", filtersKept)
	}
	return append(filters, savedFilter{name, shown}), nil
}

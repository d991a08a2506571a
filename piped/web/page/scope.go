package page

import (
	"net/url"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	controlv1 "github.com/c785c783/piped/proto/piped/control/v1"
)

// span is a length of time before now that a view offers.
type span struct {
	name   string // in the address
	label  string // of the link
	words  string // after `the last`, and before `before`
	length time.Duration
}

const day = 24 * time.Hour

// scope is what the address of a view selects: applications, labels and a range of time.
// Applications are named as in their addresses; times are in RFC 3339.
type scope struct {
	path         string
	q            url.Values
	applications []string // IDs; none for all
	unknown      []string // named in the address, but not known to the caller
	labels       map[string]string
	from, to     time.Time // zero for open ends
	span         span      // that ends now; the zero value for a range of the address
	spans        []span
}

// readScope reads the scope of the address of a view. The range is that of the address, or else
// one of spans, by default the one called standard; without spans it is open.
func (v *visit) readScope(path string, q url.Values, spans []span, standard string) (*scope, error) {
	s := &scope{path: path, q: q, spans: spans, labels: map[string]string{}}
	for name, values := range q {
		if label, ok := strings.CutPrefix(name, "label:"); ok && label != "" {
			s.labels[label] = values[0]
		}
	}
	if err := s.readTimes(v.now, standard); err != nil {
		return nil, err
	}
	for i, name := range q["application"] {
		found, err := v.resolve(name)
		if err != nil {
			return nil, err
		}
		switch len(found) {
		case 0:
			s.unknown = append(s.unknown, name)
		case 1: // links have the name that is unique
			q["application"][i] = applicationRef(found[0].Id, found[0].ApplicationName)
		}
		for _, m := range found {
			s.applications = append(s.applications, m.Id)
		}
	}
	return s, nil
}

// resolve returns what an address calls an application.
func (v *visit) resolve(name string) ([]*controlv1.ResolvedReference, error) {
	if i := strings.LastIndex(name, refMark); i >= 0 {
		name = name[i+len(refMark):]
	}
	found, err := v.control.Resolve(v.ctx, &controlv1.ResolveRequest{Application: name})
	return found.GetMatches(), err
}

func (s *scope) readTimes(now time.Time, standard string) error {
	for name, t := range map[string]*time.Time{"since": &s.from, "until": &s.to} {
		text := s.q.Get(name)
		if text == "" {
			continue
		}
		at, err := time.Parse(time.RFC3339, text)
		if err != nil {
			return status.Errorf(codes.InvalidArgument, "The parameter %s of the address is %q. Write a time as in 2026-03-04T12:00:00Z.", name, text)
		}
		*t = at.In(now.Location())
	}
	if len(s.spans) > 0 && s.from.IsZero() {
		for _, offered := range s.spans {
			if offered.name == standard && s.span.name == "" || offered.name == s.q.Get("range") {
				s.span = offered
			}
		}
		s.from = earlier(s.to, now).Add(-s.span.length)
	}
	if len(s.spans) > 0 {
		s.to = earlier(s.to, now)
	}
	if !s.to.IsZero() && !s.from.Before(s.to) {
		return status.Error(codes.InvalidArgument, "The range of time ends before it begins. Choose a since that is before until.")
	}
	return nil
}

// earlier returns t, but now if t is zero or later.
func earlier(t, now time.Time) time.Time {
	if t.IsZero() || t.After(now) {
		return now
	}
	return t
}

// nothing reports whether the address names only applications that do not exist.
func (s *scope) nothing() bool { return len(s.unknown) > 0 && len(s.applications) == 0 }

// current reports whether the range ends now.
func (s *scope) current() bool { return s.q.Get("until") == "" }

// words says which range it is, such as `in the last 7 days`.
func (s *scope) words() string {
	switch {
	case s.current() && s.span.name != "":
		return "in the last " + s.span.words
	case s.from.IsZero() && s.to.IsZero():
		return ""
	case s.from.IsZero():
		return "until " + clock(s.to)
	case s.current():
		return "since " + clock(s.from)
	}
	return "from " + clock(s.from) + " until " + clock(s.to)
}

// length says how long the range is.
func (s *scope) length() string {
	if s.span.words != "" && s.current() {
		return s.span.words
	}
	return duration(s.to.Sub(s.from))
}

// clock returns a time to the minute.
func clock(t time.Time) string { return t.Format("2006-01-02 15:04 MST") }

// zoneName returns the name of the zone of a time in the IANA database, for the API.
func zoneName(t time.Time) string {
	if t.Location() == time.Local {
		return "" // UTC: the agent's own zone has no name
	}
	return t.Location().String()
}

// clone returns the parameters of the address without those of a place within the list.
func (s *scope) clone() url.Values {
	q := url.Values{}
	for name, values := range s.q {
		if name != "cursor" && name != "page" {
			q[name] = slices.Clone(values)
		}
	}
	return q
}

// with returns the address with a parameter set, and from the first page; "" removes it.
func (s *scope) with(name, value string) string {
	q := s.clone()
	q.Set(name, value)
	if value == "" {
		q.Del(name)
	}
	return withQuery(s.path, q)
}

// lasting returns the address with a range that ends now.
func (s *scope) lasting(name string) string {
	q := s.clone()
	q.Del("since")
	q.Del("until")
	q.Set("range", name)
	return withQuery(s.path, q)
}

// between returns the address of another range with the same filters.
func (s *scope) between(from, to time.Time) string {
	q := s.clone()
	q.Del("range")
	q.Set("since", instant(from))
	q.Set("until", instant(to))
	return withQuery(s.path, q)
}

// instant writes a time in an address.
func instant(t time.Time) string { return t.UTC().Format(time.RFC3339Nano) }

// toggled returns the address with a value of a filter added or removed.
func (s *scope) toggled(name, value string) string {
	q := s.clone()
	if i := slices.Index(q[name], value); i >= 0 {
		q[name] = slices.Delete(q[name], i, i+1)
	} else {
		q[name] = append(q[name], value)
	}
	if len(q[name]) == 0 {
		q.Del(name)
	}
	return withQuery(s.path, q)
}

// chosen returns the filters by labels and by applications that match nothing as facets, so that
// each can be removed.
func (s *scope) chosen() []facet {
	var out []facet
	if len(s.unknown) > 0 {
		f := facet{name: "unknown", title: "Not found"}
		for _, name := range s.unknown {
			f.values = append(f.values, facetValue{value: name, label: name, path: s.toggled("application", name), chosen: true, uncounted: true})
		}
		out = append(out, f)
	}
	for name, value := range s.labels {
		out = append(out, facet{name: "label:" + name, title: name, values: []facetValue{{value: value, label: value, path: s.with("label:"+name, ""), chosen: true, uncounted: true}}})
	}
	slices.SortFunc(out, func(a, b facet) int { return strings.Compare(a.name, b.name) })
	return out
}

// chips are the filters of the address, each with the address without it.
func (s *scope) chips() []facetValue {
	var out []facetValue
	for _, name := range s.q["application"] {
		out = append(out, facetValue{label: shownName(name), path: s.toggled("application", name)})
	}
	for _, f := range s.chosen() {
		if strings.HasPrefix(f.name, "label:") {
			out = append(out, facetValue{label: f.title + " = " + f.values[0].label, path: f.values[0].path})
		}
	}
	return out
}

// shownName returns the name in what addresses call an application.
func shownName(ref string) string {
	if i := strings.LastIndex(ref, refMark); i >= 0 {
		return ref[:i]
	}
	return ref
}

// ranges are links to the range before this one, the one after it, and those that end now.
func (s *scope) ranges() []tab {
	out := []tab{{label: "Earlier", path: s.between(s.from.Add(s.from.Sub(s.to)), s.from)}}
	if !s.current() {
		out = append(out, tab{label: "Later", path: s.between(s.to, s.to.Add(s.to.Sub(s.from)))})
	}
	for _, offered := range s.spans {
		out = append(out, tab{label: offered.label, path: s.lasting(offered.name), current: offered.name == s.span.name && s.current()})
	}
	return out
}

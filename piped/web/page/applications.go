package page

import (
	"cmp"
	"context"
	"iter"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"

	controlv1 "github.com/c785c783/piped/proto/piped/control/v1"
)

// Limits of the list of applications.
const (
	listPage     = 50
	facetsShown  = 8  // values of a facet before the rest is folded
	labelsFacets = 12 // labels that become facets
)

// listOrders are the orders of the list, by their name in the address.
func listOrders() []struct {
	name, label string
	order       controlv1.ApplicationOrder
} {
	return []struct {
		name, label string
		order       controlv1.ApplicationOrder
	}{
		{"state", "Worst first", controlv1.ApplicationOrder_APPLICATION_ORDER_STATE},
		{"name", "Name", controlv1.ApplicationOrder_APPLICATION_ORDER_NAME},
		{"deployed", "Last deployed", controlv1.ApplicationOrder_APPLICATION_ORDER_LAST_DEPLOYED},
		{"updated", "Last changed", controlv1.ApplicationOrder_APPLICATION_ORDER_UPDATED},
	}
}

// listFacets are the facets beside labels, with their titles.
func listFacets() []struct{ name, title string } {
	return []struct{ name, title string }{
		{"state", "State"}, {"health", "Health"}, {"sync", "Sync"}, {"provider", "Cluster"}, {"repository", "Repository"}, {"kind", "Kind"}, {"enabled", "Enabled"},
	}
}

// listQuery is what the address of the list says.
type listQuery struct {
	q     url.Values
	order controlv1.ApplicationOrder
	name  string // of the order
}

func newListQuery(q url.Values) listQuery {
	l := listQuery{q: q}
	for i, o := range listOrders() {
		if i == 0 || o.name == q.Get("sort") {
			l.order, l.name = o.order, o.name
		}
	}
	return l
}

// filters returns the filters of the address: facets by their names, labels as label:NAME.
func (l listQuery) filters() []*controlv1.FacetFilter {
	var out []*controlv1.FacetFilter
	for name, values := range l.q {
		if isFacet(name) {
			out = append(out, &controlv1.FacetFilter{Facet: name, Values: values})
		}
	}
	slices.SortFunc(out, func(a, b *controlv1.FacetFilter) int { return cmp.Compare(a.Facet, b.Facet) })
	return out
}

func isFacet(name string) bool {
	return strings.HasPrefix(name, "label:") && name != "label:" || slices.ContainsFunc(listFacets(), func(f struct{ name, title string }) bool { return f.name == name })
}

// with returns the address with a parameter set, and from the first page.
func (l listQuery) with(name, value string) string {
	q := l.clone()
	q.Set(name, value)
	return withQuery("/applications", q)
}

// toggled returns the address with a value of a facet added or removed.
func (l listQuery) toggled(name, value string) string {
	q := l.clone()
	if values := q[name]; slices.Contains(values, value) {
		q[name] = slices.DeleteFunc(slices.Clone(values), func(v string) bool { return v == value })
	} else {
		q[name] = append(slices.Clone(values), value)
	}
	if len(q[name]) == 0 {
		q.Del(name)
	}
	return withQuery("/applications", q)
}

func (l listQuery) clone() url.Values {
	q := url.Values{}
	for name, values := range l.q {
		if name != "cursor" && name != "seen" {
			q[name] = values
		}
	}
	return q
}

// each returns the names and values of the address in a stable order.
func (l listQuery) each() iter.Seq2[string, string] {
	return func(yield func(string, string) bool) {
		q := l.clone()
		for _, name := range slices.Sorted(maps.Keys(q)) {
			for _, value := range q[name] {
				if !yield(name, value) {
					return
				}
			}
		}
	}
}

// list is the view of applications.
type list struct {
	query  listQuery
	rows   []*controlv1.ApplicationEntry
	facets []facet
	total  int32
	all    int32 // without the filters
	next   string
	sync   bool   // the caller may sync some application
	seen   string // key of the order that the browser shows; "" for that of rows
	saved  []savedFilter

	columns columnChoice
	agent   *controlv1.GetStatusResponse // read if there are no applications; nil for a caller who may not see it
}

// filter returns the filter of the address, as it is saved.
func (l *list) filter() string { return canonicalFilter(l.query.q) }

// isSaved reports whether the filter of the address has a name.
func (l *list) isSaved() bool {
	return slices.ContainsFunc(l.saved, func(f savedFilter) bool { return f.Query == l.filter() })
}

type facet struct {
	name, title string
	values      []facetValue
	open        bool
}

type facetValue struct {
	value, label string
	mark         mark // of a state
	count        int32
	path         string
	chosen       bool
	uncounted    bool // there is no count
}

// showApplications shows the list.
func showApplications(v *visit) (*screen, error) {
	l, err := v.readList(newListQuery(v.query()))
	if err != nil {
		return nil, err
	}
	l.saved, l.columns = v.savedFilters(), v.columns()
	strip, err := v.readStrip()
	if err != nil {
		return nil, err
	}
	s := &screen{title: "Applications", nav: "Applications", body: applicationsPage(v, l), live: l.live(), parts: l.parts(v, l.rows, nil), strip: strip}
	s.part = applicationsResult(v, l, s.stream())
	return s, nil
}

// parts returns the live parts, but the strip, with the rows that the browser shows.
func (l *list) parts(v *visit, shown []*controlv1.ApplicationEntry, gone map[string]bool) []part {
	parts := []part{{"facets", keyOf(l.facets), facetList(l.facets)}, {"total", keyOf(l.headline()), totalLine(l)}}
	for _, e := range shown {
		parts = append(parts, part{rowID("app", e.Id), keyOf(e, gone[e.Id]), applicationRow(v, e, gone[e.Id])})
	}
	changed := 0
	if orderKey(l.rows) != cmp.Or(l.seen, orderKey(l.rows)) {
		changed = moved(shown, l.rows)
	}
	if l.all == 0 {
		parts = append(parts, repositoriesPart(v, l.agent, ""))
	}
	return append(parts, part{"resort", keyOf(changed), resortLine(l, changed)})
}

// live returns the address of the stream of the list.
func (l *list) live() string {
	q := url.Values{}
	for name, values := range l.query.q {
		q[name] = values
	}
	q.Set("seen", orderKey(l.rows))
	return withQuery("/applications/live", q)
}

// orderKey returns a key of which applications stand in which order.
func orderKey(rows []*controlv1.ApplicationEntry) string {
	ids := make([]string, len(rows))
	for i, e := range rows {
		ids[i] = e.Id
	}
	return keyOf(strings.Join(ids, " "))
}

// search returns the request for a query.
func (l listQuery) search(facets []string) *controlv1.SearchApplicationsRequest {
	return &controlv1.SearchApplicationsRequest{Text: l.q.Get("q"), Filters: l.filters(), Facets: facets, Order: l.order, Limit: listPage, Cursor: l.q.Get("cursor")}
}

// counted returns the facets of the view, but labels that are no filters.
func (l listQuery) counted() []string {
	names := []string{"label"}
	for _, f := range listFacets() {
		names = append(names, f.name)
	}
	for _, f := range l.filters() {
		if strings.HasPrefix(f.Facet, "label:") {
			names = append(names, f.Facet)
		}
	}
	return names
}

// readList reads the list with its facets; labels that applications have become facets, too.
func (v *visit) readList(query listQuery) (*list, error) {
	found, err := v.control.SearchApplications(v.ctx, query.search(query.counted()))
	if err != nil {
		return nil, err
	}
	l := &list{query: query, rows: found.Applications, total: found.Total, next: found.Cursor, sync: v.somewhere("sync")}
	labels, err := v.readLabels(query, found.Facets)
	if err != nil {
		return nil, err
	}
	l.facets = query.facets(append(found.Facets, labels...))
	l.all = l.total
	if len(query.filters()) > 0 || query.q.Get("q") != "" {
		everything, err := v.control.SearchApplications(v.ctx, &controlv1.SearchApplicationsRequest{Limit: 1})
		if err != nil {
			return nil, err
		}
		l.all = everything.Total
	}
	if l.all == 0 {
		l.agent, err = v.agentState()
	}
	return l, err
}

// readLabels counts the values of the most frequent labels that are no filters.
func (v *visit) readLabels(query listQuery, facets []*controlv1.Facet) ([]*controlv1.Facet, error) {
	var names []string
	for _, f := range facets {
		if f.Name != "label" {
			continue
		}
		for _, value := range f.Values[:min(len(f.Values), labelsFacets)] {
			if name := "label:" + value.Value; !query.q.Has(name) {
				names = append(names, name)
			}
		}
	}
	if len(names) == 0 {
		return nil, nil
	}
	req := query.search(names)
	req.Limit, req.Cursor = 1, ""
	found, err := v.control.SearchApplications(v.ctx, req)
	return found.GetFacets(), err
}

// facets returns the facets to show. A facet with one value that is not chosen says nothing.
func (l listQuery) facets(counted []*controlv1.Facet) []facet {
	titles := map[string]string{}
	for _, f := range listFacets() {
		titles[f.name] = f.title
	}
	var out []facet
	for _, c := range counted {
		f := facet{name: c.Name, title: titles[c.Name]}
		if label, ok := strings.CutPrefix(c.Name, "label:"); ok {
			f.title = label
		}
		for _, value := range c.Values {
			chosen := slices.Contains(l.q[c.Name], value.Value)
			f.open = f.open || chosen
			shown := facetValue{value: value.Value, label: facetLabel(c.Name, value.Value), count: value.Count, path: l.toggled(c.Name, value.Value), chosen: chosen}
			if c.Name == "state" {
				shown.mark = stateMark(value.Value)
			}
			f.values = append(f.values, shown)
		}
		if f.title != "" && (len(f.values) > 1 || f.open || f.name == "state") {
			out = append(out, f)
		}
	}
	return out
}

// facetLabel returns a value of a facet in words.
func facetLabel(facet, value string) string {
	switch {
	case facet == "state":
		return stateMark(value).word
	case facet == "enabled" && value == "true":
		return "Enabled"
	case facet == "enabled":
		return "Disabled"
	case value == "":
		return "none"
	case facet == "kind" || facet == "sync" || facet == "health":
		words := strings.ToLower(strings.ReplaceAll(value, "_", " "))
		return strings.ToUpper(words[:1]) + words[1:]
	}
	return value
}

// headline is the first sentence of the list.
func (l *list) headline() string {
	if l.total == l.all {
		return plural(l.all, "application", "applications")
	}
	return strconv.Itoa(int(l.total)) + " of " + plural(l.all, "application", "applications")
}

// listSource is the stream of the list. Rows change in place: those that are shown stay until
// the user asks for the new order.
type listSource struct {
	query listQuery
	seen  string                        // key of the order that the browser shows
	shown []*controlv1.ApplicationEntry // as they were when the stream began
}

func liveApplications(v *visit) (source, error) {
	q := v.query()
	seen := q.Get("seen")
	q.Del("seen")
	q.Del("from")
	s := &listSource{query: newListQuery(q), seen: seen}
	found, err := v.control.SearchApplications(v.ctx, s.query.search(s.query.counted())) // as the view has asked
	s.shown = found.GetApplications()
	return s, err
}

func (s *listSource) watch(v *visit) (receive, error) { return v.watchApplications() } // others change the order

func (s *listSource) opened() string { return orderKey(s.shown) }

func (s *listSource) parts(v *visit) ([]part, error) {
	l, err := v.readList(s.query)
	if err != nil {
		return nil, err
	}
	shown, gone, err := s.rows(v, l.rows)
	if err != nil {
		return nil, err
	}
	strip, err := v.readStrip()
	if err != nil {
		return nil, err
	}
	l.seen = s.seen
	return append(l.parts(v, shown, gone), strip.part()), nil
}

// rows returns the applications that are shown as they are now, and which of them are gone. Those
// that the search does not find any longer are read.
func (s *listSource) rows(v *visit, found []*controlv1.ApplicationEntry) (rows []*controlv1.ApplicationEntry, gone map[string]bool, err error) {
	now := map[string]*controlv1.ApplicationEntry{}
	for _, e := range found {
		now[e.Id] = e
	}
	var missing []string
	for _, e := range s.shown {
		if now[e.Id] == nil {
			missing = append(missing, e.Id)
		}
	}
	if err := v.readEntries(missing, now); err != nil {
		return nil, nil, err
	}
	gone = map[string]bool{}
	for _, e := range s.shown {
		gone[e.Id] = now[e.Id] == nil
		rows = append(rows, cmp.Or(now[e.Id], e))
	}
	return rows, gone, nil
}

// readEntries reads applications by their IDs. Those that do not exist are left out.
func (v *visit) readEntries(ids []string, into map[string]*controlv1.ApplicationEntry) error {
	if len(ids) == 0 {
		return nil
	}
	ctx, cancel := context.WithCancel(v.ctx)
	defer cancel()
	stream, err := v.control.WatchApplications(ctx, &controlv1.WatchApplicationsRequest{ApplicationIds: ids})
	for err == nil {
		var m *controlv1.WatchApplicationsResponse
		if m, err = stream.Recv(); m.GetCaughtUp() {
			return nil
		}
		if e := m.GetApplication(); e != nil {
			into[e.Id] = e
		}
	}
	return err
}

// moved returns how many applications would come, go or move, at least one.
func moved(shown, wanted []*controlv1.ApplicationEntry) int {
	n := max(len(shown), len(wanted)) - min(len(shown), len(wanted))
	for i := range min(len(shown), len(wanted)) {
		if shown[i].Id != wanted[i].Id {
			n++
		}
	}
	return max(n, 1)
}

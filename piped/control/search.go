package control

import (
	"bytes"
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/c785c783/piped/piped/deploy"
	controlv1 "github.com/c785c783/piped/proto/piped/control/v1"
)

// Limits of SearchApplications.
const (
	searchPage     = 50
	maxSearchPage  = 500
	maxSearchText  = 1000
	maxFacets      = 32
	maxFacetValues = 200 // in a response
)

// SearchApplications searches the applications that the caller may view.
func (s *controlService) SearchApplications(ctx context.Context, req *controlv1.SearchApplicationsRequest) (*controlv1.SearchApplicationsResponse, error) {
	search, err := newSearch(req)
	if err != nil {
		return nil, err
	}
	found, err := s.found(ctx, req, search)
	if err != nil {
		return nil, err
	}
	resp := &controlv1.SearchApplicationsResponse{Total: int32(len(found.rows)), Facets: found.facets}
	limit := min(int(cmp.Or(req.Limit, searchPage)), maxSearchPage)
	resp.Applications, resp.Cursor, err = pageOf(limit, func(limit int) ([]*entry, string, error) {
		rows, cursor := search.page(found.rows, limit)
		return rows, cursor, nil
	}, func(e *entry) *controlv1.ApplicationEntry { return s.convert.entry(e, s.now()) })
	return resp, err
}

// found runs a search, unless an equal one of a caller with the same scope ran since the last
// change of an application.
func (s *controlService) found(ctx context.Context, req *controlv1.SearchApplicationsRequest, search *search) (*result, error) {
	all, revision, err := s.catalog.all(ctx)
	if err != nil {
		return nil, err
	}
	key, err := proto.MarshalOptions{Deterministic: true}.Marshal(&controlv1.SearchApplicationsRequest{
		Text: req.Text, Filters: req.Filters, Facets: req.Facets, Order: req.Order, // pages share the result
	})
	if err != nil {
		return nil, err
	}
	found := s.results.at(revision, scopeKey(ctx)+string(key))
	found.once.Do(func() {
		found.rows = search.run(all, viewOf(ctx))
		found.facets = search.counted()
	})
	return found, nil
}

// results remembers the searches of the present catalog: the page asks the same for a view and for
// its stream, and many users have the same view open. The zero value is ready to use.
type results struct {
	mu       sync.Mutex
	revision int64 // of the catalog
	byKey    map[string]*result
}

// result is what a search has found. It is shared and must not be changed.
type result struct {
	once   sync.Once // fills the rest
	rows   []*entry
	facets []*controlv1.Facet
}

// maxResults limits the results in memory, each of which has a pointer for every application found.
const maxResults = 64

// at returns the result of a key at a revision of the catalog, empty when it is new.
func (r *results) at(revision int64, key string) *result {
	r.mu.Lock()
	defer r.mu.Unlock()
	if revision < r.revision { // another caller has read the catalog later
		return &result{}
	}
	if revision > r.revision || len(r.byKey) >= maxResults {
		r.revision, r.byKey = revision, nil
	}
	if r.byKey == nil {
		r.byKey = map[string]*result{}
	}
	if r.byKey[key] == nil {
		r.byKey[key] = &result{}
	}
	return r.byKey[key]
}

// validSearchApplications validates the request itself.
func validSearchApplications(r *controlv1.SearchApplicationsRequest) error {
	errs := []error{
		notNegative("SearchApplicationsRequest.Limit", r.Limit),
		between("SearchApplicationsRequest.Filters", len(r.Filters), 0, maxFacets),
		between("SearchApplicationsRequest.Facets", len(r.Facets), 0, maxFacets),
		defined("SearchApplicationsRequest.Order", r.Order, controlv1.ApplicationOrder_name),
	}
	if len(r.Text) > maxSearchText {
		errs = append(errs, broken("SearchApplicationsRequest.Text", "value length must be at most "+strconv.Itoa(maxSearchText)+" bytes"))
	}
	for _, f := range r.Filters {
		errs = append(errs, bounded("FacetFilter.Values", "items", len(f.GetValues())))
	}
	return first(errs...)
}

// search is one search. It is used once.
type search struct {
	words   []string
	filters []*facet // with wanted values
	counts  []*facet // to be counted
	order   controlv1.ApplicationOrder
	after   *place // the last application of the page before
}

// facet selects and counts applications by a property.
type facet struct {
	name   string
	values facetValues
	wanted map[string]bool // nil without a filter
	only   []string        // wanted, for counting
	counts map[string]int
}

// facetValues yields the values of an application. Several are allowed, "" is one.
type facetValues func(e *entry, yield func(string))

// newSearch checks a request and returns its search.
func newSearch(req *controlv1.SearchApplicationsRequest) (*search, error) {
	s := &search{words: strings.Fields(strings.ToLower(req.Text)), order: req.Order}
	wanted := map[string][]string{}
	for _, f := range req.Filters {
		if _, twice := wanted[f.GetFacet()]; twice {
			return nil, deploy.Errorf(deploy.Invalid, "filters has the facet %q twice: put all its values into one filter", f.GetFacet())
		}
		wanted[f.GetFacet()] = f.GetValues()
	}
	for _, name := range slices.Sorted(maps.Keys(wanted)) {
		f, err := newFacet(name, wanted[name])
		if err != nil {
			return nil, err
		}
		s.filters = append(s.filters, f)
	}
	for _, name := range req.Facets {
		f, err := newFacet(name, wanted[name])
		if err != nil {
			return nil, err
		}
		s.counts = append(s.counts, f)
	}
	var err error
	s.after, err = placeFrom(req.Cursor, req.Order)
	return s, err
}

// labelPrefix begins the names of facets of label values.
const labelPrefix = "label:"

// newFacet returns a facet, with a filter if there are wanted values.
func newFacet(name string, wanted []string) (*facet, error) {
	f := &facet{name: name, values: facets()[name], only: wanted, counts: map[string]int{}}
	if label, ok := strings.CutPrefix(name, labelPrefix); ok && label != "" {
		f.values = func(e *entry, yield func(string)) { yield(e.app.Labels[label]) }
	}
	if f.values == nil {
		return nil, deploy.Errorf(deploy.Invalid, "there is no facet %q: use one of %s, or %sNAME for the values of a label",
			name, strings.Join(slices.Sorted(maps.Keys(facets())), ", "), labelPrefix)
	}
	if len(wanted) > 0 {
		f.wanted = map[string]bool{}
		for _, v := range wanted {
			f.wanted[v] = true
		}
	}
	return f, nil
}

// facets returns the facets by name, except those of label values. The value of an application
// that lacks the property is "".
func facets() map[string]facetValues {
	one := func(value func(*entry) string) facetValues {
		return func(e *entry, yield func(string)) { yield(value(e)) }
	}
	return map[string]facetValues{
		"state":      one(func(e *entry) string { return string(e.status.State) }),
		"sync":       one(func(e *entry) string { return string(e.sync) }),
		"health":     one(func(e *entry) string { return cmp.Or(string(e.health), "UNKNOWN") }),
		"kind":       one(func(e *entry) string { return cmp.Or(e.app.Kind, deploy.KindKubernetes) }),
		"provider":   one(func(e *entry) string { return e.app.Provider }),
		"repository": one(func(e *entry) string { return e.app.Git.RepoID }),
		"enabled":    one(func(e *entry) string { return strconv.FormatBool(!e.app.Disabled) }),
		"deployment": (*entry).deployments,
		"label": func(e *entry, yield func(string)) {
			for name := range e.app.Labels {
				yield(name)
			}
		},
	}
}

// deployments yields the values of the facet "deployment".
func (e *entry) deployments(yield func(string)) {
	if e.sync == deploy.SyncDeploying {
		yield("ACTIVE")
	}
	if e.status.State == deploy.StateWaiting {
		yield("WAITING_FOR_APPROVAL")
	}
	if e.last != nil && e.last.Status == deploy.Failure {
		yield("FAILED")
	}
}

// matches reports whether an application passes the facet's filter.
func (f *facet) matches(e *entry) bool {
	found := f.wanted == nil
	f.values(e, func(v string) { found = found || f.wanted[v] })
	return found
}

// run returns the matching applications in the scope, in order, and counts the facets.
func (s *search) run(all []*entry, view deploy.Scope) []*entry {
	var found []*entry
	counting := make([]func(string), len(s.counts)) // once for all applications
	for i, f := range s.counts {
		counting[i] = func(v string) { f.counts[v]++ }
	}
	for _, e := range all {
		if !view.Contains(e.app) || !s.hasWords(e) {
			continue
		}
		failed := "" // the only facet whose filter rejects the application
		rejections := 0
		for _, f := range s.filters {
			if !f.matches(e) {
				failed = f.name
				rejections++
			}
		}
		if rejections == 0 {
			found = append(found, e)
		}
		for i, f := range s.counts {
			if rejections == 0 || rejections == 1 && failed == f.name {
				f.values(e, counting[i])
			}
		}
	}
	if s.order > controlv1.ApplicationOrder_APPLICATION_ORDER_NAME { // all are sorted by name
		sortByRank(found, s.order)
	}
	return found
}

// sortByRank sorts by the rank in an order, and keeps the order of equal ranks.
func sortByRank(found []*entry, order controlv1.ApplicationOrder) {
	type ranked struct {
		rank  int64
		entry *entry
	}
	all := make([]ranked, len(found))
	for i, e := range found {
		all[i] = ranked{e.rank(order), e}
	}
	slices.SortStableFunc(all, func(a, b ranked) int { return cmp.Compare(a.rank, b.rank) })
	for i, r := range all {
		found[i] = r.entry
	}
}

// hasWords reports whether every word occurs in the text of an application.
func (s *search) hasWords(e *entry) bool {
	return !slices.ContainsFunc(s.words, func(w string) bool { return !strings.Contains(e.text, w) })
}

// counted returns the counts of the facets.
func (s *search) counted() []*controlv1.Facet {
	var out []*controlv1.Facet
	for _, f := range s.counts {
		out = append(out, f.message())
	}
	return out
}

// message returns the values by frequency, then by value. Wanted values are never omitted.
func (f *facet) message() *controlv1.Facet {
	for _, v := range f.only {
		f.counts[v] += 0
	}
	values := slices.Collect(maps.Keys(f.counts))
	slices.SortFunc(values, func(a, b string) int {
		return cmp.Or(cmp.Compare(f.counts[b], f.counts[a]), cmp.Compare(a, b))
	})
	m := &controlv1.Facet{Name: text(f.name)}
	for i, v := range values {
		if i >= maxFacetValues && !f.wanted[v] {
			m.Omitted++
			continue
		}
		m.Values = append(m.Values, &controlv1.FacetCount{Value: text(v), Count: int32(f.counts[v])})
	}
	return m
}

// rank returns the key by which an order sorts, ascending, before names.
func (e *entry) rank(order controlv1.ApplicationOrder) int64 {
	switch order {
	case controlv1.ApplicationOrder_APPLICATION_ORDER_UPDATED:
		return -millis(e.app.UpdatedAt)
	case controlv1.ApplicationOrder_APPLICATION_ORDER_LAST_DEPLOYED:
		if e.last == nil {
			return 0
		}
		return -millis(e.last.CreatedAt)
	case controlv1.ApplicationOrder_APPLICATION_ORDER_STATE:
		return int64(slices.Index(deploy.AppStates(), e.status.State))
	}
	return 0
}

// place is the place of an application in an order.
type place struct {
	Order controlv1.ApplicationOrder `json:"o,omitempty"`
	Rank  int64                      `json:"r,omitempty"`
	Name  string                     `json:"n"`
	ID    string                     `json:"i"`
}

func placeOf(e *entry, order controlv1.ApplicationOrder) place {
	return place{order, e.rank(order), e.app.Name, e.app.ID}
}

// compare compares two places in the same order.
func (p place) compare(o place) int {
	return cmp.Or(cmp.Compare(p.Rank, o.Rank), cmp.Compare(p.Name, o.Name), cmp.Compare(p.ID, o.ID))
}

// cursor returns the place as the cursor after which the next page begins.
func (p place) cursor() string {
	var out bytes.Buffer
	if err := json.NewEncoder(&out).Encode(p); err != nil { // no place can cause this
		panic(err)
	}
	return base64.RawURLEncoding.EncodeToString(bytes.TrimSpace(out.Bytes()))
}

// placeFrom reads a cursor; "" is the start.
func placeFrom(cursor string, order controlv1.ApplicationOrder) (*place, error) {
	if cursor == "" {
		return nil, nil
	}
	var p place
	raw, err := base64.RawURLEncoding.DecodeString(cursor)
	if err == nil {
		err = json.Unmarshal(raw, &p)
	}
	if err != nil || p.ID == "" || p.Order != order {
		return nil, deploy.Errorf(deploy.Invalid, "the cursor is not one of a search with this order: repeat the search without it")
	}
	return &p, nil
}

// page returns a page of the found applications and the cursor of the next one.
func (s *search) page(found []*entry, limit int) ([]*entry, string) {
	if s.after != nil {
		at, _ := slices.BinarySearchFunc(found, *s.after, func(e *entry, after place) int {
			return cmp.Or(placeOf(e, s.order).compare(after), -1) // the application itself was on the page before
		})
		found = found[at:]
	}
	if len(found) <= limit {
		return found, ""
	}
	return found[:limit], placeOf(found[limit-1], s.order).cursor()
}

var appStates = map[deploy.AppState]controlv1.ApplicationState{
	deploy.StateSynced:        controlv1.ApplicationState_APPLICATION_STATE_SYNCED,
	deploy.StateDeploying:     controlv1.ApplicationState_APPLICATION_STATE_DEPLOYING,
	deploy.StateWaiting:       controlv1.ApplicationState_APPLICATION_STATE_WAITING_FOR_APPROVAL,
	deploy.StateHeld:          controlv1.ApplicationState_APPLICATION_STATE_HELD,
	deploy.StateDrifted:       controlv1.ApplicationState_APPLICATION_STATE_DRIFTED,
	deploy.StateFailed:        controlv1.ApplicationState_APPLICATION_STATE_FAILED,
	deploy.StateDegraded:      controlv1.ApplicationState_APPLICATION_STATE_DEGRADED,
	deploy.StateInvalidConfig: controlv1.ApplicationState_APPLICATION_STATE_INVALID_CONFIG,
	deploy.StateUnknown:       controlv1.ApplicationState_APPLICATION_STATE_UNKNOWN,
}

func appStatus(s deploy.AppStatus, now time.Time) *controlv1.ApplicationStatus {
	return &controlv1.ApplicationStatus{State: appStates[s.State], Word: text(s.Word(now)), Reason: text(s.Reason), SinceMs: millis(s.Since)}
}

func (c converter) entry(e *entry, now time.Time) *controlv1.ApplicationEntry {
	m := &controlv1.ApplicationEntry{
		Id: text(e.app.ID), Name: text(e.app.Name), Kind: kindNumber(e.app.Kind), RepositoryId: text(e.app.Git.RepoID), ConfigPath: text(e.app.Git.ConfigPath()),
		PlatformProvider: text(e.app.Provider), Labels: texts(e.app.Labels), Disabled: e.app.Disabled, Status: appStatus(e.status, now),
		SyncStatus: syncStatus(e.sync), Health: healths[e.health], UpdatedAtMs: millis(e.app.UpdatedAt),
	}
	if e.running != nil {
		m.RunningCommit, m.RunningVersions = text(e.running.Trigger.Commit.Hash), versions(e.running.Versions)
	}
	if e.last != nil {
		m.LastDeployment = brief(*e.last)
	}
	return m
}

// brief summarizes a deployment.
func brief(d deploy.Deployment) *controlv1.DeploymentBrief {
	m := &controlv1.DeploymentBrief{
		DeploymentId: text(d.ID), Status: deploymentStatus(d.Status), StatusReason: text(d.StatusReason), Commit: text(d.Trigger.Commit.Hash),
		CommitMessage: text(d.Trigger.Commit.Message), By: text(d.Trigger.By()), CreatedAtMs: millis(d.CreatedAt), CompletedAtMs: millis(d.CompletedAt),
	}
	if !d.CompletedAt.IsZero() {
		m.DurationMs = d.CompletedAt.Sub(d.CreatedAt).Milliseconds()
	}
	return m
}

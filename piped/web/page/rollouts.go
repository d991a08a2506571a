package page

import (
	"cmp"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	controlv1 "github.com/c785c783/piped/proto/piped/control/v1"
	modelv1 "github.com/c785c783/piped/proto/piped/model/v1"
)

// Limits of the view of rollouts.
const (
	rolloutsRead = 1000 // rollouts of a range that are drawn and counted
	rolloutsPage = 100  // rows of the table
)

// rolloutSpans are the ranges that the view offers.
func rolloutSpans() []span {
	return []span{
		{"1h", "1 h", "hour", time.Hour}, {"6h", "6 h", "6 hours", 6 * time.Hour}, {"24h", "24 h", "24 hours", day},
		{"7d", "7 d", "7 days", 7 * day}, {"30d", "30 d", "30 days", 30 * day},
	}
}

// rolloutsView is the view of rollouts over time.
type rolloutsView struct {
	*scope
	rows   []*modelv1.Rollout // all that match, the newest first
	facets []facet
	lanes  lanes
	capped bool     // there are more in the range than were read
	before medianOf // of the range of the same length before
	page   int      // of the table, from 0
	newer  int      // began after the page was made
	pods   rolloutPods
}

// medianOf is the median of some times.
type medianOf struct {
	ms    int64
	count int
}

func showRollouts(v *visit) (*screen, error) {
	r, err := v.readRollouts(v.query())
	if err != nil {
		return nil, err
	}
	r.pods = v.readPods(r.shown())
	s := &screen{title: "Rollouts", nav: "Rollouts", body: rolloutsPageView(v, r)}
	if r.current() {
		s.live, s.parts = r.live(), r.parts(v, r.shown())
	}
	return s, nil
}

// live returns the address of the stream. It names the end of the range, so that the time axis
// rests while rollouts on it change.
func (r *rolloutsView) live() string {
	q := url.Values{}
	for name, values := range r.q {
		q[name] = values
	}
	q.Set("at", instant(r.to))
	return withQuery("/rollouts/live", q)
}

// parts returns the live parts, but the strip, with the rows that the browser shows. Each row is
// one, so that opened ones stay open; one that matches no more stays where it is.
func (r *rolloutsView) parts(v *visit, shown []*modelv1.Rollout) []part {
	parts := []part{
		{"facets", keyOf(r.facets), facetList(r.facets)}, {"total", keyOf(r.headline(), r.medians()), rolloutsHeadline(r)},
		{"resort", keyOf(r.newer), newerRollouts(r)},
	}
	if len(shown) > 0 {
		parts = append(parts, part{"lanes", keyOf(r.lanes), rolloutLanes(r)})
	}
	now := r.byID()
	for _, row := range shown {
		current, ok := now[row.Id]
		parts = append(parts, part{rowID("rollout", row.Id), keyOf(cmp.Or(current, row), r.pods[row.Id], !ok), rolloutRow(v, cmp.Or(current, row), r.pods, !ok)})
	}
	return parts
}

// byID returns what matches, by ID.
func (r *rolloutsView) byID() map[string]*modelv1.Rollout {
	rows := map[string]*modelv1.Rollout{}
	for _, row := range r.rows {
		rows[row.Id] = row
	}
	return rows
}

// still returns the rows that match still, as they are now.
func (r *rolloutsView) still(shown []*modelv1.Rollout) (rows []*modelv1.Rollout) {
	now := r.byID()
	for _, row := range shown {
		if current, ok := now[row.Id]; ok {
			rows = append(rows, current)
		}
	}
	return rows
}

// rolloutsSource is the stream of the view.
type rolloutsSource struct {
	everyApplication
	podsRenewal
	q     url.Values
	at    time.Time           // end of the range of the page
	shown []*modelv1.Rollout  // rows that the browser shows
	known map[string]struct{} // rollouts that were there when the page was made
}

func liveRollouts(v *visit) (source, error) {
	s := &rolloutsSource{q: v.query(), at: v.now, known: map[string]struct{}{}}
	if at, err := time.Parse(time.RFC3339, s.q.Get("at")); err == nil {
		s.at = at
	}
	for _, name := range []string{"at", "from"} {
		s.q.Del(name)
	}
	r, err := s.read(v)
	if err != nil {
		return nil, err
	}
	s.shown = r.shown()
	for _, row := range r.rows {
		s.known[row.Id] = struct{}{}
	}
	return s, nil
}

// read reads the view as of the end of the page's range.
func (s *rolloutsSource) read(v *visit) (*rolloutsView, error) {
	now := v.now
	defer func() { v.now = now }()
	v.now = s.at.In(now.Location())
	return v.readRollouts(s.q)
}

// opened returns a key of its own: the stream compares with what there was when it began.
func (s *rolloutsSource) opened() string { return fmt.Sprintf("%p", s) }

func (s *rolloutsSource) parts(v *visit) ([]part, error) {
	defer s.noted(v)
	r, err := s.read(v)
	if err != nil {
		return nil, err
	}
	r.pods = v.readPods(r.still(s.shown))
	after, _, err := v.listRollouts(r, r.request(r.to, time.Time{}, rolloutsPage))
	if err != nil {
		return nil, err
	}
	r.newer = len(after)
	for _, row := range r.rows {
		if _, ok := s.known[row.Id]; !ok {
			r.newer++
		}
	}
	strip, err := v.readStrip()
	if err != nil {
		return nil, err
	}
	return append(r.parts(v, s.shown), strip.part()), nil
}

// request asks for the rollouts of a range that match what the API can match.
func (r *rolloutsView) request(from, to time.Time, limit int32) *controlv1.ListRolloutsRequest {
	req := &controlv1.ListRolloutsRequest{ApplicationIds: r.applications, Labels: r.labels, FromMs: from.UnixMilli(), Limit: limit}
	if !to.IsZero() {
		req.ToMs = to.UnixMilli()
	}
	return req
}

// listRollouts returns the rollouts of a request that match all filters. Capped means that there
// are more.
func (v *visit) listRollouts(r *rolloutsView, req *controlv1.ListRolloutsRequest) (rows []*modelv1.Rollout, capped bool, err error) {
	if r.nothing() {
		return nil, false, nil
	}
	found, err := v.control.ListRollouts(v.ctx, req)
	for _, row := range found.GetRollouts() {
		if r.matches(row, "") {
			rows = append(rows, row)
		}
	}
	return rows, found.GetCursor() != "", err
}

// readRollouts reads the view. Facets count what matches the other facets.
func (v *visit) readRollouts(q url.Values) (*rolloutsView, error) {
	s, err := v.readScope("/rollouts", q, rolloutSpans(), "7d")
	if err != nil {
		return nil, err
	}
	r := &rolloutsView{scope: s}
	if n, err := strconv.Atoi(q.Get("page")); err == nil && n > 1 {
		r.page = n - 1
	}
	all := &controlv1.ListRolloutsResponse{}
	if !r.nothing() {
		if all, err = v.control.ListRollouts(v.ctx, r.request(r.from, r.to, rolloutsRead)); err != nil {
			return nil, err
		}
	}
	r.capped = all.Cursor != ""
	for _, row := range all.Rollouts {
		if r.matches(row, "") {
			r.rows = append(r.rows, row)
		}
	}
	if r.capped && (q.Has("outcome") || q.Has("kind") || q.Has("namespace")) {
		req := r.request(r.from, r.to, rolloutsRead)
		req.Outcomes, req.Kind, req.Namespaces = r.outcomes(), r.kind(), q["namespace"]
		if r.rows, r.capped, err = v.listRollouts(r, req); err != nil {
			return nil, err
		}
	}
	r.facets = append(r.chosen(), r.count(all.Rollouts)...)
	r.lanes = newLanes(r.rows, r.scope, v.now)
	return r, v.readBefore(r)
}

// readBefore reads how long rollouts took in the range of the same length before.
func (v *visit) readBefore(r *rolloutsView) error {
	req := r.request(r.from.Add(r.from.Sub(r.to)), r.from, rolloutsRead)
	req.Outcomes, req.Kind, req.Namespaces = []modelv1.RolloutOutcome{modelv1.RolloutOutcome_ROLLOUT_OUTCOME_COMPLETE}, r.kind(), r.q["namespace"]
	if r.nothing() {
		return nil
	}
	found, err := v.control.ListRollouts(v.ctx, req)
	r.before = medianTime(slices.DeleteFunc(found.GetRollouts(), func(row *modelv1.Rollout) bool { return !r.matches(row, "outcome") }))
	return err
}

// outcomes returns the outcomes of the address.
func (r *rolloutsView) outcomes() (out []modelv1.RolloutOutcome) {
	for _, o := range rolloutOutcomes() {
		if slices.Contains(r.q["outcome"], outcomeName(o)) {
			out = append(out, o)
		}
	}
	return out
}

// kind returns the kind of the address, unspecified for several.
func (r *rolloutsView) kind() modelv1.RolloutKind {
	if len(r.q["kind"]) == 1 {
		return modelv1.RolloutKind(modelv1.RolloutKind_value["ROLLOUT_KIND_"+r.q.Get("kind")])
	}
	return modelv1.RolloutKind_ROLLOUT_KIND_UNSPECIFIED
}

// medianTime returns the median time of those that are complete.
func medianTime(rows []*modelv1.Rollout) medianOf {
	var times []int64
	for _, row := range rows {
		if row.Outcome == modelv1.RolloutOutcome_ROLLOUT_OUTCOME_COMPLETE {
			times = append(times, rolloutTook(row))
		}
	}
	if len(times) == 0 {
		return medianOf{}
	}
	slices.Sort(times)
	middle := len(times) / 2
	if len(times)%2 == 0 {
		return medianOf{(times[middle-1] + times[middle]) / 2, len(times)}
	}
	return medianOf{times[middle], len(times)}
}

// rolloutTook returns how long a rollout took, in milliseconds; 0 before its end.
func rolloutTook(r *modelv1.Rollout) int64 {
	end := cmp.Or(r.CompletedAtMs, r.MarkedAtMs)
	if end == 0 {
		return 0
	}
	return max(end-r.StartedAtMs, 0)
}

// shown returns the rows of the table.
func (r *rolloutsView) shown() []*modelv1.Rollout {
	from := min(r.page*rolloutsPage, len(r.rows))
	return r.rows[from:min(from+rolloutsPage, len(r.rows))]
}

// headline is the first sentence of the view.
func (r *rolloutsView) headline() string {
	if len(r.rows) == 0 {
		return "Nothing was rolled out " + r.words() + "."
	}
	counts := map[modelv1.RolloutOutcome]int{}
	for _, row := range r.rows {
		counts[row.Outcome]++
	}
	text := plural(len(r.rows), "rollout", "rollouts") + " " + r.words()
	if r.capped {
		text = "The newest " + text
	}
	var parts []string
	for _, o := range rolloutOutcomes() {
		if n := counts[o]; n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, strings.ToLower(rolloutMark(o).word)))
		}
	}
	return text + ": " + strings.Join(parts, ", ") + "."
}

// medians compares how long rollouts took with the range before.
func (r *rolloutsView) medians() string {
	before := "none was completed in the " + r.length() + " before"
	if r.before.count > 0 {
		before = fmt.Sprintf("%s in the %s before (%s)", millis(r.before.ms), r.length(), plural(r.before.count, "rollout", "rollouts"))
	}
	now := medianTime(r.rows)
	if now.count == 0 {
		return sentence(before)
	}
	return fmt.Sprintf("Half were complete within %s (%s); %s.", millis(now.ms), plural(now.count, "rollout", "rollouts"), before)
}

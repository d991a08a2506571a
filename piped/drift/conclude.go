package drift

import (
	"cmp"
	"context"
	"encoding/json"
	"maps"
	"slices"
	"time"

	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/store"
)

// maxObjects is the maximum number of objects in a report.
const maxObjects = 1000

// outage is a reason why objects, or the undeployed commits, are unknown.
type outage struct {
	cluster string    // "" for Git
	keys    []string  // of the unknown objects
	since   time.Time // zero if unknown
	why     string
}

// conclude derives the report and the sync state, and stores changes. Unknown objects
// retain their earlier state for Patience.
func (e *evaluation) conclude(ctx context.Context) (deploy.DriftReport, error) {
	if e.deployedMeanwhile(e.appState) {
		return deploy.DriftReport{}, deploy.Errorf(deploy.Conflict, "application %s was deployed while it was compared", e.app.Name)
	}
	e.recordOutages()
	fresh := len(e.found) > 0 || e.behind
	if len(e.outages) > 0 && !fresh && e.Now().Sub(e.outageSince) < e.Patience {
		return e.currentReport(e.conceal(detailsOf(e.outages))), nil
	}
	e.retainUnknown()
	report := e.report(fresh)
	state := e.state(report)
	var events []deploy.Event
	var stored *deploy.DriftReport
	drifting := len(report.Objects) > 0 || e.behind
	switch {
	case drifting && e.open == nil:
		report.BeganAt = report.CheckedAt
		if !e.unstored {
			report.ID = e.NewID()
		}
		events, stored = e.event(deploy.EventOutOfSync, report, state), &report
	case drifting || e.open != nil && len(e.outages) > 0:
		report.ID, report.BeganAt = e.open.ID, e.open.BeganAt
		if !drifting { // retain the old differences until all objects are known: they decide how the period ends
			report.Objects, report.Undeployed = e.open.Objects, e.open.Undeployed
		}
		if !sameReport(*e.open, report) || e.interactive || e.deployedSinceSeen() {
			stored = &report
		}
	case e.open != nil:
		ended := *e.open
		ended.Status, ended.Compared, ended.Incomplete, ended.CheckedAt = report.Status, report.Compared, "", report.CheckedAt
		ended.EndedAt, ended.End = report.CheckedAt, e.end()
		events, stored = e.event(deploy.EventSynced, ended, state), &ended
	}
	return report, e.save(ctx, state, stored, events)
}

// recordOutages sets or clears outageSince, and requests a retry during an outage.
func (e *evaluation) recordOutages() {
	if problem := e.expected.problem; problem != "" {
		e.outages = []outage{{cluster: e.expected.cluster, why: problem + "; sync the application"}}
	}
	if e.gitProblem != "" {
		e.outages = append(e.outages, outage{why: e.gitProblem})
	}
	if len(e.outages) == 0 {
		e.outageSince = time.Time{}
		return
	}
	e.retryNeeded = true
	e.outageSince = e.outageStart()
}

// retainUnknown copies, from the report of the current period of drift, the findings about
// objects that could not be compared this time.
func (e *evaluation) retainUnknown() {
	if e.open == nil {
		return
	}
	unknown := map[string]bool{}
	for _, b := range e.outages {
		for _, k := range b.keys {
			unknown[k] = true
		}
	}
	for _, o := range e.open.Objects {
		k := key(o.Cluster, o.Object)
		if _, known := e.found[k]; !known && (unknown[k] || e.expected.problem != "") {
			e.found[k] = o
		}
	}
	if e.gitProblem != "" && len(e.open.Undeployed) > 0 {
		e.behind, e.undeployed = true, e.open.Undeployed
	}
}

// report builds the report of this evaluation. fresh is set if this evaluation found a
// difference, rather than copied it from the open report.
func (e *evaluation) report(fresh bool) deploy.DriftReport {
	r := deploy.DriftReport{
		ApplicationID: e.id, Cluster: e.expected.cluster, Commit: e.expected.commit,
		Status: deploy.Synced, Undeployed: e.undeployed, Compared: e.checked, CheckedAt: e.Now().UTC().Truncate(time.Millisecond),
	}
	switch {
	case fresh:
		r.Status = deploy.OutOfSync
	case len(e.outages) > 0:
		r.Status = deploy.SyncUnknown
	}
	if len(e.outages) > 0 {
		r.Incomplete = e.conceal(detailsOf(e.outages))
	}
	r.Objects = slices.SortedFunc(maps.Values(e.found), func(a, b deploy.ObjectDrift) int {
		return cmp.Or(cmp.Compare(a.Object.Kind, b.Object.Kind), cmp.Compare(a.Object.Namespace, b.Object.Namespace),
			cmp.Compare(a.Object.Name, b.Object.Name), cmp.Compare(a.Cluster, b.Cluster))
	})
	if left := len(r.Objects) - maxObjects; left > 0 {
		r.Objects = r.Objects[:maxObjects]
		r.Incomplete = joined(r.Incomplete, moreObjects(left))
	}
	return r
}

// state derives the sync state from a report.
func (e *evaluation) state(r deploy.DriftReport) deploy.SyncState {
	s := deploy.SyncState{Status: r.Status, At: r.CheckedAt}
	switch r.Status {
	case deploy.OutOfSync:
		summary := r
		if len(e.outages) > 0 { // the report contains the causes
			summary.Incomplete = summaryOf(e.outages)
		}
		s.ShortReason, s.Reason = e.conceal(shortReason(r, e.app.Hold)), e.conceal(reason(summary, e.app.Hold))
		s.LeftOver = (!e.behind || e.tried) && !slices.ContainsFunc(r.Objects, func(o deploy.ObjectDrift) bool { return o.Kind != deploy.DriftExtra })
	case deploy.SyncUnknown:
		s.ShortReason, s.Reason = summaryOf(e.outages), r.Incomplete
		if was := e.app.Sync; was.Status == s.Status && was.ShortReason == s.ShortReason {
			return was // the same outage; its error text may vary
		}
	}
	return s
}

// end returns how the open period of drift ends.
func (e *evaluation) end() deploy.DriftEnd {
	notAccepted := func(o deploy.ObjectDrift) bool { return !e.accepted[key(o.Cluster, o.Object)] }
	switch {
	case e.deployedSinceSeen():
		return deploy.DriftDeployed
	case !slices.ContainsFunc(e.open.Objects, notAccepted):
		return deploy.DriftAccepted
	}
	return deploy.DriftReverted
}

// deployedSinceSeen reports whether a deployment succeeded since the differences of the open
// report were last seen. An earlier deployment cannot have fixed them.
func (e *evaluation) deployedSinceSeen() bool {
	seen := e.open.BeganAt
	if e.open.Status == deploy.OutOfSync {
		seen = e.open.CheckedAt
	}
	return e.app.LastSuccessful.CompletedAt.After(seen)
}

// event returns the event to store at the begin or the end of a period of drift: r is its
// report, s the state of the application.
func (e *evaluation) event(kind deploy.EventType, r deploy.DriftReport, s deploy.SyncState) []deploy.Event {
	text := s.ShortReason
	if kind == deploy.EventSynced {
		text = endTexts[r.End]
	}
	payload, err := json.Marshal(map[string]any{
		"application": e.app.Name, "commit": e.app.LastSuccessful.Trigger.Commit, "reason": text, "report": r.ID,
	})
	if err != nil {
		return nil // cannot happen: strings and times always encode
	}
	return []deploy.Event{{Key: r.ID + "/" + string(kind), Type: kind, ApplicationID: e.id, Payload: payload, At: r.CheckedAt}}
}

// save stores the state if it changed, and the report with its events unless it is nil. The
// state of applications with an invalid configuration is not overwritten.
func (e *evaluation) save(ctx context.Context, state deploy.SyncState, report *deploy.DriftReport, events []deploy.Event) error {
	said := state.SameAs(e.app.Sync) || e.app.Sync.Status == deploy.SyncInvalidConfig || e.app.Deleted
	if said && report == nil || e.unstored {
		return nil
	}
	if _, err := e.Store.ReportDrift(ctx, e.app, state, report, events...); err != nil {
		e.openRead = false // the report may have been stored despite the error
		return err
	}
	if report == nil {
		return nil
	}
	e.countReport(*report)
	if len(events) > 0 {
		e.Logger.Info("an application "+eventTexts[events[0].Type], "app", e.app.Name, "report", report.ID, "reason", cmp.Or(state.ShortReason, string(report.End)))
	}
	kept := *report
	kept.Objects = slices.Clone(report.Objects)
	for i := range kept.Objects {
		kept.Objects[i].Diff = ""
	}
	if e.open = &kept; report.End != "" {
		e.open = nil
	}
	return nil
}

// skip stores state, which says why the application is not evaluated. It ends an open period
// of drift and drops the application's expected objects and results.
func (e *evaluation) skip(ctx context.Context, state deploy.SyncState) (deploy.DriftReport, error) {
	state.At = e.Now()
	e.expected, e.results, e.outageSince = nil, map[string]result{}, time.Time{}
	var ended *deploy.DriftReport
	if e.open != nil {
		r := *e.open
		r.Status, r.CheckedAt, r.EndedAt, r.End = state.Status, state.At, state.At, deploy.DriftAbandoned
		ended = &r
	}
	if wait, err := e.firstDeploymentExpected(ctx); ended == nil && (wait || err != nil) {
		return e.currentReport(state.ShortReason), err
	}
	err := e.save(ctx, state, ended, nil)
	if err == nil && e.app.Deleted {
		e.forget(e.id)
	}
	return deploy.DriftReport{
		ApplicationID: e.id, Cluster: e.app.Provider, Status: state.Status, Incomplete: cmp.Or(state.Reason, state.ShortReason), CheckedAt: state.At,
	}, err
}

// firstDeploymentExpected reports whether the application's first deployment is pending or
// likely to be created soon. Meanwhile skip does not store "Not deployed yet".
func (e *evaluation) firstDeploymentExpected(ctx context.Context) (bool, error) {
	if e.app.Deleted || e.app.Disabled || e.app.LastSuccessful != nil {
		return false, nil
	}
	if e.Now().Sub(e.app.UpdatedAt) < e.Patience {
		e.retryNeeded = true
		return true, nil
	}
	since, err := e.waiting(ctx)
	return !since.IsZero(), err
}

// waiting returns the creation time of a pending deployment, zero if there is none.
func (e *evaluation) waiting(ctx context.Context) (since time.Time, err error) {
	found, _, err := e.Store.ListDeployments(ctx, store.DeploymentQuery{
		ApplicationIDs: []string{e.id}, Statuses: []deploy.Status{deploy.Pending}, Limit: 1,
	})
	if err != nil || len(found) == 0 {
		return time.Time{}, err
	}
	return found[0].CreatedAt, nil
}

// currentReport returns the open report or, if there is none, an empty one, with the stored
// status. why becomes its Incomplete: the reason why it is not renewed.
func (e *evaluation) currentReport(why string) deploy.DriftReport {
	r := deploy.DriftReport{ApplicationID: e.id, Cluster: e.app.Provider, CheckedAt: e.app.Sync.At}
	if e.open != nil {
		r = *e.open
	}
	r.Status, r.Incomplete = e.app.ShownSync().Status, why
	return r
}

// conceal redacts the application's secrets in a text.
func (e *evaluation) conceal(text string) string {
	if e.expected.conceal == nil {
		return text
	}
	return e.expected.conceal.Text(text)
}

// sameReport reports whether two reports of one period have the same content, ignoring
// the text of outages.
func sameReport(a, b deploy.DriftReport) bool {
	text := func(r deploy.DriftReport) string {
		r.CheckedAt, r.Compared = time.Time{}, 0
		if r.Incomplete != "" {
			r.Incomplete = "so"
		}
		data, err := json.Marshal(r)
		if err != nil {
			return "" // cannot happen: strings and times always encode
		}
		return string(data)
	}
	return text(a) == text(b)
}

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

// maxObjects bounds the objects of a report.
const maxObjects = 1000

// blindness is why objects cannot be judged.
type blindness struct {
	cluster string // "" when it is Git that cannot be asked
	keys    []string
	since   time.Time // zero if that is not known
	why     string
}

// conclude makes of what was found the report and the sync state, and stores what of
// it is new. What cannot be judged is as it was before, for a while.
func (j *judgement) conclude(ctx context.Context) (deploy.DriftReport, error) {
	if j.overtaken(j.subject) {
		return deploy.DriftReport{}, deploy.Errorf(deploy.Conflict, "application %s was deployed while it was compared", j.app.Name)
	}
	j.noteBlind()
	fresh := len(j.found) > 0 || j.behind
	if len(j.blind) > 0 && !fresh && j.Now().Sub(j.blindFrom) < j.Patience {
		return j.present(j.conceal(detailsOf(j.blind))), nil
	}
	j.keepBlind()
	report := j.report(fresh)
	state := j.state(report)
	var events []deploy.Event
	var stored *deploy.DriftReport
	drifting := len(report.Objects) > 0 || j.behind
	switch {
	case drifting && j.open == nil:
		report.ID, report.BeganAt = j.NewID(), report.CheckedAt
		events, stored = j.event(deploy.EventOutOfSync, report, state), &report
	case drifting || j.open != nil && len(j.blind) > 0:
		report.ID, report.BeganAt = j.open.ID, j.open.BeganAt
		if !drifting { // nothing is known to differ, but not all is known: what the period was about tells how it ends
			report.Objects, report.Undeployed = j.open.Objects, j.open.Undeployed
		}
		if !sameReport(*j.open, report) || j.asked || j.deployedSinceSeen() {
			stored = &report
		}
	case j.open != nil:
		ended := *j.open
		ended.Status, ended.Compared, ended.Incomplete, ended.CheckedAt = report.Status, report.Compared, "", report.CheckedAt
		ended.EndedAt, ended.End = report.CheckedAt, j.end()
		events, stored = j.event(deploy.EventSynced, ended, state), &ended
	}
	return report, j.save(ctx, state, stored, events)
}

// noteBlind notes since when something cannot be judged. Then it is tried again.
func (j *judgement) noteBlind() {
	if problem := j.expected.problem; problem != "" {
		j.blind = []blindness{{cluster: j.expected.cluster, why: problem + "; sync the application"}}
	}
	if j.gitProblem != "" {
		j.blind = append(j.blind, blindness{why: j.gitProblem})
	}
	if len(j.blind) == 0 {
		j.blindFrom = time.Time{}
		return
	}
	j.unsettled = true
	j.blindFrom = j.blindSince()
}

// keepBlind leaves what cannot be judged as it was in the period that lasts.
func (j *judgement) keepBlind() {
	if j.open == nil {
		return
	}
	unknown := map[string]bool{}
	for _, b := range j.blind {
		for _, k := range b.keys {
			unknown[k] = true
		}
	}
	for _, o := range j.open.Objects {
		k := key(o.Cluster, o.Object)
		if _, known := j.found[k]; !known && (unknown[k] || j.expected.problem != "") {
			j.found[k] = o
		}
	}
	if j.gitProblem != "" && len(j.open.Undeployed) > 0 {
		j.behind, j.undeployed = true, j.open.Undeployed
	}
}

// report returns what was found. Fresh: something of it is known to be so now.
func (j *judgement) report(fresh bool) deploy.DriftReport {
	r := deploy.DriftReport{
		ApplicationID: j.id, Cluster: j.expected.cluster, Commit: j.expected.commit,
		Status: deploy.Synced, Undeployed: j.undeployed, Compared: j.looked, CheckedAt: j.Now().UTC().Truncate(time.Millisecond),
	}
	switch {
	case fresh:
		r.Status = deploy.OutOfSync
	case len(j.blind) > 0:
		r.Status = deploy.SyncUnknown
	}
	if len(j.blind) > 0 {
		r.Incomplete = j.conceal(detailsOf(j.blind))
	}
	r.Objects = slices.SortedFunc(maps.Values(j.found), func(a, b deploy.ObjectDrift) int {
		return cmp.Or(cmp.Compare(a.Object.Kind, b.Object.Kind), cmp.Compare(a.Object.Namespace, b.Object.Namespace),
			cmp.Compare(a.Object.Name, b.Object.Name), cmp.Compare(a.Cluster, b.Cluster))
	})
	if left := len(r.Objects) - maxObjects; left > 0 {
		r.Objects = r.Objects[:maxObjects]
		r.Incomplete = joined(r.Incomplete, moreObjects(left))
	}
	return r
}

// state returns the sync state that follows from a report.
func (j *judgement) state(r deploy.DriftReport) deploy.SyncState {
	s := deploy.SyncState{Status: r.Status, At: r.CheckedAt}
	switch r.Status {
	case deploy.OutOfSync:
		told := r
		if len(j.blind) > 0 { // the report says why
			told.Incomplete = summaryOf(j.blind)
		}
		s.ShortReason, s.Reason = j.conceal(shortReason(r, j.app.Hold)), j.conceal(reason(told, j.app.Hold))
		s.LeftOver = (!j.behind || j.tried) && !slices.ContainsFunc(r.Objects, func(o deploy.ObjectDrift) bool { return o.Kind != deploy.DriftExtra })
	case deploy.SyncUnknown:
		s.ShortReason, s.Reason = summaryOf(j.blind), r.Incomplete
		if was := j.app.Sync; was.Status == s.Status && was.ShortReason == s.ShortReason {
			return was // the same outage, which may be told in other words
		}
	}
	return s
}

// end says how the period ends that lasted.
func (j *judgement) end() deploy.DriftEnd {
	notAccepted := func(o deploy.ObjectDrift) bool { return !j.accepted[key(o.Cluster, o.Object)] }
	switch {
	case j.deployedSinceSeen():
		return deploy.DriftDeployed
	case !slices.ContainsFunc(j.open.Objects, notAccepted):
		return deploy.DriftAccepted
	}
	return deploy.DriftReverted
}

// deployedSinceSeen reports whether a deployment has succeeded since it was seen last
// that the period lasts: what differs after that one was not brought back by it.
func (j *judgement) deployedSinceSeen() bool {
	seen := j.open.BeganAt
	if j.open.Status == deploy.OutOfSync {
		seen = j.open.CheckedAt
	}
	return j.app.LastSuccessful.CompletedAt.After(seen)
}

// event tells of a period's begin or end.
func (j *judgement) event(kind deploy.EventType, r deploy.DriftReport, s deploy.SyncState) []deploy.Event {
	text := s.ShortReason
	if kind == deploy.EventSynced {
		text = endings[r.End]
	}
	payload, err := json.Marshal(map[string]any{
		"application": j.app.Name, "commit": j.app.LastSuccessful.Trigger.Commit, "reason": text, "report": r.ID,
	})
	if err != nil {
		return nil // strings and times always encode
	}
	return []deploy.Event{{Key: r.ID + "/" + string(kind), Type: kind, ApplicationID: j.id, Payload: payload, At: r.CheckedAt}}
}

// save stores what is new: the state, and a report unless it is nil.
func (j *judgement) save(ctx context.Context, state deploy.SyncState, report *deploy.DriftReport, events []deploy.Event) error {
	said := state.SameAs(j.app.Sync) || j.app.Sync.Status == deploy.SyncInvalidConfig || j.app.Deleted
	if said && report == nil {
		return nil
	}
	if _, err := j.Store.ReportDrift(ctx, j.app, state, report, events...); err != nil {
		j.openRead = false // it may have been stored nevertheless
		return err
	}
	if report == nil {
		return nil
	}
	j.observeReport(*report)
	if len(events) > 0 {
		j.Logger.Info("an application "+turns[events[0].Type], "app", j.app.Name, "report", report.ID, "reason", cmp.Or(state.ShortReason, string(report.End)))
	}
	kept := *report
	kept.Objects = slices.Clone(report.Objects)
	for i := range kept.Objects {
		kept.Objects[i].Diff = ""
	}
	if j.open = &kept; report.End != "" {
		j.open = nil
	}
	return nil
}

// excuse states why the application is not judged. Final: the period that lasted
// ends, and nothing is remembered.
func (j *judgement) excuse(ctx context.Context, state deploy.SyncState) (deploy.DriftReport, error) {
	state.At = j.Now()
	j.expected, j.judged, j.blindFrom = nil, map[string]judged{}, time.Time{}
	var ended *deploy.DriftReport
	if j.open != nil {
		r := *j.open
		r.Status, r.CheckedAt, r.EndedAt, r.End = state.Status, state.At, state.At, deploy.DriftAbandoned
		ended = &r
	}
	if wait, err := j.soon(ctx); ended == nil && (wait || err != nil) {
		return j.present(state.ShortReason), err
	}
	err := j.save(ctx, state, ended, nil)
	if err == nil && j.app.Deleted {
		j.forget(j.id)
	}
	return deploy.DriftReport{
		ApplicationID: j.id, Cluster: j.app.Provider, Status: state.Status, Incomplete: cmp.Or(state.Reason, state.ShortReason), CheckedAt: state.At,
	}, err
}

// soon reports whether the application is likely to be deployed for the first time
// before long: what becomes of it then is told, not that it was not yet.
func (j *judgement) soon(ctx context.Context) (bool, error) {
	if j.app.Deleted || j.app.Disabled || j.app.LastSuccessful != nil {
		return false, nil
	}
	if j.Now().Sub(j.app.UpdatedAt) < j.Patience {
		j.unsettled = true
		return true, nil
	}
	since, err := j.waiting(ctx)
	return !since.IsZero(), err
}

// waiting returns since when a deployment of the application waits to be planned, zero
// if none does.
func (j *judgement) waiting(ctx context.Context) (since time.Time, err error) {
	found, _, err := j.Store.ListDeployments(ctx, store.DeploymentQuery{
		ApplicationIDs: []string{j.id}, Statuses: []deploy.Status{deploy.Pending}, Limit: 1,
	})
	if err != nil || len(found) == 0 {
		return time.Time{}, err
	}
	return found[0].CreatedAt, nil
}

// present returns the report as it is, with why it is not a new one.
func (j *judgement) present(why string) deploy.DriftReport {
	r := deploy.DriftReport{ApplicationID: j.id, Cluster: j.app.Provider, CheckedAt: j.app.Sync.At}
	if j.open != nil {
		r = *j.open
	}
	r.Status, r.Incomplete = j.app.ShownSync().Status, why
	return r
}

// conceal takes the secrets of the application out of a text.
func (j *judgement) conceal(text string) string {
	if j.expected.conceal == nil {
		return text
	}
	return j.expected.conceal.Text(text)
}

// sameReport reports whether two reports of one period say the same. Why something
// cannot be judged may be told in other words.
func sameReport(a, b deploy.DriftReport) bool {
	text := func(r deploy.DriftReport) string {
		r.CheckedAt, r.Compared = time.Time{}, 0
		if r.Incomplete != "" {
			r.Incomplete = "so"
		}
		data, err := json.Marshal(r)
		if err != nil {
			return "" // strings and times always encode
		}
		return string(data)
	}
	return text(a) == text(b)
}

package control

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/store"
	controlv1 "github.com/c785c783/piped/proto/piped/control/v1"
	modelv1 "github.com/c785c783/piped/proto/piped/model/v1"
)

// Drift compares applications with their clusters.
type Drift interface {
	// Report compares an application with its cluster now, stores the report and
	// returns it, with diffs if requested. NotFound: there is no such application.
	// Objects that cannot be compared, for example because a cluster does not answer,
	// are mentioned in the report. It contains no secrets.
	Report(ctx context.Context, applicationID string, diff bool) (deploy.DriftReport, error)
}

// driftReports reads stored drift reports.
type driftReports interface {
	// DriftReport returns the stored report of the current period of drift. NotFound:
	// the application is not known to differ from Git.
	DriftReport(ctx context.Context, applicationID string) (deploy.DriftReport, error)
	// ListDriftReports returns one report for each period of drift, the newest start
	// first, then by ID, and the cursor of the next page, "" at the end.
	ListDriftReports(ctx context.Context, q store.DriftQuery) ([]deploy.DriftReport, string, error)
}

// Default and maximal page size.
const (
	driftPage    = 50
	maxDriftPage = 500
)

// driftState is an application with its drift report.
type driftState struct {
	app    deploy.Application
	report deploy.DriftReport
}

// GetDriftReport returns how an application differs from Git: the last stored report, or a
// new comparison.
func (s *controlService) GetDriftReport(ctx context.Context, req *controlv1.GetDriftReportRequest) (*controlv1.GetDriftReportResponse, error) {
	app, err := s.store.Application(ctx, req.ApplicationId)
	if err != nil {
		return nil, err
	}
	state := driftState{app: app}
	if req.Refresh || req.Diff { // diffs are not stored
		state.report, err = s.drift.Report(ctx, app.ID, req.Diff)
	} else {
		state.report, err = s.lastReport(ctx, app)
	}
	if err != nil {
		return nil, err
	}
	if state.app, err = s.store.Application(ctx, app.ID); err != nil { // Report may have changed the sync state
		return nil, err
	}
	return &controlv1.GetDriftReportResponse{Report: state.message()}, nil
}

// lastReport returns the last stored report. If a deployment succeeded after it, the report is
// outdated, and the application is compared again if possible.
func (s *controlService) lastReport(ctx context.Context, app deploy.Application) (deploy.DriftReport, error) {
	report, err := presentReport(ctx, s.store, app)
	if err != nil || report.ID == "" || app.Deploying || app.LastSuccessful == nil || !app.LastSuccessful.CompletedAt.After(report.CheckedAt) {
		return report, err
	}
	if now, err := s.drift.Report(ctx, app.ID, false); err == nil {
		return now, nil
	}
	return report, nil
}

// presentReport returns the report of the current period of drift. Without drift it returns
// one without ID and with the reason of the sync state.
func presentReport(ctx context.Context, s driftReports, app deploy.Application) (deploy.DriftReport, error) {
	report, err := s.DriftReport(ctx, app.ID)
	if !deploy.IsKind(err, deploy.NotFound) {
		return report, err
	}
	report = deploy.DriftReport{ApplicationID: app.ID, Cluster: app.Provider, Status: app.Sync.Status, CheckedAt: app.Sync.At}
	if app.LastSuccessful != nil {
		report.Commit = app.LastSuccessful.Trigger.Commit.Hash
	}
	if app.Sync.Status != deploy.Synced {
		report.Incomplete = cmp.Or(app.Sync.Reason, app.Sync.ShortReason)
	}
	return report, nil
}

// ListDriftReports lists periods of drift.
func (s *controlService) ListDriftReports(ctx context.Context, req *controlv1.ListDriftReportsRequest) (*controlv1.ListDriftReportsResponse, error) {
	limit := min(int(cmp.Or(req.Limit, driftPage)), maxDriftPage)
	known := map[string]deploy.Application{}
	reports, cursor, err := pageOf(limit, func(limit int) ([]driftState, string, error) {
		found, cursor, err := s.store.ListDriftReports(ctx, store.DriftQuery{
			ApplicationIDs: nonEmpty(req.ApplicationIds), OpenOnly: req.OpenOnly, From: timeOf(req.FromMs), To: timeOf(req.ToMs), Limit: limit, Cursor: req.Cursor,
		})
		if err != nil {
			return nil, "", err
		}
		states, err := s.withApplications(ctx, found, known)
		return states, cursor, err
	}, driftState.message)
	if err != nil {
		return nil, err
	}
	return &controlv1.ListDriftReportsResponse{Reports: reports, Cursor: cursor}, nil
}

// withApplications adds its application to each report; known is a cache.
func (s *controlService) withApplications(ctx context.Context, reports []deploy.DriftReport, known map[string]deploy.Application) ([]driftState, error) {
	states := make([]driftState, len(reports))
	for i, r := range reports {
		app, ok := known[r.ApplicationID]
		if !ok {
			var err error
			if app, err = s.store.Application(ctx, r.ApplicationID); err != nil && !deploy.IsKind(err, deploy.NotFound) {
				return nil, err
			}
			known[r.ApplicationID] = app
		}
		states[i] = driftState{app, r}
	}
	return states, nil
}

// validListDriftReports validates the request itself.
func validListDriftReports(r *controlv1.ListDriftReportsRequest) error {
	return first(
		notNegative("ListDriftReportsRequest.Limit", r.Limit),
		notNegative("ListDriftReportsRequest.FromMs", r.FromMs),
		notNegative("ListDriftReportsRequest.ToMs", r.ToMs),
		bounded("ListDriftReportsRequest.ApplicationIds", "items", len(r.ApplicationIds)))
}

// driftFilter selects applications by ID; an empty one selects all.
type driftFilter []string

func (f driftFilter) matches(s *driftState) bool {
	return len(f) == 0 || slices.Contains(f, s.app.ID)
}

func (f driftFilter) mayMatch(c deploy.Change) bool {
	return len(f) == 0 || slices.Contains(f, c.ApplicationID)
}

// driftHub distributes changes of the drift of applications.
type driftHub = hub[driftState, *modelv1.DriftReport]

// newDriftHub returns the hub of WatchDrift; the caller runs it.
func newDriftHub(s Store) *driftHub {
	return newHub(watched[driftState, *modelv1.DriftReport]{
		store: s, topic: deploy.TopicDrift, version: (*driftState).version, convert: driftState.message,
		read: func(ctx context.Context, ids []string) ([]driftState, error) { return changedDrift(ctx, s, ids) },
	})
}

// version returns the application's ID and, as revision, the time of its last comparison.
func (s *driftState) version() (id string, revision int64) {
	return s.app.ID, max(millis(s.report.CheckedAt), millis(s.report.EndedAt))
}

// changedDrift returns the current drift of applications. For an application whose drift
// has ended and whose state is unchanged since, it returns the final report.
func changedDrift(ctx context.Context, s Store, ids []string) ([]driftState, error) {
	states, err := presentStates(ctx, s, ids)
	if err != nil {
		return nil, err
	}
	for i, state := range states {
		if state.report.ID != "" {
			continue
		}
		last, _, err := s.ListDriftReports(ctx, store.DriftQuery{ApplicationIDs: []string{state.app.ID}, Limit: 1})
		if err != nil {
			return nil, err
		}
		if len(last) > 0 && !last[0].EndedAt.Before(state.app.Sync.At) {
			states[i].report = last[0]
		}
	}
	return states, nil
}

// presentStates returns how the existing applications currently differ from Git.
func presentStates(ctx context.Context, s Store, ids []string) (out []driftState, err error) {
	for _, id := range ids {
		state := driftState{}
		if state.app, err = s.Application(ctx, id); deploy.IsKind(err, deploy.NotFound) {
			continue
		}
		if err == nil {
			state.report, err = presentReport(ctx, s, state.app)
		}
		if err != nil {
			return nil, err
		}
		out = append(out, state)
	}
	return out, nil
}

// WatchDrift streams the current drift reports, then each changed one.
func (s *controlService) WatchDrift(req *controlv1.WatchDriftRequest, stream grpc.ServerStreamingServer[controlv1.WatchDriftResponse]) error {
	ctx, f := stream.Context(), driftFilter(nonEmpty(req.ApplicationIds))
	sub := s.drifts.subscribe(f, false)
	defer sub.close()
	present, err := s.presentDrift(ctx, f)
	if err != nil {
		return err
	}
	// The subscription started earlier and may contain older states than these.
	sent := make(map[string]int64, len(present))
	for i := range present {
		if err := stream.Send(&controlv1.WatchDriftResponse{Report: present[i].message()}); err != nil {
			return err
		}
		id, revision := present[i].version()
		sent[id] = revision
		present[i] = driftState{} // free the memory: the call may last for days
	}
	if err := stream.Send(&controlv1.WatchDriftResponse{CaughtUp: true}); err != nil {
		return err
	}
	see := seen(ctx, s.store, func(d *driftState) string { return d.app.ID })
	return sub.each(ctx, sent, see, func(m *modelv1.DriftReport) error {
		return stream.Send(&controlv1.WatchDriftResponse{Report: m})
	})
}

// presentDrift returns the first reports of a watch: those of the named applications, with or
// without drift, or those of all applications with drift.
func (s *controlService) presentDrift(ctx context.Context, f driftFilter) ([]driftState, error) {
	if len(f) == 0 {
		open, _, err := s.store.ListDriftReports(ctx, store.DriftQuery{OpenOnly: true})
		if err != nil {
			return nil, err
		}
		return s.withApplications(ctx, open, map[string]deploy.Application{})
	}
	return presentStates(ctx, s.store, f)
}

var driftKinds = map[deploy.DriftKind]modelv1.DriftKind{
	deploy.DriftMissing: modelv1.DriftKind_DRIFT_KIND_MISSING,
	deploy.DriftChanged: modelv1.DriftKind_DRIFT_KIND_CHANGED,
	deploy.DriftExtra:   modelv1.DriftKind_DRIFT_KIND_EXTRA,
}

var driftEnds = map[deploy.DriftEnd]modelv1.DriftEnd{
	deploy.DriftDeployed:  modelv1.DriftEnd_DRIFT_END_DEPLOYED,
	deploy.DriftReverted:  modelv1.DriftEnd_DRIFT_END_REVERTED,
	deploy.DriftAccepted:  modelv1.DriftEnd_DRIFT_END_ACCEPTED,
	deploy.DriftAbandoned: modelv1.DriftEnd_DRIFT_END_ABANDONED,
}

// status returns the sync status of the report, or that of the application if the report
// has none.
func (s driftState) status() deploy.SyncStatus {
	shown := s.app.ShownSync().Status
	if s.report.EndedAt.IsZero() && (shown == deploy.SyncDeploying || shown == deploy.SyncInvalidConfig) {
		return shown
	}
	return s.report.Status
}

// message converts a report and makes it fit into a response.
func (s driftState) message() *modelv1.DriftReport {
	r := s.report
	m := &modelv1.DriftReport{
		Id: text(r.ID), ApplicationId: text(r.ApplicationID), ApplicationName: text(s.app.Name), Cluster: text(r.Cluster), Commit: text(r.Commit),
		Status: syncStatus(s.status()), UndeployedCommits: textList(r.Undeployed), ComparedObjects: int32(r.Compared),
		CheckedAtMs: millis(r.CheckedAt), BeganAtMs: millis(r.BeganAt), EndedAtMs: millis(r.EndedAt), End: driftEnds[r.End], IncompleteReason: text(r.Incomplete),
		Hold: hold(s.app.Hold),
	}
	for _, o := range r.Objects {
		m.Objects = append(m.Objects, objectDrift(cmp.Or(o.Cluster, r.Cluster), o))
	}
	fitReport(m)
	return m
}

func objectDrift(cluster string, o deploy.ObjectDrift) *modelv1.ObjectDrift {
	m := &modelv1.ObjectDrift{
		Object: objectRef(cluster, o.Object), Kind: driftKinds[o.Kind], Diff: text(o.Diff), BeganAtMs: millis(o.BeganAt), Note: text(o.Note),
	}
	for _, f := range o.Fields {
		m.Fields = append(m.Fields, &modelv1.FieldDrift{
			Path: text(f.Path), GitValue: text(f.Git), LiveValue: text(f.Live), Masked: f.Masked, Manager: text(f.Manager), ChangedAtMs: millis(f.ChangedAt),
		})
	}
	return m
}

// fitReport truncates a report to the size of a response: it drops the last diffs, then
// the last objects, then the last fields, and adds a note.
func fitReport(m *modelv1.DriftReport) {
	leftOut := func(n int, what string) {
		if n > 0 {
			m.IncompleteReason = joined(m.IncompleteReason, fmt.Sprintf("%d %s are omitted: the response would be too large", n, what))
		}
	}
	size, diffs := proto.Size(m), 0
	for _, o := range slices.Backward(m.Objects) {
		if size > maxResponse && o.Diff != "" {
			size, diffs, o.Diff = size-len(o.Diff), diffs+1, ""
		}
	}
	leftOut(diffs, "diffs")
	if size <= maxResponse {
		return
	}
	n := fit(m.Objects)
	leftOut(len(m.Objects)-n, "objects")
	if m.Objects = m.Objects[:n]; n > 1 {
		return
	}
	for _, o := range m.Objects {
		n := fit(o.Fields)
		leftOut(len(o.Fields)-n, "differing fields")
		o.Fields = o.Fields[:n]
	}
}

// joined appends a sentence to a text.
func joined(text, more string) string {
	if text == "" {
		return more
	}
	return text + "; " + more
}

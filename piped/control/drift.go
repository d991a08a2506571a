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
	// Report compares an application with its cluster now, stores what it finds, and
	// returns it, with diffs if they are asked for. NotFound: there is no such
	// application. What cannot be compared, such as with a cluster that does not
	// answer, is said in it. No secret is in it.
	Report(ctx context.Context, applicationID string, diff bool) (deploy.DriftReport, error)
}

// driftReports are what is stored of drift.
type driftReports interface {
	// DriftReport returns the report of the period of drift that lasts, as it was
	// stored last. NotFound: the application is not known to differ from Git.
	DriftReport(ctx context.Context, applicationID string) (deploy.DriftReport, error)
	// ListDriftReports returns one report of each period of drift, the last that began
	// first, then by ID, and the cursor of the next page: "" when there is none.
	ListDriftReports(ctx context.Context, q store.DriftQuery) ([]deploy.DriftReport, string, error)
}

// Reports of a page: those of a caller who does not say, and the most.
const (
	driftPage    = 50
	maxDriftPage = 500
)

// driftState is what is known of the drift of an application.
type driftState struct {
	app    deploy.Application
	report deploy.DriftReport
}

// GetDriftReport returns how an application differs from Git: as it was found last,
// or compared now.
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
	if state.app, err = s.store.Application(ctx, app.ID); err != nil { // its sync state may be another by now
		return nil, err
	}
	return &controlv1.GetDriftReportResponse{Report: state.message()}, nil
}

// lastReport returns what was found last. What was found before the last deployment
// succeeded need not hold any more: the application is compared now, if it can be.
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

// presentReport returns the report of the period of drift that lasts; without drift
// one that has no ID and says what the sync state says.
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

// withApplications returns reports with their applications, of which each is read
// once and then known.
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

// validListDriftReports checks what a request must hold whatever is stored.
func validListDriftReports(r *controlv1.ListDriftReportsRequest) error {
	return first(
		notNegative("ListDriftReportsRequest.Limit", r.Limit),
		notNegative("ListDriftReportsRequest.FromMs", r.FromMs),
		notNegative("ListDriftReportsRequest.ToMs", r.ToMs),
		bounded("ListDriftReportsRequest.ApplicationIds", "items", len(r.ApplicationIds)))
}

// driftFilter selects applications; none means all.
type driftFilter []string

func (f driftFilter) matches(s *driftState) bool {
	return len(f) == 0 || slices.Contains(f, s.app.ID)
}

func (f driftFilter) mayMatch(c deploy.Change) bool {
	return len(f) == 0 || slices.Contains(f, c.ApplicationID)
}

// driftHub tells of the drift of applications.
type driftHub = hub[driftState, *modelv1.DriftReport]

func newDriftHub(s Store) *driftHub {
	return newHub(watched[driftState, *modelv1.DriftReport]{
		store: s, topic: deploy.TopicDrift, version: (*driftState).version, convert: driftState.message,
		read: func(ctx context.Context, ids []string) ([]driftState, error) { return changedDrift(ctx, s, ids) },
	})
}

// version returns the application's ID, and when its drift was judged.
func (s *driftState) version() (id string, revision int64) {
	return s.app.ID, max(millis(s.report.CheckedAt), millis(s.report.EndedAt))
}

// changedDrift returns how the drift of applications is by now. Of one whose drift
// has ended and whose state is still the one it ended with, that is how it ended.
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

// presentStates returns how the applications that there are differ from Git at present.
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

// WatchDrift streams the reports on drift that lasts, and then those that change.
func (s *controlService) WatchDrift(req *controlv1.WatchDriftRequest, stream grpc.ServerStreamingServer[controlv1.WatchDriftResponse]) error {
	ctx, f := stream.Context(), driftFilter(nonEmpty(req.ApplicationIds))
	sub := s.drifts.subscribe(f, false)
	defer sub.close()
	present, err := s.presentDrift(ctx, f)
	if err != nil {
		return err
	}
	// The subscription may hold older states than these: it began before.
	sent := make(map[string]int64, len(present))
	for i := range present {
		if err := stream.Send(&controlv1.WatchDriftResponse{Report: present[i].message()}); err != nil {
			return err
		}
		id, revision := present[i].version()
		sent[id] = revision
		present[i] = driftState{} // the call may last for days
	}
	if err := stream.Send(&controlv1.WatchDriftResponse{CaughtUp: true}); err != nil {
		return err
	}
	return sub.each(ctx, sent, func(m *modelv1.DriftReport) error {
		return stream.Send(&controlv1.WatchDriftResponse{Report: m})
	})
}

// presentDrift returns what a watch begins with: the reports on the applications that
// are named, whether they drift or not; or on all that drift.
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

// status is the sync state that a report tells: that of the application where the
// report does not decide it.
func (s driftState) status() deploy.SyncStatus {
	shown := s.app.ShownSync().Status
	if s.report.EndedAt.IsZero() && (shown == deploy.SyncDeploying || shown == deploy.SyncInvalidConfig) {
		return shown
	}
	return s.report.Status
}

// message converts a report. It is one that a response can hold.
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

// fitReport makes a report one that a response can hold: it leaves out the last
// diffs, then the last objects, and then the last fields, and says so.
func fitReport(m *modelv1.DriftReport) {
	leftOut := func(n int, what string) {
		if n > 0 {
			m.IncompleteReason = joined(m.IncompleteReason, fmt.Sprintf("%d %s more than a response holds are left out", n, what))
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

// joined appends a sentence to what is said already.
func joined(said, more string) string {
	if said == "" {
		return more
	}
	return said + "; " + more
}

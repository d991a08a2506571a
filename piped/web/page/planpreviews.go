package page

import (
	"fmt"
	"net/url"
	"slices"
	"strconv"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	controlv1 "github.com/c785c783/piped/proto/piped/control/v1"
	modelv1 "github.com/c785c783/piped/proto/piped/model/v1"
)

// previewsPage is how many plan previews a page shows.
const previewsPage = 50

// previewsView is a page of the plan previews.
type previewsView struct {
	steadyList[*controlv1.PlanPreviewBrief]
	denied bool // the caller may not read plan previews
	strip  *strip
}

// previewStatuses are the statuses by which plan previews are filtered, by their name in the
// address.
func previewStatuses() []struct {
	name   string
	status modelv1.CommandStatus
} {
	return []struct {
		name   string
		status modelv1.CommandStatus
	}{
		{"building", modelv1.CommandStatus_COMMAND_NOT_HANDLED_YET}, {"done", modelv1.CommandStatus_COMMAND_SUCCEEDED},
		{"failed", modelv1.CommandStatus_COMMAND_FAILED}, {"timeout", modelv1.CommandStatus_COMMAND_TIMEOUT},
	}
}

// previewMark returns the mark of a plan preview's status.
func previewMark(s modelv1.CommandStatus) mark {
	switch s {
	case modelv1.CommandStatus_COMMAND_SUCCEEDED:
		return mark{icon: "check", word: "Done", role: roleOK}
	case modelv1.CommandStatus_COMMAND_FAILED:
		return mark{icon: "cross", word: "Failed", role: roleBad}
	case modelv1.CommandStatus_COMMAND_TIMEOUT:
		return mark{icon: "clock", word: "Timed out", role: roleBad}
	}
	return mark{icon: "clock", word: "Being built", role: roleActive}
}

// showPlanPreviews lists the plan previews.
func showPlanPreviews(v *visit) (*screen, error) {
	p, err := v.readPlanPreviews(v.query())
	if err != nil {
		return nil, err
	}
	return &screen{title: "Plan previews", nav: "Events", body: planPreviewsBody(v, p), live: p.live(), parts: p.parts(v), strip: p.strip}, nil
}

// readPlanPreviews reads the page of an address. If the address says which plan preview was the
// newest one shown, newer ones are only counted.
func (v *visit) readPlanPreviews(q url.Values) (*previewsView, error) {
	p := &previewsView{steadyList: newSteadyList[*controlv1.PlanPreviewBrief](q, previewsPage), denied: !v.somewhere("sync")}
	var err error
	if p.strip, err = v.readStrip(); err != nil || p.denied {
		return p, err
	}
	req := &controlv1.ListPlanPreviewsRequest{RepositoryId: q.Get("repository"), HeadBranch: q.Get("branch"), Limit: p.limit(), Cursor: q.Get("cursor")}
	for _, s := range previewStatuses() {
		if slices.Contains(q["status"], s.name) {
			req.Statuses = append(req.Statuses, s.status)
		}
	}
	if digits := q.Get("pull-request"); digits != "" {
		number, err := strconv.ParseInt(digits, 10, 32)
		if err != nil || number <= 0 {
			return nil, status.Errorf(codes.InvalidArgument, "pull-request: %q is not the number of a pull request", digits)
		}
		req.PullRequest = int32(number)
	}
	resp, err := v.control.ListPlanPreviews(v.ctx, req)
	if err != nil {
		return nil, err
	}
	p.set(resp.PlanPreviews, resp.Cursor, (*controlv1.PlanPreviewBrief).GetCommandId)
	return p, nil
}

// live returns the address of the stream.
func (p *previewsView) live() string {
	if p.denied {
		return ""
	}
	return withQuery("/plan-previews/live", p.streamed((*controlv1.PlanPreviewBrief).GetCommandId))
}

// parts returns the live parts, but the strip: rows change in place, and new ones are offered.
func (p *previewsView) parts(v *visit) []part {
	parts := []part{{"previews-headline", keyOf(p.headline()), previewsHeadline(p)}}
	if p.whole() {
		return append(parts, part{"previews", keyOf(p.next, keyOfAll(p.rows)), planPreviewTable(v, p)})
	}
	parts = append(parts, part{"resort", keyOf(p.newer), newerPreviews(p)})
	for _, b := range p.rows {
		parts = append(parts, part{rowID("preview", b.CommandId), keyOf(b), planPreviewRow(v, b)})
	}
	return parts
}

// previewSource is the stream of the list, or of one plan preview.
type previewSource struct {
	id  string // "" for the list
	q   url.Values
	who string // the caller, who may view only what it requested
}

func livePlanPreviews(v *visit) (source, error) {
	q := v.query()
	q.Del("from")
	return previewSource{id: v.r.PathValue("id"), q: q, who: v.identity()}, nil
}

func (s previewSource) opened() string { return s.who }

func (s previewSource) watch(v *visit) (receive, error) {
	req := &controlv1.WatchPlanPreviewsRequest{}
	if s.id != "" {
		req.CommandIds = []string{s.id}
	}
	stream, err := v.control.WatchPlanPreviews(v.ctx, req)
	return func() (bool, error) {
		m, err := stream.Recv()
		return m.GetCaughtUp(), err
	}, err
}

func (s previewSource) parts(v *visit) ([]part, error) {
	if s.id != "" {
		p, err := v.readPlanPreview(s.id)
		if err != nil {
			return nil, err
		}
		return append(p.parts(v), p.strip.part()), nil
	}
	p, err := v.readPlanPreviews(s.q)
	if err != nil {
		return nil, err
	}
	return append(p.parts(v), p.strip.part()), nil
}

func (p *previewsView) filtered() bool {
	return p.q.Has("repository") || p.q.Has("branch") || p.q.Has("pull-request") || p.q.Has("status")
}

// headline is the first sentence of the view.
func (p *previewsView) headline() string {
	if p.denied || len(p.rows) == 0 && (p.filtered() || p.newer > 0) {
		return "Plan previews"
	}
	if len(p.rows) == 0 {
		return "No plan preview was requested in the last 24 hours."
	}
	building, failed := 0, 0
	for _, r := range p.rows {
		switch r.Status {
		case modelv1.CommandStatus_COMMAND_NOT_HANDLED_YET:
			building++
		case modelv1.CommandStatus_COMMAND_FAILED, modelv1.CommandStatus_COMMAND_TIMEOUT:
			failed++
		}
	}
	text := plural(len(p.rows), "plan preview", "plan previews")
	if p.more {
		text = "The last " + text
	}
	return fmt.Sprintf("%s: %d being built, %d failed.", text, building, failed)
}

// previewCounts says what a plan preview found, "" while it is built and if it failed.
func previewCounts(b *controlv1.PlanPreviewBrief) string {
	if b.Status != modelv1.CommandStatus_COMMAND_SUCCEEDED {
		return ""
	}
	if b.Applications == 0 {
		return "no application"
	}
	return fmt.Sprintf("%d of %s changed, %d failed", b.ChangedApplications, plural(b.Applications, "application", "applications"), b.FailedApplications)
}

// previewRequested says by whom a plan preview was requested, and how long it took.
func previewRequested(b *controlv1.PlanPreviewBrief) string {
	text := " by " + b.RequestedBy
	if b.AnsweredAtMs > b.RequestedAtMs {
		text += ", took " + millis(b.AnsweredAtMs-b.RequestedAtMs)
	}
	return text
}

// previewPath returns the address of a plan preview.
func previewPath(id string) string { return "/plan-previews/" + url.PathEscape(id) }

// previewTrace returns the address of the trace of a plan preview's change.
func previewTrace(b *controlv1.PlanPreviewBrief) string {
	if b.PullRequest != 0 {
		return pullRequestPath(b.RepositoryId, b.PullRequest)
	}
	return tracePath("commit", b.HeadCommit)
}

// eventTabs are the lists of the view of events.
func eventTabs(current string) []tab {
	list := []tab{{label: "Events", path: "/events"}, {label: "Plan previews", path: "/plan-previews"}, {label: "Previews", path: "/previews"}}
	for i := range list {
		list[i].current = list[i].label == current
	}
	return list
}

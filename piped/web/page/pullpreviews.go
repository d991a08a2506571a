package page

import (
	"fmt"
	"net/url"
	"slices"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	controlv1 "github.com/c785c783/piped/proto/piped/control/v1"
)

// pullPreviewsEvery is how often an open list of previews is read again: the API has no stream of
// them.
const pullPreviewsEvery = 2 * time.Second

// pullPreviewsView is the list of the previews of pull requests.
type pullPreviewsView struct {
	q     url.Values
	rows  []*controlv1.Preview
	strip *strip
}

// pullPreviewPhases are the states by which previews are filtered, by their name in the address.
func pullPreviewPhases() []struct {
	name  string
	phase controlv1.PreviewPhase
} {
	return []struct {
		name  string
		phase controlv1.PreviewPhase
	}{
		{"waiting", controlv1.PreviewPhase_PREVIEW_PHASE_WAITING}, {"building", controlv1.PreviewPhase_PREVIEW_PHASE_BUILDING},
		{"ready", controlv1.PreviewPhase_PREVIEW_PHASE_READY}, {"failed", controlv1.PreviewPhase_PREVIEW_PHASE_FAILED},
		{"removed", controlv1.PreviewPhase_PREVIEW_PHASE_REMOVED},
	}
}

// pullPreviewMark returns the mark of the state of a preview.
func pullPreviewMark(p controlv1.PreviewPhase) mark {
	switch p {
	case controlv1.PreviewPhase_PREVIEW_PHASE_READY:
		return mark{icon: "check", word: "Ready", role: roleOK}
	case controlv1.PreviewPhase_PREVIEW_PHASE_FAILED:
		return mark{icon: "cross", word: "Failed", role: roleBad}
	case controlv1.PreviewPhase_PREVIEW_PHASE_WAITING:
		return mark{icon: "clock", word: "Waiting", role: roleActive}
	case controlv1.PreviewPhase_PREVIEW_PHASE_REMOVED:
		return mark{icon: "clock", word: "Removed", role: roleMuted}
	}
	return mark{icon: "clock", word: "Building", role: roleActive}
}

// showPullPreviews lists the previews of open pull requests.
func showPullPreviews(v *visit) (*screen, error) {
	p, err := v.readPullPreviews(v.query())
	if err != nil {
		return nil, err
	}
	return &screen{title: "Previews", nav: "Events", body: pullPreviewsBody(v, p), live: withQuery("/previews/live", p.q), parts: p.parts(v), strip: p.strip}, nil
}

// readPullPreviews reads the list of an address.
func (v *visit) readPullPreviews(q url.Values) (*pullPreviewsView, error) {
	p := &pullPreviewsView{q: url.Values{}}
	req := &controlv1.ListPreviewsRequest{RepositoryId: q.Get("repository")}
	if req.RepositoryId != "" {
		p.q.Set("repository", req.RepositoryId)
	}
	if name := q.Get("state"); name != "" {
		i := slices.IndexFunc(pullPreviewPhases(), func(f struct {
			name  string
			phase controlv1.PreviewPhase
		},
		) bool {
			return f.name == name
		})
		if i < 0 {
			return nil, status.Errorf(codes.InvalidArgument, "state: %q is not the state of a preview", name)
		}
		p.q.Set("state", name)
		req.Phases = []controlv1.PreviewPhase{pullPreviewPhases()[i].phase}
	}
	var err error
	if p.strip, err = v.readStrip(); err != nil {
		return nil, err
	}
	resp, err := v.control.ListPreviews(v.ctx, req)
	p.rows = resp.GetPreviews()
	return p, err
}

// parts returns the live parts, but the strip.
func (p *pullPreviewsView) parts(v *visit) []part {
	return []part{
		{"pull-previews-headline", keyOf(p.headline()), pullPreviewsHeadline(p)},
		{"pull-previews", keyOfAll(p.rows), pullPreviewTable(v, p)},
	}
}

// pullPreviewSource is the stream of the list.
type pullPreviewSource struct{ q url.Values }

func livePullPreviews(v *visit) (source, error) { return pullPreviewSource{v.query()}, nil }

func (pullPreviewSource) opened() string { return "" }

func (pullPreviewSource) watch(v *visit) (receive, error) {
	begun := false
	return func() (bool, error) {
		if !begun {
			begun = true
			return true, nil
		}
		select {
		case <-v.ctx.Done():
			return false, v.ctx.Err()
		case <-time.After(pullPreviewsEvery):
			return false, nil
		}
	}, nil
}

func (s pullPreviewSource) parts(v *visit) ([]part, error) {
	p, err := v.readPullPreviews(s.q)
	if err != nil {
		return nil, err
	}
	return append(p.parts(v), p.strip.part()), nil
}

func (p *pullPreviewsView) filtered() bool { return len(p.q) > 0 }

// headline is the first sentence of the view.
func (p *pullPreviewsView) headline() string {
	if len(p.rows) == 0 && p.filtered() {
		return "Previews"
	}
	if len(p.rows) == 0 {
		return "No pull request has a preview."
	}
	count := map[controlv1.PreviewPhase]int{}
	for _, r := range p.rows {
		count[r.Phase]++
	}
	return fmt.Sprintf("%s: %d ready, %d failed.", plural(len(p.rows), "preview", "previews"),
		count[controlv1.PreviewPhase_PREVIEW_PHASE_READY], count[controlv1.PreviewPhase_PREVIEW_PHASE_FAILED])
}

// pullPreviewID returns the ID of the row of a preview.
func pullPreviewID(m *controlv1.Preview) string {
	return rowID("pull-preview", fmt.Sprintf("%s#%d", m.RepositoryId, m.PullRequest))
}

// previewExpires says when a preview is removed, "" for as long as its pull request is open.
func previewExpires(m *controlv1.Preview) string {
	if m.ExpiresAtMs == 0 || m.Phase == controlv1.PreviewPhase_PREVIEW_PHASE_REMOVED {
		return ""
	}
	return "until " + time.UnixMilli(m.ExpiresAtMs).UTC().Format("2006-01-02 15:04 UTC")
}

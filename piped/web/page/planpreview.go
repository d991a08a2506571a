package page

import (
	"fmt"
	"io"
	"strings"

	controlv1 "github.com/c785c783/piped/proto/piped/control/v1"
	modelv1 "github.com/c785c783/piped/proto/piped/model/v1"
)

// Limits of the diffs that the view of a plan preview shows, in lines.
const (
	previewLines = 2000
	objectLines  = 300
)

// previewView is one plan preview.
type previewView struct {
	brief *controlv1.PlanPreviewBrief
	apps  []*previewedApp
	strip *strip
}

// previewedApp is an application of a plan preview, with what is shown of its changes.
type previewedApp struct {
	*controlv1.PreviewedApplication
	changes []shownChange
	details shownDiff
}

// shownDiff is the beginning of a diff.
type shownDiff struct {
	text string
	left int // lines that are not shown
}

// showPlanPreview shows a plan preview, and follows it until it has ended.
func showPlanPreview(v *visit) (*screen, error) {
	p, err := v.readPlanPreview(v.r.PathValue("id"))
	if err != nil {
		return nil, err
	}
	s := &screen{title: "Plan preview of " + p.brief.HeadBranch, nav: "Events", body: planPreviewPage(v, p), parts: p.parts(v), strip: p.strip}
	if p.building() {
		s.live = previewPath(p.brief.CommandId) + "/live"
	}
	return s, nil
}

// readPlanPreview reads a plan preview, and cuts its diffs.
func (v *visit) readPlanPreview(id string) (*previewView, error) {
	resp, err := v.control.GetPlanPreview(v.ctx, &controlv1.GetPlanPreviewRequest{CommandId: id})
	if err != nil {
		return nil, err
	}
	p := &previewView{brief: resp.PlanPreview}
	left := previewLines
	for _, a := range resp.Applications {
		app := &previewedApp{PreviewedApplication: a, details: cutDiff(a.Details, &left)}
		for _, c := range a.Changes {
			app.changes = append(app.changes, cutChange(c, &left))
		}
		p.apps = append(p.apps, app)
	}
	p.strip, err = v.readStrip()
	return p, err
}

// cutDiff returns the beginning of a diff, and subtracts its lines from those that are left.
func cutDiff(text string, left *int) shownDiff {
	lines := strings.SplitAfter(strings.TrimSuffix(text, "\n"), "\n")
	if text == "" {
		lines = nil
	}
	n := min(len(lines), objectLines, *left)
	*left -= n
	return shownDiff{strings.Join(lines[:n], ""), len(lines) - n}
}

func (p *previewView) parts(v *visit) []part {
	apps := make([]*controlv1.PreviewedApplication, len(p.apps))
	for i, a := range p.apps {
		apps[i] = a.PreviewedApplication
	}
	return []part{{"preview", keyOf(p.brief, keyOfAll(apps)), planPreviewBody(v, p)}}
}

func (p *previewView) building() bool {
	return p.brief.Status == modelv1.CommandStatus_COMMAND_NOT_HANDLED_YET
}

// headline is the first sentence of the view.
func (p *previewView) headline() string {
	b := p.brief
	switch {
	case p.building():
		return "This plan preview is being built."
	case b.Status != modelv1.CommandStatus_COMMAND_SUCCEEDED:
		return "This plan preview could not be built."
	case b.Applications == 0:
		return "This change concerns no application."
	}
	text := "This change would change nothing"
	if b.ChangedApplications > 0 {
		text = fmt.Sprintf("This change would change %d of %s", b.ChangedApplications, plural(b.Applications, "application", "applications"))
	}
	if b.FailedApplications > 0 {
		text += fmt.Sprintf("; of %d there is no preview", b.FailedApplications)
	}
	return text + "."
}

// mark returns the mark of what the change would do to the application.
func (a *previewedApp) mark() mark {
	switch {
	case a.Error != "":
		return mark{icon: "cross", word: "No preview", role: roleBad}
	case a.NoChange:
		return mark{icon: "check", word: "No change", role: roleMuted}
	}
	return mark{icon: "differs", word: "Changes", role: roleActive}
}

// strategyWord returns a strategy in words, "" if nothing is deployed.
func strategyWord(s modelv1.SyncStrategy) string {
	switch s {
	case modelv1.SyncStrategy_QUICK_SYNC:
		return "Quick sync"
	case modelv1.SyncStrategy_PIPELINE:
		return "Pipeline"
	}
	return ""
}

// wholePath returns the address of all diffs as text.
func (p *previewView) wholePath() string { return previewPath(p.brief.CommandId) + "/diff" }

// showPreviewDiff writes a plan preview with all diffs as text.
func showPreviewDiff(v *visit) (*screen, error) {
	resp, err := v.control.GetPlanPreview(v.ctx, &controlv1.GetPlanPreviewRequest{CommandId: v.r.PathValue("id")})
	if err != nil {
		return nil, err
	}
	v.startText("plan-preview-" + short(resp.PlanPreview.HeadCommit) + ".diff")
	_, _ = io.WriteString(v.w, previewText(resp)) // fails if the client is gone
	return nil, errWritten
}

// previewText returns a plan preview as text.
func previewText(p *controlv1.GetPlanPreviewResponse) string {
	var out strings.Builder
	b := p.PlanPreview
	fmt.Fprintf(&out, "# %s: %s into %s at %s\n", b.RepositoryId, b.HeadBranch, b.BaseBranch, b.HeadCommit)
	if b.Error != "" {
		fmt.Fprintf(&out, "# %s\n", strings.ReplaceAll(b.Error, "\n", "\n# "))
	}
	for _, a := range p.Applications {
		fmt.Fprintf(&out, "\n# %s in %s\n", a.ApplicationName, a.Directory)
		for _, line := range append([]string{strategyWord(a.Strategy), a.Summary, a.Error}, a.Warnings...) {
			if line != "" {
				fmt.Fprintf(&out, "# %s\n", strings.ReplaceAll(line, "\n", "\n# "))
			}
		}
		for _, c := range a.Changes {
			fmt.Fprintf(&out, "\n%s", c.Diff)
		}
		if a.Details != "" {
			fmt.Fprintf(&out, "\n%s\n", a.Details)
		}
		if a.ChangesLeftOut > 0 {
			fmt.Fprintf(&out, "\n# %s\n", leftOutText(a.ChangesLeftOut))
		}
	}
	return out.String()
}

// leftOutText says how many changes the agent does not store.
func leftOutText(n int32) string {
	return plural(n, "further change is", "further changes are") + " not stored: there are too many."
}

package pipectl

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	modelv1 "github.com/c785c783/piped/proto/piped/model/v1"
)

// progress shows an active deployment: a line for each change, and on a terminal a
// status line below them.
type progress struct {
	screen *screen
	moving bool              // there is a status line
	line   func(line string) // writes a permanent line
	now    func() time.Time

	last  *modelv1.Deployment
	drawn bool // the status line is on the screen
	frame int
	shown []string // reasons already written, to write each once
	logs  lastLines
}

// lastLines maps stage IDs to the last line of their log. It is safe for concurrent
// use.
type lastLines struct {
	mu      sync.Mutex
	byStage map[string]string
}

func (l *lastLines) set(stageID, line string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.byStage == nil {
		l.byStage = map[string]string{}
	}
	l.byStage[stageID] = line
}

func (l *lastLines) of(stageID string) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.byStage[stageID]
}

// update shows what has changed since the last state. It ignores older states.
func (p *progress) update(d *modelv1.Deployment) {
	if p.last != nil && d.GetRevision() < p.last.GetRevision() {
		return
	}
	before := p.last
	p.last = d
	p.clear()
	// The deployment starts before its stages, and ends after them.
	if end := ended(d.GetStatus()) || d.GetStatus() == modelv1.DeploymentStatus_DEPLOYMENT_ROLLING_BACK; end {
		p.stages(before)
		p.whole(before)
	} else {
		p.whole(before)
		p.stages(before)
	}
	p.draw()
}

// whole shows changes of the deployment itself.
func (p *progress) whole(before *modelv1.Deployment) {
	d := p.last
	if before == nil || before.GetStatus() != d.GetStatus() {
		p.say("Deployment %s of %s is %s%s", d.GetId(), clean(d.GetApplicationName()), p.status(deploymentStatus(d.GetStatus())), p.because(d.GetStatusReason()))
	}
}

// because formats a reason without what earlier lines contain.
func (p *progress) because(reason string) string {
	full := reason
	for _, s := range p.shown {
		if reason == s {
			return ""
		}
		reason = trimCause(reason, s)
	}
	if full != "" && !slices.Contains(p.shown, full) {
		p.shown = append(p.shown, full)
	}
	return because(reason)
}

// trimCause removes ": cause" from a reason if the reason or its clause ends there.
func trimCause(reason, cause string) string {
	before, after, found := strings.Cut(reason, ": "+cause)
	if !found || after != "" && !strings.HasPrefix(after, ";") {
		return reason
	}
	return before + after
}

// stages shows changes of the stages.
func (p *progress) stages(before *modelv1.Deployment) {
	for i, s := range shownStages(p.last) {
		if now, was := s.GetStatus(), statusIn(before, s.GetId()); now != was {
			p.say("  %s %s %s%s", place(i, p.last), clean(s.GetName()), p.status(stageStatus(now)), p.details(s))
		}
		if waits(s) && !waits(stageIn(before, s.GetId())) {
			p.say("  %s", p.screen.paint(yellow, fmt.Sprintf("It waits for approval: pipectl deployment approve --deployment-id=%s --stage-id=%s", p.last.GetId(), s.GetId())))
		}
	}
}

// tick updates the status line.
func (p *progress) tick() {
	if p.last != nil {
		p.frame++
		p.draw()
	}
}

// notice writes a line that is not about the deployment.
func (p *progress) notice(format string, args ...any) {
	p.clear()
	p.say(format, args...)
	p.draw()
}

func (p *progress) say(format string, args ...any) { p.line(fmt.Sprintf(format, args...)) }

func (p *progress) status(c cell) string { return p.screen.paint(c.color, c.text) }

// details returns how long a completed stage took, and its reason.
func (p *progress) details(s *modelv1.PipelineStage) string {
	out := ""
	if s.GetCompletedAtMs() != 0 {
		out = " " + took(s, p.now())
	}
	return strings.TrimRight(out, " ") + p.because(s.GetStatusReason())
}

// draw writes the status line, truncated to the width of the terminal.
func (p *progress) draw() {
	if !p.moving || p.last == nil || ended(p.last.GetStatus()) {
		return
	}
	text := string(`|/-\`[p.frame%4]) + " " + p.activity()
	if width := p.screen.width(); width > 0 {
		text = cut(text, width-1)
	}
	fmt.Fprintf(p.screen.out, "\r\x1b[K%s", p.screen.paint(cyan, text))
	p.drawn = true
}

// clear removes the status line.
func (p *progress) clear() {
	if p.drawn {
		fmt.Fprint(p.screen.out, "\r\x1b[K")
		p.drawn = false
	}
}

// activity describes the current activity in one line.
func (p *progress) activity() string {
	for i, s := range shownStages(p.last) {
		if s.GetStatus() == modelv1.StageStatus_STAGE_RUNNING {
			state := p.logs.of(s.GetId())
			if state == "" {
				state = s.GetStatusReason()
			}
			return fmt.Sprintf("%s %s %s%s", place(i, p.last), clean(s.GetName()), took(s, p.now()), because(state))
		}
	}
	return word(p.last.GetStatus(), "DEPLOYMENT_") + because(p.last.GetStatusReason())
}

// because formats a reason after a status.
func because(reason string) string {
	if reason = clean(firstLine(reason)); reason == "" {
		return ""
	}
	return ": " + reason
}

// place formats the position of a stage among the visible ones.
func place(i int, d *modelv1.Deployment) string {
	return fmt.Sprintf("[%d/%d]", i+1, len(shownStages(d)))
}

// shownStages returns the visible stages.
func shownStages(d *modelv1.Deployment) []*modelv1.PipelineStage {
	var out []*modelv1.PipelineStage
	for _, s := range d.GetStages() {
		if s.GetVisible() || s.GetStatus() != modelv1.StageStatus_STAGE_NOT_STARTED_YET {
			out = append(out, s)
		}
	}
	return out
}

func stageIn(d *modelv1.Deployment, id string) *modelv1.PipelineStage {
	for _, s := range d.GetStages() {
		if s.GetId() == id {
			return s
		}
	}
	return nil
}

func statusIn(d *modelv1.Deployment, id string) modelv1.StageStatus {
	return stageIn(d, id).GetStatus()
}

// waits reports whether a stage waits for approval.
func waits(s *modelv1.PipelineStage) bool {
	return s.GetStatus() == modelv1.StageStatus_STAGE_RUNNING && s.GetAvailableOperation() == modelv1.ManualOperation_MANUAL_OPERATION_APPROVE
}

// took formats the duration of a stage, so far or in total; "" before its start.
func took(s *modelv1.PipelineStage, now time.Time) string {
	if s.GetStartedAtMs() == 0 {
		return ""
	}
	end := now
	if ms := s.GetCompletedAtMs(); ms != 0 {
		end = time.UnixMilli(ms)
	}
	return short(end.Sub(time.UnixMilli(s.GetStartedAtMs())))
}

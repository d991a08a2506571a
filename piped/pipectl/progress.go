package pipectl

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	modelv1 "github.com/c785c783/piped/proto/piped/model/v1"
)

// progress shows a deployment while it goes on: a line for each change, and on
// a terminal one more below them that moves.
type progress struct {
	screen *screen
	moving bool              // there is a line that moves
	line   func(line string) // writes a line that stays
	now    func() time.Time

	last  *modelv1.Deployment
	drawn bool // the moving line is on the screen
	frame int
	shown []string // reasons that lines hold, so that each is written once
	logs  lastLines
}

// lastLines holds the last log line of each stage by its ID. It is safe for
// concurrent use.
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

// update shows what has changed since the last state. An older state than that
// is passed over.
func (p *progress) update(d *modelv1.Deployment) {
	if p.last != nil && d.GetRevision() < p.last.GetRevision() {
		return
	}
	before := p.last
	p.last = d
	p.clear()
	// Stages run because the deployment does, and it ends because they did.
	if end := ended(d.GetStatus()) || d.GetStatus() == modelv1.DeploymentStatus_DEPLOYMENT_ROLLING_BACK; end {
		p.stages(before)
		p.whole(before)
	} else {
		p.whole(before)
		p.stages(before)
	}
	p.draw()
}

// whole shows what has changed of the deployment itself.
func (p *progress) whole(before *modelv1.Deployment) {
	d := p.last
	if before == nil || before.GetStatus() != d.GetStatus() {
		p.say("Deployment %s of %s is %s%s", d.GetId(), clean(d.GetApplicationName()), p.status(deploymentStatus(d.GetStatus())), p.because(d.GetStatusReason()))
	}
}

// because is a reason behind what it explains, without what earlier lines hold.
func (p *progress) because(reason string) string {
	full := reason
	for _, s := range p.shown {
		if reason == s {
			return ""
		}
		reason = without(reason, s)
	}
	if full != "" && !slices.Contains(p.shown, full) {
		p.shown = append(p.shown, full)
	}
	return because(reason)
}

// without cuts ": cause" out of a reason where it ends there, or its sentence does.
func without(reason, cause string) string {
	before, after, found := strings.Cut(reason, ": "+cause)
	if !found || after != "" && !strings.HasPrefix(after, ";") {
		return reason
	}
	return before + after
}

// stages shows what has changed of the stages.
func (p *progress) stages(before *modelv1.Deployment) {
	for i, s := range shownStages(p.last) {
		if now, was := s.GetStatus(), statusIn(before, s.GetId()); now != was {
			p.say("  %s %s %s%s", place(i, p.last), clean(s.GetName()), p.status(stageStatus(now)), p.details(s))
		}
		if waits(s) && !waits(stageIn(before, s.GetId())) {
			p.say("  %s", p.screen.paint(yellow, fmt.Sprintf("It waits for people: pipectl deployment approve --deployment-id=%s --stage-id=%s", p.last.GetId(), s.GetId())))
		}
	}
}

// tick moves the line that moves.
func (p *progress) tick() {
	if p.last != nil {
		p.frame++
		p.draw()
	}
}

// tell writes a line that is not about the deployment.
func (p *progress) tell(format string, args ...any) {
	p.clear()
	p.say(format, args...)
	p.draw()
}

func (p *progress) say(format string, args ...any) { p.line(fmt.Sprintf(format, args...)) }

func (p *progress) status(c cell) string { return p.screen.paint(c.color, c.text) }

// details are how long an ended stage took, and why it is as it is.
func (p *progress) details(s *modelv1.PipelineStage) string {
	out := ""
	if s.GetCompletedAtMs() != 0 {
		out = " " + took(s, p.now())
	}
	return strings.TrimRight(out, " ") + p.because(s.GetStatusReason())
}

// draw puts the moving line below the others, no wider than the terminal.
func (p *progress) draw() {
	if !p.moving || p.last == nil || ended(p.last.GetStatus()) {
		return
	}
	text := string(`|/-\`[p.frame%4]) + " " + p.doing()
	if width := p.screen.width(); width > 0 {
		text = cut(text, width-1)
	}
	fmt.Fprintf(p.screen.out, "\r\x1b[K%s", p.screen.paint(cyan, text))
	p.drawn = true
}

// clear takes the moving line away.
func (p *progress) clear() {
	if p.drawn {
		fmt.Fprint(p.screen.out, "\r\x1b[K")
		p.drawn = false
	}
}

// doing says in one line what happens now.
func (p *progress) doing() string {
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

// because puts a reason behind what it is the reason of.
func because(reason string) string {
	if reason = clean(firstLine(reason)); reason == "" {
		return ""
	}
	return ": " + reason
}

// place is a stage's place among those that are shown.
func place(i int, d *modelv1.Deployment) string {
	return fmt.Sprintf("[%d/%d]", i+1, len(shownStages(d)))
}

// shownStages are those that a person wants to see.
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

// waits reports whether a stage goes on when people approve it.
func waits(s *modelv1.PipelineStage) bool {
	return s.GetStatus() == modelv1.StageStatus_STAGE_RUNNING && s.GetAvailableOperation() == modelv1.ManualOperation_MANUAL_OPERATION_APPROVE
}

// took is how long a stage took, or takes so far; it is empty before it runs.
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

package pipectl

import (
	"context"
	"fmt"
	"strings"
	"time"

	"google.golang.org/grpc"

	controlv1 "github.com/c785c783/piped/proto/piped/control/v1"
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
		p.say("Deployment %s of %s is %s%s", d.GetId(), clean(d.GetApplicationName()), p.status(deploymentStatus(d.GetStatus())), because(d.GetStatusReason()))
	}
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
	return strings.TrimRight(out, " ") + because(s.GetStatusReason())
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
			return fmt.Sprintf("%s %s %s%s", place(i, p.last), clean(s.GetName()), took(s, p.now()), because(s.GetStatusReason()))
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

// toTheEnd shows a deployment until it has ended, and returns an error with the
// exit code for any end but success.
func (w *wait) toTheEnd(ctx context.Context, id string) error {
	timeout := wholeTimeout
	if w.patient {
		timeout = w.timeout
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	p := &progress{screen: w.screen, now: w.now, line: func(line string) { w.log.infof("%s", line) },
		moving: w.screen.tty && !w.log.json && !w.log.quiet}
	end, err := watchOne(ctx, w.client, id, p.tell, p.tick, p.update)
	p.clear()
	switch {
	case err == nil:
		return endedWith(end)
	case ctx.Err() == context.DeadlineExceeded:
		return withCode(hint(fmt.Errorf("waited %s for deployment %s: %w", timeout, id, ctx.Err()),
			"it goes on: 'pipectl deployment watch --deployment-id=%s' shows it again; wait longer with --timeout", id), ExitTimeout)
	}
	return unknownDeployment(err)
}

// watchOne calls each with every state of a deployment and returns the last one.
func watchOne(ctx context.Context, c *client, id string, say func(string, ...any), tick func(), each func(*modelv1.Deployment)) (*modelv1.Deployment, error) {
	var last *modelv1.Deployment
	open := func(ctx context.Context) (grpc.ServerStreamingClient[controlv1.WatchDeploymentsResponse], error) {
		return c.control.WatchDeployments(ctx, &controlv1.WatchDeploymentsRequest{DeploymentIds: []string{id}})
	}
	err := follow(ctx, following{what: "deployment " + id, say: say, tick: tick}, open, func(m *controlv1.WatchDeploymentsResponse) error {
		d := m.GetDeployment()
		switch {
		case d == nil && last == nil: // caught up, and it was not among them
			return hint(fmt.Errorf("deployment %q not found", id), "'pipectl deployment list' shows the IDs")
		case d == nil:
			return nil
		}
		last = d
		each(d)
		if ended(d.GetStatus()) {
			return errDone
		}
		return nil
	})
	return last, err
}

// endedWith is the error for a deployment that has ended otherwise than well.
func endedWith(d *modelv1.Deployment) error {
	if code := codeOf(d.GetStatus()); code != ExitSuccess {
		return withCode(hint(withReason(fmt.Errorf("deployment %s ended at %s", d.GetId(), d.GetStatus()), d.GetStatusReason()),
			"'pipectl deployment logs --follow --deployment-id=%s' shows what its stages wrote", d.GetId()), code)
	}
	return nil
}

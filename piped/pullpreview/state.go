package pullpreview

import (
	"context"
	"math"
	"strings"
	"time"

	"github.com/c785c783/piped/piped/deploy"
)

// preview is what the preview of a pull request is like.
type preview struct {
	apps    []appState
	waits   string    // the limit that it waits for
	problem error     // why it cannot be updated
	expires time.Time // zero for never
}

// phase is the phase of a preview, or of one of its applications.
type phase string

const (
	building phase = "building"
	ready    phase = "ready"
	failed   phase = "failed"
)

// appState is what the preview of one application is like.
type appState struct {
	app   deploy.Application
	phase phase
	text  string   // what it waits for, or why it has failed
	log   []string // the last lines of the failed stage
	host  string
	route Route  // with mode route
	id    string // of the deployment; "" if there is none
}

// phase is ready only if that of every application is: each deployment has ended with success, which
// is when the last of its rollouts is complete and its routes are accepted. It is failed as soon as that of one is.
func (s preview) phase() phase {
	switch {
	case s.problem != nil:
		return failed
	case len(s.apps) == 0 || s.waits != "":
		return building
	}
	out := ready
	for _, a := range s.apps {
		switch {
		case a.phase == failed:
			return failed
		case a.phase == building:
			out = building
		}
	}
	return out
}

// state reads the state of the wanted preview applications of a pull request.
func (p *Previewer) state(ctx context.Context, pr *request, want []wanted) (preview, error) {
	var out preview
	for _, w := range want {
		state, err := p.appState(ctx, pr, w)
		if err != nil {
			return out, err
		}
		state.app, state.host, state.route = w.app, w.host, w.route
		out.apps = append(out.apps, state)
	}
	return out, nil
}

func (p *Previewer) appState(ctx context.Context, pr *request, w wanted) (appState, error) {
	switch {
	case w.problem != nil:
		return appState{phase: failed, text: w.problem.Error()}, nil
	case w.pending != "":
		return appState{phase: building, text: w.pending}, nil
	}
	app, err := p.Store.Application(ctx, w.app.ID)
	if err != nil {
		return appState{}, err
	}
	if app.LastTriggered == nil {
		return appState{phase: building, text: "its deployment is being created"}, nil
	}
	d, err := p.Store.Deployment(ctx, app.LastTriggered.DeploymentID)
	if deploy.IsKind(err, deploy.NotFound) { // only old ones are removed, and of those this is the last
		return appState{phase: failed, text: "its deployment was removed"}, nil
	}
	if err != nil {
		return appState{}, err
	}
	out := appState{id: d.ID, text: d.StatusReason}
	switch d.Status {
	case deploy.Success:
		out.phase, out.text = ready, ""
		if why := p.broken(app.ID, d); why != "" {
			out.phase, out.text = failed, why
			out.log, err = p.crashLines(ctx, pr, app, out)
		}
	case deploy.Failure, deploy.Cancelled:
		out.phase = failed
		out.log, err = p.lastLines(ctx, d)
	case deploy.Running, deploy.RollingBack:
		out.phase, out.text = building, "its rollouts are not complete, or its routes not accepted by the gateways"
	default:
		out.phase = building
	}
	return out, err
}

// healthLag is how long after a deployment an earlier report of its health may not be replaced yet.
const healthLag = time.Minute

// broken returns why an application does not work any more after its deployment has succeeded, ""
// if it does.
func (p *Previewer) broken(appID string, d deploy.Deployment) string {
	report, ok := p.degraded[appID]
	if !ok || !report.Since.After(d.CompletedAt) && p.Now().Sub(d.CompletedAt) < healthLag {
		return ""
	}
	return "it does not work any more: " + report.Reason
}

// crashLines returns the last lines of the pods of an application that does not work any more. They
// are read once for each reason, so that the comment does not change with every line. That they
// cannot be read is shown in their place, until they can be: that is tried once a minute, because a
// cluster that does not answer holds up the other pull requests.
func (p *Previewer) crashLines(ctx context.Context, pr *request, app deploy.Application, now appState) ([]string, error) {
	for _, known := range pr.known.Applications {
		if known.ID != app.ID || known.DeploymentID != now.id || known.Phase != deploy.PreviewFailed || known.Reason != now.text {
			continue
		}
		read := len(known.Log) > 0 && !strings.HasPrefix(known.Log[0], unreadable)
		if read || p.Now().Sub(p.unread[app.ID]) < logsAgain {
			return known.Log, nil
		}
	}
	if p.PodLines == nil {
		return nil, nil
	}
	lines, err := p.PodLines(ctx, app, maxLines)
	if err == nil && len(lines) > 0 {
		delete(p.unread, app.ID)
		return lines, nil
	}
	p.unread[app.ID] = p.Now()
	if err != nil && ctx.Err() == nil {
		return []string{unreadable + strings.ReplaceAll(err.Error(), "\n", "; ")}, nil
	}
	return lines, err
}

// logsAgain is the delay before logs that could not be read, or were empty, are read again.
const logsAgain = time.Minute

// unreadable begins the line that stands in the place of logs.
const unreadable = "the logs of its pods cannot be read: "

// maxLines is how many lines of the log of a failed stage are shown.
const maxLines = 20

// lastLines returns the last lines of the log of the stage that failed. What the executor knows of
// failed pods is among them.
func (p *Previewer) lastLines(ctx context.Context, d deploy.Deployment) ([]string, error) {
	for _, s := range d.Stages {
		if s.Status != deploy.StageFailure {
			continue
		}
		blocks, err := p.Store.StageLogBefore(ctx, d.ID, s.ID, math.MaxInt64, maxLines)
		if err != nil {
			return nil, err
		}
		var lines []string
		for _, b := range blocks {
			lines = append(lines, strings.Split(strings.TrimRight(b.Log, "\n"), "\n")...)
		}
		return lines[max(0, len(lines)-maxLines):], nil
	}
	return nil, nil
}

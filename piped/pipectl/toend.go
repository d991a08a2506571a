package pipectl

import (
	"context"
	"fmt"
	"strings"
	"sync"

	"google.golang.org/grpc"

	controlv1 "github.com/c785c783/piped/proto/piped/control/v1"
	modelv1 "github.com/c785c783/piped/proto/piped/model/v1"
)

// toTheEnd shows a deployment until it has ended, and returns an error with an exit
// code for every end but success.
func (w *wait) toTheEnd(ctx context.Context, id string) error {
	timeout := wholeTimeout
	if w.patient {
		timeout = w.timeout
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	p := &progress{screen: w.screen, now: w.now, line: func(line string) { w.log.infof("%s", line) },
		moving: w.screen.tty && !w.log.json && !w.log.quiet}
	end, err := p.watch(ctx, w.client, id)
	switch {
	case err == nil && w.log.quiet:
		return withReasonOf(end, endedWith(end))
	case err == nil:
		return endedWith(end)
	case ctx.Err() == context.DeadlineExceeded:
		return withCode(hint(fmt.Errorf("waited %s for deployment %s: %w", timeout, id, ctx.Err()),
			"it goes on: 'pipectl deployment watch --deployment-id=%s' shows it again; wait longer with --timeout", id), ExitTimeout)
	}
	return unknownDeployment(err)
}

// watch shows a deployment until it has ended and returns its last state. The status
// line contains the last log line of the running stage.
func (p *progress) watch(ctx context.Context, c *client, id string) (*modelv1.Deployment, error) {
	ctx, cancel := context.WithCancel(ctx)
	var logs sync.WaitGroup
	if p.moving {
		logs.Go(func() { readLastLines(ctx, c, id, p.logs.set) })
	}
	end, err := watchOne(ctx, c, id, p.notice, p.tick, p.update)
	cancel()
	logs.Wait()
	p.clear()
	return end, err
}

// readLastLines calls set with the last line of each log entry of a deployment's stages
// until the deployment or ctx ends. Errors only end it, since the deployment is shown
// without logs as well.
func readLastLines(ctx context.Context, c *client, id string, set func(stageID, line string)) {
	req := &controlv1.FollowStageLogsRequest{DeploymentId: id, AfterIndex: map[string]int64{}}
	open := func(ctx context.Context) (grpc.ServerStreamingClient[controlv1.FollowStageLogsResponse], error) {
		return c.control.FollowStageLogs(ctx, req)
	}
	quiet := following{what: "stage logs", say: func(string, ...any) {}, tick: func() {}, ends: true}
	_ = follow(ctx, quiet, open, func(m *controlv1.FollowStageLogsResponse) error {
		for _, b := range m.GetBlocks() {
			req.AfterIndex[m.GetStageId()] = b.GetIndex()
			if line := lastLine(b.GetLog()); line != "" {
				set(m.GetStageId(), line)
			}
		}
		return nil
	})
}

// lastLine returns the last non-blank line of a text.
func lastLine(text string) string {
	text = strings.TrimSpace(text)
	return text[strings.LastIndex(text, "\n")+1:]
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
		case d == nil && last == nil: // all current deployments were sent without it
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

// endedWith returns the error for a deployment that has not succeeded, without its
// reason, which was shown before.
func endedWith(d *modelv1.Deployment) error {
	code := codeOf(d.GetStatus())
	if code == ExitSuccess {
		return nil
	}
	return withCode(hint(fmt.Errorf("deployment %s ended at %s", d.GetId(), d.GetStatus()),
		"'pipectl deployment logs --follow --deployment-id=%s' shows what its stages wrote", d.GetId()), code)
}

// withReasonOf adds the reason of a deployment that was not shown.
func withReasonOf(d *modelv1.Deployment, err error) error {
	if err == nil {
		return nil
	}
	return withReason(err, d.GetStatusReason())
}

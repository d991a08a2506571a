package control_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/c785c783/piped/piped/control"
	"github.com/c785c783/piped/piped/control/controltest"
	"github.com/c785c783/piped/piped/deploy"
	controlv1 "github.com/c785c783/piped/proto/piped/control/v1"
)

// patience limits how long a test waits for a message.
const patience = 10 * time.Minute

// streaming returns a client of a new agent and a context for READ_ONLY calls.
func streaming(t testing.TB, options ...controltest.Option) (context.Context, controlv1.ControlServiceClient, *controltest.Agent) {
	t.Helper()
	agent := controltest.Start(t, t.TempDir(), options...)
	ctx, cancel := context.WithTimeout(as(t, agent.ReadOnly), patience)
	t.Cleanup(cancel)
	return ctx, controlv1.NewControlServiceClient(dial(t, agent.Server.Addr())), agent
}

// watched stores deployments in four states.
func watched(agent *controltest.Agent) {
	web := agent.Application("web", map[string]string{"env": "prod", "team": "a"})
	api := agent.Application("api", map[string]string{"env": "prod", "team": "b"})
	agent.Deployment("d1", web, "")
	agent.Move("d1", deploy.Success, "done")
	agent.Deployment("d2", api, "")
	agent.Move("d2", deploy.Failure, "web-1: ImagePullBackOff")
	agent.Deployment("d3", web, "")
	agent.Move("d3", deploy.Running, "")
	agent.Deployment("d4", agent.Application("old", nil), "")
}

// deployments is a stream of deployments as "<id> <status>".
type deployments struct {
	t      testing.TB
	stream grpc.ServerStreamingClient[controlv1.WatchDeploymentsResponse]
}

func watch(ctx context.Context, t testing.TB, client controlv1.ControlServiceClient, req *controlv1.WatchDeploymentsRequest) deployments {
	t.Helper()
	stream, err := client.WatchDeployments(ctx, req)
	if err != nil {
		t.Fatal(err)
	}
	return deployments{t, stream}
}

// next returns the next message.
func (d deployments) next() string {
	d.t.Helper()
	resp, err := d.stream.Recv()
	switch {
	case err != nil:
		d.t.Fatal(err)
	case resp.CaughtUp && resp.Deployment == nil:
		return "caught up"
	}
	return resp.Deployment.Id + " " + strings.TrimPrefix(resp.Deployment.Status.String(), "DEPLOYMENT_")
}

// present returns the messages until the stream has sent the initial state.
func (d deployments) present() string {
	d.t.Helper()
	var out []string
	for {
		s := d.next()
		if s == "caught up" {
			return strings.Join(out, ", ")
		}
		out = append(out, s)
	}
}

func TestWatchBeginsWithWhatMatches(t *testing.T) {
	ctx, client, agent := streaming(t)
	watched(agent)
	for name, tc := range map[string]struct {
		req  *controlv1.WatchDeploymentsRequest
		want string
	}{
		"those that have not ended":           {&controlv1.WatchDeploymentsRequest{}, "d3 RUNNING, d4 PENDING"},
		"those that have ended too":           {&controlv1.WatchDeploymentsRequest{CompletedLimit: 10}, "d3 RUNNING, d4 PENDING, d2 FAILURE, d1 SUCCESS"},
		"the newest of those":                 {&controlv1.WatchDeploymentsRequest{CompletedLimit: 1}, "d3 RUNNING, d4 PENDING, d2 FAILURE"},
		"named ones, ended or not":            {&controlv1.WatchDeploymentsRequest{DeploymentIds: []string{"d4", "d1", "d9"}}, "d4 PENDING, d1 SUCCESS"},
		"of applications":                     {&controlv1.WatchDeploymentsRequest{ApplicationIds: []string{"app-web"}, CompletedLimit: 10}, "d3 RUNNING, d1 SUCCESS"},
		"with labels":                         {&controlv1.WatchDeploymentsRequest{Labels: map[string]string{"team": "b"}, CompletedLimit: 10}, "d2 FAILURE"},
		"named, of an application, labelled":  {&controlv1.WatchDeploymentsRequest{DeploymentIds: []string{"d1", "d2"}, ApplicationIds: []string{"app-api"}, Labels: map[string]string{"env": "prod"}}, "d2 FAILURE"},
		"nothing: an application without any": {&controlv1.WatchDeploymentsRequest{ApplicationIds: []string{"app-none"}, CompletedLimit: 10}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			if got := watch(ctx, t, client, tc.req).present(); got != tc.want {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}

func TestWatchSendsMatchingChanges(t *testing.T) {
	ctx, client, agent := streaming(t)
	watched(agent)
	web := watch(ctx, t, client, &controlv1.WatchDeploymentsRequest{Labels: map[string]string{"team": "a"}})
	one := watch(ctx, t, client, &controlv1.WatchDeploymentsRequest{DeploymentIds: []string{"d4"}})
	web.present()
	one.present()
	agent.Move("d4", deploy.Planned, "")
	agent.Move("d3", deploy.Success, "done")
	for what, w := range map[string]struct {
		deployments
		want string
	}{"those with a label": {web, "d3 SUCCESS"}, "the named one": {one, "d4 PLANNED"}} {
		if got := w.next(); got != w.want {
			t.Errorf("%s: got %q, want %q", what, got, w.want)
		}
	}
}

// TestWatchMergesForSlowReaders: a slow reader does not delay the agent and gets the newest
// state of each deployment in fewer messages than there were transitions.
func TestWatchMergesForSlowReaders(t *testing.T) {
	ctx, client, agent := streaming(t)
	const count, moves = 5, 40
	// A large text fills the buffers of the connection.
	reason := strings.Repeat("r", 64<<10)
	w := watch(ctx, t, client, &controlv1.WatchDeploymentsRequest{})
	w.present()
	last := map[string]int64{}
	for i := range count {
		id := fmt.Sprintf("d%02d", i)
		agent.Deployment(id, agent.Application(fmt.Sprintf("a%02d", i), nil), "")
		agent.Move(id, deploy.Running, "")
	}
	for n := range moves {
		for i := range count {
			d, err := agent.Store.UpdateDeployment(t.Context(), fmt.Sprintf("d%02d", i), func(d *deploy.Deployment) error {
				d.StatusReason = fmt.Sprint(n, reason)
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
			last[d.ID] = d.Revision
		}
	}
	messages := 0
	for len(last) > 0 {
		resp, err := w.stream.Recv()
		if err != nil {
			t.Fatalf("%v; %d deployments did not come in their newest state", err, len(last))
		}
		messages++
		if resp.Deployment.Revision == last[resp.Deployment.Id] {
			delete(last, resp.Deployment.Id)
		}
	}
	if messages > count*moves/2 {
		t.Errorf("%d messages for %d moves: they were not merged", messages, count*moves)
	}
}

// TestWatchNeverGoesBack: revisions only increase, also between the initial state and the first
// changes.
func TestWatchNeverGoesBack(t *testing.T) {
	ctx, client, agent := streaming(t)
	app := agent.Application("web", nil)
	agent.Deployment("d", app, "")
	agent.Move("d", deploy.Running, "")
	stop := make(chan struct{})
	var writing sync.WaitGroup
	defer writing.Wait()
	defer close(stop)
	writing.Go(func() {
		for n := 0; ; n++ {
			select {
			case <-stop:
				return
			default:
			}
			if _, err := agent.Store.UpdateDeployment(ctx, "d", func(d *deploy.Deployment) error {
				d.StatusReason = fmt.Sprint(n)
				return nil
			}); err != nil {
				t.Error(err)
				return
			}
		}
	})
	for range 20 {
		w := watch(ctx, t, client, &controlv1.WatchDeploymentsRequest{})
		last := int64(-1)
		for seen := 0; seen < 5; {
			resp, err := w.stream.Recv()
			if err != nil {
				t.Fatal(err)
			}
			if resp.CaughtUp {
				continue
			}
			if seen++; resp.Deployment.Revision <= last {
				t.Fatalf("revision %d after %d", resp.Deployment.Revision, last)
			}
			last = resp.Deployment.Revision
		}
	}
}

func TestStreamsRefuseWhatIsNotPossible(t *testing.T) {
	ctx, client, agent := streaming(t)
	watched(agent)
	follow := func(req *controlv1.FollowStageLogsRequest) error {
		stream, err := client.FollowStageLogs(ctx, req)
		if err == nil {
			_, err = stream.Recv()
		}
		return err
	}
	watching := func(req *controlv1.WatchDeploymentsRequest) error {
		stream, err := client.WatchDeployments(ctx, req)
		if err == nil {
			_, err = stream.Recv()
		}
		return err
	}
	for name, tc := range map[string]struct {
		err  error
		code codes.Code
		says string
	}{
		"a watch that begins with too much":   {watching(&controlv1.WatchDeploymentsRequest{CompletedLimit: 1001}), codes.InvalidArgument, "list them instead"},
		"a watch that begins with less":       {watching(&controlv1.WatchDeploymentsRequest{CompletedLimit: -1}), codes.InvalidArgument, "CompletedLimit"},
		"the logs of nothing":                 {follow(&controlv1.FollowStageLogsRequest{}), codes.InvalidArgument, "DeploymentId"},
		"the logs of an unknown deployment":   {follow(&controlv1.FollowStageLogsRequest{DeploymentId: "d9"}), codes.NotFound, "d9"},
		"the log of an unknown stage":         {follow(&controlv1.FollowStageLogsRequest{DeploymentId: "d3", StageId: "x"}), codes.NotFound, controltest.SyncStage + " (K8S_SYNC)"},
		"the log of a stage not yet planned ": {follow(&controlv1.FollowStageLogsRequest{DeploymentId: "d4", StageId: "x"}), codes.NotFound, "has no stages yet"},
	} {
		if status.Code(tc.err) != tc.code || !strings.Contains(fmt.Sprint(tc.err), tc.says) {
			t.Errorf("%s: got %v, want %s with %q", name, tc.err, tc.code, tc.says)
		}
	}
}

// TestStreamsEndWithTheAgent: an agent that stops ends streams at once with a clear status,
// and its successor serves new ones.
func TestStreamsEndWithTheAgent(t *testing.T) {
	const grace = time.Hour // streams must not wait for it
	ctx, client, agent := streaming(t, func(c *control.Config) { c.Grace = grace })
	watched(agent)
	w := watch(ctx, t, client, &controlv1.WatchDeploymentsRequest{})
	w.present()
	logs, err := client.FollowStageLogs(ctx, &controlv1.FollowStageLogsRequest{DeploymentId: "d3"})
	if err != nil {
		t.Fatal(err)
	}
	agent.Log("d3", controltest.SyncStage, "one")
	if _, err := logs.Recv(); err != nil {
		t.Fatal(err)
	}
	agent.Restart()
	for what, receive := range map[string]func() error{
		"a watch": func() error { _, err := w.stream.Recv(); return err },
		"a log":   func() error { _, err := logs.Recv(); return err },
	} {
		if err := receive(); status.Code(err) != codes.Unavailable || !strings.Contains(err.Error(), "shutting down: call again") {
			t.Errorf("%s ends with %v, want UNAVAILABLE with what to do", what, err)
		}
	}
	again := controlv1.NewControlServiceClient(dial(t, agent.Server.Addr()))
	if got, want := watch(ctx, t, again, &controlv1.WatchDeploymentsRequest{}).present(), "d3 RUNNING, d4 PENDING"; got != want {
		t.Errorf("after a restart: got %q, want %q", got, want)
	}
}

// TestManyWatchAndFollow: with many concurrent clients, each gets every end and every line
// once.
func TestManyWatchAndFollow(t *testing.T) {
	ctx, client, agent := streaming(t)
	const clients, count, lines, batches = 200, 10, 30, 5
	var ids []string
	for i := range count {
		id := fmt.Sprintf("d%02d", i)
		agent.Deployment(id, agent.Application(fmt.Sprintf("a%02d", i), nil), "")
		agent.Move(id, deploy.Running, "")
		ids = append(ids, id)
	}
	var ready, running sync.WaitGroup
	ready.Add(2 * clients)
	for i := range clients {
		running.Go(func() { watchAll(ctx, t, client, ready.Done, ids) })
		running.Go(func() { followAll(ctx, t, client, ready.Done, ids[i%count], lines) })
	}
	ready.Wait()
	for batch := range batches { // one batch for all deployments, as an agent stores logs
		var blocks []deploy.LogBlock
		for _, id := range ids {
			for n := batch * lines / batches; n < (batch+1)*lines/batches; n++ {
				blocks = append(blocks, deploy.LogBlock{
					DeploymentID: id, StageID: controltest.SyncStage, Index: int64(n), Severity: deploy.SeverityInfo, Log: fmt.Sprint("line ", n),
				})
			}
		}
		if err := agent.Store.AppendStageLogs(ctx, blocks); err != nil {
			t.Fatal(err)
		}
	}
	for _, id := range ids {
		agent.Move(id, deploy.Success, "done")
	}
	running.Wait()
}

// watchAll returns when all of these deployments have succeeded.
func watchAll(ctx context.Context, t *testing.T, client controlv1.ControlServiceClient, ready func(), ids []string) {
	left := slices.Clone(ids)
	stream, err := client.WatchDeployments(ctx, &controlv1.WatchDeploymentsRequest{DeploymentIds: ids})
	for err == nil && len(left) > 0 {
		var resp *controlv1.WatchDeploymentsResponse
		if resp, err = stream.Recv(); err == nil && resp.CaughtUp {
			ready()
		} else if err == nil && resp.Deployment.Status.String() == "DEPLOYMENT_SUCCESS" {
			left = slices.DeleteFunc(left, func(id string) bool { return id == resp.Deployment.Id })
		}
	}
	if err != nil {
		t.Errorf("a watch that waits for the ends of %v: %v", left, err)
	}
}

// followAll returns when the deployment's logs are complete, with that many lines.
func followAll(ctx context.Context, t *testing.T, client controlv1.ControlServiceClient, ready func(), id string, lines int) {
	ready()
	stream, err := client.FollowStageLogs(ctx, &controlv1.FollowStageLogsRequest{DeploymentId: id})
	if err != nil {
		t.Error(err)
		return
	}
	got, err := readLogs(stream)
	if log := got[controltest.SyncStage]; err != nil || len(log) != lines || log[lines-1] != fmt.Sprintf("%d line %d", lines-1, lines-1) {
		t.Errorf("the log of %s: %d lines %q, %v", id, len(log), log, err)
	}
}

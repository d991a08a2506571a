package control_test

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"

	"github.com/c785c783/piped/piped/control/controltest"
	"github.com/c785c783/piped/piped/deploy"
	controlv1 "github.com/c785c783/piped/proto/piped/control/v1"
)

type logStream = grpc.ServerStreamingClient[controlv1.FollowStageLogsResponse]

// readLogs reads a stream to its end: by stage, "<index> <line>", and "completed".
func readLogs(stream logStream) (map[string][]string, error) {
	got := map[string][]string{}
	for {
		resp, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return got, nil
		}
		if err != nil {
			return got, err
		}
		note(got, resp)
	}
}

func note(got map[string][]string, resp *controlv1.FollowStageLogsResponse) {
	for _, b := range resp.Blocks {
		got[resp.StageId] = append(got[resp.StageId], fmt.Sprintf("%d %s", b.Index, b.Log))
	}
	if resp.Completed {
		got[resp.StageId+" completed"] = nil
	}
}

// TestFollowStageLogsToTheEnd: lines and ends of running and later stages are streamed as
// they are stored.
func TestFollowStageLogsToTheEnd(t *testing.T) {
	ctx, client, agent := streaming(t)
	agent.Deployment("d", agent.Application("web", nil), "")
	stream, err := client.FollowStageLogs(ctx, &controlv1.FollowStageLogsRequest{DeploymentId: "d"})
	if err != nil {
		t.Fatal(err)
	}
	got := map[string][]string{}
	receive := func() {
		t.Helper()
		resp, err := stream.Recv()
		if err != nil {
			t.Fatal(err)
		}
		note(got, resp)
	}
	agent.Move("d", deploy.Running, "")
	agent.Log("d", controltest.SyncStage, "one", "two")
	receive()
	agent.Log("d", controltest.SyncStage, "one", "two", "three")
	receive()
	want := map[string][]string{controltest.SyncStage: {"0 one", "1 two", "2 three"}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("while it runs (-want +got):\n%s", diff)
	}
	agent.Move("d", deploy.RollingBack, "does not start")
	receive()
	if _, ended := got[controltest.SyncStage+" completed"]; !ended {
		t.Errorf("the end of the first stage is missing: %q", got)
	}
	agent.StartRollback("d")
	agent.Log("d", controltest.RollbackStage, "back")
	agent.Move("d", deploy.Failure, "does not start")
	rest, err := readLogs(stream)
	if diff := cmp.Diff(map[string][]string{controltest.RollbackStage: {"0 back"}, controltest.RollbackStage + " completed": nil}, rest); err != nil || diff != "" {
		t.Errorf("to its end: %v (-want +got):\n%s", err, diff)
	}
}

func TestFollowStageLogsFromAnyPoint(t *testing.T) {
	ctx, client, agent := streaming(t)
	agent.Deployment("d", agent.Application("web", nil), "")
	agent.Move("d", deploy.RollingBack, "does not start")
	agent.StartRollback("d")
	agent.Log("d", controltest.SyncStage, "one", "two", "three")
	agent.Log("d", controltest.RollbackStage, "back")
	const sync, back = controltest.SyncStage, controltest.RollbackStage
	for name, tc := range map[string]struct {
		req  *controlv1.FollowStageLogsRequest
		want map[string][]string
	}{
		"the beginning": {&controlv1.FollowStageLogsRequest{NoFollow: true}, map[string][]string{
			sync: {"0 one", "1 two", "2 three"}, sync + " completed": nil, back: {"0 back"},
		}},
		"a point of each": {&controlv1.FollowStageLogsRequest{NoFollow: true, AfterIndex: map[string]int64{sync: 1, back: 0}}, map[string][]string{
			sync: {"2 three"}, sync + " completed": nil,
		}},
		"the end of one": {&controlv1.FollowStageLogsRequest{NoFollow: true, AfterIndex: map[string]int64{sync: 2, "unknown": 7}}, map[string][]string{
			sync + " completed": nil, back: {"0 back"},
		}},
		"one stage that runs":   {&controlv1.FollowStageLogsRequest{NoFollow: true, StageId: back}, map[string][]string{back: {"0 back"}}},
		"one that has ended":    {&controlv1.FollowStageLogsRequest{StageId: sync, AfterIndex: map[string]int64{sync: 1}}, map[string][]string{sync: {"2 three"}, sync + " completed": nil}},
		"before the first line": {&controlv1.FollowStageLogsRequest{StageId: sync, AfterIndex: map[string]int64{sync: -1}}, map[string][]string{sync: {"0 one", "1 two", "2 three"}, sync + " completed": nil}},
	} {
		t.Run(name, func(t *testing.T) {
			tc.req.DeploymentId = "d"
			stream, err := client.FollowStageLogs(ctx, tc.req)
			if err != nil {
				t.Fatal(err)
			}
			got, err := readLogs(stream)
			if diff := cmp.Diff(tc.want, got); err != nil || diff != "" {
				t.Errorf("%v, logs (-want +got):\n%s", err, diff)
			}
		})
	}
}

// TestFollowStageLogsOfAnySize: a large log is sent in several responses, complete and in
// order, also with invalid UTF-8.
func TestFollowStageLogsOfAnySize(t *testing.T) {
	ctx, client, agent := streaming(t)
	agent.Deployment("d", agent.Application("web", nil), "")
	agent.Move("d", deploy.Running, "")
	const count = 80
	lines := make([]string, count)
	for i := range lines {
		lines[i] = fmt.Sprintf("%d \xff", i) + strings.Repeat("x", 100<<10)
	}
	agent.Log("d", controltest.SyncStage, lines...)
	agent.Move("d", deploy.Success, "done")
	stream, err := client.FollowStageLogs(ctx, &controlv1.FollowStageLogsRequest{DeploymentId: "d"})
	if err != nil {
		t.Fatal(err)
	}
	got, err := readLogs(stream)
	if err != nil {
		t.Fatal(err)
	}
	if n := len(got[controltest.SyncStage]); n != count {
		t.Fatalf("%d of %d lines came", n, count)
	}
	for i, line := range got[controltest.SyncStage] {
		if want := fmt.Sprintf("%d %d \uFFFDx", i, i); !strings.HasPrefix(line, want) {
			t.Fatalf("line %d is %.20q, want %q", i, line, want)
		}
	}
}

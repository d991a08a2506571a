package control_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/c785c783/piped/piped/control/controltest"
	"github.com/c785c783/piped/piped/deploy"
	controlv1 "github.com/c785c783/piped/proto/piped/control/v1"
)

// podLog are three lines of a container that ends.
func podLog(at time.Time) []deploy.PodLog {
	return []deploy.PodLog{
		{Cluster: "dev", Pod: named("Pod", "web-1").Object, UID: "u", Container: "app"},
		{Lines: []deploy.PodLogLine{{At: at, Text: "one"}, {At: at.Add(time.Nanosecond), Text: "two", Truncated: true}}},
		{Lines: []deploy.PodLogLine{{Text: "three\xff"}}},
		{End: "container app ended with exit code 1 (Error)"},
	}
}

func TestFollowPodLogs(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 123_456_789, time.UTC)
	o := &objects{log: podLog(at)}
	agent, client := withObjects(t, o)
	var got []string
	stream, err := client.FollowPodLogs(as(t, agent.ReadOnly), &controlv1.FollowPodLogsRequest{ApplicationId: "app-web", Pod: "web-1", Follow: true})
	if err != nil {
		t.Fatal(err)
	}
	for {
		m, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if m.Pod != nil {
			got = append(got, fmt.Sprint(m.Pod.Cluster, " ", m.Pod.Namespace, "/", m.Pod.Name, " ", m.Pod.Uid, " ", m.Container))
		}
		for _, l := range m.Lines {
			got = append(got, fmt.Sprint(l.AtMs, " ", l.Text, " ", l.Truncated))
		}
		got = append(got, "cursor "+m.Cursor, m.EndReason)
	}
	want := []string{
		"dev shop/web-1 u app", "cursor ", "",
		fmt.Sprint(at.UnixMilli(), " one false"), fmt.Sprint(at.UnixMilli(), " two true"), "cursor 2026-01-02T03:04:05.12345679Z", "",
		"0 three\uFFFD false", "cursor 2026-01-02T03:04:05.12345679Z", "",
		"cursor 2026-01-02T03:04:05.12345679Z", "container app ended with exit code 1 (Error)",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// TestPodLogQuery: a log without a beginning is limited to the last lines, and one that resumes
// is not.
func TestPodLogQuery(t *testing.T) {
	o := &objects{}
	agent, client := withObjects(t, o)
	namespace, core := "shop", ""
	after := time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC)
	for _, c := range []struct {
		req  *controlv1.FollowPodLogsRequest
		want deploy.PodLogQuery
	}{
		{&controlv1.FollowPodLogsRequest{}, deploy.PodLogQuery{Tail: 1000}},
		{&controlv1.FollowPodLogsRequest{TailLines: 5, Previous: true}, deploy.PodLogQuery{Tail: 5, Previous: true}},
		{&controlv1.FollowPodLogsRequest{SinceMs: 1000, Container: "app"}, deploy.PodLogQuery{Since: time.Unix(1, 0), Container: "app"}},
		{&controlv1.FollowPodLogsRequest{After: after.Format(time.RFC3339Nano), Follow: true}, deploy.PodLogQuery{After: after, Follow: true}},
		{&controlv1.FollowPodLogsRequest{Namespace: "shop", Cluster: "dev", TailLines: 1}, deploy.PodLogQuery{Tail: 1, Pod: deploy.ObjectSelector{Cluster: "dev", Namespace: &namespace}}},
	} {
		c.req.ApplicationId, c.req.Pod = "app-web", "web-1"
		c.want.Pod.Kind, c.want.Pod.Name, c.want.Pod.Group = "Pod", "web-1", &core
		stream, err := client.FollowPodLogs(as(t, agent.ReadOnly), c.req)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := stream.Recv(); !errors.Is(err, io.EOF) {
			t.Fatal(err)
		}
		if diff := cmp.Diff(c.want, o.asked[len(o.asked)-1]); diff != "" {
			t.Errorf("of %v (-want +got):\n%s", c.req, diff)
		}
	}
}

// TestLargePodLog: lines that arrive together are divided over messages that a client can read.
func TestLargePodLog(t *testing.T) {
	line := deploy.PodLogLine{Text: strings.Repeat("x", 16<<10)}
	var lines []deploy.PodLogLine
	for range 200 {
		lines = append(lines, line)
	}
	agent, client := withObjects(t, &objects{log: []deploy.PodLog{{Lines: lines}}})
	stream, err := client.FollowPodLogs(as(t, agent.ReadOnly), &controlv1.FollowPodLogsRequest{ApplicationId: "app-web", Pod: "web-1"})
	if err != nil {
		t.Fatal(err)
	}
	count := 0
	for {
		m, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if size := proto.Size(m); size > 2<<20 {
			t.Errorf("a message has %d bytes", size)
		}
		count += len(m.Lines)
	}
	if count != 200 {
		t.Errorf("%d lines of 200", count)
	}
}

// TestPodLogEndsWithTheApplication: a log without new lines ends when its application is deleted,
// or when the caller may no longer view it.
func TestPodLogEndsWithTheApplication(t *testing.T) {
	for name, end := range map[string]func(*controltest.Agent, deploy.Application) error{
		"deleted": func(agent *controltest.Agent, app deploy.Application) error {
			return agent.Store.DeleteApplication(t.Context(), app.ID)
		},
		"hidden": func(agent *controltest.Agent, app deploy.Application) error {
			app.Labels = map[string]string{"team": "money"}
			_, err := agent.Store.PutApplication(t.Context(), app)
			return err
		},
	} {
		t.Run(name, func(t *testing.T) { podLogEndsAfter(t, end) })
	}
}

func podLogEndsAfter(t *testing.T, change func(*controltest.Agent, deploy.Application) error) {
	o := &objects{log: podLog(time.Now())[:2], hold: true}
	agent, client := withObjects(t, o)
	key := agent.LimitedKey("viewer", &deploy.Selector{Labels: map[string]string{"team": "shop"}})
	ctx, end := context.WithTimeout(as(t, key), 3*time.Minute)
	defer end()
	stream, err := client.FollowPodLogs(ctx, &controlv1.FollowPodLogsRequest{ApplicationId: "app-web", Pod: "web-1", Follow: true})
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if _, err := stream.Recv(); err != nil {
			t.Fatal(err)
		}
	}
	app, err := agent.Store.Application(t.Context(), "app-web")
	if err != nil {
		t.Fatal(err)
	}
	if err := change(agent, app); err != nil {
		t.Fatal(err)
	}
	if m, err := stream.Recv(); status.Code(err) != codes.NotFound {
		t.Errorf("afterwards: %v, %v", m, err)
	}
}

// TestOpenPodLogsAreLimited: each caller can read 20 logs at once.
func TestOpenPodLogsAreLimited(t *testing.T) {
	o := &objects{log: podLog(time.Now())[:1], hold: true}
	agent, client := withObjects(t, o)
	open := func(ctx context.Context) (grpc.ServerStreamingClient[controlv1.FollowPodLogsResponse], error) {
		stream, err := client.FollowPodLogs(ctx, &controlv1.FollowPodLogsRequest{ApplicationId: "app-web", Pod: "web-1", Follow: true})
		if err == nil {
			_, err = stream.Recv()
		}
		return stream, err
	}
	first, end := context.WithCancel(as(t, agent.ReadOnly))
	for i := range 20 {
		ctx := as(t, agent.ReadOnly)
		if i == 0 {
			ctx = first
		}
		if _, err := open(ctx); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := open(as(t, agent.ReadOnly)); status.Code(err) != codes.ResourceExhausted {
		t.Errorf("the 21st log: %v", err)
	}
	if _, err := open(as(t, agent.ReadWrite)); err != nil {
		t.Errorf("a log of another caller: %v", err)
	}
	end()
	for deadline := time.Now().Add(10 * time.Minute); ; time.Sleep(10 * time.Millisecond) {
		_, err := open(as(t, agent.ReadOnly))
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("after one has ended: %v", err)
		}
	}
}

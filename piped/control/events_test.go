package control_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/c785c783/piped/piped/control/controltest"
	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/proto/pipecd/apiservice"
	controlv1 "github.com/c785c783/piped/proto/piped/control/v1"
	modelv1 "github.com/c785c783/piped/proto/piped/model/v1"
)

func TestRegisterEvent(t *testing.T) {
	ctx, client, agent := api(t)
	resp, err := client.RegisterEvent(ctx, &apiservice.RegisterEventRequest{
		Name: "image", Data: "v2", Labels: map[string]string{"app": "web"}, Contexts: map[string]string{"Build-Number": "7"},
		CommitHash: "c0ffee", CommitUrl: "https://example.com/c0ffee", CommitTitle: "title", CommitMessage: "message", CommitAuthor: "ada", CommitTimestamp: 7,
	})
	if err != nil {
		t.Fatal(err)
	}
	got, err := agent.Store.RegisteredEvent(ctx, resp.EventId)
	if err != nil {
		t.Fatal(err)
	}
	want := deploy.RegisteredEvent{
		ID: resp.EventId, Name: "image", Data: "v2", Labels: map[string]string{"app": "web"}, Contexts: map[string]string{"Build-Number": "7"},
		Key: deploy.EventKey("image", map[string]string{"app": "web"}), Status: deploy.EventOpen, CreatedAt: got.CreatedAt, UpdatedAt: got.UpdatedAt,
		Trigger: deploy.TriggerCommit{Hash: "c0ffee", URL: "https://example.com/c0ffee", Title: "title", Message: "message", Author: "ada", At: time.Unix(7, 0).UTC()},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("stored (-want +got):\n%s", diff)
	}
	if resp, err = client.RegisterEvent(ctx, &apiservice.RegisterEventRequest{Name: "image", Data: "v2", CommitHash: "c0ffee"}); err != nil {
		t.Fatal(err)
	}
	if got, err = agent.Store.RegisteredEvent(ctx, resp.EventId); err != nil || got.Trigger != (deploy.TriggerCommit{}) {
		t.Errorf("a commit without its page counts: %+v, %v", got.Trigger, err)
	}
	for name, c := range map[string]struct {
		req  *apiservice.RegisterEventRequest
		says string
	}{
		"no name":               {&apiservice.RegisterEventRequest{Data: "d"}, "RegisterEventRequest.Name: value length must be at least 1 runes"},
		"too large":             {&apiservice.RegisterEventRequest{Name: "n", Data: strings.Repeat("d", 1<<20)}, "RegisterEventRequest: the event has 1048583 bytes, and may have 1048576"},
		"no data":               {&apiservice.RegisterEventRequest{Name: "n"}, "RegisterEventRequest.Data: value length must be at least 1 runes"},
		"label without key":     {&apiservice.RegisterEventRequest{Name: "n", Data: "d", Labels: map[string]string{"": "v"}}, "RegisterEventRequest.Labels[]: value length"},
		"label without value":   {&apiservice.RegisterEventRequest{Name: "n", Data: "d", Labels: map[string]string{"k": ""}}, "RegisterEventRequest.Labels[k]: value length"},
		"context without value": {&apiservice.RegisterEventRequest{Name: "n", Data: "d", Contexts: map[string]string{"k": ""}}, "RegisterEventRequest.Contexts[k]: value length"},
		"context that is no trailer": {
			&apiservice.RegisterEventRequest{Name: "n", Data: "d", Contexts: map[string]string{"a_b": "v"}},
			`RegisterEventRequest.Contexts[a_b]: value does not match regex pattern "^[a-zA-Z0-9]+(-[a-zA-Z0-9]+)*$"`,
		},
	} {
		_, err := client.RegisterEvent(ctx, c.req)
		if status.Code(err) != codes.InvalidArgument || !strings.Contains(status.Convert(err).Message(), "invalid request: invalid "+c.says) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := client.RegisterEvent(as(t, agent.ReadOnly), &apiservice.RegisterEventRequest{Name: "n", Data: "d"}); status.Code(err) != codes.PermissionDenied {
		t.Errorf("with a key that only reads: %v", err)
	}
}

func TestListEvents(t *testing.T) {
	agent := controltest.Start(t, t.TempDir())
	client, ctx := controlv1.NewControlServiceClient(dial(t, agent.Server.Addr())), as(t, agent.ReadOnly)
	for _, e := range []deploy.RegisteredEvent{
		{ID: "e1", Name: "image", Data: "v1", Labels: map[string]string{"app": "web", "env": "prod"}}, {ID: "e2", Name: "chart", Data: "1"},
		{ID: "e3", Name: "image", Data: "v2", Labels: map[string]string{"app": "web"}},
	} {
		if _, err := agent.Store.RegisterEvent(t.Context(), e); err != nil {
			t.Fatal(err)
		}
		agent.Tick(time.Second)
	}
	if err := agent.Store.SaveEventHandling(t.Context(), "e1", deploy.EventHandling{RepoID: "r", Status: deploy.EventHandled, Commit: "c0ffee", PullRequestURL: "https://example.com/1"}); err != nil {
		t.Fatal(err)
	}
	if err := agent.Store.FinishEvent(t.Context(), "e1", deploy.EventHandled, "committed"); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		req  *controlv1.ListEventsRequest
		want string
	}{
		"all, the newest first": {&controlv1.ListEventsRequest{}, "e3 e2 e1"},
		"by name":               {&controlv1.ListEventsRequest{Name: "chart"}, "e2"},
		"by labels":             {&controlv1.ListEventsRequest{Labels: map[string]string{"app": "web"}}, "e3 e1"},
		"by status":             {&controlv1.ListEventsRequest{Statuses: []modelv1.EventStatus{modelv1.EventStatus_EVENT_SUCCESS, modelv1.EventStatus_EVENT_FAILURE}}, "e1"},
		"limited":               {&controlv1.ListEventsRequest{Limit: 1}, "e3"},
	} {
		resp, err := client.ListEvents(ctx, c.req)
		var ids []string
		for _, e := range resp.GetEvents() {
			ids = append(ids, e.Id)
		}
		if got := strings.Join(ids, " "); err != nil || got != c.want {
			t.Errorf("%s: %s, %v, want %s", name, got, err, c.want)
		}
	}
	page, err := client.ListEvents(ctx, &controlv1.ListEventsRequest{Limit: 2})
	if err != nil {
		t.Fatal(err)
	}
	rest, err := client.ListEvents(ctx, &controlv1.ListEventsRequest{Limit: 2, Cursor: page.Cursor})
	if err != nil || len(rest.Events) != 1 || rest.Events[0].PushedCommit != "c0ffee" || rest.Events[0].PullRequestUrl == "" || rest.Events[0].StatusDescription != "committed" {
		t.Errorf("second page: %v, %v", rest, err)
	}
	for name, req := range map[string]*controlv1.ListEventsRequest{
		"status":         {Statuses: []modelv1.EventStatus{9}},
		"cursor":         {Cursor: "?"},
		"negative limit": {Limit: -1},
	} {
		if _, err := client.ListEvents(ctx, req); status.Code(err) != codes.InvalidArgument {
			t.Errorf("%s: %v", name, err)
		}
	}
}

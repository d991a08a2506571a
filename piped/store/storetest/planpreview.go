package storetest

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/store"
)

func testPlanPreviews(t *testing.T, e *env) {
	ctx := t.Context()
	asked := &deploy.PlanPreviewRequest{RepoID: "repo", HeadBranch: "pr", HeadCommit: "beef", BaseBranch: "main", Timeout: time.Minute}
	for _, id := range []string{"good", "bad"} {
		if _, err := e.store.CreateCommand(ctx, deploy.Command{ID: id, Type: deploy.CommandBuildPlanPreview, PlanPreview: asked}); err != nil {
			t.Fatal(err)
		}
	}
	open, err := e.store.OpenCommands(ctx, deploy.CommandBuildPlanPreview)
	if err != nil || len(open) != 2 {
		t.Fatalf("open: %v, %v", open, err)
	}
	if diff := cmp.Diff(asked, open[0].PlanPreview); diff != "" {
		t.Errorf("what is asked (-want +got):\n%s", diff)
	}
	_, err = e.store.PlanPreview(ctx, "good")
	wantKind(t, err, deploy.NotFound, "good")

	at := e.clock.now().UTC().Truncate(time.Millisecond)
	good := deploy.PlanPreview{CommandID: "good", At: at, Results: []deploy.ApplicationPreview{
		{ApplicationID: "app-web", Name: "web", Kind: deploy.KindKubernetes, Dir: "apps/web", Labels: map[string]string{"a": "b"}, HeadBranch: "pr", HeadCommit: "beef",
			Strategy: deploy.StrategyPipeline, Summary: "1 added", Details: "+ \x1b ünï", At: at},
		{ApplicationID: "app-db", Error: "why", NoChange: true, At: at},
	}}
	bad := deploy.PlanPreview{CommandID: "bad", Error: "conflicts", At: at.Add(time.Hour)}
	for _, c := range []struct {
		preview deploy.PlanPreview
		status  deploy.CommandStatus
		want    map[string]string
	}{
		{good, deploy.CommandSucceeded, nil},
		{bad, deploy.CommandFailed, map[string]string{deploy.MetaReason: "conflicts"}},
	} {
		if err := e.store.AnswerPlanPreview(ctx, c.preview, c.status); err != nil {
			t.Fatal(err)
		}
		got, err := e.store.PlanPreview(ctx, c.preview.CommandID)
		if diff := cmp.Diff(c.preview, got); diff != "" || err != nil {
			t.Errorf("%v, stored (-want +got):\n%s", err, diff)
		}
		command, err := e.store.Command(ctx, c.preview.CommandID)
		if err != nil || command.Status != c.status || len(command.Metadata) != len(c.want) || command.Metadata[deploy.MetaReason] != c.want[deploy.MetaReason] {
			t.Errorf("the command: %+v, %v", command, err)
		}
	}
	wantKind(t, e.store.AnswerPlanPreview(ctx, bad, deploy.CommandFailed), deploy.Conflict, "answered before")
	wantKind(t, e.store.AnswerPlanPreview(ctx, deploy.PlanPreview{CommandID: "nobody"}, deploy.CommandFailed), deploy.NotFound, "nobody")

	events, err := e.store.Events(ctx, 0, 0)
	if err != nil || len(events) != 0 {
		t.Errorf("an event without a pull request: %v, %v", events, err)
	}
	asked.PullRequest = 7
	if _, err := e.store.CreateCommand(ctx, deploy.Command{ID: "reported", Type: deploy.CommandBuildPlanPreview, PlanPreview: asked}); err != nil {
		t.Fatal(err)
	}
	if err := e.store.AnswerPlanPreview(ctx, deploy.PlanPreview{CommandID: "reported", At: at}, deploy.CommandSucceeded); err != nil {
		t.Fatal(err)
	}
	event, err := deploy.PlanPreviewAnswered("reported", *asked, at)
	if err != nil {
		t.Fatal(err)
	}
	events, err = e.store.Events(ctx, 0, 0)
	if diff := cmp.Diff([]deploy.Event{event}, events, cmpopts.IgnoreFields(deploy.Event{}, "Seq")); err != nil || diff != "" {
		t.Errorf("%v, events (-want +got):\n%s", err, diff)
	}

	testPlanPreviewList(t, e, nil, "reported bad good")
	testPlanPreviewList(t, e, &deploy.Requester{}, "reported bad good")
	testPlanPreviewList(t, e, &deploy.Requester{Account: "key-1", Subject: "ann"}, "")
	testPlanPreviewRequesters(t, e)
	if err := e.store.RemovePlanPreviews(ctx, at.Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	testPlanPreviewList(t, e, &deploy.Requester{}, "bad")
	_, err = e.store.PlanPreview(ctx, "good")
	wantKind(t, err, deploy.NotFound, "good")
	if _, err := e.store.PlanPreview(ctx, "bad"); err != nil {
		t.Error(err)
	}
}

// testPlanPreviewRequesters lists the plan previews of a key, of a user with its subject, and of
// another user, next to one that an earlier version stored without an account.
func testPlanPreviewRequesters(t *testing.T, e *env) {
	t.Helper()
	key, user, other := deploy.Requester{Account: "key-1", Subject: "ann"}, deploy.Requester{Account: "corp/ann", Subject: "ann"}, deploy.Requester{Account: "corp/ben", Subject: "ben"}
	for _, c := range []deploy.Command{
		{ID: "of-earlier", Commander: "ann"},
		{ID: "of-key", Commander: "ann", Account: key.Account},
		{ID: "of-user", Commander: "ann", Account: user.Account},
	} {
		c.Type, c.PlanPreview = deploy.CommandBuildPlanPreview, &deploy.PlanPreviewRequest{RepoID: "repo", HeadBranch: "pr"}
		if _, err := e.store.CreateCommand(t.Context(), c); err != nil {
			t.Fatal(err)
		}
		got, err := e.store.Command(t.Context(), c.ID)
		if err != nil || got.Account != c.Account {
			t.Errorf("stored for account %q: %+v, %v", c.Account, got, err)
		}
		if key.Requested(got) != (c.ID != "of-user") || user.Requested(got) != (c.ID != "of-key") || other.Requested(got) {
			t.Errorf("%s is requested by the key: %t, the user: %t, another: %t", c.ID, key.Requested(got), user.Requested(got), other.Requested(got))
		}
		if err := e.store.AnswerPlanPreview(t.Context(), deploy.PlanPreview{CommandID: c.ID}, deploy.CommandSucceeded); err != nil {
			t.Fatal(err)
		}
	}
	testPlanPreviewList(t, e, &key, "of-key of-earlier")
	testPlanPreviewList(t, e, &user, "of-user of-earlier")
	testPlanPreviewList(t, e, &other, "")
	testPlanPreviewList(t, e, &deploy.Requester{}, "reported bad good")
}

// testPlanPreviewList lists the plan previews of a requester page by page.
func testPlanPreviewList(t *testing.T, e *env, requester *deploy.Requester, want string) {
	t.Helper()
	var ids []string
	q := store.PlanPreviewQuery{RepoID: "repo", HeadBranch: "pr", Requester: requester, Limit: 1}
	for {
		list, cursor, err := e.store.PlanPreviews(t.Context(), q)
		if err != nil {
			t.Fatal(err)
		}
		for _, b := range list {
			ids = append(ids, b.CommandID)
			if b.CommandID == "good" && (len(b.Outlines) != 2 || b.Outlines[0].Failed || !b.Outlines[1].Failed || !b.Outlines[1].NoChange || b.Outlines[0].Labels["a"] != "b") {
				t.Errorf("outlines: %+v", b.Outlines)
			}
		}
		if q.Cursor = cursor; cursor == "" {
			break
		}
	}
	if got := strings.Join(ids, " "); got != want {
		t.Errorf("plan previews of %v: %s, want %s", requester, got, want)
	}
	for _, id := range ids {
		if list, _, err := e.store.PlanPreviews(t.Context(), store.PlanPreviewQuery{CommandIDs: []string{id, "unknown"}}); err != nil || len(list) != 1 || list[0].CommandID != id {
			t.Errorf("the plan preview of command %s: %v, %v", id, list, err)
		}
	}
}

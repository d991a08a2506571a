package storetest

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/c785c783/piped/piped/deploy"
)

// testPullPreviews stores previews of pull requests and what users decide about them.
func testPullPreviews(t *testing.T, e *env) {
	ctx, s := t.Context(), e.store
	watch := s.Watch(deploy.TopicPullPreview)
	defer watch.Close()
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	first := deploy.PullPreview{
		RepoID: "apps", Number: 12, Head: "c1", Branch: "more", Base: "main", Phase: deploy.PreviewFailed, Reason: "its pods crash", Since: at, CreatedAt: at, HeadAt: at,
		Applications: []deploy.PullPreviewApplication{{
			ID: "a1", Name: "web-pr-12", Git: deploy.GitPath{RepoID: "apps", Dir: "web", PullRequest: 12}, Labels: map[string]string{"team": "shop"},
			Phase: deploy.PreviewFailed, Reason: "its pods crash", DeploymentID: "d1", Host: "pr-12.example.com", Log: []string{"panic", "exit"},
		}},
	}
	other := deploy.PullPreview{RepoID: "tools", Number: 12, Head: "c9", Phase: deploy.PreviewWaiting}
	expect := func(what, repoID string, number int, want ...deploy.PullPreview) {
		t.Helper()
		got, err := s.PullPreviews(ctx, repoID, number)
		if diff := cmp.Diff(want, got); diff != "" || err != nil {
			t.Errorf("%s: %v (-want +got):\n%s", what, err, diff)
		}
	}
	must(t, s.PutPullPreview(ctx, other))
	must(t, s.PutPullPreview(ctx, first))
	expect("all", "", 0, first, other)
	expect("of a repository", "tools", 0, other)
	expect("of a pull request", "apps", 12, first)
	expect("of one without", "apps", 13)

	until := at.Add(time.Hour)
	if err := s.ExtendPullPreview(ctx, "apps", 12, "c0", until); !deploy.IsKind(err, deploy.Conflict) {
		t.Errorf("extended for another head: %v", err)
	}
	if err := s.DismissPullPreview(ctx, "apps", 13, "c1", "ann"); !deploy.IsKind(err, deploy.NotFound) {
		t.Errorf("removed one that does not exist: %v", err)
	}
	must(t, s.ExtendPullPreview(ctx, "apps", 12, "c1", until))
	first.Phase, first.Reason = deploy.PreviewReady, ""
	must(t, s.PutPullPreview(ctx, first)) // as the agent that has not read the decision
	first.ExtendedUntil = until
	expect("extended", "apps", 12, first)
	must(t, s.DismissPullPreview(ctx, "apps", 12, "c1", "ann"))
	first.ExtendedUntil, first.Dismissed, first.DismissedBy = time.Time{}, "c1", "ann"
	expect("dismissed", "apps", 12, first)

	first.Ended = true
	must(t, s.PutPullPreview(ctx, first))
	if got, err := s.PullPreviews(ctx, "apps", 12); err != nil || len(got) > 0 {
		t.Errorf("one that has ended is listed: %v, %v", got, err)
	}
	if got, err := s.RetainedPullPreviews(ctx, "apps", 12); err != nil || !cmp.Equal(got, []deploy.PullPreview{first}) {
		t.Errorf("retained: %v, %v, want %v", got, err, first)
	}
	watch.Take()
	must(t, s.DropPullPreview(ctx, "apps", 12))
	must(t, s.DropPullPreview(ctx, "apps", 12))
	expect("after the end", "", 0, other)
	if diff := cmp.Diff([]deploy.Change{{Topic: deploy.TopicPullPreview, ID: "apps#12"}}, watch.Take()); diff != "" {
		t.Errorf("announced (-want +got):\n%s", diff)
	}
}

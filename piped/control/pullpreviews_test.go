package control_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/c785c783/piped/piped/control"
	"github.com/c785c783/piped/piped/control/controltest"
	"github.com/c785c783/piped/piped/deploy"
	controlv1 "github.com/c785c783/piped/proto/piped/control/v1"
)

// previewed stores the preview of pull request 7 of a repository with applications of teams.
func previewed(t *testing.T, agent *controltest.Agent, repoID string, phase deploy.PullPreviewPhase, teams ...string) {
	t.Helper()
	p := deploy.PullPreview{RepoID: repoID, Number: 7, Head: "c1", Branch: "more", Base: "main", Phase: phase, Reason: "web-pr-7: crashes", ExpiresAt: agent.Now().Add(time.Hour)}
	for _, team := range teams {
		app := agent.Application(team+"-"+repoID+"-pr-7", map[string]string{"team": team})
		p.Applications = append(p.Applications, deploy.PullPreviewApplication{
			ID: app.ID, Name: app.Name, Git: app.Git, Labels: app.Labels, Phase: phase, Host: team + ".example.com", Header: "X-Preview: pr-7-" + repoID, Log: []string{"panic of " + team, "exit"},
		})
	}
	if err := agent.Store.PutPullPreview(t.Context(), p); err != nil {
		t.Fatal(err)
	}
}

// writtenPods has a pod of each application, whose log names it.
type writtenPods struct{}

func (writtenPods) LastPodLines(_ context.Context, app deploy.Application, lines int) ([]deploy.PodLines, error) {
	return []deploy.PodLines{{Pod: "pod-of-" + app.Name, Container: "main", Lines: []string{fmt.Sprint("up to ", lines)}}}, nil
}

// TestPreviewsOfTeams: a caller sees the previews that have one of its applications, of those only
// these, and removes only a preview of which it may delete every application.
func TestPreviewsOfTeams(t *testing.T) {
	agent := controltest.Start(t, t.TempDir(), func(c *control.Config) { c.PodLines = writtenPods{} })
	client := controlv1.NewControlServiceClient(dial(t, agent.Server.Addr()))
	previewed(t, agent, "both", deploy.PreviewReady, "shop", "search")
	previewed(t, agent, "shop", deploy.PreviewFailed, "shop")
	previewed(t, agent, "none", deploy.PreviewWaiting)
	shop, all := agent.LimitedKey("admin", &deploy.Selector{Labels: map[string]string{"team": "shop"}}), agent.LimitedKey("admin", nil)
	viewer := agent.LimitedKey("viewer", nil)
	list := func(key string, phases ...controlv1.PreviewPhase) (out []string) {
		t.Helper()
		resp, err := client.ListPreviews(as(t, key), &controlv1.ListPreviewsRequest{Phases: phases})
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range resp.Previews {
			line := []string{p.RepositoryId, p.Phase.String()[len("PREVIEW_PHASE_"):], p.Reason}
			for _, a := range p.Applications {
				line = append(line, strings.TrimSpace(a.ApplicationName+" "+a.Url+" "+a.Header))
			}
			out = append(out, strings.Join(line, "|"))
		}
		return out
	}
	want := []string{"both|READY||shop-both-pr-7 https://shop.example.com X-Preview: pr-7-both", "shop|FAILED|web-pr-7: crashes|shop-shop-pr-7"}
	if diff := cmp.Diff(want, list(shop)); diff != "" {
		t.Errorf("listed to one team (-want +got):\n%s", diff)
	}
	want = []string{
		"both|READY|web-pr-7: crashes|shop-both-pr-7 https://shop.example.com X-Preview: pr-7-both|search-both-pr-7 https://search.example.com X-Preview: pr-7-both", "none|WAITING|web-pr-7: crashes",
		"shop|FAILED|web-pr-7: crashes|shop-shop-pr-7",
	}
	if diff := cmp.Diff(want, list(all)); diff != "" {
		t.Errorf("listed to all (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(want[2:], list(all, controlv1.PreviewPhase_PREVIEW_PHASE_FAILED)); diff != "" {
		t.Errorf("listed by state (-want +got):\n%s", diff)
	}

	logs, err := client.GetPreviewLogs(as(t, shop), &controlv1.GetPreviewLogsRequest{RepositoryId: "both", PullRequest: 7, TailLines: 1})
	if err != nil || len(logs.Logs) != 2 || logs.Logs[0].Lines[0] != "exit" || logs.Logs[1].Pod != "pod-of-shop-both-pr-7" || logs.Logs[1].Lines[0] != "up to 1" {
		t.Errorf("logs: %v, %v", logs, err)
	}

	later := agent.Now().Add(2 * time.Hour).UnixMilli()
	for name, tc := range map[string]struct {
		key, repo, head string
		until           int64 // 0: delete
		want            codes.Code
	}{
		"of another team, too":           {shop, "both", "c1", 0, codes.PermissionDenied},
		"extended of another team, too":  {shop, "both", "c1", later, codes.PermissionDenied},
		"without the permission":         {viewer, "shop", "c1", 0, codes.PermissionDenied},
		"without applications":           {shop, "none", "c1", 0, codes.NotFound},
		"not there":                      {all, "gone", "c1", 0, codes.NotFound},
		"of another head":                {all, "both", "c0", 0, codes.Aborted},
		"extended into the past":         {all, "both", "c1", agent.Now().UnixMilli(), codes.InvalidArgument},
		"extended for more than 30 days": {all, "both", "c1", agent.Now().Add(31 * 24 * time.Hour).UnixMilli(), codes.InvalidArgument},
	} {
		if got := status.Code(decide(t, client, tc.key, tc.repo, tc.head, tc.until)); got != tc.want {
			t.Errorf("%s: %s, want %s", name, got, tc.want)
		}
	}
	if got := kept(t, agent, "both"); got.Dismissed != "" || !got.ExtendedUntil.IsZero() {
		t.Errorf("what was refused is stored: %+v", got)
	}
	if err := decide(t, client, shop, "shop", "c1", later); err != nil || kept(t, agent, "shop").ExtendedUntil.UnixMilli() != later {
		t.Errorf("extended: %v", err)
	}
	if err := decide(t, client, shop, "shop", "c1", 0); err != nil || kept(t, agent, "shop").Dismissed != "c1" {
		t.Errorf("removed: %v", err)
	}
	if err := decide(t, client, shop, "shop", "c1", later); status.Code(err) != codes.FailedPrecondition {
		t.Errorf("extended after it was removed: %v", err)
	}
}

// decide extends a preview, or removes it without a time.
func decide(t *testing.T, client controlv1.ControlServiceClient, key, repo, head string, until int64) error {
	t.Helper()
	var err error
	if until == 0 {
		_, err = client.DeletePreview(as(t, key), &controlv1.DeletePreviewRequest{RepositoryId: repo, PullRequest: 7, HeadCommit: head})
	} else {
		_, err = client.ExtendPreview(as(t, key), &controlv1.ExtendPreviewRequest{RepositoryId: repo, PullRequest: 7, HeadCommit: head, UntilMs: until})
	}
	return err
}

// kept returns the stored preview of a repository.
func kept(t *testing.T, agent *controltest.Agent, repo string) deploy.PullPreview {
	t.Helper()
	list, err := agent.Store.PullPreviews(t.Context(), repo, 7)
	if err != nil || len(list) != 1 {
		t.Fatal(list, err)
	}
	return list[0]
}

package control_test

import (
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/c785c783/piped/piped/control/controltest"
	"github.com/c785c783/piped/piped/deploy"
	controlv1 "github.com/c785c783/piped/proto/piped/control/v1"
)

func TestListCandidates(t *testing.T) {
	agent := controltest.Start(t, t.TempDir())
	for repo, c := range map[string]deploy.Candidate{
		"apps":  {Name: "web", Kind: "KubernetesApp", State: deploy.CandidateUnregistered, Reason: "nothing selects it"},
		"gone":  {Name: "old", Kind: "KubernetesApp", State: deploy.CandidateDeleted, Reason: "add it again"},
		"infra": {Name: "net", Kind: "TerraformApp", State: deploy.CandidateUnsupported, Reason: "of another kind"},
	} {
		c.Git = deploy.GitPath{RepoID: repo, Dir: c.Name, ConfigFile: "app.pipecd.yaml"}
		if _, err := agent.Store.SetCandidates(t.Context(), repo, []deploy.Candidate{c}); err != nil {
			t.Fatal(err)
		}
	}
	client := controlv1.NewControlServiceClient(dial(t, agent.Server.Addr()))
	for name, c := range map[string]struct {
		req  *controlv1.ListCandidatesRequest
		want []string
	}{
		"all":             {&controlv1.ListCandidatesRequest{}, []string{"web", "old", "net"}},
		"of a repository": {&controlv1.ListCandidatesRequest{RepositoryId: "infra"}, []string{"net"}},
		"deleted":         {&controlv1.ListCandidatesRequest{Reason: controlv1.CandidateReason_CANDIDATE_REASON_DELETED}, []string{"old"}},
		"for a reason":    {&controlv1.ListCandidatesRequest{Reason: controlv1.CandidateReason_CANDIDATE_REASON_UNREGISTERED}, []string{"web"}},
		"none":            {&controlv1.ListCandidatesRequest{RepositoryId: "apps", Reason: controlv1.CandidateReason_CANDIDATE_REASON_UNSUPPORTED}, nil},
	} {
		resp, err := client.ListCandidates(as(t, agent.ReadOnly), c.req)
		if err != nil || len(resp.Candidates) != len(c.want) {
			t.Errorf("%s: %v, %v; want %v", name, resp, err, c.want)
			continue
		}
		for i, want := range c.want {
			got := resp.Candidates[i]
			if got.Name != want || got.Detail == "" || got.Kind == "" || got.ApplicationId == "" || got.GitPath.GetPath() != want {
				t.Errorf("%s: candidate %d is %v, want %s", name, i, got, want)
			}
		}
	}
	_, err := client.ListCandidates(as(t, agent.ReadOnly), &controlv1.ListCandidatesRequest{Reason: 99})
	if status.Code(err) != codes.InvalidArgument {
		t.Errorf("an unknown reason: %v", err)
	}
}

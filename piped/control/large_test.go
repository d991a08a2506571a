package control_test

import (
	"fmt"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/c785c783/piped/piped/control/controltest"
	"github.com/c785c783/piped/piped/deploy"
	controlv1 "github.com/c785c783/piped/proto/piped/control/v1"
)

// TestListsWithoutPages: if a list exceeds the size of a response, the error says how to
// request less, and that request succeeds.
func TestListsWithoutPages(t *testing.T) {
	agent := controltest.Start(t, t.TempDir())
	client, ctx := controlv1.NewControlServiceClient(dial(t, agent.Server.Addr())), as(t, agent.ReadOnly)
	for _, repo := range []string{"one", "two", "three"} {
		var found []deploy.Candidate
		for i := range 6000 {
			git := deploy.GitPath{RepoID: repo, Dir: fmt.Sprintf("apps/%06d", i), ConfigFile: "app.pipecd.yaml"}
			found = append(found, deploy.Candidate{Git: git, Kind: "KubernetesApp", State: deploy.CandidateUnregistered, Reason: strings.Repeat("x", 150)})
		}
		if _, err := agent.Store.SetCandidates(t.Context(), repo, found); err != nil {
			t.Fatal(err)
		}
		app := agent.Application(repo, nil)
		objects := make([]deploy.AdoptedObject, 10_000)
		for i := range objects {
			objects[i].Object = deploy.ObjectRef{Version: "v1", Kind: "ConfigMap", Namespace: strings.Repeat("n", 63), Name: fmt.Sprintf("%063d", i)}
		}
		if _, err := agent.Store.SetAdoption(t.Context(), deploy.Adoption{ApplicationID: app.ID, Token: "t", Objects: objects}); err != nil {
			t.Fatal(err)
		}
	}
	for name, list := range map[string]func(of string) (int, error){
		"name a repository": func(repo string) (int, error) {
			resp, err := client.ListCandidates(ctx, &controlv1.ListCandidatesRequest{RepositoryId: repo})
			return len(resp.GetCandidates()), err
		},
		"name an application": func(app string) (int, error) {
			if app != "" {
				app = "app-" + app
			}
			resp, err := client.ListAdoptions(ctx, &controlv1.ListAdoptionsRequest{ApplicationId: app})
			return len(resp.GetAdoptions()), err
		},
	} {
		if n, err := list(""); status.Code(err) != codes.FailedPrecondition || !strings.Contains(status.Convert(err).Message(), name) {
			t.Errorf("all: %d, %v; want %q", n, err, name)
		}
		if n, err := list("two"); err != nil || n == 0 {
			t.Errorf("%s: %d, %v", name, n, err)
		}
	}
}

package control_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/c785c783/piped/piped/control/controltest"
	"github.com/c785c783/piped/piped/deploy"
	controlv1 "github.com/c785c783/piped/proto/piped/control/v1"
)

// TestResolve: IDs take precedence over names, paths and ID prefixes; a deployment is also
// found by its application.
func TestResolve(t *testing.T) {
	agent := controltest.Start(t, t.TempDir())
	web := agent.Application("web", nil)
	agent.Application("db", nil)
	for _, id := range []string{"0a11", "0a12"} { // two with the same name
		app := web
		app.ID, app.Name = id, "shop"
		app.Git.RepoID, app.Git.Dir = "infra", "shop-"+id
		if _, err := agent.Store.PutApplication(t.Context(), app); err != nil {
			t.Fatal(err)
		}
	}
	agent.Deployment("d1-old", web, "")
	agent.Move("d1-old", deploy.Success, "good")
	agent.Deployment("d2-new", web, "")
	client := controlv1.NewControlServiceClient(dial(t, agent.Server.Addr()))
	for name, c := range map[string]struct {
		req  *controlv1.ResolveRequest
		want []string
	}{
		"an ID":                             {&controlv1.ResolveRequest{Application: "app-web"}, []string{"app-web"}},
		"a name":                            {&controlv1.ResolveRequest{Application: "db"}, []string{"app-db"}},
		"a name of two":                     {&controlv1.ResolveRequest{Application: "shop"}, []string{"0a11", "0a12"}},
		"repository and path":               {&controlv1.ResolveRequest{Application: "infra/shop-0a12"}, []string{"0a12"}},
		"repository and file":               {&controlv1.ResolveRequest{Application: "infra/shop-0a12/app.pipecd.yaml"}, []string{"0a12"}},
		"the beginning of an ID":            {&controlv1.ResolveRequest{Application: "app-w"}, []string{"app-web"}},
		"the beginning of two":              {&controlv1.ResolveRequest{Application: "0a1"}, []string{"0a11", "0a12"}},
		"nothing":                           {&controlv1.ResolveRequest{Application: "none"}, nil},
		"a wildcard of SQL":                 {&controlv1.ResolveRequest{Deployment: "d%"}, nil},
		"a deployment":                      {&controlv1.ResolveRequest{Deployment: "d1-old"}, []string{"d1-old"}},
		"the beginning of a deployment":     {&controlv1.ResolveRequest{Deployment: "d2"}, []string{"d2-new"}},
		"the beginning of two deployments":  {&controlv1.ResolveRequest{Deployment: "d"}, []string{"d2-new", "d1-old"}},
		"the newest of an application":      {&controlv1.ResolveRequest{Deployment: "web"}, []string{"d2-new"}},
		"an application without deployment": {&controlv1.ResolveRequest{Deployment: "db"}, nil},
	} {
		resp, err := client.Resolve(as(t, agent.ReadOnly), c.req)
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		var got []string
		for _, m := range resp.GetMatches() {
			got = append(got, m.GetId())
		}
		if name == "a name of two" || name == "the beginning of two" {
			if len(got) == 2 && got[0] > got[1] {
				got[0], got[1] = got[1], got[0]
			}
		}
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
	for _, req := range []*controlv1.ResolveRequest{{}, {Application: "a", Deployment: "b"}} {
		if _, err := client.Resolve(as(t, agent.ReadOnly), req); status.Code(err) != codes.InvalidArgument {
			t.Errorf("%v: %v", req, err)
		}
	}
}

package control_test

import (
	"context"
	"encoding/base64"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/c785c783/piped/piped/control"
	"github.com/c785c783/piped/piped/control/controltest"
	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/proto/pipecd/apiservice"
	modelv1 "github.com/c785c783/piped/proto/piped/model/v1"
)

func placeOf(dir, file string) *modelv1.ApplicationGitPath {
	return &modelv1.ApplicationGitPath{Repo: &modelv1.ApplicationGitRepository{Id: "apps"}, Path: dir, ConfigFilename: file}
}

// TestAddApplication: the path is completed from the agent's configuration and determines the
// ID.
func TestAddApplication(t *testing.T) {
	ctx, client, agent := api(t)
	for name, tc := range map[string]struct {
		place *modelv1.ApplicationGitPath
		want  deploy.GitPath
	}{
		"a directory":       {placeOf("shop/web/", ""), deploy.GitPath{Dir: "shop/web", ConfigFile: "app.pipecd.yaml"}},
		"the root":          {placeOf("./", "root.pipecd.yaml"), deploy.GitPath{Dir: ".", ConfigFile: "root.pipecd.yaml"}},
		"another file name": {placeOf("shop/../db", "db.pipecd.yaml"), deploy.GitPath{Dir: "db", ConfigFile: "db.pipecd.yaml"}},
	} {
		t.Run(name, func(t *testing.T) {
			want := tc.want
			want.RepoID, want.Remote, want.Branch = "apps", "https://git.example.com/apps.git", "main"
			resp, err := client.AddApplication(ctx, &apiservice.AddApplicationRequest{
				Name: "web", PipedId: controltest.PipedID, GitPath: tc.place, Description: "the front", PlatformProvider: "prod", Labels: map[string]string{"team": "a"},
			})
			if err != nil || resp.ApplicationId != deploy.ApplicationID(want) {
				t.Fatalf("added as %s, %v", resp.GetApplicationId(), err)
			}
			got, err := agent.Store.Application(ctx, resp.ApplicationId)
			if err != nil {
				t.Fatal(err)
			}
			stored := deploy.Application{Name: got.Name, Kind: got.Kind, Git: got.Git, Provider: got.Provider, Description: got.Description, Labels: got.Labels, Registration: got.Registration}
			if diff := cmp.Diff(deploy.Application{
				Name: "web", Kind: deploy.KindKubernetes, Git: want, Provider: "prod", Description: "the front", Labels: map[string]string{"team": "a"},
				Registration: deploy.Registration{By: "owner", At: stored.Registration.At, Provider: "prod", Name: "web"},
			}, stored); diff != "" {
				t.Errorf("stored (-want +got):\n%s", diff)
			}
			if got.Sync.Status != deploy.SyncUnknown || !strings.Contains(got.Sync.ShortReason, "was added") || !stored.Registration.At.Equal(controltest.Epoch) {
				t.Errorf("it is %+v, registered at %s", got.Sync, stored.Registration.At)
			}
		})
	}
}

// TestAddApplicationWithAnID: the ID is retained, also if the application is deleted and added
// again.
func TestAddApplicationWithAnID(t *testing.T) {
	ctx, client, agent := api(t)
	req := &apiservice.AddApplicationRequest{Name: "web", PipedId: controltest.PipedID, GitPath: placeOf("web", ""), ApplicationId: "0b4e5f6a-1111-4222-8333-444455556666"}
	if resp, err := client.AddApplication(ctx, req); err != nil || resp.ApplicationId != req.ApplicationId {
		t.Fatalf("added as %s, %v", resp.GetApplicationId(), err)
	}
	if _, err := client.UpdateApplication(ctx, &apiservice.UpdateApplicationRequest{ApplicationId: req.ApplicationId, PipedId: controltest.PipedID, GitPath: placeOf("web", "")}); err != nil {
		t.Errorf("it cannot be updated at its own place: %v", err)
	}
	other := proto.Clone(req).(*apiservice.AddApplicationRequest)
	other.ApplicationId = ""
	if _, err := client.AddApplication(ctx, other); status.Code(err) != codes.AlreadyExists {
		t.Errorf("the place was added twice: %v", err)
	}
	if err := agent.Store.DeleteApplication(ctx, req.ApplicationId); err != nil {
		t.Fatal(err)
	}
	if resp, err := client.AddApplication(ctx, other); err != nil || resp.ApplicationId != req.ApplicationId {
		t.Errorf("added again as %s, %v", resp.GetApplicationId(), err)
	}
	for _, id := range []string{"a/b", "-a", "a.b", strings.Repeat("a", 64), "a b"} {
		req.ApplicationId, req.GitPath = id, placeOf("other", "")
		if _, err := client.AddApplication(ctx, req); status.Code(err) != codes.InvalidArgument {
			t.Errorf("the ID %q: %v", id, err)
		}
	}
}

// asking returns a function that calls a method and drops its response.
func asking[Q, R any](ctx context.Context, method func(context.Context, Q, ...grpc.CallOption) (R, error), req Q) func() error {
	return func() error {
		_, err := method(ctx, req)
		return err
	}
}

// TestRegistrationRefusals: invalid requests are rejected and change nothing.
func TestRegistrationRefusals(t *testing.T) {
	ctx, client, agent := api(t)
	add := func(edit func(*apiservice.AddApplicationRequest)) func() error {
		return func() error {
			req := &apiservice.AddApplicationRequest{Name: "web", PipedId: controltest.PipedID, GitPath: placeOf("web", "")}
			edit(req)
			_, err := client.AddApplication(ctx, req)
			return err
		}
	}
	if err := add(func(*apiservice.AddApplicationRequest) {})(); err != nil {
		t.Fatal(err)
	}
	web := deploy.ApplicationID(deploy.GitPath{RepoID: "apps", Dir: "web", ConfigFile: "app.pipecd.yaml"})
	gone := agent.Application("gone", nil)
	if err := agent.Store.DeleteApplication(ctx, gone.ID); err != nil {
		t.Fatal(err)
	}
	update := func(id, piped, provider string, to *modelv1.ApplicationGitPath) func() error {
		return asking(ctx, client.UpdateApplication, &apiservice.UpdateApplicationRequest{ApplicationId: id, PipedId: piped, PlatformProvider: provider, GitPath: to})
	}
	rename := func(file string, ids ...string) func() error {
		return asking(ctx, client.RenameApplicationConfigFile, &apiservice.RenameApplicationConfigFileRequest{ApplicationIds: ids, NewFilename: file})
	}
	target := func(id string, targets map[string]*modelv1.DeployTargets) func() error {
		return asking(ctx, client.UpdateApplicationDeployTargets, &apiservice.UpdateApplicationDeployTargetsRequest{ApplicationId: id, DeployTargetsByPlugin: targets})
	}
	kubernetes := func(names ...string) map[string]*modelv1.DeployTargets {
		return map[string]*modelv1.DeployTargets{"kubernetes": {DeployTargets: names}}
	}
	const oneTarget = `an application has one deploy target: give {"kubernetes": [<platform provider>]}`
	for name, tc := range map[string]struct {
		call func() error
		code codes.Code
		want string
	}{
		"add for another agent": {add(func(r *apiservice.AddApplicationRequest) { r.PipedId = "other" }), codes.NotFound, "Piped is not found"},
		"add in another repository": {add(func(r *apiservice.AddApplicationRequest) { r.GitPath.Repo.Id = "other" }),
			codes.NotFound, "The requested repository is not found in the Piped configuration"},
		"add again": {add(func(*apiservice.AddApplicationRequest) {}), codes.AlreadyExists, "application " + web + " exists already"},
		"add another kind": {add(func(r *apiservice.AddApplicationRequest) { r.Kind = modelv1.ApplicationKind_LAMBDA }),
			codes.InvalidArgument, "kind LAMBDA cannot be added: this agent deploys only KUBERNETES"},
		"add with an unknown provider": {add(func(r *apiservice.AddApplicationRequest) { r.PlatformProvider = "x" }),
			codes.InvalidArgument, `no platform provider "x" is configured; there are: dev, prod`},
		"add outside of the repository": {add(func(r *apiservice.AddApplicationRequest) { r.GitPath.Path = "web/../../x" }),
			codes.InvalidArgument, `path "web/../../x" is not in the repository`},
		"add another file":           {add(func(r *apiservice.AddApplicationRequest) { r.GitPath.ConfigFilename = "web.yaml" }), codes.InvalidArgument, "use app.pipecd.yaml or <name>.pipecd.yaml"},
		"add a file elsewhere":       {add(func(r *apiservice.AddApplicationRequest) { r.GitPath.ConfigFilename = "x/app.pipecd.yaml" }), codes.InvalidArgument, "use app.pipecd.yaml"},
		"move":                       {update(web, controltest.PipedID, "", placeOf("shop", "")), codes.FailedPrecondition, "delete it and add the new place"},
		"move to a file":             {update(web, controltest.PipedID, "", placeOf("web", "w.pipecd.yaml")), codes.FailedPrecondition, "cannot be moved from web/app.pipecd.yaml of repository apps to web/w.pipecd.yaml of apps"},
		"update an unknown one":      {update("nobody", controltest.PipedID, "", placeOf("web", "")), codes.NotFound, "Application is not found"},
		"update a deleted one":       {update(gone.ID, controltest.PipedID, "", placeOf("gone", "")), codes.NotFound, "Application is not found"},
		"update of another agent":    {update(web, "other", "", placeOf("web", "")), codes.NotFound, "Piped is not found"},
		"update to another provider": {update(web, controltest.PipedID, "x", placeOf("web", "")), codes.InvalidArgument, `no platform provider "x"`},
		"rename":                     {rename("w.pipecd.yaml", web), codes.FailedPrecondition, "delete it and add the new place"},
		"rename an unknown one":      {rename("app.pipecd.yaml", web, "nobody"), codes.NotFound, "Application is not found"},
		"another plugin":             {target(web, map[string]*modelv1.DeployTargets{"terraform": {DeployTargets: []string{"dev"}}}), codes.InvalidArgument, oneTarget},
		"two targets":                {target(web, kubernetes("dev", "prod")), codes.InvalidArgument, oneTarget},
		"no target":                  {target(web, kubernetes()), codes.InvalidArgument, oneTarget},
		"an unknown target":          {target(web, kubernetes("x")), codes.InvalidArgument, `no platform provider "x"`},
		"a target of an unknown one": {target("nobody", kubernetes("dev")), codes.NotFound, "Application is not found"},
		"delete an unknown one":      {asking(ctx, client.DeleteApplication, &apiservice.DeleteApplicationRequest{ApplicationId: "nobody"}), codes.NotFound, "Application is not found"},
		"delete again":               {asking(ctx, client.DeleteApplication, &apiservice.DeleteApplicationRequest{ApplicationId: gone.ID}), codes.NotFound, "Application is not found"},
		"enable an unknown one":      {asking(ctx, client.EnableApplication, &apiservice.EnableApplicationRequest{ApplicationId: "nobody"}), codes.NotFound, "Application is not found"},
		"disable a deleted one":      {asking(ctx, client.DisableApplication, &apiservice.DisableApplicationRequest{ApplicationId: gone.ID}), codes.NotFound, "Application is not found"},
		"get another agent":          {asking(ctx, client.GetPiped, &apiservice.GetPipedRequest{PipedId: "other"}), codes.NotFound, "Piped is not found"},
		"disable another agent":      {asking(ctx, client.DisablePiped, &apiservice.DisablePipedRequest{PipedId: "other"}), codes.NotFound, "Piped is not found"},
		"register this agent":        {asking(ctx, client.RegisterPiped, &apiservice.RegisterPipedRequest{Name: "the agent"}), codes.AlreadyExists, `"the agent" is this agent, with the ID piped-1`},
		"register another agent":     {asking(ctx, client.RegisterPiped, &apiservice.RegisterPipedRequest{Name: "other"}), codes.FailedPrecondition, "is its own control plane and registers no other"},
		"encrypt for another agent":  {asking(ctx, client.Encrypt, &apiservice.EncryptRequest{PipedId: "other", Plaintext: "s"}), codes.NotFound, "Piped is not found"},
		"encrypt what is too large":  {asking(ctx, client.Encrypt, &apiservice.EncryptRequest{PipedId: controltest.PipedID, Plaintext: strings.Repeat("s", 3<<20)}), codes.InvalidArgument, "3145728 bytes, which are too many"},
	} {
		t.Run(name, func(t *testing.T) {
			err := tc.call()
			if status.Code(err) != tc.code || !strings.Contains(status.Convert(err).Message(), tc.want) {
				t.Errorf("got %v, want %s with %q", err, tc.code, tc.want)
			}
		})
	}
	got, err := agent.Store.Application(ctx, web)
	if err != nil || got.Registration.Provider != "" || got.Git.Dir != "web" || got.Disabled || got.Deleted {
		t.Errorf("after the refusals it is %+v, %v", got, err)
	}
}

// TestRegisteredProviderIsReplaced: both methods with a provider set it, and an empty one
// unsets it.
func TestRegisteredProviderIsReplaced(t *testing.T) {
	ctx, client, agent := api(t)
	added, err := client.AddApplication(ctx, &apiservice.AddApplicationRequest{Name: "web", PipedId: controltest.PipedID, GitPath: placeOf("web", "")})
	if err != nil {
		t.Fatal(err)
	}
	at := added.ApplicationId
	want := func(provider string) {
		t.Helper()
		if got, err := agent.Store.Application(ctx, at); err != nil || got.Registration.Provider != provider {
			t.Errorf("the provider is %q, %v, want %q", got.Registration.Provider, err, provider)
		}
	}
	for _, provider := range []string{"prod", ""} {
		if _, err := client.UpdateApplication(ctx, &apiservice.UpdateApplicationRequest{
			ApplicationId: at, PipedId: controltest.PipedID, PlatformProvider: provider, GitPath: placeOf("web", ""),
		}); err != nil {
			t.Fatal(err)
		}
		want(provider)
	}
	if _, err := client.UpdateApplicationDeployTargets(ctx, &apiservice.UpdateApplicationDeployTargetsRequest{
		ApplicationId: at, DeployTargetsByPlugin: map[string]*modelv1.DeployTargets{"kubernetes": {DeployTargets: []string{"dev"}}},
	}); err != nil {
		t.Fatal(err)
	}
	want("dev")
	if _, err := client.RenameApplicationConfigFile(ctx, &apiservice.RenameApplicationConfigFileRequest{ApplicationIds: []string{at}, NewFilename: "app.pipecd.yaml"}); err != nil {
		t.Errorf("rename to the name it has: %v", err)
	}
}

// TestGetPiped: values set through the API take precedence over the configuration.
func TestGetPiped(t *testing.T) {
	ctx, client, agent := api(t)
	get := func() *modelv1.Piped {
		t.Helper()
		resp, err := client.GetPiped(as(t, agent.ReadOnly), &apiservice.GetPipedRequest{PipedId: controltest.PipedID})
		if err != nil {
			t.Fatal(err)
		}
		return resp.Piped
	}
	epoch := controltest.Epoch.Unix()
	want := &modelv1.Piped{
		Id: "piped-1", Name: "the agent", ProjectId: "project-1", Version: "v1.2.3", StartedAt: epoch, Status: modelv1.Piped_ONLINE,
		Repositories: []*modelv1.ApplicationGitRepository{{Id: "apps", Remote: "https://git.example.com/apps.git", Branch: "main"}},
		//lint:ignore SA1019 older clients read the older field
		CloudProviders:    []*modelv1.Piped_CloudProvider{{Name: "dev", Type: "KUBERNETES"}, {Name: "prod", Type: "KUBERNETES"}},
		PlatformProviders: []*modelv1.Piped_PlatformProvider{{Name: "dev", Type: "KUBERNETES"}, {Name: "prod", Type: "KUBERNETES"}},
		Plugins:           []*modelv1.Piped_Plugin{{Name: "kubernetes", DeployTargets: []string{"dev", "prod"}}},
		SecretEncryption:  &modelv1.Piped_SecretEncryption{Type: "KEY_PAIR", PublicKey: "-----BEGIN PUBLIC KEY-----\n"},
		CreatedAt:         epoch, UpdatedAt: epoch,
	}
	if diff := cmp.Diff(want, get(), protocmp.Transform()); diff != "" {
		t.Errorf("at first (-want +got):\n%s", diff)
	}
	for _, change := range []func() error{
		asking(ctx, client.UpdatePiped, &apiservice.UpdatePipedRequest{PipedId: controltest.PipedID, Name: "shop", Desc: "of the shop"}),
		asking(ctx, client.DisablePiped, &apiservice.DisablePipedRequest{PipedId: controltest.PipedID}),
	} {
		if err := change(); err != nil {
			t.Fatal(err)
		}
	}
	want.Name, want.Desc, want.Disabled = "shop", "of the shop", true
	if diff := cmp.Diff(want, get(), protocmp.Transform()); diff != "" {
		t.Errorf("changed (-want +got):\n%s", diff)
	}
	if _, err := client.EnablePiped(ctx, &apiservice.EnablePipedRequest{PipedId: controltest.PipedID}); err != nil || get().Disabled {
		t.Errorf("enabled: %v, %v", get(), err)
	}
}

// TestEncrypt: the plaintext is passed to the agent unchanged, including a final newline, or
// in base64.
func TestEncrypt(t *testing.T) {
	_, client, agent := api(t)
	encrypt := func(ctx context.Context, inBase64 bool) (string, error) {
		resp, err := client.Encrypt(ctx, &apiservice.EncryptRequest{PipedId: controltest.PipedID, Plaintext: "s3cret\n", Base64Encoding: inBase64})
		return resp.GetCiphertext(), err
	}
	for inBase64, want := range map[bool]string{false: "sealed:s3cret\n", true: "sealed:" + base64.StdEncoding.EncodeToString([]byte("s3cret\n"))} {
		got, err := encrypt(as(t, agent.ReadOnly), inBase64)
		if plain, _ := base64.StdEncoding.DecodeString(got); err != nil || string(plain) != want {
			t.Errorf("base64 %v: %q, %v, want %q", inBase64, plain, err, want)
		}
	}
	ctx, client, _ := api(t, func(c *control.Config) { c.Agent = controltest.Self{Without: true} })
	if _, err := encrypt(ctx, false); status.Code(err) != codes.FailedPrecondition || status.Convert(err).Message() != "The piped does not contain a public key" {
		t.Errorf("without keys: %v", err)
	}
	resp, err := client.GetPiped(ctx, &apiservice.GetPipedRequest{PipedId: controltest.PipedID})
	if err != nil || resp.Piped.SecretEncryption.Type != "NONE" {
		t.Errorf("without keys: %v, %v", resp, err)
	}
}

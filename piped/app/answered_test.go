package app

import (
	"path/filepath"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/c785c783/piped/piped/app/agenttest"
	"github.com/c785c783/piped/piped/cluster/clustertest"
	"github.com/c785c783/piped/proto/pipecd/apiservice"
	controlv1 "github.com/c785c783/piped/proto/piped/control/v1"
	modelv1 "github.com/c785c783/piped/proto/piped/model/v1"
)

// TestWhatWasAnsweredOutlivesAKill kills the agent with SIGKILL right after it has
// answered a call, once for each kind of change: what it answered is so after the
// restart, and what it was asked to do is done once.
func TestWhatWasAnsweredOutlivesAKill(t *testing.T) {
	t.Parallel()
	cluster := clustertest.Shared(t)
	ns, live := cluster.Namespace(t), cluster.Client(t)
	repo := newRepo(t)
	files := webApp(ns, "v1", "")
	kubectlApply(t, live, ns, files["web/app.yaml"], false)
	p := startProcess(t, agenttest.Options{Remote: repo.Dir, Kubeconfig: cluster.Kubeconfig(), More: "  adopt: review\n"})
	agent := dial(t, p.Address, filepath.Dir(p.KeyFile))
	web, other := appID("web"), appID("other")
	first := repo.Push(t, "add both", merged(files, simple("other", ns, "hi")))
	agent.mustEnd(other, first, modelv1.DeploymentStatus_DEPLOYMENT_SUCCESS)

	// A decision to take over.
	awaited := agent.adoption(web, func(*controlv1.Adoption) bool { return true })
	command := agent.answerWhenNotBusy(func() (string, error) {
		decided := call(t, agent.control.DecideAdoption, agent.ctx, &controlv1.DecideAdoptionRequest{ApplicationId: web, Accept: true, Token: awaited.GetToken()})
		restart(t, p)
		return decided.GetCommandId(), nil
	})
	if command.GetStatus() != modelv1.CommandStatus_COMMAND_SUCCEEDED {
		t.Errorf("the decision was answered %v", command)
	}
	agent.mustEnd(web, first, modelv1.DeploymentStatus_DEPLOYMENT_SUCCESS)
	if n := len(agent.deployments(web)); n != 1 {
		t.Errorf("%d deployments of one decision", n)
	}

	// A sync: its command is known at once, which an unmodified pipectl relies on.
	asked := call(t, agent.api.SyncApplication, agent.ctx, &apiservice.SyncApplicationRequest{ApplicationId: web})
	restart(t, p)
	if c := agent.answer(asked.GetCommandId()); c.GetMetadata()["TriggeredDeploymentID"] == "" {
		t.Errorf("the sync was answered %v", c)
	}
	if n := len(agent.deployments(web)); n != 2 {
		t.Errorf("%d deployments of a decision and a sync", n)
	}

	// A registration: deleted, and then added again.
	call(t, agent.api.DeleteApplication, agent.ctx, &apiservice.DeleteApplicationRequest{ApplicationId: other})
	restart(t, p)
	second := repo.Push(t, "change both", merged(webApp(ns, "v2", ""), simple("other", ns, "good day")))
	agent.mustEnd(web, second, modelv1.DeploymentStatus_DEPLOYMENT_SUCCESS)
	if app := agent.application(other); !app.GetDeleted() || len(agent.deployments(other)) != 1 {
		t.Errorf("what was deleted is %v", app)
	}
	added := call(t, agent.api.AddApplication, agent.ctx, &apiservice.AddApplicationRequest{
		Name: "other", PipedId: agent.application(web).GetPipedId(),
		GitPath: &modelv1.ApplicationGitPath{Repo: &modelv1.ApplicationGitRepository{Id: "apps"}, Path: "other"},
	})
	restart(t, p)
	if added.GetApplicationId() != other {
		t.Errorf("added as %s, want %s", added.GetApplicationId(), other)
	}
	agent.mustEnd(other, second, modelv1.DeploymentStatus_DEPLOYMENT_SUCCESS)

	// A key: it has worked, and never does again.
	key := call(t, agent.control.CreateAPIKey, agent.ctx, &controlv1.CreateAPIKeyRequest{Name: "build", Role: modelv1.APIKey_READ_WRITE})
	with := metadata.NewOutgoingContext(t.Context(), metadata.Pairs("authorization", "API-KEY "+key.GetKey()))
	restart(t, p)
	call(t, agent.api.ListApplications, with, &apiservice.ListApplicationsRequest{})
	call(t, agent.control.DisableAPIKey, agent.ctx, &controlv1.DisableAPIKeyRequest{Id: key.GetApiKey().GetId()})
	restart(t, p)
	if _, err := agent.api.ListApplications(with, &apiservice.ListApplicationsRequest{}); status.Code(err) != codes.Unauthenticated {
		t.Errorf("with a disabled key: %v", err)
	}
}

package app

import (
	"context"
	"os"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/c785c783/piped/piped/cluster/clustertest"
	"github.com/c785c783/piped/proto/pipecd/apiservice"
	controlv1 "github.com/c785c783/piped/proto/piped/control/v1"
	modelv1 "github.com/c785c783/piped/proto/piped/model/v1"
)

// TestRegistrationThroughTheAPI follows a configuration that discover does not
// select through everything that a client can do to its registration.
func TestRegistrationThroughTheAPI(t *testing.T) {
	t.Parallel()
	cluster := clustertest.Shared(t)
	ns, live := cluster.Namespace(t), cluster.Client(t)
	repo := newRepo(t)
	s := settings{dataDir: t.TempDir(), remote: repo.Dir, kubeconfig: cluster.Kubeconfig(), discover: "{paths: [nothing]}"}
	agent := runAgent(t, s)
	web := appID("web")
	first := repo.Push(t, "add web", webApp(ns, "v1", ""))
	agent.awaitCandidate("web", controlv1.CandidateReason_CANDIDATE_REASON_UNREGISTERED)

	added := agent.add("web")
	if added != web {
		t.Fatalf("added as %s, want %s", added, web)
	}
	agent.mustEnd(web, first, modelv1.DeploymentStatus_DEPLOYMENT_SUCCESS)
	app := agent.application(web)
	if app.GetName() != "web" || app.GetRegistration().GetSource() != modelv1.ApplicationRegistration_SOURCE_ADDED || app.GetRegistration().GetRegisteredBy() != "owner" {
		t.Errorf("the application is %v", app)
	}
	agent.awaitCandidate("web", 0)

	call(t, agent.api.DisableApplication, agent.ctx, &apiservice.DisableApplicationRequest{ApplicationId: web})
	missed := repo.Push(t, "while disabled", webApp(ns, "v2", ""))
	if command := agent.sync(web); command.GetStatus() != modelv1.CommandStatus_COMMAND_FAILED || !strings.Contains(command.GetMetadata()["Reason"], "enable it first") {
		t.Errorf("a sync of a disabled application: %v", command)
	}
	if got := len(agent.deployments(web)); got != 1 {
		t.Errorf("%d deployments of a disabled application, want 1", got)
	}
	call(t, agent.api.EnableApplication, agent.ctx, &apiservice.EnableApplicationRequest{ApplicationId: web})
	agent.mustEnd(web, missed, modelv1.DeploymentStatus_DEPLOYMENT_SUCCESS)

	call(t, agent.api.DeleteApplication, agent.ctx, &apiservice.DeleteApplicationRequest{ApplicationId: web})
	agent.awaitCandidate("web", controlv1.CandidateReason_CANDIDATE_REASON_DELETED)
	later := repo.Push(t, "while deleted", webApp(ns, "v3", ""))
	agent.add("other") // its file does not exist; its state shows that the agent has seen the commit
	eventually(t, "an application without a file says so of the commit", func() bool {
		state := agent.application(appID("other")).GetSyncState()
		return state.GetStatus() == modelv1.ApplicationSyncStatus_INVALID_CONFIG &&
			strings.Contains(state.GetReason(), "other/app.pipecd.yaml does not exist at commit "+later[:7])
	})
	if app := agent.application(web); !app.GetDeleted() || len(agent.deployments(web)) != 2 {
		t.Errorf("a deleted application came back: %v", app)
	}
	if _, err := live.AppsV1().Deployments(ns).Get(t.Context(), "web", metav1.GetOptions{}); err != nil {
		t.Errorf("the object of the deleted application: %v", err)
	}
	agent.add("web")
	agent.mustEnd(web, later, modelv1.DeploymentStatus_DEPLOYMENT_SUCCESS)
}

// TestDisabledAgent: nothing is triggered, also after a restart, until the agent is
// enabled. Then the missed commits are deployed.
func TestDisabledAgent(t *testing.T) {
	t.Parallel()
	cluster := clustertest.Shared(t)
	ns := cluster.Namespace(t)
	repo := newRepo(t)
	s := settings{dataDir: t.TempDir(), remote: repo.Dir, kubeconfig: cluster.Kubeconfig()}
	web := appID("web")
	var missed string
	t.Run("disable", func(t *testing.T) {
		agent := runAgent(t, s)
		agent.mustEnd(web, repo.Push(t, "add web", webApp(ns, "v1", "")), modelv1.DeploymentStatus_DEPLOYMENT_SUCCESS)
		call(t, agent.api.UpdatePiped, agent.ctx, &apiservice.UpdatePipedRequest{PipedId: testID(t.Name()), Name: "shop", Desc: "of the shop"})
		call(t, agent.api.DisablePiped, agent.ctx, &apiservice.DisablePipedRequest{PipedId: testID(t.Name())})
		missed = repo.Push(t, "while disabled", webApp(ns, "v2", ""))
	})
	t.Run("enable after a restart", func(t *testing.T) {
		agent := runAgent(t, s)
		if command := agent.sync(web); !strings.Contains(command.GetMetadata()["Reason"], "the agent is disabled: enable it first") {
			t.Errorf("a sync of a disabled agent: %v", command)
		}
		if got := len(agent.deployments(web)); got != 1 {
			t.Errorf("%d deployments by a disabled agent, want 1", got)
		}
		piped := call(t, agent.api.GetPiped, agent.ctx, &apiservice.GetPipedRequest{PipedId: testID(t.Name())}).GetPiped()
		if !piped.GetDisabled() || piped.GetName() != "shop" || piped.GetDesc() != "of the shop" || piped.GetVersion() != "test" || piped.GetCreatedAt() == 0 ||
			len(piped.GetRepositories()) != 1 || piped.GetRepositories()[0].GetRemote() != repo.Dir || piped.GetPlatformProviders()[0].GetName() != "local" {
			t.Errorf("the agent is %v", piped)
		}
		state := call(t, agent.control.GetStatus, agent.ctx, &controlv1.GetStatusRequest{}).GetAgent()
		if !state.GetDisabled() || state.GetName() != "shop" {
			t.Errorf("the status says %v", state)
		}
		call(t, agent.api.EnablePiped, agent.ctx, &apiservice.EnablePipedRequest{PipedId: testID(t.Name())})
		agent.mustEnd(web, missed, modelv1.DeploymentStatus_DEPLOYMENT_SUCCESS)
	})
}

// TestWhatEncryptMakesIsDecrypted deploys secrets that the API has encrypted, one
// of them in base64 first.
func TestWhatEncryptMakesIsDecrypted(t *testing.T) {
	t.Parallel()
	cluster := clustertest.Shared(t)
	ns, live := cluster.Namespace(t), cluster.Client(t)
	repo := newRepo(t)
	public, err := os.ReadFile("../../examples/keys/example-only.public.pem")
	if err != nil {
		t.Fatal(err)
	}
	agent := runAgent(t, settings{
		dataDir: t.TempDir(), remote: repo.Dir, kubeconfig: cluster.Kubeconfig(),
		more: exampleKeys(t),
	})
	seal := func(plaintext string, inBase64 bool) string {
		return call(t, agent.api.Encrypt, agent.ctx, &apiservice.EncryptRequest{PipedId: testID(t.Name()), Plaintext: plaintext, Base64Encoding: inBase64}).GetCiphertext()
	}
	commit := repo.Push(t, "secrets", map[string]string{
		"web/app.pipecd.yaml": "apiVersion: pipecd.dev/v1beta1\nkind: KubernetesApp\nspec:\n  name: web\n  input: {namespace: " + ns + "}\n" +
			"  encryption:\n    decryptionTargets: [web.yaml]\n    encryptedSecrets:\n      plain: " + seal("hunter2", false) + "\n      coded: " + seal("hunter3\n", true) + "\n",
		"web/web.yaml": "apiVersion: v1\nkind: Secret\nmetadata: {name: web}\nstringData: {plain: \"{{ .encryptedSecrets.plain }}\"}\ndata: {coded: \"{{ .encryptedSecrets.coded }}\"}\n",
	})
	agent.mustEnd(appID("web"), commit, modelv1.DeploymentStatus_DEPLOYMENT_SUCCESS)
	got, err := live.CoreV1().Secrets(ns).Get(t.Context(), "web", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if string(got.Data["plain"]) != "hunter2" || string(got.Data["coded"]) != "hunter3\n" {
		t.Errorf("the live Secret holds %q", got.Data)
	}
	key := call(t, agent.api.GetPiped, agent.ctx, &apiservice.GetPipedRequest{PipedId: testID(t.Name())}).GetPiped().GetSecretEncryption()
	if key.GetType() != "KEY_PAIR" || !strings.HasPrefix(key.GetPublicKey(), "-----BEGIN PUBLIC KEY-----") || !strings.Contains(string(public), key.GetPublicKey()) {
		t.Errorf("the agent's public key is %v", key)
	}
}

// call calls a method that must succeed.
func call[Q, R any](t *testing.T, method func(context.Context, Q, ...grpc.CallOption) (R, error), ctx context.Context, req Q) R {
	t.Helper()
	resp, err := method(ctx, req)
	if err != nil {
		t.Fatalf("%T: %v", req, err)
	}
	return resp
}

// add registers the application in a directory and returns its ID.
func (c *client) add(dir string) string {
	c.t.Helper()
	return call(c.t, c.api.AddApplication, c.ctx, &apiservice.AddApplicationRequest{
		Name: "as requested", PipedId: testID(c.t.Name()),
		GitPath: &modelv1.ApplicationGitPath{Repo: &modelv1.ApplicationGitRepository{Id: "apps"}, Path: dir},
	}).GetApplicationId()
}

// awaitCandidate waits until the configuration in a directory is listed with a
// reason; 0 is that it is not listed.
func (c *client) awaitCandidate(dir string, want controlv1.CandidateReason) {
	c.t.Helper()
	var got controlv1.CandidateReason
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		got = 0
		for _, m := range call(c.t, c.control.ListCandidates, c.ctx, &controlv1.ListCandidatesRequest{}).GetCandidates() {
			if m.GetGitPath().GetPath() == dir {
				got = m.GetReason()
			}
		}
		if got == want {
			return
		}
	}
	c.t.Fatalf("%s is listed as %s, want %s", dir, got, want)
}

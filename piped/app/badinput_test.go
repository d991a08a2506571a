package app

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/c785c783/piped/piped/app/agenttest"
	"github.com/c785c783/piped/piped/cluster/clustertest"
	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/proto/pipecd/apiservice"
	modelv1 "github.com/c785c783/piped/proto/piped/model/v1"
)

// awaitEvaluated waits until the trigger has decided about a commit.
func (c *client) awaitEvaluated(app, commit string) {
	c.t.Helper()
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		if c.application(app).GetEvaluatedCommit() == commit {
			return
		}
	}
	c.t.Fatalf("commit %s was not evaluated: %v", commit, c.application(app))
}

// TestOneBadApplicationSpoilsNoOther has applications with every kind of mistake next to
// a valid one, and fixes one of them.
func TestOneBadApplicationSpoilsNoOther(t *testing.T) {
	t.Parallel()
	cluster := clustertest.Shared(t)
	ns := cluster.Namespace(t)
	repo := newRepo(t)
	agent := runAgent(t, settings{dataDir: t.TempDir(), remote: repo.Dir, kubeconfig: cluster.Kubeconfig()})
	files := webApp(ns, "v1", "")
	head := "apiVersion: pipecd.dev/v1beta1\nkind: KubernetesApp\nspec:\n  name: bad\n"
	files["typo/app.pipecd.yaml"] = head + "  inptu: {namespace: x}\n"
	files["provider/app.pipecd.yaml"] = head + "  platformProvider: elsewhere\n"
	files["manifest/app.pipecd.yaml"] = head
	files["manifest/m.yaml"] = "just: text\n"
	files["refused/app.pipecd.yaml"] = head
	files["refused/m.yaml"] = "apiVersion: v1\nkind: Service\nmetadata: {name: s, namespace: " + ns + "}\nspec: {ports: [{port: 123456}]}\n"
	commit := repo.Push(t, "good and bad", files)

	agent.mustEnd(appID("web"), commit, modelv1.DeploymentStatus_DEPLOYMENT_SUCCESS)
	for dir, want := range map[string][]string{
		"typo":     {"typo/app.pipecd.yaml:5", "inptu", `did you mean "input"`},
		"provider": {"platformProvider", "elsewhere", "local"},
	} {
		state := agent.awaitSyncState(appID(dir), modelv1.ApplicationSyncStatus_INVALID_CONFIG)
		mustContain(t, state.GetReason(), want...)
	}
	mustContain(t, agent.mustEnd(appID("manifest"), commit, modelv1.DeploymentStatus_DEPLOYMENT_FAILURE).GetStatusReason(), "manifest/m.yaml", "apiVersion")
	mustContain(t, agent.mustEnd(appID("refused"), commit, modelv1.DeploymentStatus_DEPLOYMENT_FAILURE).GetStatusReason(), "Service", "123456")

	if c := agent.sync(appID("typo")); c.GetStatus() != modelv1.CommandStatus_COMMAND_FAILED || !strings.Contains(c.GetMetadata()["Reason"], "inptu") {
		t.Errorf("sync of an application that does not parse: %v", c)
	}
	fixed := repo.Push(t, "fix", map[string]string{
		"typo/app.pipecd.yaml": head + "  input: {namespace: " + ns + "}\n",
		"typo/m.yaml":          "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: fixed}\n",
	})
	agent.mustEnd(appID("typo"), fixed, modelv1.DeploymentStatus_DEPLOYMENT_SUCCESS)
	if state := agent.application(appID("typo")).GetSyncState(); state.GetStatus() == modelv1.ApplicationSyncStatus_INVALID_CONFIG {
		t.Errorf("the state has not changed after the fix: %v", state)
	}
}

func TestProviderMustBeUnambiguous(t *testing.T) {
	t.Parallel()
	kubeconfig := clustertest.Shared(t).Kubeconfig()
	for name, c := range map[string]struct {
		providers string
		want      []string
	}{
		"none": {"[]", []string{"no platform provider", "platformProviders"}},
		"two": {"[{name: a, type: KUBERNETES, config: {kubeConfigPath: " + kubeconfig + "}}, {name: b, type: KUBERNETES, config: {kubeConfigPath: " + kubeconfig + "}}]",
			[]string{"spec.platformProvider is missing", "a, b"}},
	} {
		t.Run(name, func(t *testing.T) {
			repo := newRepo(t)
			repo.Push(t, "add web", webApp("default", "v1", ""))
			agent := runAgent(t, settings{dataDir: t.TempDir(), remote: repo.Dir, providers: c.providers})
			state := agent.awaitSyncState(appID("web"), modelv1.ApplicationSyncStatus_INVALID_CONFIG)
			mustContain(t, state.GetReason(), c.want...)
		})
	}
}

// TestUnreachableClusterHoldsItsApplicationsOnly: the live state is unknown, so nothing
// is replaced automatically; a manual sync tries to deploy, and fails.
func TestUnreachableClusterHoldsItsApplicationsOnly(t *testing.T) {
	t.Parallel()
	cluster := clustertest.Shared(t)
	ns := cluster.Namespace(t)
	data, err := os.ReadFile(cluster.Kubeconfig())
	if err != nil {
		t.Fatal(err)
	}
	dead := filepath.Join(t.TempDir(), "kubeconfig")
	if err := os.WriteFile(dead, []byte(strings.ReplaceAll(string(data), "https://127.0.0.1:", "https://127.0.0.1:1#")), 0o600); err != nil {
		t.Fatal(err)
	}
	repo := newRepo(t)
	agent := runAgent(t, settings{dataDir: t.TempDir(), remote: repo.Dir,
		providers: "[{name: dead, type: KUBERNETES, config: {kubeConfigPath: " + dead + ", masterURL: \"https://127.0.0.1:1\"}}, {name: live, type: KUBERNETES, config: {kubeConfigPath: " + cluster.Kubeconfig() + "}}]"})
	files := webApp(ns, "v1", "")
	files["web/app.pipecd.yaml"] += "  platformProvider: live\n"
	files["lost/app.pipecd.yaml"] = "apiVersion: pipecd.dev/v1beta1\nkind: KubernetesApp\nspec: {name: lost, platformProvider: dead, timeout: 30s}\n"
	files["lost/m.yaml"] = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: lost}\n"
	commit := repo.Push(t, "two clusters", files)
	agent.mustEnd(appID("web"), commit, modelv1.DeploymentStatus_DEPLOYMENT_SUCCESS)
	agent.mustBeHeld(appID("lost"), "dead", "127.0.0.1:1", "refused")
	agent.sync(appID("lost"))
	d := agent.mustEnd(appID("lost"), commit, modelv1.DeploymentStatus_DEPLOYMENT_FAILURE)
	mustContain(t, d.GetStatusReason(), "dead", "127.0.0.1:1", "refused")
}

// awaitNotice waits until the notice of an application contains each text. While a cluster has no time
// to answer, as on a busy machine, it says that instead.
func (c *client) awaitNotice(app string, texts ...string) {
	c.t.Helper()
	for end := time.Now().Add(patience); ; time.Sleep(pollInterval) {
		notice := c.application(app).GetNotice()
		missing := func(text string) bool { return !strings.Contains(notice, text) }
		if !slices.ContainsFunc(texts, missing) || time.Now().After(end) {
			mustContain(c.t, notice, texts...)
			return
		}
	}
}

// mustBeHeld fails the test unless the application reports that it waits for its cluster,
// and why, without a deployment.
func (c *client) mustBeHeld(app string, why ...string) {
	c.t.Helper()
	c.awaitNotice(app, append(why, "Not deployed yet: ", "sync by hand")...)
	if got := c.deployments(app); len(got) > 0 {
		c.t.Errorf("there is a deployment of it: %v", got)
	}
}

// TestUnusableProviderHoldsItsApplicationsOnly: an unreadable kubeconfig is reported by
// the waiting applications and by the stages that need it. It stops neither the agent nor
// another provider. Nothing was done, so nothing is rolled back.
func TestUnusableProviderHoldsItsApplicationsOnly(t *testing.T) {
	t.Parallel()
	cluster := clustertest.Shared(t)
	ns := cluster.Namespace(t)
	repo := newRepo(t)
	agent := runAgent(t, settings{dataDir: t.TempDir(), remote: repo.Dir,
		providers: "[{name: broken, type: KUBERNETES, config: {kubeConfigPath: /does/not/exist}}, {name: live, type: KUBERNETES, config: {kubeConfigPath: " + cluster.Kubeconfig() + "}}]"})
	files := webApp(ns, "v1", "")
	files["web/app.pipecd.yaml"] += "  platformProvider: live\n"
	files["lost/app.pipecd.yaml"] = "apiVersion: pipecd.dev/v1beta1\nkind: KubernetesApp\nspec: {name: lost, platformProvider: broken}\n"
	files["lost/m.yaml"] = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: lost}\n"
	commit := repo.Push(t, "two providers", files)
	agent.mustEnd(appID("web"), commit, modelv1.DeploymentStatus_DEPLOYMENT_SUCCESS)
	agent.mustBeHeld(appID("lost"), "broken", "cannot be used", "/does/not/exist")
	agent.sync(appID("lost"))
	d := agent.mustEnd(appID("lost"), commit, modelv1.DeploymentStatus_DEPLOYMENT_FAILURE)
	mustContain(t, d.GetStatusReason(), "broken", "cannot be used", "/does/not/exist")
	if strings.Contains(d.GetStatusReason(), "roll") {
		t.Errorf("the reason speaks of a rollback: %s", d.GetStatusReason())
	}
}

func TestWrongAPIKeyIsRefused(t *testing.T) {
	t.Parallel()
	repo := newRepo(t)
	agent := runAgent(t, settings{dataDir: t.TempDir(), remote: repo.Dir, kubeconfig: clustertest.Shared(t).Kubeconfig()})
	ctx := metadata.AppendToOutgoingContext(context.Background(), "authorization", "API-KEY someone.wrong")
	_, err := agent.api.ListApplications(ctx, &apiservice.ListApplicationsRequest{})
	if status.Code(err) != codes.Unauthenticated {
		t.Errorf("with a wrong key: %v, want Unauthenticated", err)
	}
}

// TestUnreachableRepository starts with an unreachable remote. The agent must run, refuse
// syncs with the cause, and fetch the remote once it is reachable.
func TestUnreachableRepository(t *testing.T) {
	t.Parallel()
	cluster := clustertest.Shared(t)
	ns := cluster.Namespace(t)
	repo := newRepo(t)
	commit := repo.Push(t, "add web", webApp(ns, "v1", ""))
	away := repo.Dir + ".away"
	if err := os.Rename(repo.Dir, away); err != nil {
		t.Fatal(err)
	}
	agent := runAgent(t, settings{dataDir: t.TempDir(), remote: repo.Dir, kubeconfig: cluster.Kubeconfig()})
	if _, err := agent.api.ListApplications(agent.ctx, &apiservice.ListApplicationsRequest{}); err != nil {
		t.Fatalf("the API does not answer: %v", err)
	}
	if err := os.Rename(away, repo.Dir); err != nil {
		t.Fatal(err)
	}
	agent.mustEnd(appID("web"), commit, modelv1.DeploymentStatus_DEPLOYMENT_SUCCESS)

	if err := os.Rename(repo.Dir, away); err != nil {
		t.Fatal(err)
	}
	c := agent.sync(appID("web"))
	if c.GetStatus() != modelv1.CommandStatus_COMMAND_FAILED {
		t.Errorf("sync without the remote: %v", c)
	}
	mustContain(t, c.GetMetadata()["Reason"], "cannot be read", repo.Dir)
}

// TestRefusalsAtStart lists the configurations that New refuses, with the error messages.
func TestRefusalsAtStart(t *testing.T) {
	t.Parallel()
	repo := newRepo(t)
	kubeconfig := clustertest.Shared(t).Kubeconfig()
	busy, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer busy.Close()
	shared := t.TempDir()
	runAgent(t, settings{dataDir: shared, remote: repo.Dir, kubeconfig: kubeconfig})
	for name, c := range map[string]struct {
		s    settings
		want []string
	}{
		"the data directory is in use": {settings{dataDir: shared}, []string{"another agent", shared}},
		"the API's port is in use":     {settings{dataDir: t.TempDir(), apiAddress: busy.Addr().String()}, []string{"in use", busy.Addr().String()}},
		"the store is unknown":         {settings{dataDir: t.TempDir(), dsn: "mysql://x"}, []string{"sqlite", "postgres"}},
	} {
		t.Run(name, func(t *testing.T) {
			if c.s.kubeconfig == "" {
				c.s.kubeconfig = kubeconfig
			}
			c.s.remote = repo.Dir
			cfg, _, err := Kinds().LoadPiped(c.s.configFile(t))
			if err == nil {
				_, err = New(t.Context(), cfg, Options{Logger: testLogger(t)})
			}
			if err == nil {
				t.Fatal("New did not refuse")
			}
			mustContain(t, err.Error(), c.want...)
			if !deploy.IsKind(err, deploy.Invalid) {
				t.Errorf("kind %v, want invalid: %v", deploy.KindOf(err), err)
			}
		})
	}
}

func mustContain(t *testing.T, text string, wants ...string) {
	t.Helper()
	for _, want := range wants {
		if !strings.Contains(text, want) {
			t.Errorf("%q does not contain %q", text, want)
		}
	}
}

// TestCloseReleasesAnAgentThatNeverRan: after Close, its addresses and its data directory
// can be used again.
func TestCloseReleasesAnAgentThatNeverRan(t *testing.T) {
	t.Parallel()
	s := settings{dataDir: t.TempDir(), remote: newRepo(t).Dir, kubeconfig: clustertest.Shared(t).Kubeconfig()}
	cfg, _, err := Kinds().LoadPiped(s.configFile(t))
	if err != nil {
		t.Fatal(err)
	}
	// Not free ports of the system, which it may give to another test meanwhile.
	if cfg.API.Address, cfg.Web.Address, err = agenttest.FreeAddresses(); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		agent, err := New(t.Context(), cfg, Options{Logger: testLogger(t)})
		if err != nil {
			t.Fatal(err)
		}
		if err := agent.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

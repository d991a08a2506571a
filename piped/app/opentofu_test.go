package app

import (
	"bytes"
	"cmp"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/c785c783/piped/executor/opentofu/opentofutest"
	"github.com/c785c783/piped/piped/git/gittest"
	controlv1 "github.com/c785c783/piped/proto/piped/control/v1"
	modelv1 "github.com/c785c783/piped/proto/piped/model/v1"
)

// infra is an OpenTofu application in a repository, with its state and the files that it makes on
// this machine.
type infra struct {
	t          *testing.T
	repo       *gittest.Repo
	dir        string // of the state and the files
	rc         string
	program    string // OpenTofu, or what runs it
	provider   string // the type of the platform provider; default OPENTOFU
	c          *client
	stop       func() // stops the agent that start has started, and with it comparisons that run
	s          settings
	moreConfig string // of the platform provider
}

func newInfra(t *testing.T) *infra {
	t.Helper()
	return &infra{t: t, repo: newRepo(t), dir: t.TempDir(), rc: opentofutest.CLIConfig(t), program: opentofutest.Program(t)}
}

// start runs the agent.
func (i *infra) start() {
	i.t.Helper()
	i.s = settings{dataDir: i.t.TempDir(), remote: i.repo.Dir, more: i.s.more, providers: fmt.Sprintf(
		"[{name: tofu, type: %s, config: {program: %q, cliConfigFile: %q, driftDetectionEnabled: true%s}}]", cmp.Or(i.provider, "OPENTOFU"), i.program, i.rc, i.moreConfig)}
	i.c, i.stop = runFilesAgentUntil(i.t, i.s)
}

// app returns the configuration of the application with more lines of its spec.
func (i *infra) app(spec string) string {
	return "apiVersion: pipecd.dev/v1beta1\nkind: OpenTofuApp\nspec:\n  name: net\n" + spec
}

// code returns a configuration of OpenTofu whose state is on this machine.
func (i *infra) code(resources string) string {
	return fmt.Sprintf(`terraform {
  required_version = ">= 1.8"
  required_providers {
    sample = { source = "example.com/piped/sample" }
  }
  backend "local" { path = %q }
}
`, filepath.Join(i.dir, "state.tfstate")) + resources
}

func (i *infra) file(name string) string { return filepath.Join(i.dir, name) }

func (i *infra) holds(name, want string) {
	i.t.Helper()
	if got, _ := os.ReadFile(i.file(name)); string(got) != want {
		i.t.Errorf("file %s holds %q, want %q", name, got, want)
	}
}

func (i *infra) resource(name, content, more string) string {
	return fmt.Sprintf("resource \"sample_file\" %q {\n  path = %q\n  content = %q\n%s\n}\n", name, i.file(name), content, more)
}

// TestOpenTofu deploys a configuration from commits: quick syncs with a failure and its rollback,
// a plan that is approved and applied, and drift that is found and healed.
func TestOpenTofu(t *testing.T) {
	t.Parallel()
	i := newInfra(t)
	secret := "  secret = \"top-secret-value\""
	first := i.repo.Push(t, "add", map[string]string{
		"net/app.pipecd.yaml": i.app("  input: {autoRollback: true}\n"),
		"net/main.tf":         i.code(i.resource("a", "one", secret) + "output \"where\" {\n  value = sample_file.a.id\n}\noutput \"hidden\" {\n  value = sample_file.a.secret\n  sensitive = true\n}\n"),
	})
	i.start()
	c, app := i.c, appID("net")
	d := c.mustEnd(app, first, modelv1.DeploymentStatus_DEPLOYMENT_SUCCESS)
	i.holds("a", "one")
	log := c.logs(d.GetId())
	for _, want := range []string{"sample_file.a", "1 to create", "(sensitive value)"} {
		if !strings.Contains(log, want) {
			t.Errorf("the log misses %q:\n%s", want, log)
		}
	}
	if strings.Contains(log, "top-secret-value") {
		t.Errorf("the log has a sensitive value:\n%s", log)
	}
	c.awaitSyncState(app, modelv1.ApplicationSyncStatus_SYNCED)
	c.wantLive(app, modelv1.Health_HEALTH_HEALTHY, "sample_file a HEALTHY declared", "output hidden HEALTHY declared", "output where HEALTHY declared")

	bad := i.repo.Push(t, "poison", map[string]string{"net/main.tf": i.code(i.resource("a", "two", "") + i.resource("b", "poison", ""))})
	d = c.mustEnd(app, bad, modelv1.DeploymentStatus_DEPLOYMENT_FAILURE)
	i.holds("a", "one")
	if last := d.GetStages()[len(d.GetStages())-1]; last.GetName() != "ROLLBACK" || last.GetStatus() != modelv1.StageStatus_STAGE_SUCCESS {
		t.Errorf("the deployment ended because %q, with the stages %v", d.GetStatusReason(), d.GetStages())
	}

	pipeline := "  pipeline:\n    stages: [{name: TERRAFORM_PLAN, id: plan, with: {exitOnNoChanges: true}}, {name: WAIT_APPROVAL, id: ok, with: {approvers: []}}, {name: TERRAFORM_APPLY, id: apply}]\n"
	third := i.repo.Push(t, "pipeline", map[string]string{
		"net/app.pipecd.yaml": i.app(pipeline), "net/main.tf": i.code(i.resource("a", "three", secret) + i.resource("b", "new", "")),
	})
	d = c.awaitStage(app, third, "ok")
	i.holds("a", "one")
	if got := stageOf(t, d, "plan").GetMetadata()["plan"]; got != "1 to create, 1 to update, 0 to delete, 0 to replace, 2 outputs to change" {
		t.Errorf("the plan is %q", got)
	}
	c.approve(d)
	d = c.mustEnd(app, third, modelv1.DeploymentStatus_DEPLOYMENT_SUCCESS)
	i.holds("a", "three")
	i.holds("b", "new")
	if log := c.logs(d.GetId()); !strings.Contains(log, "plan "+stageOf(t, d, "plan").GetMetadata()["planDigest"][:12]) {
		t.Errorf("the approval does not name the plan:\n%s", log)
	}

	same := i.repo.Push(t, "same", map[string]string{"net/main.tf": i.code(i.resource("a", "three", secret)+i.resource("b", "new", "")) + "# a remark\n"})
	d = c.mustEnd(app, same, modelv1.DeploymentStatus_DEPLOYMENT_SUCCESS)
	if got := stageOf(t, d, "apply").GetStatus(); got != modelv1.StageStatus_STAGE_NOT_STARTED_YET {
		t.Errorf("without changes, the stage after the plan is %v", got)
	}

	c.awaitSyncState(app, modelv1.ApplicationSyncStatus_SYNCED)
	if err := os.WriteFile(i.file("b"), []byte("edited"), 0o600); err != nil {
		t.Fatal(err)
	}
	report := i.drift(app)
	if objects := report.GetObjects(); len(objects) != 1 || len(objects[0].GetFields()) != 1 || objects[0].GetFields()[0].GetPath() != "content" || objects[0].GetFields()[0].GetLiveValue() != `"edited"` {
		t.Errorf("the report is %v", report)
	}
	c.awaitSyncState(app, modelv1.ApplicationSyncStatus_OUT_OF_SYNC)
	if err := os.Remove(i.file("b")); err != nil {
		t.Fatal(err)
	}
	if objects := i.drift(app).GetObjects(); len(objects) != 1 || objects[0].GetKind() != modelv1.DriftKind_DRIFT_KIND_MISSING {
		t.Errorf("the report is %v", objects)
	}
	c.wantLive(app, modelv1.Health_HEALTH_MISSING, "sample_file a HEALTHY declared", "sample_file b MISSING declared")
	if cmd := c.answer(c.sync(app).GetId()); cmd.GetStatus() != modelv1.CommandStatus_COMMAND_SUCCEEDED {
		t.Fatalf("the sync was answered with %v", cmd)
	}
	d = c.awaitStage(app, same, "ok")
	c.approve(d)
	c.awaitSyncState(app, modelv1.ApplicationSyncStatus_SYNCED)
	i.holds("b", "new")
	i.stop() // a comparison may run, which has files
	mustBeNowhere(t, i.s.dataDir, "top-secret-value")
}

// drift compares the resources now.
func (i *infra) drift(app string) *modelv1.DriftReport {
	i.t.Helper()
	report, err := i.c.control.GetDriftReport(i.c.ctx, &controlv1.GetDriftReportRequest{ApplicationId: app, Refresh: true})
	if err != nil {
		i.t.Fatal(err)
	}
	return report.GetReport()
}

// mustBeNowhere checks that no file below a directory has the text, and that no run has left files.
func mustBeNowhere(t *testing.T, dir, text string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		if strings.Contains(name, "/run-") {
			t.Errorf("%s is left of a run", name)
		}
		data, err := os.ReadFile(name)
		if bytes.Contains(data, []byte(text)) && !strings.Contains(name, "/git/") && !strings.HasSuffix(name, ".pack") {
			t.Errorf("%s has %q", name, text)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}

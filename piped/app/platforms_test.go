package app

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/c785c783/piped/proto/pipecd/apiservice"
	controlv1 "github.com/c785c783/piped/proto/piped/control/v1"
	modelv1 "github.com/c785c783/piped/proto/piped/model/v1"
)

// runFilesAgent runs an agent that also deploys applications of kind FILES.
func runFilesAgent(t *testing.T, s settings) *client {
	t.Helper()
	c, _ := runFilesAgentUntil(t, s)
	return c
}

// runFilesAgentUntil is runFilesAgent for an agent that stop may stop earlier.
func runFilesAgentUntil(t *testing.T, s settings) (c *client, stop func()) {
	t.Helper()
	o := Options{Version: "test", Logger: testLogger(t), LeaseEvery: -1, platforms: []entry{filesEntry()}}
	cfg, _, err := o.kinds().LoadPiped(s.configFile(t))
	if err != nil {
		t.Fatal(err)
	}
	createStore(t, s.dataDir)
	ctx, cancel := context.WithCancel(context.Background())
	agent, err := New(ctx, cfg, o)
	if err != nil {
		cancel()
		t.Fatal(err)
	}
	stop = runUntil(t, ctx, agent, cancel)
	c = dial(t, agent.APIAddr(), s.dataDir)
	c.web = "http://" + agent.WebAddr()
	return c, stop
}

// TestAnotherPlatform deploys to a directory through a platform that is only an entry in
// the table of kinds: from a commit through the plan, the stage, the rollback of a
// failure and drift to the live state.
func TestAnotherPlatform(t *testing.T) {
	t.Parallel()
	repo, shelf := newRepo(t), t.TempDir()
	const head = "apiVersion: pipecd.dev/v1beta1\nkind: FilesApp\nspec:\n  name: notes\n  header: \"# \"\n"
	first := repo.Push(t, "add notes", map[string]string{"notes/app.pipecd.yaml": head, "notes/a": "one", "notes/b": "two"})
	s := settings{dataDir: t.TempDir(), remote: repo.Dir}
	s.providers = fmt.Sprintf("[{name: cluster, type: KUBERNETES, config: {kubeConfigPath: %s/none}}, {name: shelf, type: FILES, config: {path: %s}}]", shelf, shelf)
	c, app := runFilesAgent(t, s), appID("notes")
	holds := func(when, a, b string) {
		t.Helper()
		for name, want := range map[string]string{"a": a, "b": b} {
			if got, _ := os.ReadFile(filepath.Join(shelf, "notes", name)); string(got) != want {
				t.Errorf("%s: file %s holds %q, want %q", when, name, got, want)
			}
		}
	}

	d := c.mustEnd(app, first, modelv1.DeploymentStatus_DEPLOYMENT_SUCCESS)
	holds("after the first deployment", "# one", "# two")
	if d.GetSummary() != "Copy 2 files" || d.GetPlatformProvider() != "shelf" || d.GetKind() != -1 {
		t.Errorf("the deployment is %v", d)
	}
	if !strings.Contains(c.logs(d.GetId()), "Wrote b") {
		t.Errorf("its log is\n%s", c.logs(d.GetId()))
	}
	c.awaitSyncState(app, modelv1.ApplicationSyncStatus_SYNCED)
	c.wantLive(app, modelv1.Health_HEALTH_HEALTHY, "File a HEALTHY declared", "File b HEALTHY declared")

	bad := repo.Push(t, "poison b", map[string]string{"notes/a": "three", "notes/b": poison})
	d = c.mustEnd(app, bad, modelv1.DeploymentStatus_DEPLOYMENT_FAILURE)
	holds("after the rollback", "# one", "# two")
	if last := d.GetStages()[len(d.GetStages())-1]; last.GetName() != "ROLLBACK" || last.GetStatus() != modelv1.StageStatus_STAGE_SUCCESS || !strings.Contains(d.GetStatusReason(), "b is poisoned") {
		t.Errorf("the deployment ended because %q, with the stages %v", d.GetStatusReason(), d.GetStages())
	}
	good := repo.Push(t, "replace b", map[string]string{"notes/a": "three", "notes/b": "four"})
	c.mustEnd(app, good, modelv1.DeploymentStatus_DEPLOYMENT_SUCCESS)
	holds("after the third deployment", "# three", "# four")
	c.awaitSyncState(app, modelv1.ApplicationSyncStatus_SYNCED)

	write := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(shelf, "notes", name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("a", "edited")
	state := c.awaitSyncState(app, modelv1.ApplicationSyncStatus_OUT_OF_SYNC)
	if !strings.Contains(state.GetShortReason()+state.GetReason(), "File") {
		t.Errorf("the drift is %v", state)
	}
	report, err := c.control.GetDriftReport(c.ctx, &controlv1.GetDriftReportRequest{ApplicationId: app, Refresh: true})
	if err != nil {
		t.Fatal(err)
	}
	if objects := report.GetReport().GetObjects(); len(objects) != 1 || objects[0].GetFields()[0].GetPath() != "text" {
		t.Errorf("the report is %v", report)
	}
	write("a", "# three")
	c.awaitSyncState(app, modelv1.ApplicationSyncStatus_SYNCED)
	if err := os.Remove(filepath.Join(shelf, "notes", "b")); err != nil {
		t.Fatal(err)
	}
	c.awaitSyncState(app, modelv1.ApplicationSyncStatus_OUT_OF_SYNC)
	c.wantLive(app, modelv1.Health_HEALTH_MISSING, "File a HEALTHY declared", "File b MISSING declared")
	if cmd := c.answer(c.sync(app).GetId()); cmd.GetStatus() != modelv1.CommandStatus_COMMAND_SUCCEEDED {
		t.Fatalf("the sync was answered with %v", cmd)
	}
	c.awaitSyncState(app, modelv1.ApplicationSyncStatus_SYNCED)
	holds("after the sync", "# three", "# four")

	_, err = c.control.DeleteApplication(c.ctx, &controlv1.DeleteApplicationRequest{ApplicationId: app, Cascade: true})
	if err == nil || !strings.Contains(err.Error(), "of kind FILES cannot be deleted") {
		t.Errorf("deleting the application with its files: %v", err)
	}

	// A deployed application keeps its kind.
	repo.Push(t, "change the kind", map[string]string{"notes/app.pipecd.yaml": strings.Replace(head, "FilesApp", "KubernetesApp", 1), "notes/a": "five"})
	state = c.awaitSyncState(app, modelv1.ApplicationSyncStatus_INVALID_CONFIG)
	if !strings.Contains(state.GetReason(), "of kind FILES, and the file is of kind KUBERNETES") {
		t.Errorf("the reason is %q", state.GetReason())
	}
	holds("after the change of the kind", "# three", "# four")
	listed, err := c.api.ListApplications(c.ctx, &apiservice.ListApplicationsRequest{Kind: "KUBERNETES"})
	if err != nil || len(listed.GetApplications()) != 0 {
		t.Errorf("applications of kind KUBERNETES: %v, %v", listed, err)
	}
}

// TestPlatformOfAnUnknownKind: how an agent without a platform treats applications of its
// kind.
func TestPlatformOfAnUnknownKind(t *testing.T) {
	t.Parallel()
	ps := platforms{kinds: Kinds(), all: map[string]platform{}}
	if _, err := ps.of(filesKind); err == nil || !strings.Contains(err.Error(), "does not deploy applications of kind FILES") {
		t.Errorf("got %v", err)
	}
}

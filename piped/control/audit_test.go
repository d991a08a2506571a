package control_test

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/c785c783/piped/piped/control"
	"github.com/c785c783/piped/piped/control/controltest"
	"github.com/c785c783/piped/proto/pipecd/apiservice"
	controlv1 "github.com/c785c783/piped/proto/piped/control/v1"
	modelv1 "github.com/c785c783/piped/proto/piped/model/v1"
)

// audited returns the records of an audit file, each field by its path.
func audited(t *testing.T, path string) (out []map[string]string) {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for line := range bytes.Lines(data) {
		var record map[string]any
		if err := json.Unmarshal(line, &record); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		flat := map[string]string{}
		for key, value := range record {
			if group, ok := value.(map[string]any); ok {
				for field, value := range group {
					text, _ := json.Marshal(value)
					flat[key+": "+field] = strings.Trim(string(text), `"`)
				}
				continue
			}
			text, _ := json.Marshal(value)
			flat[key] = strings.Trim(string(text), `"`)
		}
		out = append(out, flat)
	}
	return out
}

func TestChangesAreRecorded(t *testing.T) {
	out, path := &logs{}, filepath.Join(t.TempDir(), "audit.jsonl")
	agent := controltest.Start(t, t.TempDir(), func(c *control.Config) {
		c.AuditFile, c.Logger = path, slog.New(slog.NewTextHandler(out, &slog.HandlerOptions{Level: slog.LevelError})) // whose level does not hide records
	})
	conn := dial(t, agent.Server.Addr())
	apis, client := apiservice.NewAPIServiceClient(conn), controlv1.NewControlServiceClient(conn)
	app := agent.Application("web", nil)
	write, read := as(t, agent.ReadWrite), as(t, agent.ReadOnly)
	wrong := as(t, agent.ReadWrite+"x")

	// Reads and unauthenticated calls are not recorded.
	_, _ = apis.ListApplications(write, &apiservice.ListApplicationsRequest{})
	_, _ = client.ListAPIKeys(write, &controlv1.ListAPIKeysRequest{})
	_, _ = apis.GetPlanPreviewResults(write, &apiservice.GetPlanPreviewResultsRequest{Commands: []string{"c"}})
	_, _ = apis.SyncApplication(wrong, &apiservice.SyncApplicationRequest{ApplicationId: app.ID})
	_, _ = apis.Encrypt(write, &apiservice.EncryptRequest{Plaintext: "hunter2", PipedId: controltest.PipedID})
	if records := audited(t, path); records != nil {
		t.Errorf("recorded: %v", records)
	}

	sync, err := client.SyncApplication(write, &controlv1.SyncApplicationRequest{ApplicationId: app.ID, Strategy: modelv1.SyncStrategy_PIPELINE, Commit: "0123456"})
	if err != nil {
		t.Fatal(err)
	}
	_, _ = apis.SyncApplication(read, &apiservice.SyncApplicationRequest{ApplicationId: app.ID})
	_, _ = apis.SyncApplication(write, &apiservice.SyncApplicationRequest{})
	_, _ = apis.RegisterEvent(write, &apiservice.RegisterEventRequest{Name: "image-pushed", Data: "hunter2", Labels: map[string]string{"hunter2": "hunter2"}})
	made, err := client.CreateAPIKey(write, &controlv1.CreateAPIKeyRequest{Name: "ci", Role: modelv1.APIKey_READ_WRITE})
	if err != nil {
		t.Fatal(err)
	}
	_, _ = client.DisableAPIKey(write, &controlv1.DisableAPIKeyRequest{Id: made.Key})
	_, _ = client.CancelDeployment(write, &controlv1.CancelDeploymentRequest{DeploymentId: strings.Repeat("é", 200), ForceRollback: true})
	_, _ = apis.AddApplication(write, &apiservice.AddApplicationRequest{Name: "api", PipedId: "p", GitPath: &modelv1.ApplicationGitPath{
		Repo: &modelv1.ApplicationGitRepository{Id: "apps", Remote: "https://hunter2@git"}, Path: "api", ConfigFilename: "app.pipecd.yaml",
	}})

	ownID, secret, _ := strings.Cut(agent.ReadWrite, ".")
	readID, _, _ := strings.Cut(agent.ReadOnly, ".")
	madeID, madeSecret, _ := strings.Cut(made.Key, ".")
	const apiPath, controlPath = "grpc.service.apiservice.APIService/", "piped.control.v1.ControlService/"
	want := []map[string]string{
		{"method": controlPath + "SyncApplication", "code": "OK", "target: application_id": app.ID, "target: commit": "0123456", "target: strategy": "PIPELINE", "result: command_id": sync.CommandId},
		{"method": apiPath + "SyncApplication", "code": "PermissionDenied", "key": readID, "subject": "watcher", "target: application_id": app.ID},
		{"method": apiPath + "SyncApplication", "code": "InvalidArgument"},
		{"method": apiPath + "RegisterEvent", "code": "OK", "target: name": "image-pushed"},
		{"method": controlPath + "CreateAPIKey", "code": "OK", "target: name": "ci", "target: role": "READ_WRITE", "result: api_key.id": madeID},
		{"method": controlPath + "DisableAPIKey", "code": "InvalidArgument", "target: id": madeID + ".[redacted]"},
		{"method": controlPath + "CancelDeployment", "code": "NotFound", "target: deployment_id": strings.Repeat("é", 128) + "…", "target: force_rollback": "true"},
		{"method": apiPath + "AddApplication", "code": "NotFound", "target: name": "api", "target: piped_id": "p",
			"target: git_path.repo.id": "apps", "target: git_path.path": "api", "target: git_path.config_filename": "app.pipecd.yaml"},
	}
	got := audited(t, path)
	for i := range got {
		if got[i]["remote"] != "127.0.0.1" || got[i]["time"] == "" || got[i]["duration"] == "" || got[i]["level"] != "INFO" {
			t.Errorf("record %d: %v", i, got[i])
		}
		for _, always := range []string{"remote", "time", "duration", "level", "msg", "result: event_id"} {
			delete(got[i], always)
		}
	}
	for _, w := range want {
		if w["key"] == "" {
			w["key"], w["subject"] = ownID, "owner"
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("records (-want +got):\n%s", diff)
	}
	if n := strings.Count(out.String(), "component=audit"); n != 0 {
		t.Errorf("%d records in the log, want them in the file alone:\n%s", n, out)
	}
	file, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, hidden := range []string{"hunter2", secret, madeSecret} {
		if strings.Contains(out.String(), hidden) || bytes.Contains(file, []byte(hidden)) {
			t.Errorf("%q is recorded", hidden)
		}
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the file's mode is %v, %v", info.Mode(), err)
	}
}

// TestTargetsOfRegistrationAreRecorded: deploy targets and renamed applications are recorded
// also for denied calls.
func TestTargetsOfRegistrationAreRecorded(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.jsonl")
	agent := controltest.Start(t, t.TempDir(), func(c *control.Config) { c.AuditFile = path })
	apis, read := apiservice.NewAPIServiceClient(dial(t, agent.Server.Addr())), as(t, agent.ReadOnly)
	_, _ = apis.UpdateApplication(read, &apiservice.UpdateApplicationRequest{ApplicationId: "a", PlatformProvider: "prod"})
	_, _ = apis.UpdateApplicationDeployTargets(read, &apiservice.UpdateApplicationDeployTargetsRequest{
		ApplicationId: "a", DeployTargetsByPlugin: map[string]*modelv1.DeployTargets{"kubernetes": {DeployTargets: []string{"prod"}}},
	})
	_, _ = apis.RenameApplicationConfigFile(read, &apiservice.RenameApplicationConfigFileRequest{ApplicationIds: []string{"a", "b"}, NewFilename: "x.pipecd.yaml"})
	want := []map[string]string{
		{"target: application_id": "a", "target: platform_provider": "prod"},
		{"target: application_id": "a", "target: deploy_targets_by_plugin.deploy_targets": `["prod"]`},
		{"target: application_ids": `["a","b"]`, "target: new_filename": "x.pipecd.yaml"},
	}
	got := audited(t, path)
	for _, record := range got {
		maps.DeleteFunc(record, func(key, _ string) bool { return !strings.HasPrefix(key, "target: ") })
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("records (-want +got):\n%s", diff)
	}
}

// TestAuditFileThatIsRotated: a moved file is created again. While that is impossible, one
// error is logged, the log has the records, and calls continue.
func TestAuditFileThatIsRotated(t *testing.T) {
	out, dir := &logs{}, t.TempDir()
	folder := filepath.Join(dir, "log")
	path := filepath.Join(folder, "audit.jsonl")
	if err := os.Mkdir(folder, 0o700); err != nil {
		t.Fatal(err)
	}
	ctx, client, agent := api(t, func(c *control.Config) {
		c.AuditFile, c.Logger = path, slog.New(slog.NewTextHandler(out, nil))
	})
	app := agent.Application("web", nil)
	change := func() {
		t.Helper()
		if _, err := client.SyncApplication(ctx, &apiservice.SyncApplicationRequest{ApplicationId: app.ID}); err != nil {
			t.Fatal(err)
		}
	}
	rename := func(from, to string) {
		t.Helper()
		if err := os.Rename(from, to); err != nil {
			t.Fatal(err)
		}
	}
	change()
	rename(path, path+".1")
	change()
	change()
	if len(audited(t, path+".1")) != 1 || len(audited(t, path)) != 2 {
		t.Error("the file that was moved was written to, or no new one was made")
	}
	rename(folder, folder+".gone")
	change()
	change()
	if n := strings.Count(out.String(), "CANNOT WRITE THE AUDIT FILE"); n != 1 || strings.Count(out.String(), "component=audit") != 2+1 || strings.Contains(out.String(), "component=control component") {
		t.Errorf("logged %d times:\n%s", n, out)
	}
	rename(folder+".gone", folder)
	change()
	if len(audited(t, path)) != 3 || !strings.Contains(out.String(), "missed=2") {
		t.Errorf("after it can be written again: %v\n%s", audited(t, path), out)
	}
}

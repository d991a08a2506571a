package pipectl_test

import (
	"context"
	"errors"
	"flag"
	"net"
	"os"
	"path"
	"path/filepath"
	"strings"
	gosync "sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/c785c783/piped/proto/pipecd/apiservice"
	controlv1 "github.com/c785c783/piped/proto/piped/control/v1"
	modelv1 "github.com/c785c783/piped/proto/piped/model/v1"
)

var update = flag.Bool("update", false, "write the golden files anew")

// recorded is a server that answers every call with the recorded answer of its method,
// and stores the requests.
type recorded struct {
	address string
	answers map[string][]any // by method: messages and errors; the last one is repeated

	mu       gosync.Mutex
	requests []proto.Message
	key      []string
}

func answering(t *testing.T, answers map[string][]any) *recorded {
	t.Helper()
	r := &recorded{answers: answers}
	server := grpc.NewServer(grpc.UnaryInterceptor(r.answer))
	apiservice.RegisterAPIServiceServer(server, apiservice.UnimplementedAPIServiceServer{})
	controlv1.RegisterControlServiceServer(server, controlv1.UnimplementedControlServiceServer{})
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r.address = listener.Addr().String()
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	t.Cleanup(func() {
		server.Stop()
		if err := <-served; err != nil && !errors.Is(err, grpc.ErrServerStopped) {
			t.Error(err)
		}
	})
	return r
}

func (r *recorded) answer(ctx context.Context, req any, info *grpc.UnaryServerInfo, _ grpc.UnaryHandler) (any, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, resolves := req.(*controlv1.ResolveRequest); !resolves { // names are not resolved: no answer is recorded
		r.requests = append(r.requests, req.(proto.Message))
	}
	r.key = metadata.ValueFromIncomingContext(ctx, "authorization")
	method := path.Base(info.FullMethod)
	all := r.answers[method]
	if len(all) == 0 {
		return nil, status.Errorf(codes.Unimplemented, "nothing is recorded for %s", method)
	}
	if len(all) > 1 {
		r.answers[method] = all[1:]
	}
	if err, ok := all[0].(error); ok {
		return nil, err
	}
	return all[0], nil
}

// run runs pipectl against the recorded server.
func (r *recorded) run(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	return run(t.Context(), append(args, "--insecure", "--api-key=id.secret", "--address="+r.address)...)
}

// golden compares a text with the golden file of a case.
func golden(t *testing.T, name, got string) {
	t.Helper()
	file := filepath.Join("testdata", "golden", name)
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", file, diff)
	}
}

// previews are the results recorded with PipeCD's pipectl.
func previews() *apiservice.GetPlanPreviewResultsResponse {
	return &apiservice.GetPlanPreviewResultsResponse{Results: []*modelv1.PlanPreviewCommandResult{
		{CommandId: "pp-full", PipedId: "piped-1", PipedName: "p1", Results: []*modelv1.ApplicationPlanPreviewResult{
			{
				ApplicationId: "app-2", ApplicationName: "zeta", ApplicationDirectory: "zeta", Labels: map[string]string{"env": "dev"},
				SyncStrategy: modelv1.SyncStrategy_PIPELINE, PlanSummary: []byte("2 added"), PlanDetails: []byte("+ foo"),
			},
			{
				ApplicationId: "app-3", ApplicationName: "mid", Labels: map[string]string{"env": "dev"}, Error: "boom",
			},
			{
				ApplicationId: "app-1", ApplicationName: "alpha", ApplicationUrl: "https://piped.example/applications/app-1",
				SyncStrategy: modelv1.SyncStrategy_PIPELINE, PluginNames: []string{"kubernetes", "wait"},
				PluginPlanResults: []*modelv1.PluginPlanPreviewResult{{
					PluginName: "kubernetes", DeployTarget: "dt1", PlanSummary: []byte("1 changed"), PlanDetails: []byte("- bar"), DiffLanguage: "diff",
				}},
			},
		}},
		{CommandId: "pp-off", PipedId: "piped-0", PipedName: "p0", Error: "Maybe Piped is offline currently."},
	}}
}

func exampleApplication() *modelv1.Application {
	return &modelv1.Application{
		Id: "app-1", Name: "web", PipedId: "piped-1", ProjectId: "project-1", PlatformProvider: "dev",
		GitPath: &modelv1.ApplicationGitPath{
			Repo: &modelv1.ApplicationGitRepository{Id: "apps", Remote: "git@example.com:apps.git", Branch: "main"}, Path: "web", ConfigFilename: "app.pipecd.yaml",
		},
		Labels: map[string]string{"env": "dev", "area": "<shop>"}, SyncState: &modelv1.ApplicationSyncState{Status: modelv1.ApplicationSyncStatus_OUT_OF_SYNC, Timestamp: 1700000000},
		CreatedAt: 1700000000, UpdatedAt: 1700000001,
	}
}

// TestShapesOfTheRealOne: the output equals the recorded output of PipeCD's pipectl for
// the same answers.
func TestShapesOfTheRealOne(t *testing.T) {
	notFound := status.Error(codes.NotFound, "Waiting for result of command pp-full from piped piped-1")
	preview := []string{"plan-preview", "--repo-remote-url=git@example.com:apps.git", "--head-branch=change", "--head-commit=0123456", "--base-branch=main"}
	tests := map[string]struct {
		args    []string
		answers map[string][]any
		request proto.Message // the first request
		code    int
	}{
		"application-get": {
			args:    []string{"application", "get", "--app-id=app-1"},
			answers: map[string][]any{"GetApplication": {&apiservice.GetApplicationResponse{Application: exampleApplication()}}},
			request: &apiservice.GetApplicationRequest{ApplicationId: "app-1"},
		},
		"application-list": {
			args:    []string{"application", "list", "--label=env:dev", "--app-kind=KUBERNETES", "--disabled", "--cursor=c"},
			answers: map[string][]any{"ListApplications": {&apiservice.ListApplicationsResponse{Applications: []*modelv1.Application{exampleApplication()}, Cursor: "next"}}},
			request: &apiservice.ListApplicationsRequest{Kind: "KUBERNETES", Disabled: true, Labels: map[string]string{"env": "dev"}, Limit: 100, Cursor: "c"},
		},
		"application-list-empty": {
			args:    []string{"application", "list"},
			answers: map[string][]any{"ListApplications": {&apiservice.ListApplicationsResponse{}}},
			request: &apiservice.ListApplicationsRequest{Limit: 100},
		},
		"application-add": {
			args: []string{"application", "add", "--app-name=web", "--app-kind=KUBERNETES", "--piped-id=piped-1", "--platform-provider=dev",
				"--repo-id=apps", "--app-dir=web", "--labels=env=dev,area=shop", "--description=the web"},
			answers: map[string][]any{"AddApplication": {&apiservice.AddApplicationResponse{ApplicationId: "app-1"}}},
			request: &apiservice.AddApplicationRequest{
				Name: "web", PipedId: "piped-1", PlatformProvider: "dev", Description: "the web", Labels: map[string]string{"env": "dev", "area": "shop"},
				GitPath: &modelv1.ApplicationGitPath{Repo: &modelv1.ApplicationGitRepository{Id: "apps"}, Path: "web", ConfigFilename: "app.pipecd.yaml"},
			},
		},
		"application-delete": {
			args:    []string{"application", "delete", "--app-id=app-1"},
			answers: map[string][]any{"DeleteApplication": {&apiservice.DeleteApplicationResponse{ApplicationId: "app-1"}}},
			request: &apiservice.DeleteApplicationRequest{ApplicationId: "app-1"},
		},
		"application-disable": {
			args:    []string{"application", "disable", "--app-id=app-1"},
			answers: map[string][]any{"DisableApplication": {&apiservice.DisableApplicationResponse{ApplicationId: "app-1"}}},
			request: &apiservice.DisableApplicationRequest{ApplicationId: "app-1"},
		},
		"deployment-list": {
			args: []string{"deployment", "list", "--status=DEPLOYMENT_PENDING,DEPLOYMENT_SUCCESS", "--app-id=app-1", "--app-kind=KUBERNETES"},
			answers: map[string][]any{"ListDeployments": {&apiservice.ListDeploymentsResponse{Deployments: []*modelv1.Deployment{
				{Id: "d1", ApplicationId: "app-1", Stages: []*modelv1.PipelineStage{{Id: "s1", Name: "K8S_SYNC"}}},
				{Id: "d2", Status: modelv1.DeploymentStatus_DEPLOYMENT_SUCCESS, MetadataV2: &modelv1.DeploymentMetadata{
					Shared: &modelv1.DeploymentMetadata_KeyValues{KeyValues: map[string]string{"b": "2", "a": "1"}},
				}},
			}, Cursor: "next"}}},
			request: &apiservice.ListDeploymentsRequest{Statuses: []string{"DEPLOYMENT_PENDING", "DEPLOYMENT_SUCCESS"}, ApplicationIds: []string{"app-1"}, Kinds: []string{"KUBERNETES"}, Limit: 30},
		},
		"deployment-logs": {
			args: []string{"deployment", "logs", "--deployment-id=d1"},
			answers: map[string][]any{"ListStageLogs": {&apiservice.ListStageLogsResponse{StageLogs: map[string]*apiservice.StageLog{
				"s2": {}, "s1": {Completed: true, Blocks: []*modelv1.LogBlock{
					{Log: "applying", CreatedAt: 1700000000}, {Index: 1, Log: "a && b", Severity: modelv1.LogSeverity_SUCCESS, CreatedAt: 1700000001},
				}},
			}}}},
			request: &apiservice.ListStageLogsRequest{DeploymentId: "d1"},
		},
		"event-register": {
			args: []string{"event", "register", "--name=image", "--data=v2", "--labels=app=web", "--contexts=Source-Commit=abc,Build=7",
				"--commit-hash=abc", "--commit-title=t", "--commit-message=m", "--commit-url=u", "--commit-author=a", "--commit-timestamp=7"},
			answers: map[string][]any{"RegisterEvent": {&apiservice.RegisterEventResponse{EventId: "event-1"}}},
			request: &apiservice.RegisterEventRequest{
				Name: "image", Data: "v2", Labels: map[string]string{"app": "web"}, Contexts: map[string]string{"Source-Commit": "abc", "Build": "7"},
				CommitHash: "abc", CommitTitle: "t", CommitMessage: "m", CommitUrl: "u", CommitAuthor: "a", CommitTimestamp: 7,
			},
		},
		"encrypt": {
			args:    []string{"encrypt", "--piped-id=piped-1", "--use-base64-encoding", "--input-file=testdata/secret.txt"},
			answers: map[string][]any{"Encrypt": {&apiservice.EncryptResponse{Ciphertext: "c2VjcmV0"}}},
			request: &apiservice.EncryptRequest{PipedId: "piped-1", Plaintext: "a secret with its newline\n", Base64Encoding: true},
		},
		"piped-enable": {
			args:    []string{"piped", "enable", "--piped-id=piped-1"},
			answers: map[string][]any{"EnablePiped": {&apiservice.EnablePipedResponse{}}},
			request: &apiservice.EnablePipedRequest{PipedId: "piped-1"},
		},
		"piped-disable-fails": {
			args:    []string{"piped", "disable", "--piped-id=piped-2"},
			answers: map[string][]any{"DisablePiped": {status.Error(codes.NotFound, "Piped is not found")}},
			request: &apiservice.DisablePipedRequest{PipedId: "piped-2"},
			code:    1,
		},
		"plan-preview": {
			args: preview,
			answers: map[string][]any{
				"RequestPlanPreview":    {&apiservice.RequestPlanPreviewResponse{Commands: []string{"pp-full"}}},
				"GetPlanPreviewResults": {notFound, previews()},
			},
			request: &apiservice.RequestPlanPreviewRequest{RepoRemoteUrl: "git@example.com:apps.git", HeadBranch: "change", HeadCommit: "0123456", BaseBranch: "main", Timeout: 300},
		},
		"plan-preview-nothing": {
			args: preview,
			answers: map[string][]any{
				"RequestPlanPreview":    {&apiservice.RequestPlanPreviewResponse{Commands: []string{"a", "b"}}},
				"GetPlanPreviewResults": {&apiservice.GetPlanPreviewResultsResponse{}},
			},
			request: &apiservice.RequestPlanPreviewRequest{RepoRemoteUrl: "git@example.com:apps.git", HeadBranch: "change", HeadCommit: "0123456", BaseBranch: "main", Timeout: 300},
		},
		"plan-preview-nobody": {
			args:    append([]string{"--piped-handle-timeout=1m"}, preview...),
			answers: map[string][]any{"RequestPlanPreview": {&apiservice.RequestPlanPreviewResponse{}}},
			request: &apiservice.RequestPlanPreviewRequest{RepoRemoteUrl: "git@example.com:apps.git", HeadBranch: "change", HeadCommit: "0123456", BaseBranch: "main", Timeout: 60},
		},
		"migrate-database": {
			args: []string{"migrate", "database", "--applications=app-1"},
			answers: map[string][]any{
				"GetApplication":                 {&apiservice.GetApplicationResponse{Application: exampleApplication()}},
				"UpdateApplicationDeployTargets": {&apiservice.UpdateApplicationDeployTargetsResponse{}},
			},
			request: &apiservice.GetApplicationRequest{ApplicationId: "app-1"},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := answering(t, tc.answers)
			code, stdout, stderr := server.run(t, tc.args...)
			if code != tc.code {
				t.Errorf("exit code %d, want %d", code, tc.code)
			}
			golden(t, name+".txt", stdout+"--- stderr\n"+withoutTime(stderr))
			if diff := cmp.Diff(tc.request, server.requests[0], protocmp.Transform()); diff != "" {
				t.Errorf("request (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff([]string{"API-KEY id.secret"}, server.key); diff != "" {
				t.Errorf("authorization (-want +got):\n%s", diff)
			}
		})
	}
}

// withoutTime removes the time at the begin of an error line.
func withoutTime(stderr string) string {
	lines := strings.Split(stderr, "\n")
	for i, line := range lines {
		if len(line) > 20 {
			if _, err := time.Parse("2006/01/02 15:04:05 ", line[:20]); err == nil {
				lines[i] = line[20:]
			}
		}
	}
	return strings.Join(lines, "\n")
}

// TestPlanPreviewFile: the keys, nulls and order of the plan preview file are those of
// PipeCD's pipectl, since other tools read it.
func TestPlanPreviewFile(t *testing.T) {
	server := answering(t, map[string][]any{
		"RequestPlanPreview":    {&apiservice.RequestPlanPreviewResponse{Commands: []string{"pp-full"}}},
		"GetPlanPreviewResults": {previews()},
	})
	file := filepath.Join(t.TempDir(), "out.json")
	code, _, stderr := server.run(t, "plan-preview", "--repo-remote-url=r", "--head-branch=h", "--head-commit=c", "--base-branch=b", "--out="+file, "--sort-label-keys=env")
	if code != 0 {
		t.Fatalf("exit code %d: %s", code, stderr)
	}
	got, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	golden(t, "plan-preview-out.json", string(got))
}

// TestRateLimit: a rate-limited call is repeated, one with a too large answer is not.
func TestRateLimit(t *testing.T) {
	server := answering(t, map[string][]any{"ListApplications": {
		status.Error(codes.ResourceExhausted, "too many calls"), status.Error(codes.ResourceExhausted, "too many calls"), &apiservice.ListApplicationsResponse{},
	}})
	if code, stdout, stderr := server.run(t, "application", "list"); code != 0 || stdout != "{}\n" || len(server.requests) != 3 {
		t.Errorf("code %d, stdout %q, stderr %q after %d requests, want success after 3", code, stdout, stderr, len(server.requests))
	}
	server = answering(t, map[string][]any{"ListApplications": {status.Error(codes.ResourceExhausted, "grpc: received message larger than max (5 vs. 4)")}})
	code, _, stderr := server.run(t, "application", "list")
	if code != 1 || len(server.requests) != 1 || !strings.Contains(stderr, "Hint: ask for less at once") {
		t.Errorf("code %d, stderr %q after %d requests, want a hint after 1", code, stderr, len(server.requests))
	}
}

package control

import (
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/c785c783/piped/proto/pipecd/apiservice"
	modelv1 "github.com/c785c783/piped/proto/piped/model/v1"
)

// TestRulesOfAPIService compares the errors for invalid requests with those of PipeCD's
// server, rule by rule.
func TestRulesOfAPIService(t *testing.T) {
	const (
		short    = ": value length must be at least 1 runes"
		embedded = ": embedded message failed validation | caused by: invalid "
	)
	place := func(repo, path string) *modelv1.ApplicationGitPath {
		return &modelv1.ApplicationGitPath{Repo: &modelv1.ApplicationGitRepository{Id: repo}, Path: path}
	}
	targets := map[string]*modelv1.DeployTargets{"kubernetes": nil}
	event := func(labels, contexts map[string]string) *apiservice.RegisterEventRequest {
		return &apiservice.RegisterEventRequest{Name: "n", Data: "d", Labels: labels, Contexts: contexts}
	}
	preview := func(url, head, commit, base string, timeout int64) *apiservice.RequestPlanPreviewRequest {
		return &apiservice.RequestPlanPreviewRequest{RepoRemoteUrl: url, HeadBranch: head, HeadCommit: commit, BaseBranch: base, Timeout: timeout}
	}
	for _, c := range []struct {
		req  proto.Message
		want string // "" for a valid request
	}{
		{&apiservice.AddApplicationRequest{}, "AddApplicationRequest.Name" + short},
		{&apiservice.AddApplicationRequest{Name: "n"}, "AddApplicationRequest.PipedId" + short},
		{&apiservice.AddApplicationRequest{Name: "n", PipedId: "p"}, "AddApplicationRequest.GitPath: value is required"},
		{&apiservice.AddApplicationRequest{Name: "n", PipedId: "p", GitPath: &modelv1.ApplicationGitPath{Path: "web"}},
			"AddApplicationRequest.GitPath" + embedded + "ApplicationGitPath.Repo: value is required"},
		{&apiservice.AddApplicationRequest{Name: "n", PipedId: "p", GitPath: place("", "web")},
			"AddApplicationRequest.GitPath" + embedded + "ApplicationGitPath.Repo" + embedded + "ApplicationGitRepository.Id" + short},
		{&apiservice.AddApplicationRequest{Name: "n", PipedId: "p", GitPath: place("r", "/web")},
			"AddApplicationRequest.GitPath" + embedded + `ApplicationGitPath.Path: value does not match regex pattern "^[^/].+$"`},
		{&apiservice.AddApplicationRequest{Name: "n", PipedId: "p", GitPath: place("r", ".")},
			"AddApplicationRequest.GitPath" + embedded + `ApplicationGitPath.Path: value does not match regex pattern "^[^/].+$"`},
		{&apiservice.AddApplicationRequest{Name: "n", PipedId: "p", GitPath: place("r", "./"), Kind: 2},
			"AddApplicationRequest.Kind: value must be one of the defined enum values"},
		{&apiservice.AddApplicationRequest{Name: "n", PipedId: "p", GitPath: place("r", "./"), Kind: 5}, ""},
		{&apiservice.SyncApplicationRequest{}, "SyncApplicationRequest.ApplicationId" + short},
		{&apiservice.GetApplicationRequest{}, "GetApplicationRequest.ApplicationId" + short},
		{&apiservice.ListApplicationsRequest{}, ""},
		{&apiservice.UpdateApplicationRequest{}, "UpdateApplicationRequest.ApplicationId" + short},
		{&apiservice.UpdateApplicationRequest{ApplicationId: "a"}, "UpdateApplicationRequest.PipedId" + short},
		{&apiservice.UpdateApplicationRequest{ApplicationId: "a", PipedId: "p"}, "UpdateApplicationRequest.GitPath: value is required"},
		{&apiservice.UpdateApplicationRequest{ApplicationId: "a", PipedId: "p", GitPath: place("r", "web")}, ""},
		{&apiservice.DeleteApplicationRequest{}, "DeleteApplicationRequest.ApplicationId" + short},
		{&apiservice.EnableApplicationRequest{}, "EnableApplicationRequest.ApplicationId" + short},
		{&apiservice.DisableApplicationRequest{}, "DisableApplicationRequest.ApplicationId" + short},
		{&apiservice.RenameApplicationConfigFileRequest{}, "RenameApplicationConfigFileRequest.ApplicationIds: value must contain between 1 and 50 items, inclusive"},
		{&apiservice.RenameApplicationConfigFileRequest{ApplicationIds: make([]string, 51), NewFilename: "f"},
			"RenameApplicationConfigFileRequest.ApplicationIds: value must contain between 1 and 50 items, inclusive"},
		{&apiservice.RenameApplicationConfigFileRequest{ApplicationIds: make([]string, 50)}, "RenameApplicationConfigFileRequest.NewFilename" + short},
		{&apiservice.RenameApplicationConfigFileRequest{ApplicationIds: make([]string, 50), NewFilename: "f"}, ""},
		{&apiservice.UpdateApplicationDeployTargetsRequest{DeployTargetsByPlugin: targets}, "UpdateApplicationDeployTargetsRequest.ApplicationId" + short},
		{&apiservice.UpdateApplicationDeployTargetsRequest{ApplicationId: "a"},
			"UpdateApplicationDeployTargetsRequest.DeployTargetsByPlugin: value must contain at least 1 pair(s)"},
		{&apiservice.UpdateApplicationDeployTargetsRequest{ApplicationId: "a", DeployTargetsByPlugin: targets}, ""},
		{&apiservice.GetDeploymentRequest{}, ""},
		{&apiservice.ListDeploymentsRequest{}, ""},
		{&apiservice.GetCommandRequest{}, "GetCommandRequest.CommandId" + short},
		{&apiservice.GetPipedRequest{}, "GetPipedRequest.PipedId" + short},
		{&apiservice.RegisterPipedRequest{Desc: "d"}, "RegisterPipedRequest.Name" + short},
		{&apiservice.UpdatePipedRequest{Name: "n"}, "UpdatePipedRequest.PipedId" + short},
		{&apiservice.UpdatePipedRequest{PipedId: "p"}, "UpdatePipedRequest.Name" + short},
		{&apiservice.EnablePipedRequest{}, "EnablePipedRequest.PipedId" + short},
		{&apiservice.DisablePipedRequest{}, "DisablePipedRequest.PipedId" + short},
		{&apiservice.RegisterEventRequest{}, "RegisterEventRequest.Name" + short},
		{&apiservice.RegisterEventRequest{Name: "n"}, "RegisterEventRequest.Data" + short},
		{event(nil, nil), ""},
		{event(map[string]string{"": "v"}, nil), "RegisterEventRequest.Labels[]" + short},
		{event(map[string]string{"k": ""}, nil), "RegisterEventRequest.Labels[k]" + short},
		{event(nil, map[string]string{"": "v"}), "RegisterEventRequest.Contexts[]" + short},
		{event(nil, map[string]string{"k": ""}), "RegisterEventRequest.Contexts[k]" + short},
		{event(nil, map[string]string{"a_b": "v"}), `RegisterEventRequest.Contexts[a_b]: value does not match regex pattern "^[a-zA-Z0-9]+(-[a-zA-Z0-9]+)*$"`},
		{event(map[string]string{"a_b": "v"}, map[string]string{"a-b": "v"}), ""},
		{preview("", "h", "c", "b", 0), "RequestPlanPreviewRequest.RepoRemoteUrl" + short},
		{preview("u", "", "c", "b", 0), "RequestPlanPreviewRequest.HeadBranch" + short},
		{preview("u", "h", "", "b", 0), "RequestPlanPreviewRequest.HeadCommit" + short},
		{preview("u", "h", "c", "", 0), "RequestPlanPreviewRequest.BaseBranch" + short},
		{preview("u", "h", "c", "b", -1), "RequestPlanPreviewRequest.Timeout: value must be greater than or equal to 0"},
		{preview("u", "h", "c", "b", 1), ""},
		{&apiservice.GetPlanPreviewResultsRequest{}, ""},
		{&apiservice.EncryptRequest{PipedId: "p"}, "EncryptRequest.Plaintext" + short},
		{&apiservice.EncryptRequest{Plaintext: "s"}, "EncryptRequest.PipedId" + short},
		{&apiservice.ListStageLogsRequest{}, "ListStageLogsRequest.DeploymentId" + short},
	} {
		err := validate(c.req)
		if c.want == "" && err == nil {
			continue
		}
		if want := "invalid request: invalid " + c.want; status.Code(err) != codes.InvalidArgument || status.Convert(err).Message() != want {
			t.Errorf("%T{%v}: got %v, want %s", c.req, c.req, err, want)
		}
	}
}

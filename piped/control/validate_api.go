package control

import (
	"errors"
	"fmt"
	"regexp"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/c785c783/piped/proto/pipecd/apiservice"
	modelv1 "github.com/c785c783/piped/proto/piped/model/v1"
)

// maxRenamed limits the applications of RenameApplicationConfigFile.
const maxRenamed = 50

// applicationDir is PipeCD's pattern for an application's directory. The root of a
// repository is "./".
var applicationDir = regexp.MustCompile(`^[^/].+$`)

// validateAPI validates a request of APIService. Rules, order and messages are those of
// PipeCD's server, except for the limits of lists.
func validateAPI(req any) error {
	switch r := req.(type) {
	case *apiservice.AddApplicationRequest:
		return first(
			required("AddApplicationRequest.Name", r.Name),
			required("AddApplicationRequest.PipedId", r.PipedId),
			validGitPath("AddApplicationRequest.GitPath", r.GitPath),
			defined("AddApplicationRequest.Kind", r.Kind, modelv1.ApplicationKind_name))
	case *apiservice.SyncApplicationRequest:
		return required("SyncApplicationRequest.ApplicationId", r.ApplicationId)
	case *apiservice.GetApplicationRequest:
		return required("GetApplicationRequest.ApplicationId", r.ApplicationId)
	case *apiservice.ListApplicationsRequest:
		return first(
			notNegative("ListApplicationsRequest.Limit", r.Limit),
			bounded("ListApplicationsRequest.Labels", "pairs", len(r.Labels)))
	case *apiservice.UpdateApplicationRequest:
		return first(
			required("UpdateApplicationRequest.ApplicationId", r.ApplicationId),
			required("UpdateApplicationRequest.PipedId", r.PipedId),
			validGitPath("UpdateApplicationRequest.GitPath", r.GitPath))
	case *apiservice.DeleteApplicationRequest:
		return required("DeleteApplicationRequest.ApplicationId", r.ApplicationId)
	case *apiservice.EnableApplicationRequest:
		return required("EnableApplicationRequest.ApplicationId", r.ApplicationId)
	case *apiservice.DisableApplicationRequest:
		return required("DisableApplicationRequest.ApplicationId", r.ApplicationId)
	case *apiservice.RenameApplicationConfigFileRequest:
		return first(
			between("RenameApplicationConfigFileRequest.ApplicationIds", len(r.ApplicationIds), 1, maxRenamed),
			required("RenameApplicationConfigFileRequest.NewFilename", r.NewFilename))
	case *apiservice.UpdateApplicationDeployTargetsRequest:
		return first(
			required("UpdateApplicationDeployTargetsRequest.ApplicationId", r.ApplicationId),
			anyPair("UpdateApplicationDeployTargetsRequest.DeployTargetsByPlugin", len(r.DeployTargetsByPlugin)))
	case *apiservice.GetDeploymentRequest:
		return nil
	case *apiservice.ListDeploymentsRequest:
		return first(
			notNegative("ListDeploymentsRequest.Limit", r.Limit),
			notNegative("ListDeploymentsRequest.CompletedFromMs", r.CompletedFromMs),
			notNegative("ListDeploymentsRequest.CompletedToMs", r.CompletedToMs),
			bounded("ListDeploymentsRequest.Statuses", "items", len(r.Statuses)),
			bounded("ListDeploymentsRequest.Kinds", "items", len(r.Kinds)),
			bounded("ListDeploymentsRequest.ApplicationIds", "items", len(r.ApplicationIds)),
			bounded("ListDeploymentsRequest.Labels", "pairs", len(r.Labels)))
	case *apiservice.GetCommandRequest:
		return required("GetCommandRequest.CommandId", r.CommandId)
	case *apiservice.ListStageLogsRequest:
		return required("ListStageLogsRequest.DeploymentId", r.DeploymentId)
	case *apiservice.RegisterEventRequest:
		return validateRegisterEvent(r)
	}
	return validateAgentRequest(req)
}

// validateAgentRequest validates requests about the agent.
func validateAgentRequest(req any) error {
	switch r := req.(type) {
	case *apiservice.GetPipedRequest:
		return required("GetPipedRequest.PipedId", r.PipedId)
	case *apiservice.RegisterPipedRequest:
		return required("RegisterPipedRequest.Name", r.Name)
	case *apiservice.UpdatePipedRequest:
		return first(
			required("UpdatePipedRequest.PipedId", r.PipedId),
			required("UpdatePipedRequest.Name", r.Name))
	case *apiservice.EnablePipedRequest:
		return required("EnablePipedRequest.PipedId", r.PipedId)
	case *apiservice.DisablePipedRequest:
		return required("DisablePipedRequest.PipedId", r.PipedId)
	case *apiservice.RequestPlanPreviewRequest:
		return first(
			required("RequestPlanPreviewRequest.RepoRemoteUrl", r.RepoRemoteUrl),
			required("RequestPlanPreviewRequest.HeadBranch", r.HeadBranch),
			required("RequestPlanPreviewRequest.HeadCommit", r.HeadCommit),
			required("RequestPlanPreviewRequest.BaseBranch", r.BaseBranch),
			notNegative("RequestPlanPreviewRequest.Timeout", r.Timeout))
	case *apiservice.GetPlanPreviewResultsRequest:
		return bounded("GetPlanPreviewResultsRequest.Commands", "items", len(r.Commands))
	case *apiservice.EncryptRequest:
		return first(
			required("EncryptRequest.Plaintext", r.Plaintext),
			required("EncryptRequest.PipedId", r.PipedId))
	}
	return nil
}

// validGitPath validates a required path. Errors of inner fields become its cause.
func validGitPath(field string, p *modelv1.ApplicationGitPath) error {
	var cause error
	switch {
	case p == nil:
		return broken(field, "value is required")
	case p.Repo == nil:
		cause = errors.New("invalid ApplicationGitPath.Repo: value is required")
	case p.Repo.Id == "":
		cause = errors.New("invalid ApplicationGitPath.Repo: embedded message failed validation | caused by: " +
			"invalid ApplicationGitRepository.Id: value length must be at least 1 runes")
	case !applicationDir.MatchString(p.Path):
		cause = fmt.Errorf("invalid ApplicationGitPath.Path: value does not match regex pattern %q", applicationDir)
	default:
		return nil
	}
	return broken(field, fmt.Sprintf("embedded message failed validation | caused by: %v", cause))
}

// defined returns an error unless value is a number of the enum with the given names.
func defined[E ~int32](field string, value E, names map[int32]string) error {
	if _, ok := names[int32(value)]; ok {
		return nil
	}
	return broken(field, "value must be one of the defined enum values")
}

// between returns an error unless n, the number of items in field, is at least least
// and at most most.
func between(field string, n, least, most int) error {
	if n >= least && n <= most {
		return nil
	}
	return broken(field, fmt.Sprintf("value must contain between %d and %d items, inclusive", least, most))
}

// anyPair returns an error if n, the number of entries in the map field, is 0.
func anyPair(field string, n int) error {
	if n > 0 {
		return nil
	}
	return broken(field, "value must contain at least 1 pair(s)")
}

// broken returns the error for a field that violates a rule.
func broken(field, rule string) error {
	return status.Errorf(codes.InvalidArgument, "invalid request: invalid %s: %s", field, rule)
}

package control

import (
	"fmt"

	controlv1 "github.com/c785c783/piped/proto/piped/control/v1"
)

// maxItems limits the number of values of a list condition.
const maxItems = 1000

// validate validates the content of a request. Rules that PipeCD also has, and the form of all
// messages, are PipeCD's.
func validate(req any) error {
	switch r := req.(type) {
	case *controlv1.ListEventsRequest:
		return first(
			notNegative("ListEventsRequest.Limit", r.Limit),
			bounded("ListEventsRequest.Statuses", "items", len(r.Statuses)),
			bounded("ListEventsRequest.Labels", "pairs", len(r.Labels)))
	case *controlv1.ListPlanPreviewsRequest:
		return first(
			notNegative("ListPlanPreviewsRequest.PullRequest", r.PullRequest),
			notNegative("ListPlanPreviewsRequest.Limit", r.Limit),
			bounded("ListPlanPreviewsRequest.Statuses", "items", len(r.Statuses)))
	case *controlv1.GetPlanPreviewRequest:
		return required("GetPlanPreviewRequest.CommandId", r.CommandId)
	case *controlv1.WatchPlanPreviewsRequest:
		return first(
			notNegative("WatchPlanPreviewsRequest.PullRequest", r.PullRequest),
			bounded("WatchPlanPreviewsRequest.CommandIds", "items", len(r.CommandIds)))
	case *controlv1.SearchApplicationsRequest:
		return validSearchApplications(r)
	case *controlv1.GetApplicationSummaryRequest:
		return first(
			required("GetApplicationSummaryRequest.ApplicationId", r.ApplicationId),
			validMaxAge("GetApplicationSummaryRequest.MaxAgeMs", r.MaxAgeMs))
	case *controlv1.WatchApplicationsRequest:
		return first(
			bounded("WatchApplicationsRequest.ApplicationIds", "items", len(r.ApplicationIds)),
			bounded("WatchApplicationsRequest.Labels", "pairs", len(r.Labels)))
	case *controlv1.GetLiveStateRequest:
		return validGetLiveState(r)
	case *controlv1.GetDriftReportRequest:
		return required("GetDriftReportRequest.ApplicationId", r.ApplicationId)
	case *controlv1.ListDriftReportsRequest:
		return validListDriftReports(r)
	case *controlv1.WatchDriftRequest:
		return bounded("WatchDriftRequest.ApplicationIds", "items", len(r.ApplicationIds))
	case *controlv1.ListRolloutsRequest:
		return validListRollouts(r)
	case *controlv1.GetStatusRequest:
		return validMaxAge("GetStatusRequest.MaxAgeMs", r.MaxAgeMs)
	case *controlv1.GetDeliveryFiguresRequest:
		return validGetDeliveryFigures(r)
	case *controlv1.GetDeploymentTraceRequest:
		return validGetDeploymentTrace(r)
	case *controlv1.GetAnalysisSeriesRequest:
		return first(
			required("GetAnalysisSeriesRequest.DeploymentId", r.DeploymentId),
			notNegative("GetAnalysisSeriesRequest.Limit", r.Limit))
	case *controlv1.SyncApplicationRequest:
		return required("SyncApplicationRequest.ApplicationId", r.ApplicationId)
	case *controlv1.EnableApplicationRequest:
		return required("EnableApplicationRequest.ApplicationId", r.ApplicationId)
	case *controlv1.DeleteApplicationRequest:
		return required("DeleteApplicationRequest.ApplicationId", r.ApplicationId)
	case *controlv1.DecideAdoptionRequest:
		return first(
			required("DecideAdoptionRequest.ApplicationId", r.ApplicationId),
			required("DecideAdoptionRequest.Token", r.Token))
	case *controlv1.RollbackApplicationRequest:
		return required("RollbackApplicationRequest.ApplicationId", r.ApplicationId)
	case *controlv1.ReleaseStateLockRequest:
		if err := required("ReleaseStateLockRequest.DeploymentId", r.DeploymentId); err != nil {
			return err
		}
		return required("ReleaseStateLockRequest.LockId", r.LockId)
	case *controlv1.CancelDeploymentRequest:
		return required("CancelDeploymentRequest.DeploymentId", r.DeploymentId)
	case *controlv1.RetryDeploymentRequest:
		return required("RetryDeploymentRequest.DeploymentId", r.DeploymentId)
	case *controlv1.WatchDeploymentsRequest:
		return first(
			notNegative("WatchDeploymentsRequest.CompletedLimit", r.CompletedLimit),
			bounded("WatchDeploymentsRequest.DeploymentIds", "items", len(r.DeploymentIds)),
			bounded("WatchDeploymentsRequest.ApplicationIds", "items", len(r.ApplicationIds)),
			bounded("WatchDeploymentsRequest.Labels", "pairs", len(r.Labels)))
	case *controlv1.FollowStageLogsRequest:
		return first(
			required("FollowStageLogsRequest.DeploymentId", r.DeploymentId),
			bounded("FollowStageLogsRequest.AfterIndex", "pairs", len(r.AfterIndex)))
	case *controlv1.GetStageLogRequest:
		return validGetStageLog(r)
	case *controlv1.SearchStageLogRequest:
		return validSearchStageLog(r)
	case *controlv1.CreateAPIKeyRequest:
		return validCreateAPIKey(r)
	case *controlv1.DisableAPIKeyRequest:
		return required("DisableAPIKeyRequest.Id", r.Id)
	case *controlv1.ReplayDeadLettersRequest:
		return required("ReplayDeadLettersRequest.Receiver", r.Receiver)
	case *controlv1.DropDeadLettersRequest:
		return required("DropDeadLettersRequest.Receiver", r.Receiver)
	case *controlv1.ApproveStageRequest:
		return required("ApproveStageRequest.DeploymentId", r.DeploymentId)
	case *controlv1.RejectStageRequest:
		return required("RejectStageRequest.DeploymentId", r.DeploymentId)
	case *controlv1.SkipStageRequest:
		return required("SkipStageRequest.DeploymentId", r.DeploymentId)
	}
	return first(validPreview(req), validateAccess(req), validateObjects(req), validateAPI(req))
}

// first returns the first non-nil error.
func first(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

func required(field, value string) error {
	if value != "" {
		return nil
	}
	return broken(field, "value length must be at least 1 runes")
}

func notNegative[N ~int32 | ~int64](field string, value N) error {
	if value >= 0 {
		return nil
	}
	return broken(field, "value must be greater than or equal to 0")
}

func bounded(field, what string, n int) error {
	if n <= maxItems {
		return nil
	}
	return broken(field, fmt.Sprintf("value must contain no more than %d %s", maxItems, what))
}

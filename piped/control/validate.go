package control

import (
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/c785c783/piped/proto/pipecd/apiservice"
)

// validate checks what a request must hold whatever is stored. Rules and
// messages are PipeCD's.
func validate(req any) error {
	switch r := req.(type) {
	case *apiservice.SyncApplicationRequest:
		return required("SyncApplicationRequest.ApplicationId", r.ApplicationId)
	case *apiservice.GetApplicationRequest:
		return required("GetApplicationRequest.ApplicationId", r.ApplicationId)
	case *apiservice.GetCommandRequest:
		return required("GetCommandRequest.CommandId", r.CommandId)
	case *apiservice.ListStageLogsRequest:
		return required("ListStageLogsRequest.DeploymentId", r.DeploymentId)
	case *apiservice.ListApplicationsRequest:
		return notNegative("ListApplicationsRequest.Limit", r.Limit)
	case *apiservice.ListDeploymentsRequest:
		return notNegative("ListDeploymentsRequest.Limit", r.Limit)
	}
	return nil
}

func required(field, value string) error {
	if value != "" {
		return nil
	}
	return status.Errorf(codes.InvalidArgument, "invalid request: invalid %s: value length must be at least 1 runes", field)
}

func notNegative(field string, value int32) error {
	if value >= 0 {
		return nil
	}
	return status.Errorf(codes.InvalidArgument, "invalid request: invalid %s: value must be greater than or equal to 0", field)
}

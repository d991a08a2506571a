package control

import (
	"google.golang.org/grpc/health/grpc_health_v1"
	reflectionv1 "google.golang.org/grpc/reflection/grpc_reflection_v1"
	reflectionv1alpha "google.golang.org/grpc/reflection/grpc_reflection_v1alpha"

	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/proto/pipecd/apiservice"
	controlv1 "github.com/c785c783/piped/proto/piped/control/v1"
)

// anyone marks methods that require no API key.
const anyone deploy.Role = "ANYONE"

// access describes who may call a method.
type access struct {
	role   deploy.Role
	writes bool // the method changes something; calls are audited
}

// methodAccess returns the access of each method by full name. Calls of methods that are
// not listed are denied.
func methodAccess() map[string]access {
	reflection := map[string]deploy.Role{"ServerReflectionInfo": deploy.ReadOnly}
	table := map[string]access{}
	for service, methods := range map[string]map[string]deploy.Role{
		apiservice.APIService_ServiceDesc.ServiceName:              apiServiceAccess(),
		controlv1.ControlService_ServiceDesc.ServiceName:           controlServiceAccess(),
		grpc_health_v1.Health_ServiceDesc.ServiceName:              {"Check": anyone, "List": anyone, "Watch": anyone},
		reflectionv1.ServerReflection_ServiceDesc.ServiceName:      reflection,
		reflectionv1alpha.ServerReflection_ServiceDesc.ServiceName: reflection,
	} {
		for method, role := range methods {
			name := "/" + service + "/" + method
			table[name] = access{role: role, writes: role == deploy.ReadWrite && !onlyReads(name)}
		}
	}
	return table
}

// onlyReads reports whether a method that needs READ_WRITE changes nothing.
func onlyReads(method string) bool {
	return method == apiservice.APIService_GetPlanPreviewResults_FullMethodName || method == controlv1.ControlService_ListAPIKeys_FullMethodName
}

// apiServiceAccess returns PipeCD's roles, including READ_WRITE for GetPlanPreviewResults.
func apiServiceAccess() map[string]deploy.Role {
	return map[string]deploy.Role{
		"GetApplication":   deploy.ReadOnly,
		"ListApplications": deploy.ReadOnly,
		"GetDeployment":    deploy.ReadOnly,
		"ListDeployments":  deploy.ReadOnly,
		"GetCommand":       deploy.ReadOnly,
		"GetPiped":         deploy.ReadOnly,
		"Encrypt":          deploy.ReadOnly,
		"ListStageLogs":    deploy.ReadOnly,

		"AddApplication":                 deploy.ReadWrite,
		"SyncApplication":                deploy.ReadWrite,
		"UpdateApplication":              deploy.ReadWrite,
		"DeleteApplication":              deploy.ReadWrite,
		"EnableApplication":              deploy.ReadWrite,
		"DisableApplication":             deploy.ReadWrite,
		"RenameApplicationConfigFile":    deploy.ReadWrite,
		"UpdateApplicationDeployTargets": deploy.ReadWrite,
		"RegisterPiped":                  deploy.ReadWrite,
		"UpdatePiped":                    deploy.ReadWrite,
		"EnablePiped":                    deploy.ReadWrite,
		"DisablePiped":                   deploy.ReadWrite,
		"RegisterEvent":                  deploy.ReadWrite,
		"RequestPlanPreview":             deploy.ReadWrite,
		"GetPlanPreviewResults":          deploy.ReadWrite,
	}
}

// controlServiceAccess returns the roles documented in control.proto. Listing API keys
// reveals their roles, hence it needs READ_WRITE.
func controlServiceAccess() map[string]deploy.Role {
	return map[string]deploy.Role{
		"ListCandidates":     deploy.ReadOnly,
		"ListAdoptions":      deploy.ReadOnly,
		"GetPlan":            deploy.ReadOnly,
		"Resolve":            deploy.ReadOnly,
		"GetDeploymentChain": deploy.ReadOnly,
		"WatchDeployments":   deploy.ReadOnly,
		"FollowStageLogs":    deploy.ReadOnly,
		"GetLiveState":       deploy.ReadOnly,
		"GetDriftReport":     deploy.ReadOnly,
		"ListDriftReports":   deploy.ReadOnly,
		"WatchDrift":         deploy.ReadOnly,
		"ListRollouts":       deploy.ReadOnly,
		"GetDeliveryFigures": deploy.ReadOnly,
		"ListEvents":         deploy.ReadOnly,
		"GetStatus":          deploy.ReadOnly,

		"SyncApplication":     deploy.ReadWrite,
		"RollbackApplication": deploy.ReadWrite,
		"EnableApplication":   deploy.ReadWrite,
		"DeleteApplication":   deploy.ReadWrite,
		"ConfirmPrune":        deploy.ReadWrite,
		"DecideAdoption":      deploy.ReadWrite,
		"CancelDeployment":    deploy.ReadWrite,
		"RetryDeployment":     deploy.ReadWrite,
		"ApproveStage":        deploy.ReadWrite,
		"RejectStage":         deploy.ReadWrite,
		"SkipStage":           deploy.ReadWrite,
		"CreateAPIKey":        deploy.ReadWrite,
		"ListAPIKeys":         deploy.ReadWrite,
		"DisableAPIKey":       deploy.ReadWrite,
	}
}

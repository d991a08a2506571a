package control

import (
	"google.golang.org/grpc/health/grpc_health_v1"
	reflectionv1 "google.golang.org/grpc/reflection/grpc_reflection_v1"
	reflectionv1alpha "google.golang.org/grpc/reflection/grpc_reflection_v1alpha"

	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/proto/pipecd/apiservice"
	controlv1 "github.com/c785c783/piped/proto/piped/control/v1"
)

// methodAccess describes who may call a method.
type methodAccess struct {
	// permission is what the caller needs; "" for methods that need no credentials, or any.
	permission deploy.Permission
	// everywhere demands the permission in all applications, because the method is not
	// about single ones. Permissions that are about the agent are checked so anyway.
	everywhere bool
	// anyCaller admits all valid credentials, also those without a role. The method decides
	// what its caller may do.
	anyCaller bool
	writes    bool // the method changes something; calls are audited
}

// open reports whether a method needs no credentials.
func (a methodAccess) open() bool { return a.permission == "" && !a.anyCaller }

// Kinds of access. Methods of the first two return what the caller may see.
func toRead(p deploy.Permission) methodAccess { return methodAccess{permission: p} }
func toReadAll(p deploy.Permission) methodAccess {
	return methodAccess{permission: p, everywhere: true}
}
func toWrite(p deploy.Permission) methodAccess { return methodAccess{permission: p, writes: true} }
func toWriteAll(p deploy.Permission) methodAccess {
	return methodAccess{permission: p, everywhere: true, writes: true}
}

// accessOfMethods returns the access of each method by full name. Calls of methods that are
// not listed are denied.
func accessOfMethods() map[string]methodAccess {
	reflection := map[string]methodAccess{"ServerReflectionInfo": toRead(deploy.PermView)}
	table := map[string]methodAccess{}
	for service, methods := range map[string]map[string]methodAccess{
		apiservice.APIService_ServiceDesc.ServiceName:              apiServiceAccess(),
		controlv1.ControlService_ServiceDesc.ServiceName:           controlServiceAccess(),
		grpc_health_v1.Health_ServiceDesc.ServiceName:              {"Check": {}, "List": {}, "Watch": {}},
		reflectionv1.ServerReflection_ServiceDesc.ServiceName:      reflection,
		reflectionv1alpha.ServerReflection_ServiceDesc.ServiceName: reflection,
	} {
		for method, access := range methods {
			table["/"+service+"/"+method] = access
		}
	}
	return table
}

// apiServiceAccess is such that PipeCD's roles permit what they permit in PipeCD:
// READ_ONLY has view, view-logs and encrypt, READ_WRITE has all permissions. Hence reading
// the result of a plan preview needs sync, as requesting it does.
func apiServiceAccess() map[string]methodAccess {
	return map[string]methodAccess{
		"GetApplication":   toRead(deploy.PermView),
		"ListApplications": toRead(deploy.PermView),
		"GetDeployment":    toRead(deploy.PermView),
		"ListDeployments":  toRead(deploy.PermView),
		"GetCommand":       toRead(deploy.PermView),
		"GetPiped":         toRead(deploy.PermView),
		"Encrypt":          toRead(deploy.PermEncrypt),
		"ListStageLogs":    toRead(deploy.PermViewLogs),

		"AddApplication":                 toWrite(deploy.PermAdminister),
		"SyncApplication":                toWrite(deploy.PermSync),
		"UpdateApplication":              toWrite(deploy.PermEnable),
		"DeleteApplication":              toWrite(deploy.PermDelete),
		"EnableApplication":              toWrite(deploy.PermEnable),
		"DisableApplication":             toWrite(deploy.PermEnable),
		"RenameApplicationConfigFile":    toWrite(deploy.PermEnable),
		"UpdateApplicationDeployTargets": toWrite(deploy.PermEnable),
		"RegisterPiped":                  toWrite(deploy.PermAdminister),
		"UpdatePiped":                    toWrite(deploy.PermAdminister),
		"EnablePiped":                    toWrite(deploy.PermAdminister),
		"DisablePiped":                   toWrite(deploy.PermAdminister),
		"RegisterEvent":                  toWriteAll(deploy.PermSync),
		"RequestPlanPreview":             toWrite(deploy.PermSync),
		"GetPlanPreviewResults":          toRead(deploy.PermSync),
	}
}

// controlServiceAccess returns what control.proto documents.
func controlServiceAccess() map[string]methodAccess {
	return map[string]methodAccess{
		"ListCandidates":        toRead(deploy.PermView),
		"ListAdoptions":         toRead(deploy.PermView),
		"SearchApplications":    toRead(deploy.PermView),
		"WatchApplications":     toRead(deploy.PermView),
		"GetApplicationSummary": toRead(deploy.PermView),
		"GetPlan":               toRead(deploy.PermView),
		"Resolve":               toRead(deploy.PermView),
		"GetDeploymentChain":    toRead(deploy.PermView),
		"WatchDeployments":      toRead(deploy.PermView),
		"FollowStageLogs":       toRead(deploy.PermViewLogs),
		"GetStageLog":           toRead(deploy.PermViewLogs),
		"SearchStageLog":        toRead(deploy.PermViewLogs),
		"GetLiveState":          toRead(deploy.PermView),
		"WatchLiveState":        toRead(deploy.PermView),
		"GetLiveObject":         toRead(deploy.PermViewLogs),
		"ListObjectEvents":      toRead(deploy.PermViewLogs),
		"FollowPodLogs":         toRead(deploy.PermViewLogs),
		"GetDriftReport":        toRead(deploy.PermView),
		"ListDriftReports":      toRead(deploy.PermView),
		"WatchDrift":            toRead(deploy.PermView),
		"ListRollouts":          toRead(deploy.PermView),
		"GetDeliveryFigures":    toRead(deploy.PermView),
		"GetDeploymentTrace":    toRead(deploy.PermView),
		"GetAnalysisSeries":     toRead(deploy.PermView),
		"ListEvents":            toReadAll(deploy.PermView),
		"ListPlanPreviews":      toRead(deploy.PermSync),
		"GetPlanPreview":        toRead(deploy.PermSync),
		"WatchPlanPreviews":     toRead(deploy.PermSync),
		"ListPreviews":          toRead(deploy.PermView),
		"GetPreview":            toRead(deploy.PermView),
		"GetPreviewLogs":        toRead(deploy.PermViewLogs),
		"GetStatus":             toReadAll(deploy.PermView),
		"GetApplicationConfig":  toRead(deploy.PermView),
		"GetAgentConfig":        toRead(deploy.PermAdminister),

		"GetCaller":         {anyCaller: true},
		"CheckAccess":       {anyCaller: true},               // about others: administer
		"ListSessions":      {anyCaller: true},               // of others: keys
		"EndSession":        {anyCaller: true, writes: true}, // of others: keys
		"ListAudit":         {anyCaller: true},               // administer, or view
		"ReplayDeadLetters": toWrite(deploy.PermAdminister),
		"DropDeadLetters":   toWrite(deploy.PermAdminister),
		"DisableUser":       toWrite(deploy.PermKeys),
		"EnableUser":        toWrite(deploy.PermKeys),
		"ListDisabledUsers": toRead(deploy.PermKeys),

		"SyncApplication":     toWrite(deploy.PermSync),
		"RollbackApplication": toWrite(deploy.PermRollback),
		"EnableApplication":   toWrite(deploy.PermEnable),
		"DeleteApplication":   toWrite(deploy.PermDelete),
		"ConfirmPrune":        toWrite(deploy.PermSync),
		"DecideAdoption":      toWrite(deploy.PermSync),
		"CancelDeployment":    toWrite(deploy.PermCancel),
		"ReleaseStateLock":    toWrite(deploy.PermCancel),
		"RetryDeployment":     toWrite(deploy.PermSync),
		"ApproveStage":        toWrite(deploy.PermApprove),
		"RejectStage":         toWrite(deploy.PermApprove),
		"SkipStage":           toWrite(deploy.PermSync),
		"DeletePreview":       toWrite(deploy.PermDelete),
		"ExtendPreview":       toWrite(deploy.PermSync),
		"CreateAPIKey":        toWrite(deploy.PermKeys),
		"ListAPIKeys":         toRead(deploy.PermKeys),
		"DisableAPIKey":       toWrite(deploy.PermKeys),
	}
}

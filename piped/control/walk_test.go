package control_test

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/dynamicpb"

	"github.com/c785c783/piped/piped/access"
	"github.com/c785c783/piped/piped/control"
	"github.com/c785c783/piped/piped/control/controltest"
	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/proto/pipecd/apiservice"
	controlv1 "github.com/c785c783/piped/proto/piped/control/v1"
)

// Results of a call about an application of team payments.
const (
	unauthenticated = "unauthenticated"
	denied          = "denied"  // PermissionDenied
	hidden          = "hidden"  // NotFound, or an empty list
	allowed         = "allowed" // the handler answered for the application
)

// walkers are the callers, in the order of the columns of walkTable.
var walkers = []string{"viewer of search", "viewer", "deployer", "approver", "admin"}

// walkTable is what each method answers to each of the walkers. It is written from the
// documentation of access, not from the guard's table. Callers without valid credentials are
// always unauthenticated.
var walkTable = map[string][]string{
	// See.
	"GetApplication": {hidden, allowed, allowed, allowed, allowed}, "ListApplications": {hidden, allowed, allowed, allowed, allowed},
	"GetDeployment": {hidden, allowed, allowed, allowed, allowed}, "ListDeployments": {hidden, allowed, allowed, allowed, allowed},
	"GetCommand": {hidden, allowed, allowed, allowed, allowed}, "GetPlan": {hidden, allowed, allowed, allowed, allowed},
	"GetApplicationConfig": {hidden, allowed, allowed, allowed, allowed}, "GetAgentConfig": {denied, denied, denied, denied, allowed},
	"Resolve": {hidden, allowed, allowed, allowed, allowed}, "GetDeploymentChain": {hidden, hidden, hidden, hidden, hidden},
	"WatchDeployments": {hidden, allowed, allowed, allowed, allowed}, "GetLiveState": {hidden, allowed, allowed, allowed, allowed},
	"WatchLiveState": {hidden, allowed, allowed, allowed, allowed}, "GetLiveObject": {hidden, allowed, allowed, allowed, allowed},
	"ListObjectEvents": {hidden, allowed, allowed, allowed, allowed}, "FollowPodLogs": {hidden, allowed, allowed, allowed, allowed},
	"GetDriftReport": {hidden, allowed, allowed, allowed, allowed}, "ListDriftReports": {hidden, hidden, hidden, hidden, hidden},
	"WatchDrift": {hidden, allowed, allowed, allowed, allowed}, "ListRollouts": {hidden, hidden, hidden, hidden, hidden},
	"GetDeploymentTrace": {hidden, allowed, allowed, allowed, allowed}, "GetAnalysisSeries": {hidden, allowed, allowed, allowed, allowed},
	"GetDeliveryFigures": {hidden, hidden, hidden, hidden, hidden}, "ListCandidates": {hidden, hidden, hidden, hidden, hidden},
	"SearchApplications": {hidden, allowed, allowed, allowed, allowed}, "GetApplicationSummary": {hidden, allowed, allowed, allowed, allowed},
	"WatchApplications": {hidden, allowed, allowed, allowed, allowed},
	"ListAdoptions":     {hidden, hidden, hidden, hidden, hidden},
	"ListStageLogs":     {hidden, allowed, allowed, allowed, allowed}, "FollowStageLogs": {hidden, allowed, allowed, allowed, allowed},
	"GetStageLog": {hidden, allowed, allowed, allowed, allowed}, "SearchStageLog": {hidden, allowed, allowed, allowed, allowed},
	"ListPreviews": {hidden, allowed, allowed, allowed, allowed}, "GetPreview": {hidden, allowed, allowed, allowed, allowed}, "GetPreviewLogs": {hidden, allowed, allowed, allowed, allowed},
	"ListAudit": {hidden, allowed, allowed, allowed, allowed},
	// Change.
	"SyncApplication": {denied, denied, allowed, denied, allowed}, "RetryDeployment": {denied, denied, allowed, denied, allowed},
	"ConfirmPrune": {denied, denied, allowed, denied, allowed}, "DecideAdoption": {denied, denied, allowed, denied, allowed},
	"SkipStage": {denied, denied, allowed, denied, allowed}, "RollbackApplication": {denied, denied, allowed, denied, allowed},
	"ReleaseStateLock": {denied, denied, allowed, denied, allowed}, "CancelDeployment": {denied, denied, allowed, denied, allowed}, "EnableApplication": {denied, denied, allowed, denied, allowed},
	"DisableApplication": {denied, denied, allowed, denied, allowed}, "UpdateApplication": {denied, denied, allowed, denied, allowed},
	"RenameApplicationConfigFile": {denied, denied, allowed, denied, allowed}, "UpdateApplicationDeployTargets": {denied, denied, allowed, denied, allowed},
	"ApproveStage": {denied, denied, denied, allowed, allowed}, "RejectStage": {denied, denied, denied, allowed, allowed},
	"DeleteApplication": {denied, denied, denied, denied, allowed},
	"DeletePreview":     {denied, denied, denied, denied, allowed}, "ExtendPreview": {denied, denied, allowed, denied, allowed},
	// The agent, to which a role in some applications gives no right but to encrypt.
	"GetPiped": {allowed, allowed, allowed, allowed, allowed}, "Encrypt": {denied, denied, allowed, denied, allowed},
	"ListEvents": {denied, denied, denied, denied, allowed}, "GetStatus": {denied, denied, denied, denied, allowed},
	"RegisterEvent": {denied, denied, denied, denied, allowed}, "AddApplication": {denied, denied, denied, denied, allowed},
	"RequestPlanPreview": {denied, denied, allowed, denied, allowed}, "GetPlanPreviewResults": {denied, denied, allowed, denied, allowed},
	"ListPlanPreviews": {denied, denied, allowed, denied, allowed}, "GetPlanPreview": {denied, denied, allowed, denied, allowed},
	"WatchPlanPreviews": {denied, denied, allowed, denied, allowed},
	"RegisterPiped":     {denied, denied, denied, denied, allowed}, "UpdatePiped": {denied, denied, denied, denied, allowed},
	"EnablePiped": {denied, denied, denied, denied, allowed}, "DisablePiped": {denied, denied, denied, denied, allowed},
	"CreateAPIKey": {denied, denied, denied, denied, allowed}, "ListAPIKeys": {denied, denied, denied, denied, allowed},
	"DisableAPIKey": {denied, denied, denied, denied, allowed},
	// Callers, of whom everybody may know themselves and their own sessions. The walk asks for
	// the rights of another subject, and ends a session that is unknown to all.
	"GetCaller": {allowed, allowed, allowed, allowed, allowed}, "CheckAccess": {denied, denied, denied, denied, allowed},
	"ListSessions": {allowed, allowed, allowed, allowed, allowed}, "EndSession": {allowed, allowed, allowed, allowed, allowed},
	"DisableUser": {denied, denied, denied, denied, allowed}, "EnableUser": {denied, denied, denied, denied, allowed},
	"ListDisabledUsers": {denied, denied, denied, denied, allowed},
	"ReplayDeadLetters": {denied, denied, denied, denied, allowed}, "DropDeadLetters": {denied, denied, denied, denied, allowed},
}

// TestEveryMethodForEveryCaller walks every method with every kind of caller.
func TestEveryMethodForEveryCaller(t *testing.T) {
	agent := controltest.Start(t, t.TempDir(), func(c *control.Config) {
		c.Policy, c.Live, c.Objects, c.Figures = access.NewPolicy(nil), emptyCluster{}, emptyCluster{}, noFigures{}
		c.Planner, c.Configurations = plansNothing{}, pathOnly{}
	})
	conn := dial(t, agent.Server.Addr())
	keys := map[string]string{"admin": agent.LimitedKey("admin", nil), "viewer of search": agent.LimitedKey("viewer", &deploy.Selector{Labels: map[string]string{"team": "search"}})}
	for _, role := range []string{"viewer", "deployer", "approver"} {
		keys[role] = agent.LimitedKey(role, &deploy.Selector{Labels: map[string]string{"team": "payments"}})
	}
	wrong := keys["admin"][:len(keys["admin"])-1] + "!"
	walked := map[string]bool{}
	for _, service := range []string{apiservice.APIService_ServiceDesc.ServiceName, controlv1.ControlService_ServiceDesc.ServiceName} {
		methods := serviceMethods(t, service)
		for i := range methods.Len() {
			method := methods.Get(i)
			want, ok := walkTable[string(method.Name())]
			if !ok {
				t.Errorf("%s: walkTable lacks the method", method.FullName())
				continue
			}
			walked[string(method.Name())] = true
			for _, ctx := range []context.Context{t.Context(), as(t, wrong), as(t, "nobody"+keys["admin"])} {
				if got := walk(ctx, t, agent, conn, method, "nobody"); got != unauthenticated {
					t.Errorf("%s without valid credentials: %s", method.FullName(), got)
				}
			}
			for i, walker := range walkers {
				if got := walk(as(t, keys[walker]), t, agent, conn, method, walker); got != want[i] {
					t.Errorf("%s by %s: %s, want %s", method.FullName(), walker, got, want[i])
				}
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(walkTable)) {
		if !walked[name] {
			t.Errorf("walkTable has %s, which is no method", name)
		}
	}
}

func serviceMethods(t *testing.T, service string) protoreflect.MethodDescriptors {
	t.Helper()
	d, err := protoregistry.GlobalFiles.FindDescriptorByName(protoreflect.FullName(service))
	if err != nil {
		t.Fatal(err)
	}
	return d.(protoreflect.ServiceDescriptor).Methods()
}

// walk calls a method about a new application of team payments with a new deployment, and
// returns what it answered.
func walk(ctx context.Context, t *testing.T, agent *controltest.Agent, conn *grpc.ClientConn, method protoreflect.MethodDescriptor, walker string) string {
	t.Helper()
	if _, err := agent.Store.UpdateAgent(t.Context(), func(a *deploy.AgentRecord) { a.Disabled = false }); err != nil {
		t.Fatal(err)
	}
	name := strings.ToLower(rand.Text())
	app := agent.Application(name, map[string]string{"team": "payments"})
	agent.Deployment("d-"+name, app, "")
	agent.Move("d-"+name, deploy.Running, "walked")
	if err := agent.Store.SaveAnalysisChecks(t.Context(), []deploy.AnalysisCheck{{DeploymentID: "d-" + name, StageID: controltest.SyncStage, ID: "metrics[0]"}}); err != nil {
		t.Fatal(err)
	}
	command, err := agent.Store.CreateCommand(t.Context(), deploy.Command{ID: "c-" + name, Type: deploy.CommandSync, ApplicationID: app.ID, Commander: "walker"})
	if err != nil {
		t.Fatal(err)
	}
	if err := agent.Store.AppendAudit(t.Context(), deploy.AuditRecord{Subject: walkedSubject, ApplicationID: app.ID}); err != nil {
		t.Fatal(err)
	}
	previewOf(t, agent, app)
	req := dynamicpb.NewMessage(method.Input())
	fill(req, app, "d-"+name, command.ID)
	path := fmt.Sprintf("/%s/%s", method.Parent().FullName(), method.Name())
	ctx, end := context.WithTimeout(ctx, 2*time.Minute)
	defer end()
	answer, err := firstAnswer(ctx, conn, path, method, req)
	switch status.Code(err) {
	case codes.OK:
		if strings.Contains(path, "Piped") || strings.Contains(answer, app.ID) || strings.Contains(answer, "d-"+name) || strings.Contains(answer, controltest.SyncStage) || !isRead(method) {
			return allowed
		}
		return hidden
	case codes.Unauthenticated:
		return unauthenticated
	case codes.PermissionDenied:
		return denied
	case codes.NotFound:
		if !isRead(method) { // such as a plan preview that is unknown
			return allowed
		}
		return hidden
	default: // the handler judged the content
		if strings.Contains(err.Error(), "bug in the agent") {
			t.Errorf("%s by %s: %v", path, walker, err)
		}
		return allowed
	}
}

// previewOf stores a preview of an application alone, of a repository with its name.
func previewOf(t *testing.T, agent *controltest.Agent, app deploy.Application) {
	t.Helper()
	err := agent.Store.PutPullPreview(t.Context(), deploy.PullPreview{
		RepoID: app.Name, Number: 7, Head: "h", Phase: deploy.PreviewReady, ExpiresAt: agent.Now().Add(time.Hour),
		Applications: []deploy.PullPreviewApplication{{ID: app.ID, Name: app.Name, Git: app.Git, Labels: app.Labels, Phase: deploy.PreviewReady, Log: []string{"from " + app.ID}}},
	})
	if err != nil {
		t.Fatal(err)
	}
}

// walkedSubject is the subject of requests that have one.
const walkedSubject = "n"

// isRead reports whether a method returns data of applications.
func isRead(method protoreflect.MethodDescriptor) bool {
	name := string(method.Name())
	ofCallers := name == "GetCaller" || name == "ListSessions" || name == "ListDisabledUsers"
	return !ofCallers && !strings.Contains(name, "PlanPreview") && !strings.Contains(name, "APIKey") && name != "GetStatus" && name != "GetAgentConfig" && name != "ListEvents" && name != "Encrypt" &&
		(strings.HasPrefix(name, "Get") || strings.HasPrefix(name, "List") || strings.HasPrefix(name, "Watch") || strings.HasPrefix(name, "Search") || strings.HasPrefix(name, "Follow") || name == "Resolve")
}

// fill sets the fields of a request so that it is about an application and valid where that
// needs no more.
func fill(m protoreflect.Message, app deploy.Application, deploymentID, commandID string) {
	values := map[string]string{
		"application_id": app.ID, "deployment_id": deploymentID, "command_id": commandID, "piped_id": controltest.PipedID, "application": app.Name,
		"token": "t", "receiver": "r", "name": "n", "subject": walkedSubject, "issuer": "corp", "permission": "view", "data": "d", "plaintext": "p", "desc": "d", "key": "k", "pod": "p", "id": "unknown", "deployment_chain_id": "unknown",
		"new_filename": "other.pipecd.yaml", "repo_remote_url": "r", "head_branch": "h", "head_commit": "h", "base_branch": "b",
	}
	switch m.Descriptor().Name() {
	case "GetPlanRequest": // either ID
		delete(values, "deployment_id")
	case "ListApplicationsRequest": // of any name
		delete(values, "name")
	case "ListPreviewsRequest", "GetPreviewRequest", "GetPreviewLogsRequest", "DeletePreviewRequest", "ExtendPreviewRequest":
		values["repository_id"] = app.Name
		m.Set(m.Descriptor().Fields().ByName("pull_request"), protoreflect.ValueOfInt32(7))
		if until := m.Descriptor().Fields().ByName("until_ms"); until != nil {
			m.Set(until, protoreflect.ValueOfInt64(controltest.Epoch.Add(48*time.Hour).UnixMilli()))
		}
	case "SearchApplicationsRequest":
		values["text"] = app.Name
	case "GetStageLogRequest", "SearchStageLogRequest":
		values["stage_id"], values["text"] = controltest.SyncStage, "x"
	}
	fields := m.Descriptor().Fields()
	for i := range fields.Len() {
		f := fields.Get(i)
		value, ok := values[string(f.Name())]
		switch {
		case f.Message() != nil && f.Message().Name() == "ObjectSelector":
			selector := m.Mutable(f).Message()
			selector.Set(f.Message().Fields().ByName("kind"), protoreflect.ValueOfString("Deployment"))
			selector.Set(f.Message().Fields().ByName("name"), protoreflect.ValueOfString("web"))
		case f.Name() == "application_ids":
			m.Mutable(f).List().Append(protoreflect.ValueOfString(app.ID))
		case f.Name() == "deployment_ids":
		case f.Name() == "facets":
			for _, facet := range []string{"state", "provider", "label", "label:team", "deployment"} {
				m.Mutable(f).List().Append(protoreflect.ValueOfString(facet))
			}
		case f.Name() == "from_ms":
			m.Set(f, protoreflect.ValueOfInt64(1))
		case f.Name() == "completed_limit":
			m.Set(f, protoreflect.ValueOfInt32(1000))
		case f.Name() == "no_follow":
			m.Set(f, protoreflect.ValueOfBool(true))
		case ok && f.Kind() == protoreflect.StringKind && !f.IsList():
			m.Set(f, protoreflect.ValueOfString(value))
		}
	}
}

// firstAnswer calls a method and returns all messages until a stream has caught up, as text.
func firstAnswer(ctx context.Context, conn *grpc.ClientConn, path string, method protoreflect.MethodDescriptor, req proto.Message) (string, error) {
	resp := dynamicpb.NewMessage(method.Output())
	if !method.IsStreamingServer() {
		err := conn.Invoke(ctx, path, req, resp)
		return resp.String(), err
	}
	stream, err := conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true}, path)
	if err != nil {
		return "", err
	}
	if err := stream.SendMsg(req); err != nil {
		return "", err
	}
	if err := stream.CloseSend(); err != nil {
		return "", err
	}
	var out strings.Builder
	caughtUp := method.Output().Fields().ByName("caught_up")
	for {
		if err := stream.RecvMsg(resp); err != nil {
			if errors.Is(err, io.EOF) { // a log without blocks names its deployment nowhere
				return out.String() + fmt.Sprint(req), nil
			}
			return "", err
		}
		out.WriteString(resp.String())
		if caughtUp != nil && resp.Get(caughtUp).Bool() {
			return out.String(), nil
		}
	}
}

// emptyCluster, noFigures and plansNothing answer for an application without content.
type (
	emptyCluster struct{}
	noFigures    struct{}
	plansNothing struct{}
)

func (emptyCluster) LiveState(_ context.Context, app deploy.Application, _ deploy.LiveChildren) (deploy.LiveState, error) {
	return deploy.LiveState{ApplicationID: app.ID}, nil
}

func (emptyCluster) LiveObject(context.Context, deploy.Application, deploy.ObjectQuery) (deploy.ObjectDetail, error) {
	return deploy.ObjectDetail{}, nil
}

func (emptyCluster) ObjectEvents(context.Context, deploy.Application, deploy.EventQuery) (deploy.ObjectEvents, error) {
	return deploy.ObjectEvents{}, nil
}

func (emptyCluster) PodLog(context.Context, deploy.Application, deploy.PodLogQuery, func(deploy.PodLog) error) error {
	return nil
}

func (emptyCluster) OnLiveChange(deploy.Application, func()) func() { return func() {} }

// pathOnly answers with the name of an application as the path of its configuration.
type pathOnly struct{}

func (pathOnly) AgentConfig() deploy.EffectiveConfig { return deploy.EffectiveConfig{} }

func (pathOnly) ApplicationConfig(_ context.Context, app deploy.Application) (deploy.EffectiveConfig, error) {
	return deploy.EffectiveConfig{Path: app.ID + "/" + app.Name}, nil
}

func (noFigures) Figures(context.Context, deploy.FiguresQuery) (deploy.DeliveryReport, error) {
	return deploy.DeliveryReport{}, nil
}

func (plansNothing) Preview(_ context.Context, app deploy.Application, _ string, _ deploy.Strategy, _ string) (deploy.Deployment, string, error) {
	return deploy.Deployment{ApplicationID: app.ID}, "", nil
}

func (plansNothing) Changes(context.Context, deploy.Deployment) (deploy.Effect, error) {
	return deploy.Effect{}, nil
}

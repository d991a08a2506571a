package control_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	reflectionv1 "google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/dynamicpb"

	"github.com/c785c783/piped/piped/control/controltest"
	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/proto/pipecd/apiservice"
	controlv1 "github.com/c785c783/piped/proto/piped/control/v1"
)

func TestAuthentication(t *testing.T) {
	agent := controltest.Start(t, t.TempDir())
	client := apiservice.NewAPIServiceClient(dial(t, agent.Server.Addr()))
	disabled := agent.Key("leaver", deploy.ReadWrite)
	id, _, _ := strings.Cut(disabled, ".")
	if err := agent.Store.DisableAPIKey(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	ownID, ownSecret, _ := strings.Cut(agent.ReadWrite, ".")
	_, otherSecret, _ := strings.Cut(agent.ReadOnly, ".")
	tests := map[string]struct{ header, want string }{
		"no credentials":              {"", "missing credentials in authorization"},
		"only a type":                 {"API-KEY", "credentials is malformed"},
		"an empty key":                {"API-KEY ", "credentials is malformed"},
		"three parts":                 {"API-KEY a b", "credentials is malformed"},
		"two spaces":                  {"API-KEY  " + agent.ReadWrite, "credentials is malformed"},
		"unknown type":                {"Bearer " + agent.ReadWrite, "unsupported credentials type"},
		"the type in lower case":      {"api-key " + agent.ReadWrite, "unsupported credentials type"},
		"a piped's token":             {"PIPED-TOKEN " + agent.ReadWrite, "Unauthenticated"},
		"a person's token":            {"ID-TOKEN " + agent.ReadWrite, "Unauthenticated"},
		"a key without a dot":         {"API-KEY " + ownID, "Unauthenticated"},
		"a key with two dots":         {"API-KEY " + agent.ReadWrite + ".x", "Unauthenticated"},
		"a key without ID":            {"API-KEY ." + ownSecret, "Unauthenticated"},
		"a key without secret":        {"API-KEY " + ownID + ".", "Unauthenticated"},
		"an unknown ID":               {"API-KEY 00000000-0000-4000-8000-000000000000." + ownSecret, "Unauthenticated"},
		"another key's secret":        {"API-KEY " + ownID + "." + otherSecret, "Unauthenticated"},
		"a secret cut short":          {"API-KEY " + agent.ReadWrite[:len(agent.ReadWrite)-1], "Unauthenticated"},
		"a disabled key":              {"API-KEY " + disabled, "Unauthenticated"},
		"the ID in another case":      {"API-KEY " + strings.ToUpper(ownID) + "." + ownSecret, "Unauthenticated"},
		"malformed goes before unsup": {"Bearer", "credentials is malformed"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			ctx := t.Context()
			if tc.header != "" {
				ctx = metadata.AppendToOutgoingContext(ctx, "authorization", tc.header)
			}
			// The request is invalid, too: authentication comes first.
			_, err := client.GetApplication(ctx, &apiservice.GetApplicationRequest{})
			if status.Code(err) != codes.Unauthenticated || status.Convert(err).Message() != tc.want {
				t.Errorf("got %v, want Unauthenticated %q", err, tc.want)
			}
		})
	}
	t.Run("a good key", func(t *testing.T) {
		if _, err := client.ListApplications(as(t, agent.ReadOnly), &apiservice.ListApplicationsRequest{}); err != nil {
			t.Error(err)
		}
	})
	t.Run("a key with a role of no meaning", func(t *testing.T) {
		_, err := client.ListApplications(as(t, agent.Key("odd", "ADMIN")), &apiservice.ListApplicationsRequest{})
		if status.Code(err) != codes.PermissionDenied || status.Convert(err).Message() != "Invalid role" {
			t.Errorf("got %v, want PermissionDenied Invalid role", err)
		}
	})
	t.Run("a key disabled while it is used", func(t *testing.T) {
		key := agent.Key("soon gone", deploy.ReadOnly)
		if _, err := client.ListApplications(as(t, key), &apiservice.ListApplicationsRequest{}); err != nil {
			t.Fatal(err)
		}
		id, _, _ := strings.Cut(key, ".")
		if err := agent.Store.DisableAPIKey(t.Context(), id); err != nil {
			t.Fatal(err)
		}
		if _, err := client.ListApplications(as(t, key), &apiservice.ListApplicationsRequest{}); status.Code(err) != codes.Unauthenticated {
			t.Errorf("got %v, want Unauthenticated", err)
		}
	})
}

// readOnly returns the methods that a READ_ONLY key can call; all others need READ_WRITE.
func readOnly() map[string]bool {
	methods := map[string]bool{}
	for service, names := range map[string]string{
		"grpc.service.apiservice.APIService": "GetApplication ListApplications GetDeployment ListDeployments GetCommand GetPiped Encrypt ListStageLogs",
		"piped.control.v1.ControlService": `ListCandidates ListAdoptions GetPlan GetDeploymentChain WatchDeployments FollowStageLogs
			GetLiveState GetDriftReport ListDriftReports WatchDrift ListRollouts GetDeliveryFigures GetDeploymentTrace GetAnalysisSeries GetStageLog SearchStageLog ListEvents GetStatus Resolve ListAudit
			SearchApplications GetApplicationSummary GetApplicationConfig WatchApplications WatchLiveState GetLiveObject ListObjectEvents FollowPodLogs ListPreviews GetPreview GetPreviewLogs ` + strings.Join(anyRole(), " "),
		"grpc.reflection.v1.ServerReflection":      "ServerReflectionInfo",
		"grpc.reflection.v1alpha.ServerReflection": "ServerReflectionInfo",
	} {
		for _, name := range strings.Fields(names) {
			methods["/"+service+"/"+name] = true
		}
	}
	return methods
}

// anyRole returns the methods of ControlService that a key without a role can call.
func anyRole() []string { return []string{"GetCaller", "CheckAccess", "ListSessions", "EndSession"} }

// services returns the services that the server reports by reflection.
func services(t *testing.T, conn *grpc.ClientConn, key string) []string {
	t.Helper()
	stream, err := reflectionv1.NewServerReflectionClient(conn).ServerReflectionInfo(as(t, key))
	if err != nil {
		t.Fatal(err)
	}
	ask := &reflectionv1.ServerReflectionRequest{MessageRequest: &reflectionv1.ServerReflectionRequest_ListServices{}}
	if err := stream.Send(ask); err != nil {
		t.Fatal(err)
	}
	answer, err := stream.Recv()
	if err != nil {
		t.Fatal(err)
	}
	if err := stream.CloseSend(); err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, s := range answer.GetListServicesResponse().GetService() {
		names = append(names, s.Name)
	}
	return names
}

// TestEveryMethodIsGuarded: every method of every service except health requires a key with
// the right role.
func TestEveryMethodIsGuarded(t *testing.T) {
	agent := controltest.Start(t, t.TempDir())
	conn := dial(t, agent.Server.Addr())
	odd, disabled := agent.Key("odd", "ADMIN"), agent.Key("leaver", deploy.ReadWrite)
	id, _, _ := strings.Cut(disabled, ".")
	if err := agent.Store.DisableAPIKey(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	allowed := readOnly()
	called := map[string]int{}
	for _, service := range services(t, conn, agent.ReadOnly) {
		desc, err := protoregistry.GlobalFiles.FindDescriptorByName(protoreflect.FullName(service))
		if err != nil {
			t.Fatal(err)
		}
		methods := desc.(protoreflect.ServiceDescriptor).Methods()
		called[service] = methods.Len()
		for i := range methods.Len() {
			agent.Tick(time.Second) // failed attempts are rate-limited
			m := methods.Get(i)
			path := "/" + service + "/" + string(m.Name())
			code := func(ctx context.Context) codes.Code {
				ctx, end := context.WithTimeout(ctx, 2*time.Minute)
				defer end()
				return status.Code(invoke(ctx, conn, path, m))
			}
			if service == grpc_health_v1.Health_ServiceDesc.ServiceName {
				if got := code(t.Context()); got != codes.OK {
					t.Errorf("%s without a key: %s", path, got)
				}
				continue
			}
			for who, key := range map[string]string{"a wrong key": agent.ReadWrite + "x", "a disabled key": disabled} {
				if got := code(as(t, key)); got != codes.Unauthenticated {
					t.Errorf("%s with %s: %s", path, who, got)
				}
			}
			if got := code(t.Context()); got != codes.Unauthenticated {
				t.Errorf("%s without a key: %s", path, got)
			}
			if got, open := code(as(t, odd)), slices.Contains(anyRole(), string(m.Name())); (got == codes.PermissionDenied) == open {
				t.Errorf("%s with a key of no role: %s", path, got)
			}
			if denied := code(as(t, agent.ReadOnly)) == codes.PermissionDenied; denied == allowed[path] {
				t.Errorf("%s with a READ_ONLY key: denied is %v, want %v", path, denied, !denied)
			}
			switch got := code(as(t, agent.ReadWrite)); got {
			case codes.Unauthenticated, codes.PermissionDenied, codes.ResourceExhausted, codes.Internal, codes.Unknown, codes.DeadlineExceeded:
				t.Errorf("%s with a READ_WRITE key: %s", path, got)
			}
		}
	}
	want := map[string]int{
		"grpc.service.apiservice.APIService": 23, "piped.control.v1.ControlService": len(controlv1.ControlService_ServiceDesc.Methods) + len(controlv1.ControlService_ServiceDesc.Streams), "grpc.health.v1.Health": 3,
		"grpc.reflection.v1.ServerReflection": 1, "grpc.reflection.v1alpha.ServerReflection": 1,
	}
	if diff := cmp.Diff(want, called); diff != "" {
		t.Errorf("methods of each service that were called (-want +got):\n%s", diff)
	}
}

// invoke calls a method with an empty request and returns its error.
func invoke(ctx context.Context, conn *grpc.ClientConn, path string, m protoreflect.MethodDescriptor) error {
	var req, resp proto.Message = dynamicpb.NewMessage(m.Input()), dynamicpb.NewMessage(m.Output())
	if !m.IsStreamingServer() {
		return conn.Invoke(ctx, path, req, resp)
	}
	stream, err := conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true}, path)
	if err != nil {
		return err
	}
	if err := stream.SendMsg(req); err != nil {
		return err
	}
	if err := stream.CloseSend(); err != nil {
		return err
	}
	return stream.RecvMsg(resp)
}

func TestHealthNeedsNoKey(t *testing.T) {
	agent := controltest.Start(t, t.TempDir())
	resp, err := grpc_health_v1.NewHealthClient(dial(t, agent.Server.Addr())).Check(t.Context(), &grpc_health_v1.HealthCheckRequest{})
	if err != nil || resp.Status != grpc_health_v1.HealthCheckResponse_SERVING {
		t.Errorf("got %v, %v, want SERVING", resp, err)
	}
}

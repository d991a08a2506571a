package control_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/c785c783/piped/piped/control/controltest"
	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/proto/pipecd/apiservice"
	controlv1 "github.com/c785c783/piped/proto/piped/control/v1"
	modelv1 "github.com/c785c783/piped/proto/piped/model/v1"
)

func TestAPIKeysAreMadeListedAndDisabled(t *testing.T) {
	agent := controltest.Start(t, t.TempDir())
	conn := dial(t, agent.Server.Addr())
	client, apps := controlv1.NewControlServiceClient(conn), apiservice.NewAPIServiceClient(conn)
	ctx := as(t, agent.ReadWrite)

	made, err := client.CreateAPIKey(ctx, &controlv1.CreateAPIKeyRequest{Name: "ci", Role: modelv1.APIKey_READ_WRITE, Subject: "robot"})
	if err != nil {
		t.Fatal(err)
	}
	id, _, _ := strings.Cut(made.Key, ".")
	want := &modelv1.APIKey{
		Id: id, Name: "ci", KeyHash: "redacted", ProjectId: controltest.ProjectID, Role: modelv1.APIKey_READ_WRITE, RoleName: "READ_WRITE",
		Creator: "owner", Subject: "robot", CreatedAt: controltest.Epoch.Unix(), UpdatedAt: controltest.Epoch.Unix(),
	}
	if diff := cmp.Diff(want, made.ApiKey, protocmp.Transform()); diff != "" {
		t.Errorf("key (-want +got):\n%s", diff)
	}
	reader, err := client.CreateAPIKey(as(t, made.Key), &controlv1.CreateAPIKeyRequest{Name: "a dashboard"})
	if err != nil || reader.ApiKey.Role != modelv1.APIKey_READ_ONLY || reader.ApiKey.Subject != "a dashboard" || reader.ApiKey.Creator != "robot" {
		t.Errorf("a key with the least that is needed: %v, %v", reader, err)
	}
	if _, err := apps.ListApplications(as(t, reader.GetKey()), &apiservice.ListApplicationsRequest{}); err != nil {
		t.Errorf("with the new key: %v", err)
	}
	names := func(disabled bool) []string {
		t.Helper()
		list, err := client.ListAPIKeys(ctx, &controlv1.ListAPIKeysRequest{IncludeDisabled: disabled})
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, k := range list.ApiKeys {
			if k.KeyHash != "redacted" {
				t.Errorf("key %s reveals the hash %q", k.Name, k.KeyHash)
			}
			names = append(names, k.Name)
		}
		return names
	}
	if diff := cmp.Diff([]string{"a dashboard", "ci", "owner's key", "watcher's key"}, names(false)); diff != "" {
		t.Errorf("names (-want +got):\n%s", diff)
	}

	agent.Tick(time.Hour)
	if _, err := client.DisableAPIKey(ctx, &controlv1.DisableAPIKeyRequest{Id: id}); err != nil {
		t.Fatal(err)
	}
	if _, err := apps.ListApplications(as(t, made.Key), &apiservice.ListApplicationsRequest{}); status.Code(err) != codes.Unauthenticated {
		t.Errorf("with the disabled key: %v", err)
	}
	if diff := cmp.Diff([]string{"a dashboard", "owner's key", "watcher's key"}, names(false)); diff != "" {
		t.Errorf("names without the disabled one (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"a dashboard", "ci", "owner's key", "watcher's key"}, names(true)); diff != "" {
		t.Errorf("names with the disabled one (-want +got):\n%s", diff)
	}
}

func TestAPIKeysThatAreRefused(t *testing.T) {
	agent := controltest.Start(t, t.TempDir())
	client := controlv1.NewControlServiceClient(dial(t, agent.Server.Addr()))
	ctx := as(t, agent.ReadWrite)
	ownID, secret, _ := strings.Cut(agent.ReadWrite, ".")
	create := func(r *controlv1.CreateAPIKeyRequest) error { _, err := client.CreateAPIKey(ctx, r); return err }
	disable := func(id string) error {
		_, err := client.DisableAPIKey(ctx, &controlv1.DisableAPIKeyRequest{Id: id})
		return err
	}
	for name, tc := range map[string]struct {
		err  error
		code codes.Code
		want string
	}{
		"no name":              {create(&controlv1.CreateAPIKeyRequest{}), codes.InvalidArgument, "CreateAPIKeyRequest.Name"},
		"a name of spaces":     {create(&controlv1.CreateAPIKeyRequest{Name: " "}), codes.InvalidArgument, "without spaces around it"},
		"a name of two lines":  {create(&controlv1.CreateAPIKeyRequest{Name: "a\nb"}), codes.InvalidArgument, "printable"},
		"a long subject":       {create(&controlv1.CreateAPIKeyRequest{Name: "a", Subject: strings.Repeat("é", 129)}), codes.InvalidArgument, "129 characters"},
		"a role that is none":  {create(&controlv1.CreateAPIKeyRequest{Name: "a", Role: 7}), codes.InvalidArgument, "READ_ONLY or READ_WRITE"},
		"a name that is taken": {create(&controlv1.CreateAPIKeyRequest{Name: "watcher's key"}), codes.AlreadyExists, "another name"},
		"no ID":                {disable(""), codes.InvalidArgument, "DisableAPIKeyRequest.Id"},
		"an unknown ID":        {disable("nobody"), codes.NotFound, "there is no API key nobody"},
		"a whole key":          {disable(agent.ReadWrite), codes.InvalidArgument, "the part before the dot"},
		"the last that writes": {disable(ownID), codes.FailedPrecondition, "create one first"},
		"the last, once more":  {disable(ownID), codes.FailedPrecondition, ownID},
	} {
		t.Run(name, func(t *testing.T) {
			if status.Code(tc.err) != tc.code || !strings.Contains(status.Convert(tc.err).Message(), tc.want) {
				t.Errorf("got %v, want %s with %q", tc.err, tc.code, tc.want)
			}
			if strings.Contains(tc.err.Error(), secret) {
				t.Error("the error repeats the secret")
			}
		})
	}
	if _, err := agent.Store.APIKey(t.Context(), ownID); err != nil {
		t.Error(err)
	}
	if k, err := agent.Store.APIKey(t.Context(), ownID); err != nil || k.Disabled || k.Role != deploy.ReadWrite {
		t.Errorf("the last key is %+v, %v", k, err)
	}
}

package control

import (
	"maps"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/c785c783/piped/piped/access"
	"github.com/c785c783/piped/piped/deploy"
)

// TestAccessTableIsComplete: the table contains exactly the registered methods; calls of
// others are denied.
func TestAccessTableIsComplete(t *testing.T) {
	s, err := New(Config{Address: "127.0.0.1:0"})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	var registered []string
	for service, info := range s.grpc.GetServiceInfo() {
		for _, m := range info.Methods {
			registered = append(registered, "/"+service+"/"+m.Name)
		}
	}
	slices.Sort(registered)
	if diff := cmp.Diff(registered, slices.Sorted(maps.Keys(accessOfMethods()))); diff != "" {
		t.Errorf("methods (-registered +in the table):\n%s", diff)
	}
}

// TestWhatIsRecorded: every method that needs more than to see, to read logs or to encrypt
// changes something and is audited, but for four. Of those that any caller may call, one does.
func TestWhatIsRecorded(t *testing.T) {
	onlyRead := []deploy.Permission{"", deploy.PermView, deploy.PermViewLogs, deploy.PermEncrypt}
	var unrecorded []string
	for method, access := range accessOfMethods() {
		if access.writes == slices.Contains(onlyRead, access.permission) {
			unrecorded = append(unrecorded, method)
		}
	}
	slices.Sort(unrecorded)
	want := []string{
		"/grpc.service.apiservice.APIService/GetPlanPreviewResults", "/piped.control.v1.ControlService/EndSession", "/piped.control.v1.ControlService/GetAgentConfig",
		"/piped.control.v1.ControlService/GetPlanPreview", "/piped.control.v1.ControlService/ListAPIKeys", "/piped.control.v1.ControlService/ListDisabledUsers",
		"/piped.control.v1.ControlService/ListPlanPreviews", "/piped.control.v1.ControlService/WatchPlanPreviews",
	}
	if diff := cmp.Diff(want, unrecorded); diff != "" {
		t.Errorf("methods that read but are recorded, or that write and are not (-want +got):\n%s", diff)
	}
}

// TestPipeCDsRoles: READ_ONLY may call what PipeCD permits it, READ_WRITE everything. The
// list is that of PipeCD's control plane (pkg/app/server/grpcapi).
func TestPipeCDsRoles(t *testing.T) {
	readOnly := []string{
		"GetApplication", "ListApplications", "GetDeployment", "ListDeployments", "GetCommand", "GetPiped", "Encrypt", "ListStageLogs",
	}
	policy := access.NewPolicy(nil)
	for method, need := range apiServiceAccess() {
		c := &call{policy: policy, caller: access.Caller{Role: string(deploy.ReadOnly)}}
		if may := c.permit(need, true) == nil; may != slices.Contains(readOnly, method) {
			t.Errorf("READ_ONLY may call %s: %v", method, may)
		}
		c.caller.Role = string(deploy.ReadWrite)
		if err := c.permit(need, true); err != nil {
			t.Errorf("READ_WRITE may not call %s: %v", method, err)
		}
	}
}

func TestPermit(t *testing.T) {
	policy := access.NewPolicy([]access.Role{
		{Name: "team", Groups: []string{"payments"}, Applications: deploy.Selector{Labels: map[string]string{"team": "payments"}}, Permissions: []deploy.Permission{deploy.PermView, deploy.PermSync, deploy.PermEncrypt, deploy.PermKeys}},
		{Name: "all", Subjects: []string{"ana"}, Permissions: []deploy.Permission{deploy.PermView, deploy.PermKeys}},
	})
	limit := &deploy.Selector{Names: []string{"web"}}
	key := func(role string) access.Caller { return access.Caller{Subject: "ci", Role: role} }
	member := access.Caller{Subject: "ben", User: true, Groups: []string{"payments"}}
	tests := map[string]struct {
		caller access.Caller
		need   methodAccess
		known  bool
		want   string // "" for permitted
	}{
		"read with READ_ONLY":            {key("READ_ONLY"), toRead(deploy.PermView), true, ""},
		"write with READ_ONLY":           {key("READ_ONLY"), toWrite(deploy.PermSync), true, `Permission denied: this needs the permission "sync", which no role of ci grants`},
		"write with READ_WRITE":          {key("READ_WRITE"), toWrite(deploy.PermSync), true, ""},
		"an unlisted method":             {key("READ_WRITE"), methodAccess{}, false, "Permission denied"},
		"a permission of no meaning":     {key("READ_WRITE"), toRead("other"), true, `Permission denied: this needs the permission "other", which no role of ci grants`},
		"a key without role":             {key(""), toRead(deploy.PermView), true, "Invalid role"},
		"a key with an unknown role":     {key("boss"), toRead(deploy.PermView), true, "Invalid role"},
		"a key with a configured role":   {key("team"), toWrite(deploy.PermSync), true, ""},
		"sync somewhere":                 {member, toWrite(deploy.PermSync), true, ""},
		"sync everywhere":                {member, toWriteAll(deploy.PermSync), true, `Permission denied: this needs the permission "sync" in all applications`},
		"encrypt from a restricted role": {member, toRead(deploy.PermEncrypt), true, ""},
		"keys from a restricted role":    {member, toRead(deploy.PermKeys), true, `Permission denied: this needs the permission "keys", which no role of ben grants`},
		"keys":                           {access.Caller{Subject: "ana", User: true}, toRead(deploy.PermKeys), true, ""},
		"keys with a limited admin key":  {access.Caller{Subject: "ci", Role: "admin", Limit: limit}, toRead(deploy.PermKeys), true, `Permission denied: this needs the permission "keys", which no role of ci grants`},
		"view with a limited admin key":  {access.Caller{Subject: "ci", Role: "admin", Limit: limit}, toRead(deploy.PermView), true, ""},
		"anything with any credentials":  {key("boss"), methodAccess{anyCaller: true}, true, ""},
		"anything by a user":             {access.Caller{Subject: "eve", User: true}, methodAccess{anyCaller: true}, true, ""},
		"a user without role":            {access.Caller{Subject: "eve", User: true, Groups: []string{"guests"}}, toRead(deploy.PermView), true, `Permission denied: this needs the permission "view", which no role of eve grants`},
		"a user named like a key's role": {access.Caller{Subject: "READ_WRITE", User: true, Groups: []string{"admin"}}, toRead(deploy.PermView), true, `Permission denied: this needs the permission "view", which no role of READ_WRITE grants`},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			c := &call{policy: policy, caller: tc.caller}
			err := c.permit(tc.need, tc.known)
			if got := status.Convert(err).Message(); got != tc.want {
				t.Errorf("got %q, want %q", got, tc.want)
			}
			if err != nil && status.Code(err) != codes.PermissionDenied {
				t.Errorf("code %s, want PermissionDenied", status.Code(err))
			}
		})
	}
}

package control

import (
	"maps"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

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
	if diff := cmp.Diff(registered, slices.Sorted(maps.Keys(methodAccess()))); diff != "" {
		t.Errorf("methods (-registered +in the table):\n%s", diff)
	}
}

// TestWhatIsRecorded: methods that change something are audited, and only those.
func TestWhatIsRecorded(t *testing.T) {
	var unrecorded []string
	for method, access := range methodAccess() {
		if access.writes != (access.role == deploy.ReadWrite) {
			unrecorded = append(unrecorded, method)
		}
	}
	slices.Sort(unrecorded)
	want := []string{"/grpc.service.apiservice.APIService/GetPlanPreviewResults", "/piped.control.v1.ControlService/ListAPIKeys"}
	if diff := cmp.Diff(want, unrecorded); diff != "" {
		t.Errorf("READ_WRITE methods that are not recorded (-want +got):\n%s", diff)
	}
}

func TestPermit(t *testing.T) {
	const none = deploy.Role("")
	tests := map[string]struct {
		role, need deploy.Role
		known      bool
		want       string
	}{
		"read with READ_ONLY":                 {deploy.ReadOnly, deploy.ReadOnly, true, ""},
		"read with READ_WRITE":                {deploy.ReadWrite, deploy.ReadOnly, true, ""},
		"write with READ_WRITE":               {deploy.ReadWrite, deploy.ReadWrite, true, ""},
		"write with READ_ONLY":                {deploy.ReadOnly, deploy.ReadWrite, true, "Permission denied"},
		"an unlisted method":                  {deploy.ReadWrite, none, false, "Permission denied"},
		"a method with a role of no meaning":  {deploy.ReadWrite, "OTHER", true, "Permission denied"},
		"a key without role":                  {none, deploy.ReadOnly, true, "Invalid role"},
		"a key without role, unlisted method": {none, none, false, "Invalid role"},
		"a key that claims to be anyone":      {anyone, deploy.ReadOnly, true, "Invalid role"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			err := permit(tc.role, tc.need, tc.known)
			if got := status.Convert(err).Message(); got != tc.want {
				t.Errorf("got %q, want %q", got, tc.want)
			}
			if err != nil && status.Code(err) != codes.PermissionDenied {
				t.Errorf("code %s, want PermissionDenied", status.Code(err))
			}
		})
	}
}

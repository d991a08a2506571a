package control_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/c785c783/piped/piped/control/controltest"
	"github.com/c785c783/piped/piped/deploy"
)

// The tests in this file are a peer that knows nothing of our generated types:
// it writes and reads messages by the field numbers of PipeCD's contract, typed
// in here by hand. A renumbered field or method cannot pass.

const apiPath = "/grpc.service.apiservice.APIService/"

// rawCodec passes bytes unchanged.
type rawCodec struct{}

func (rawCodec) Name() string { return "proto" }

func (rawCodec) Marshal(v any) ([]byte, error) { return v.([]byte), nil }

func (rawCodec) Unmarshal(data []byte, v any) error {
	*v.(*[]byte) = append([]byte(nil), data...)
	return nil
}

func rawCall(ctx context.Context, conn *grpc.ClientConn, method string, req []byte) ([]byte, error) {
	var resp []byte
	err := conn.Invoke(ctx, apiPath+method, req, &resp, grpc.ForceCodec(rawCodec{}))
	return resp, err
}

// str encodes a string field, msg a message field and num a varint field.
func str(number protowire.Number, value string) []byte { return msg(number, []byte(value)) }

func msg(number protowire.Number, value []byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(nil, number, protowire.BytesType), value)
}

func num(number protowire.Number, value uint64) []byte {
	return protowire.AppendVarint(protowire.AppendTag(nil, number, protowire.VarintType), value)
}

func join(parts ...[]byte) []byte {
	var out []byte
	for _, p := range parts {
		out = append(out, p...)
	}
	return out
}

// fields decodes one level of a message: the values of each field, numbers in decimal.
func fields(message string) (map[int][]string, error) {
	out := map[int][]string{}
	for data := []byte(message); len(data) > 0; {
		number, kind, n := protowire.ConsumeTag(data)
		if n < 0 {
			return nil, protowire.ParseError(n)
		}
		data = data[n:]
		switch kind {
		case protowire.VarintType:
			v, n := protowire.ConsumeVarint(data)
			if n < 0 {
				return nil, protowire.ParseError(n)
			}
			data, out[int(number)] = data[n:], append(out[int(number)], fmt.Sprint(v))
		case protowire.BytesType:
			v, n := protowire.ConsumeBytes(data)
			if n < 0 {
				return nil, protowire.ParseError(n)
			}
			data, out[int(number)] = data[n:], append(out[int(number)], string(v))
		default:
			return nil, errors.New("a field of a wire type the contract does not use")
		}
	}
	return out, nil
}

// at returns the values at a path of field numbers through nested messages, collected from
// all elements of repeated fields.
func at(t *testing.T, message string, path ...int) []string {
	t.Helper()
	messages := []string{message}
	for _, number := range path {
		var next []string
		for _, m := range messages {
			f, err := fields(m)
			if err != nil {
				t.Fatalf("decode at %v: %v", path, err)
			}
			next = append(next, f[number]...)
		}
		messages = next
	}
	return messages
}

// expect compares the values at paths such as "1.20.1", joined by commas.
func expect(t *testing.T, message []byte, want map[string]string) {
	t.Helper()
	got := map[string]string{}
	for path := range want {
		var numbers []int
		for _, p := range strings.Split(path, ".") {
			var n int
			if _, err := fmt.Sscan(p, &n); err != nil {
				t.Fatal(err)
			}
			numbers = append(numbers, n)
		}
		got[path] = strings.Join(at(t, string(message), numbers...), ",")
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("fields (-want +got):\n%s", diff)
	}
}

func TestWire(t *testing.T) {
	agent := controltest.Start(t, t.TempDir())
	conn := dial(t, agent.Server.Addr())
	ctx := as(t, agent.ReadWrite)
	app := agent.Application("web", map[string]string{"env": "prod"})
	agent.Deployment("d1", app, "")
	agent.Move("d1", deploy.Success, "All stages succeeded")
	agent.Deployment("d2", app, "")
	agent.Move("d2", deploy.Running, "")
	agent.Log("d2", controltest.SyncStage, "applying")
	epoch := controltest.Epoch.Unix()
	sec := func(n int64) string { return fmt.Sprint(epoch + n) }
	call := func(t *testing.T, method string, req ...[]byte) []byte {
		t.Helper()
		resp, err := rawCall(ctx, conn, method, join(req...))
		if err != nil {
			t.Fatal(err)
		}
		return resp
	}

	application := map[string]string{
		"1": "app-web", "2": "web", "4": "piped-1", "5": "project-1", "6": "", // KUBERNETES is 0
		"7.1.1": "apps", "7.1.2": "https://git.example.com/apps.git", "7.1.3": "main", "7.2": "web", "7.4": "app.pipecd.yaml",
		"8": "", "9": "the application web", "10.1": "env", "10.2": "prod",
		"11.1": "d1", "11.2.1.1": "0123456789abcdef0123456789abcdef01234567", "11.3": "Quick sync because it is the first deployment",
		"11.4": "v2", "11.5": "app.pipecd.yaml", "11.6.2": "v2", "11.14": sec(2), "11.15": sec(5),
		"12.1": "d2", "12.14": sec(6),
		"13.1": "2", "13.2": "A deployment is under way", "13.3": "Deployment d2 is under way. Before it, the application was SYNCED: as in Git", "13.4": "d2", "13.5": sec(6), // DEPLOYING
		"14": "1", "15": "dev", "16.1": "kubernetes", "16.2.1": "dev", "98": "", "99": "", "100": "", "101": sec(1),
	}
	deployment := map[string]string{
		"1": "d2", "2": "app-web", "3": "web", "5": "piped-1", "6": "project-1", "7": "", "8.1.1": "apps", "8.2": "web", "8.4": "app.pipecd.yaml",
		"9": "", "10.1": "env", "10.2": "prod", "11": "dev", "12.1": "kubernetes",
		"20.1.1": "0123456789abcdef0123456789abcdef01234567", "20.1.2": "Bump web", "20.1.3": "Ada", "20.1.4": "main", "20.1.14": sec(0),
		"20.3": sec(6), "20.4": "", // AUTO
		"22": "Quick sync because it is the first deployment", "24.1": "1", "24.2": "v2", "24.3": "web", "24.4": "example.com/web:v2",
		"30": "2", "31": "The deployment is running", // RUNNING
		"32.1": "stage-sync,stage-rollback", "32.2": "K8S_SYNC,ROLLBACK", "32.4": "1", "32.7": "1", "32.8": "1", "32.12": "1", // STAGE_RUNNING
		"32.14": sec(7) + "," + sec(7), "32.15": sec(8) + "," + sec(7), "32.16": "3,3", // MANUAL_OPERATION_NONE
		"100": "", "101": sec(6), "102": sec(8),
	}
	under := func(number string, fields map[string]string) map[string]string {
		out := map[string]string{}
		for path, v := range fields {
			out[number+"."+path] = v
		}
		return out
	}

	t.Run("GetApplication", func(t *testing.T) {
		expect(t, call(t, "GetApplication", str(1, "app-web")), under("1", application))
	})
	t.Run("ListApplications", func(t *testing.T) {
		resp := call(t, "ListApplications", str(1, "web"), str(2, "KUBERNETES"), num(4, 0), msg(6, join(str(1, "env"), str(2, "prod"))), num(7, 5), str(8, "piped-1"))
		expect(t, resp, under("1", application))
		cursor := at(t, string(resp), 2)
		if len(cursor) != 1 {
			t.Fatalf("the cursor is %q, want one", cursor)
		}
		if next := call(t, "ListApplications", str(10, cursor[0])); len(next) != 0 {
			t.Errorf("behind the last application there is %q, want an empty message", next)
		}
		for name, condition := range map[string][]byte{
			"name": str(1, "x"), "kind": str(2, "ECS"), "disabled": num(4, 1), "labels": msg(6, join(str(1, "env"), str(2, "x"))), "piped": str(8, "x"),
		} {
			if resp := call(t, "ListApplications", condition); len(resp) != 0 {
				t.Errorf("with another %s: %q, want an empty message", name, resp)
			}
		}
	})
	t.Run("GetDeployment", func(t *testing.T) {
		expect(t, call(t, "GetDeployment", str(1, "d2")), under("1", deployment))
	})
	t.Run("ListDeployments", func(t *testing.T) {
		resp := call(t, "ListDeployments", str(1, "DEPLOYMENT_RUNNING"), str(2, "KUBERNETES"), str(3, "app-web"), str(4, "web"),
			msg(5, join(str(1, "env"), str(2, "prod"))), num(6, 5))
		expect(t, resp, under("1", deployment))
		all := call(t, "ListDeployments", num(6, 1))
		expect(t, call(t, "ListDeployments", str(7, at(t, string(all), 2)[0])), map[string]string{
			"1.1": "d1", "1.30": "4", "1.31": "All stages succeeded", "1.32.8": "2", "1.32.13": sec(5), "1.100": sec(5), // SUCCESS
		})
		for name, condition := range map[string][]byte{
			"status": str(1, "DEPLOYMENT_CANCELLED"), "kind": str(2, "ECS"), "application": str(3, "x"), "name": str(4, "x"), "labels": msg(5, join(str(1, "env"), str(2, "x"))),
		} {
			if resp := call(t, "ListDeployments", condition); len(resp) != 0 {
				t.Errorf("with another %s: %q, want an empty message", name, resp)
			}
		}
	})
	t.Run("ListStageLogs", func(t *testing.T) {
		expect(t, call(t, "ListStageLogs", str(1, "d2")), map[string]string{
			"1.1": "stage-sync", "1.2.1.2": "applying", "1.2.1.3": "", "1.2.1.14": sec(8), "1.2.2": "", // INFO, not completed
		})
		expect(t, call(t, "ListStageLogs", str(1, "d1")), map[string]string{"1.1": "stage-sync", "1.2.1": "", "1.2.2": "1"})
	})
	t.Run("SyncApplication and GetCommand", func(t *testing.T) {
		id := at(t, string(call(t, "SyncApplication", str(1, "app-web"))), 1)[0]
		expect(t, call(t, "GetCommand", str(1, id)), map[string]string{
			"1.1": id, "1.2": "piped-1", "1.3": "app-web", "1.6": "owner", "1.7": "project-1", "1.20": "", "1.22": "",
			"1.30": "", "1.31.1": "app-web", "1.31.2": "", "1.100": sec(8), "1.101": sec(8),
		})
		agent.Deployment("d3", app, id)
		expect(t, call(t, "GetCommand", str(1, id)), map[string]string{
			"1.20": "1", "1.21.1": "TriggeredDeploymentID", "1.21.2": "d3", "1.22": sec(9), "1.100": sec(8), "1.101": sec(9),
		})
		failed := at(t, string(call(t, "SyncApplication", str(1, "app-web"))), 1)[0]
		if err := agent.Store.FinishCommand(t.Context(), failed, deploy.CommandFailed, map[string]string{deploy.MetaReason: "disabled"}); err != nil {
			t.Fatal(err)
		}
		expect(t, call(t, "GetCommand", str(1, failed)), map[string]string{"1.20": "2", "1.21.1": "Reason", "1.21.2": "disabled"})
	})
}

// FuzzRequests sends any bytes as a request of any method: each call gets a response, and
// none reveals a bug.
func FuzzRequests(f *testing.F) {
	methods := []string{
		"AddApplication", "SyncApplication", "GetApplication", "ListApplications", "UpdateApplication", "DeleteApplication", "EnableApplication",
		"DisableApplication", "RenameApplicationConfigFile", "UpdateApplicationDeployTargets", "GetDeployment", "ListDeployments", "GetCommand",
		"GetPiped", "RegisterPiped", "UpdatePiped", "EnablePiped", "DisablePiped", "RegisterEvent", "RequestPlanPreview", "GetPlanPreviewResults",
		"Encrypt", "ListStageLogs",
	}
	out := &logs{}
	agent := controltest.Start(f, f.TempDir(), withFault(out, func() error { return deploy.Errorf(deploy.NotFound, "no command") }))
	app := agent.Application("web", map[string]string{"env": "prod"})
	agent.Deployment("d1", app, "")
	conn := dial(f, agent.Server.Addr())
	ctx := as(f, agent.ReadWrite)
	for i := range methods {
		f.Add(uint8(i), []byte{})
		f.Add(uint8(i), str(1, "app-web"))
		f.Add(uint8(i), str(1, ""))
		f.Add(uint8(i), str(1, "d1\x00"))
		f.Add(uint8(i), str(1, "'; DROP TABLE deployments; --"))
		f.Add(uint8(i), join(str(2, "KUBERNETES"), num(6, 1<<40), num(7, 1<<63)))
		f.Add(uint8(i), join(str(7, "e30"), str(10, "eyJ1IjoiYSJ9")))
		f.Add(uint8(i), msg(5, msg(1, []byte("a"))))
		f.Add(uint8(i), []byte{0xff, 0xff, 0xff})
		f.Add(uint8(i), str(1, "\xff"))
		f.Add(uint8(i), join(str(1, "app-web"), str(2, "piped-1"), str(3, "piped-1"), msg(4, join(msg(1, str(1, "apps")), str(2, "../.."), str(4, "/.pipecd.yaml")))))
		f.Add(uint8(i), join(str(1, "web"), str(2, "d"), str(3, "piped-1"), str(4, "main"), msg(3, join(str(1, ""), str(2, "")))))
		f.Add(uint8(i), join(str(1, "piped-1"), str(2, "piped-1"), num(2, 1<<63), num(5, 1<<63-1)))
	}
	f.Fuzz(func(t *testing.T, method uint8, req []byte) {
		name := methods[int(method)%len(methods)]
		_, err := rawCall(ctx, conn, name, req)
		switch code := status.Code(err); code {
		case codes.OK, codes.InvalidArgument, codes.NotFound, codes.AlreadyExists, codes.FailedPrecondition:
		case codes.Internal: // the error for malformed messages
			if !strings.Contains(err.Error(), "unmarshal") {
				t.Errorf("%s(%x): %v", name, req, err)
			}
		default:
			t.Errorf("%s(%x): %v", name, req, err)
		}
		if strings.Contains(out.String(), "level=ERROR") {
			t.Errorf("%s(%x) found a defect:\n%s", name, req, out)
		}
	})
}

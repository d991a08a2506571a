package control_test

import (
	"encoding/base64"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/c785c783/piped/piped/control/controltest"
	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/store"
)

// wirePeer calls methods by path with hand-encoded messages, as in wire_test.go.
type wirePeer struct {
	*controltest.Agent
	conn *grpc.ClientConn
}

func newWirePeer(t *testing.T) wirePeer {
	t.Helper()
	agent := controltest.Start(t, t.TempDir())
	return wirePeer{agent, dial(t, agent.Server.Addr())}
}

func (p wirePeer) call(t *testing.T, method string, req ...[]byte) []byte {
	t.Helper()
	resp, err := rawCall(as(t, p.ReadWrite), p.conn, method, join(req...))
	if err != nil {
		t.Fatalf("%s: %v", method, err)
	}
	return resp
}

// empty calls a method whose response has no fields.
func (p wirePeer) empty(t *testing.T, method string, req ...[]byte) {
	t.Helper()
	if resp := p.call(t, method, req...); len(resp) != 0 {
		t.Errorf("%s answered %x, want an empty message", method, resp)
	}
}

// refused calls a method that must return an error.
func (p wirePeer) refused(t *testing.T, method string, code codes.Code, want string, req ...[]byte) {
	t.Helper()
	_, err := rawCall(as(t, p.ReadWrite), p.conn, method, join(req...))
	if status.Code(err) != code || !strings.Contains(status.Convert(err).Message(), want) {
		t.Errorf("%s: got %v, want %s with %q", method, err, code, want)
	}
}

// entry encodes an entry of a string map.
func entry(number protowire.Number, key, value string) []byte {
	return msg(number, join(str(1, key), str(2, value)))
}

// gitPlace encodes an ApplicationGitPath of the repository "apps".
func gitPlace(dir, file string) []byte {
	return join(msg(1, str(1, "apps")), str(2, dir), str(4, file))
}

// TestWireOfRegistration: each field of the registration methods takes effect on the
// application.
func TestWireOfRegistration(t *testing.T) {
	p := newWirePeer(t)
	added := p.call(t, "AddApplication", str(1, "web"), str(3, "piped-1"), msg(4, gitPlace("shop/web", "w.pipecd.yaml")), num(5, 0),
		str(7, "the front"), str(8, "prod"), entry(9, "team", "a"))
	id := at(t, string(added), 1)[0]
	if want := deploy.ApplicationID(deploy.GitPath{RepoID: "apps", Dir: "shop/web", ConfigFile: "w.pipecd.yaml"}); id != want {
		t.Fatalf("the ID is %q, want %q", id, want)
	}
	application := func(want map[string]string) {
		t.Helper()
		expect(t, p.call(t, "GetApplication", str(1, id)), want)
	}
	application(map[string]string{
		"1.2": "web", "1.4": "piped-1", "1.6": "", "1.7.1.1": "apps", "1.7.1.2": "https://git.example.com/apps.git", "1.7.1.3": "main",
		"1.7.2": "shop/web", "1.7.4": "w.pipecd.yaml", "1.9": "the front", "1.10.1": "team", "1.10.2": "a", "1.13.1": "", "1.15": "prod",
		"1.98": "", "1.99": "", "1.100": "", "1.1001.1": "2", "1.1001.2": "owner", "1.1001.4": "prod", // SOURCE_ADDED
	})
	p.refused(t, "AddApplication", codes.InvalidArgument, "LAMBDA", str(1, "web"), str(3, "piped-1"), msg(4, gitPlace("x/", "")), num(5, 3))

	place := msg(4, gitPlace("shop/web", "w.pipecd.yaml"))
	expect(t, p.call(t, "UpdateApplication", str(1, id), str(2, "piped-1"), str(3, "dev"), place), map[string]string{"1": id})
	application(map[string]string{"1.1001.4": "dev"})
	p.refused(t, "UpdateApplication", codes.NotFound, "Piped is not found", str(1, id), str(2, "x"), place)
	p.refused(t, "UpdateApplication", codes.FailedPrecondition, "cannot be moved", str(1, id), str(2, "piped-1"), msg(4, gitPlace("shop/db", "")))
	p.empty(t, "UpdateApplicationDeployTargets", str(1, id), msg(2, join(str(1, "kubernetes"), msg(2, str(1, "prod")))))
	application(map[string]string{"1.1001.4": "prod"})
	p.empty(t, "RenameApplicationConfigFile", str(1, id), str(1, id), str(2, "w.pipecd.yaml"))
	p.refused(t, "RenameApplicationConfigFile", codes.FailedPrecondition, "other.pipecd.yaml", str(1, id), str(2, "other.pipecd.yaml"))

	expect(t, p.call(t, "DisableApplication", str(1, id)), map[string]string{"1": id})
	application(map[string]string{"1.100": "1"})
	expect(t, p.call(t, "EnableApplication", str(1, id)), map[string]string{"1": id})
	application(map[string]string{"1.100": ""})
	p.Tick(time.Minute)
	expect(t, p.call(t, "DeleteApplication", str(1, id)), map[string]string{"1": id})
	application(map[string]string{"1.98": fmt.Sprint(controltest.Epoch.Add(time.Minute).Unix()), "1.99": "1"})
}

// TestWireOfPipeds checks every field of the agent's message.
func TestWireOfPipeds(t *testing.T) {
	p := newWirePeer(t)
	epoch := fmt.Sprint(controltest.Epoch.Unix())
	p.empty(t, "UpdatePiped", str(1, "piped-1"), str(2, "shop"), str(3, "of the shop"))
	p.empty(t, "DisablePiped", str(1, "piped-1"))
	expect(t, p.call(t, "GetPiped", str(1, "piped-1")), map[string]string{
		"1.1": "piped-1", "1.2": "shop", "1.3": "of the shop", "1.5": "project-1", "1.7": "v1.2.3", "1.8": epoch,
		"1.9.1": "dev,prod", "1.9.2": "KUBERNETES,KUBERNETES", "1.10.1": "apps", "1.10.2": "https://git.example.com/apps.git", "1.10.3": "main",
		"1.11": "1", "1.12": "", "1.13": "1", "1.14": epoch, "1.15": epoch, // ONLINE
		"1.16.1": "dev,prod", "1.16.2": "KUBERNETES,KUBERNETES", "1.17.1": "kubernetes", "1.17.2": "dev,prod",
		"1.20": "", "1.21.1": "KEY_PAIR", "1.21.2": "-----BEGIN PUBLIC KEY-----\n", "1.21.3": "", "1.30": "",
	})
	p.empty(t, "EnablePiped", str(1, "piped-1"))
	expect(t, p.call(t, "GetPiped", str(1, "piped-1")), map[string]string{"1.13": ""})
	p.refused(t, "RegisterPiped", codes.AlreadyExists, `"shop" is this agent`, str(1, "shop"), str(2, "any"))
	p.refused(t, "RegisterPiped", codes.FailedPrecondition, `start "other"`, str(1, "other"))
}

// TestWireOfEncrypt checks the fields of request and response.
func TestWireOfEncrypt(t *testing.T) {
	p := newWirePeer(t)
	for inBase64, want := range map[uint64]string{0: "sealed:s\n", 1: "sealed:cwo="} {
		resp := p.call(t, "Encrypt", str(1, "s\n"), str(2, "piped-1"), num(3, inBase64))
		got, err := base64.StdEncoding.DecodeString(at(t, string(resp), 1)[0])
		if err != nil || string(got) != want {
			t.Errorf("base64 %d: %q, %v, want %q", inBase64, got, err, want)
		}
	}
}

// TestWireOfRegisterEvent: every field of the request is stored with the event.
func TestWireOfRegisterEvent(t *testing.T) {
	p := newWirePeer(t)
	resp := p.call(t, "RegisterEvent", str(1, "image"), str(2, "v2"), entry(3, "app", "web"), entry(4, "Build-No", "7"),
		str(5, "c0ffee"), str(6, "https://git.example.com/c0ffee"), str(7, "Bump"), str(8, "Bump it"), str(9, "Ada"), num(10, 1_700_000_000))
	events, _, err := p.Store.RegisteredEvents(t.Context(), store.RegisteredEventQuery{})
	if err != nil || len(events) != 1 {
		t.Fatalf("events: %v, %v", events, err)
	}
	got := events[0]
	if id := at(t, string(resp), 1); len(id) != 1 || id[0] != got.ID {
		t.Errorf("the ID is %q, the event's %q", id, got.ID)
	}
	want := deploy.RegisteredEvent{
		ID: got.ID, Name: "image", Data: "v2", Labels: map[string]string{"app": "web"}, Contexts: map[string]string{"Build-No": "7"},
		Key: deploy.EventKey("image", map[string]string{"app": "web"}), Status: deploy.EventOpen,
		Trigger: deploy.TriggerCommit{
			Hash: "c0ffee", URL: "https://git.example.com/c0ffee", Title: "Bump", Message: "Bump it", Author: "Ada", At: time.Unix(1_700_000_000, 0),
		},
		StatusDescription: got.StatusDescription, CreatedAt: got.CreatedAt, UpdatedAt: got.UpdatedAt,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the event (-want +got):\n%s", diff)
	}
}

// TestWireOfPlanPreview checks all messages from the request to its results.
func TestWireOfPlanPreview(t *testing.T) {
	p := newWirePeer(t)
	const head = "0123456789abcdef0123456789abcdef01234567"
	request := func(remote, base string) []byte {
		t.Helper()
		return p.call(t, "RequestPlanPreview", str(1, remote), str(2, "feature"), str(3, head), str(4, base), num(5, 60))
	}
	for _, other := range [][]byte{request("https://git.example.com/other.git", "main"), request("https://git.example.com/apps.git", "other")} {
		if len(other) != 0 {
			t.Errorf("for what the agent does not watch: %x, want no commands", other)
		}
	}
	id := at(t, string(request("https://git.example.com/apps.git", "main")), 1)[0]
	asked := p.OpenCommand()
	want := &deploy.PlanPreviewRequest{RepoID: "apps", HeadBranch: "feature", HeadCommit: head, BaseBranch: "main", Timeout: time.Minute}
	if diff := cmp.Diff(want, asked.PlanPreview); diff != "" || asked.ID != id {
		t.Errorf("command %s, want %s, asks (-want +got):\n%s", asked.ID, id, diff)
	}
	p.refused(t, "GetPlanPreviewResults", codes.NotFound, "Waiting", str(1, id), num(2, 300))
	expect(t, p.call(t, "GetCommand", str(1, id)), map[string]string{
		"1.30": "4", "1.35.1": "apps", "1.35.2": "feature", "1.35.3": head, "1.35.4": "main", "1.35.5": "60", // BUILD_PLAN_PREVIEW
	})
	now := controltest.Epoch.Add(time.Second)
	if err := p.Store.AnswerPlanPreview(t.Context(), deploy.PlanPreview{CommandID: id, At: now, Error: "in part", Results: []deploy.ApplicationPreview{{
		ApplicationID: "app-web", Name: "web", Kind: deploy.KindKubernetes, Dir: "shop/web", Labels: map[string]string{"env": "prod"}, HeadBranch: "feature", HeadCommit: head,
		Strategy: deploy.StrategyPipeline, Summary: "1 changed", Details: "+ a", NoChange: true, Error: "boom", At: now,
	}}}, deploy.CommandSucceeded); err != nil {
		t.Fatal(err)
	}
	expect(t, p.call(t, "GetPlanPreviewResults", str(1, id), num(2, 300)), map[string]string{
		"1.1": id, "1.2": "piped-1", "1.3": "", "1.5": "in part", "1.6": "the agent",
		"1.4.1": "app-web", "1.4.2": "web", "1.4.3": "", "1.4.4": "", "1.4.5": "shop/web", "1.4.9": "piped-1", "1.4.10": "project-1",
		"1.4.11.1": "env", "1.4.11.2": "prod", "1.4.20": "feature", "1.4.21": head, "1.4.30": "2", "1.4.31": "1 changed", "1.4.32": "+ a", // PIPELINE
		"1.4.33": "1", "1.4.34": "", "1.4.35": "", "1.4.40": "boom", "1.4.90": fmt.Sprint(now.Unix()),
	})
	// A preview without a result times out.
	late := at(t, string(request("https://git.example.com/apps.git", "main")), 1)[0]
	p.Tick(time.Minute)
	expect(t, p.call(t, "GetPlanPreviewResults", str(1, late), num(2, 30)), map[string]string{"1.1": late, "1.4": "", "1.5": "Timed out, maybe the Piped is offline currently."})
}

// TestWireOfCommands checks every PipeCD command type by its number and message.
func TestWireOfCommands(t *testing.T) {
	p := newWirePeer(t)
	for _, c := range []struct {
		command deploy.Command
		want    map[string]string
	}{
		{deploy.Command{Type: deploy.CommandSync, Strategy: deploy.StrategyPipeline}, map[string]string{"1.30": "", "1.31.1": "app-web", "1.31.2": "2"}},
		{deploy.Command{Type: deploy.CommandUpdateConfig}, map[string]string{"1.30": "1"}},
		{deploy.Command{Type: deploy.CommandCancel, ForceRollback: true}, map[string]string{"1.30": "2", "1.33.1": "d", "1.33.2": "1", "1.33.3": ""}},
		{deploy.Command{Type: deploy.CommandCancel, ForceNoRollback: true}, map[string]string{"1.30": "2", "1.33.1": "d", "1.33.2": "", "1.33.3": "1"}},
		{deploy.Command{Type: deploy.CommandApproveStage}, map[string]string{"1.30": "3", "1.34.1": "d", "1.34.2": "s"}},
		{deploy.Command{Type: deploy.CommandChainSync, ChainID: "c", ChainBlock: 2, Strategy: deploy.StrategyQuickSync},
			map[string]string{"1.30": "5", "1.36.1": "c", "1.36.2": "2", "1.36.3": "app-web", "1.36.4": "1"}},
		{deploy.Command{Type: deploy.CommandSkipStage}, map[string]string{"1.30": "6", "1.37.1": "d", "1.37.2": "s"}},
		{deploy.Command{Type: deploy.CommandRestartPiped}, map[string]string{"1.30": "7", "1.38.1": "piped-1"}},
	} {
		c.command.ID, c.command.ApplicationID, c.command.DeploymentID, c.command.StageID = "c-"+c.want["1.30"]+c.want["1.33.2"], "app-web", "d", "s"
		c.command.Commander = "ann"
		if _, err := p.Store.CreateCommand(t.Context(), c.command); err != nil {
			t.Fatal(err)
		}
		c.want["1.1"], c.want["1.2"], c.want["1.3"], c.want["1.4"], c.want["1.5"], c.want["1.6"] = c.command.ID, "piped-1", "app-web", "d", "s", "ann"
		expect(t, p.call(t, "GetCommand", str(1, c.command.ID)), c.want)
	}
}

// TestWireOfDeployment checks the fields that only a pipeline, a chain or a trace sets.
func TestWireOfDeployment(t *testing.T) {
	p := newWirePeer(t)
	app, now := p.Application("web", nil), controltest.Epoch.Add(time.Second)
	d := deploy.Deployment{
		ID: "d1", ApplicationID: app.ID, ApplicationName: app.Name, Git: app.Git, ChainID: "chain", ChainBlock: 2, Status: deploy.Pending,
		Trigger: deploy.Trigger{
			Kind: deploy.OnChain, At: now, Commander: "ann", Strategy: deploy.StrategyPipeline, StrategySummary: "block 2",
			Commit: deploy.Commit{Hash: "c0ffee0", URL: "https://git.example.com/c0ffee0", Trace: "7ace", At: now},
		},
	}
	if _, err := p.Store.CreateDeployment(t.Context(), store.NewDeployment{Deployment: d}); err != nil {
		t.Fatal(err)
	}
	_, err := p.Store.UpdateDeployment(t.Context(), d.ID, func(d *deploy.Deployment) error {
		d.Metadata = map[string]string{"key": "value"}
		return d.Plan(deploy.Plan{
			Strategy: deploy.StrategyPipeline, RunningCommit: "beef", RunningConfigFile: "old.pipecd.yaml",
			Stages: []deploy.Stage{
				{ID: "wait", Name: deploy.StageWait, Desc: "Wait a little", Visible: true, Metadata: map[string]string{"at": "once"}},
				{ID: "approval", Name: deploy.StageWaitApproval, Requires: []string{"wait"}, Visible: true, Options: []byte(`{"approvers":["ann","bob"]}`)},
			},
		}, now)
	})
	if err != nil {
		t.Fatal(err)
	}
	running := func(id string) {
		t.Helper()
		_, err := p.Store.UpdateDeployment(t.Context(), d.ID, func(d *deploy.Deployment) error {
			if d.Status == deploy.Planned {
				if err := d.Start(now); err != nil {
					return err
				}
			}
			return d.StartStage(id, now)
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	running("wait")
	expect(t, p.call(t, "GetDeployment", str(1, "d1")), map[string]string{
		"1.20.1.6": "https://git.example.com/c0ffee0", "1.20.2": "ann", "1.20.4": "2", "1.20.5": "block 2", "1.21": "beef", // PIPELINE
		"1.32.3": "Wait a little", "1.32.6": "wait", "1.32.10.1": "at", "1.32.10.2": "once", "1.32.16": "1,3", // MANUAL_OPERATION_SKIP, NONE
		"1.33.1": "key", "1.33.2": "value", "1.34.1.1.1": "key", "1.34.1.1.2": "value",
		"1.40": "chain", "1.41": "2", "1.50": "7ace", "1.60": "old.pipecd.yaml",
	})
	running("approval")
	expect(t, p.call(t, "GetDeployment", str(1, "d1")), map[string]string{"1.32.16": "1,2", "1.32.17": "ann,bob"}) // MANUAL_OPERATION_APPROVE
}

package app

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/c785c783/piped/piped/app/agenttest"
	"github.com/c785c783/piped/piped/cluster/clustertest"
	"github.com/c785c783/piped/piped/git/gittest"
	"github.com/c785c783/piped/proto/pipecd/apiservice"
	controlv1 "github.com/c785c783/piped/proto/piped/control/v1"
	modelv1 "github.com/c785c783/piped/proto/piped/model/v1"
)

// chaosEnv is the environment of the agent in a chaos run: a repository with
// applications, and users who commit, sync, cancel and approve. It records what it did,
// for a comparison with the agent's records.
type chaosEnv struct {
	namespace string
	repo      *gittest.Repo
	random    *rand.Rand
	scripts   string // the file to which every script stage adds a line
	agent     *agenttest.Agent

	apps     []*chaosApp
	head     string
	contents map[string]map[string]int // by commit: each application's revision, by directory
	commands []string                  // IDs of the commands whose call was answered
}

// chaosApp is one application. Each commit that touches it raises the revision,
// which its objects carry.
type chaosApp struct {
	dir, kind string
	revision  int
}

// flaw is the reason why a revision fails.
type flaw int

const (
	sound    flaw = iota
	badImage      // its pods never start
	badScript
)

func newChaosEnv(t *testing.T, applications int, random *rand.Rand) *chaosEnv {
	w := &chaosEnv{
		namespace: clustertest.Shared(t).Namespace(t), repo: newRepo(t), random: random,
		scripts: filepath.Join(t.TempDir(), "scripts"), contents: map[string]map[string]int{},
	}
	if err := os.WriteFile(w.scripts, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	kinds := chaosKinds()
	for i := range applications {
		w.apps = append(w.apps, &chaosApp{dir: fmt.Sprintf("app-%02d", i), kind: kinds[i%len(kinds)]})
	}
	return w
}

// chaosKinds returns the kinds of applications, named after their pipelines.
func chaosKinds() []string { return []string{"quick", "scripts", "approval"} }

// pipelines holds the lines below spec. %[1]s is the file to which scripts write, %[2]s
// the command that ends the last script.
var pipelines = map[string]string{
	"quick": "",
	"scripts": `
  planner: {alwaysUsePipeline: true}
  pipeline:
    stages:
      - name: WAIT
        with: {duration: 20ms}
      - name: SCRIPT_RUN
        with: {run: 'echo "$SR_DEPLOYMENT_ID before" >> %[1]s; sleep 0.1'}
      - name: K8S_SYNC
      - name: SCRIPT_RUN
        with: {run: 'echo "$SR_DEPLOYMENT_ID after" >> %[1]s; sleep 0.1; %[2]s', onRollback: 'echo "$SR_DEPLOYMENT_ID undo" >> %[1]s; sleep 0.1'}
`,
	"approval": `
  planner: {alwaysUsePipeline: true}
  pipeline:
    stages:
      - name: WAIT_APPROVAL
        with: {approvers: [owner]}
      - name: K8S_SYNC
      - name: SCRIPT_RUN
        with: {run: 'echo "$SR_DEPLOYMENT_ID after" >> %[1]s; %[2]s', onRollback: 'echo "$SR_DEPLOYMENT_ID undo" >> %[1]s'}
`,
}

// files returns the application's files at its revision. Every third revision does not
// change the workload.
func (a *chaosApp) files(w *chaosEnv, f flaw) map[string]string {
	image, end, patience := fmt.Sprintf("v%d", a.revision-a.revision%3), "true", 120
	switch f {
	case badImage:
		image, patience = "does-not-exist", 1
	case badScript:
		end = "exit 3"
	}
	config := fmt.Sprintf("apiVersion: pipecd.dev/v1beta1\nkind: KubernetesApp\nspec:\n  name: %s\n  input: {namespace: %s}\n", a.dir, w.namespace)
	if p := pipelines[a.kind]; p != "" {
		config += fmt.Sprintf(p, w.scripts, end)
	}
	return map[string]string{a.dir + "/app.pipecd.yaml": config, a.dir + "/app.yaml": fmt.Sprintf(`apiVersion: v1
kind: ConfigMap
metadata: {name: %[1]s}
data: {revision: "%[2]d"}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: %[1]s}
spec:
  replicas: 1
  progressDeadlineSeconds: %[4]d
  selector: {matchLabels: {app: %[1]s}}
  template:
    metadata: {labels: {app: %[1]s}}
    spec: {containers: [{name: c, image: "registry.example/c:%[3]s"}]}
`, a.dir, a.revision, image, patience)}
}

// begin adds all applications.
func (w *chaosEnv) begin(t *testing.T) { w.commit(t, w.apps, func(*chaosApp) flaw { return sound }) }

// act performs random user actions, each now and then.
func (w *chaosEnv) act(t *testing.T) {
	if w.random.IntN(100) < 80 {
		order := w.random.Perm(len(w.apps))
		var touched []*chaosApp
		for _, i := range order[:1+w.random.IntN(3)] {
			touched = append(touched, w.apps[i])
		}
		w.commit(t, touched, func(a *chaosApp) flaw {
			if w.random.IntN(100) >= 25 {
				return sound
			}
			if a.kind == "quick" {
				return badImage
			}
			return flaw(1 + w.random.IntN(2))
		})
	}
	if w.random.IntN(100) < 30 {
		w.sync(t, w.apps[w.random.IntN(len(w.apps))])
	}
	if w.random.IntN(100) < 15 {
		w.cancel(t)
	}
	if w.random.IntN(100) < 70 {
		w.approve(t)
	}
}

// commit raises the revision of some applications in one commit.
func (w *chaosEnv) commit(t *testing.T, touched []*chaosApp, flawOf func(*chaosApp) flaw) {
	files, names := map[string]string{}, []string{}
	for _, a := range touched {
		a.revision++
		names = append(names, a.dir)
		maps.Copy(files, a.files(w, flawOf(a)))
	}
	if err := w.repo.Write(files); err != nil {
		t.Errorf("commit: %v", err)
	}
	contents := map[string]int{}
	for _, a := range w.apps {
		contents[a.dir] = a.revision
	}
	var err error
	if w.head, err = w.repo.Commit(strings.Join(names, " ")); err != nil {
		t.Errorf("commit: %v", err)
	}
	w.contents[w.head] = contents
}

func (w *chaosEnv) sync(t *testing.T, a *chaosApp) {
	strategies := []modelv1.SyncStrategy{modelv1.SyncStrategy_AUTO, modelv1.SyncStrategy_QUICK_SYNC}
	request := &controlv1.SyncApplicationRequest{ApplicationId: appID(a.dir), Strategy: strategies[w.random.IntN(2)]}
	w.ask(t, "sync "+a.dir, func(ctx context.Context) (commandResponse, error) {
		return w.agent.Control.SyncApplication(ctx, request)
	})
}

// cancel cancels a deployment that has not ended, if there is one.
func (w *chaosEnv) cancel(t *testing.T) {
	open := w.listIfAnswered(t.Context(), openStatuses()...)
	if len(open) == 0 {
		return
	}
	request := &controlv1.CancelDeploymentRequest{DeploymentId: open[w.random.IntN(len(open))].GetId()}
	w.ask(t, "cancel "+request.GetDeploymentId(), func(ctx context.Context) (commandResponse, error) {
		return w.agent.Control.CancelDeployment(ctx, request)
	})
}

// approve approves every stage that waits for it.
func (w *chaosEnv) approve(t *testing.T) {
	for _, d := range w.listIfAnswered(t.Context(), modelv1.DeploymentStatus_DEPLOYMENT_RUNNING) {
		for _, s := range d.GetStages() {
			if s.GetName() != "WAIT_APPROVAL" || s.GetStatus() != modelv1.StageStatus_STAGE_RUNNING {
				continue
			}
			request := &controlv1.ApproveStageRequest{DeploymentId: d.GetId(), StageId: s.GetId()}
			w.ask(t, "approve "+d.GetId(), func(ctx context.Context) (commandResponse, error) {
				return w.agent.Control.ApproveStage(ctx, request)
			})
		}
	}
}

type commandResponse interface{ GetCommandId() string }

// ask repeats a call that creates a command until it is answered, as a user would. A
// refusal is an answer.
func (w *chaosEnv) ask(t *testing.T, what string, call func(context.Context) (commandResponse, error)) {
	for end := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		response, err := call(ctx)
		cancel()
		switch status.Code(err) {
		case codes.OK:
			w.commands = append(w.commands, response.GetCommandId())
			return
		case codes.FailedPrecondition, codes.NotFound:
			return // the deployment ended meanwhile, or is not known yet
		case codes.Unavailable, codes.DeadlineExceeded:
		default:
			t.Errorf("%s: %v", what, err)
			return
		}
		if time.Now().After(end) {
			t.Errorf("%s: no answer for %s: %v", what, patience, err)
			return
		}
	}
}

func openStatuses() []modelv1.DeploymentStatus {
	return []modelv1.DeploymentStatus{
		modelv1.DeploymentStatus_DEPLOYMENT_PENDING, modelv1.DeploymentStatus_DEPLOYMENT_PLANNED,
		modelv1.DeploymentStatus_DEPLOYMENT_RUNNING, modelv1.DeploymentStatus_DEPLOYMENT_ROLLING_BACK,
	}
}

// list returns the deployments in some statuses.
func (w *chaosEnv) list(ctx context.Context, statuses ...modelv1.DeploymentStatus) ([]*modelv1.Deployment, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	request := &apiservice.ListDeploymentsRequest{Limit: 1000}
	for _, s := range statuses {
		request.Statuses = append(request.Statuses, s.String())
	}
	response, err := w.agent.API.ListDeployments(ctx, request)
	return response.GetDeployments(), err
}

// listIfAnswered is list, but returns nil when there is no answer.
func (w *chaosEnv) listIfAnswered(ctx context.Context, statuses ...modelv1.DeploymentStatus) []*modelv1.Deployment {
	deployments, err := w.list(ctx, statuses...)
	if err != nil {
		return nil
	}
	return deployments
}

// count returns the number of deployments without cancelled ones, most of which a newer
// commit superseded; 0 if there is no answer.
func (w *chaosEnv) count(ctx context.Context) int {
	return len(w.listIfAnswered(ctx, append(openStatuses(),
		modelv1.DeploymentStatus_DEPLOYMENT_SUCCESS, modelv1.DeploymentStatus_DEPLOYMENT_FAILURE)...))
}

func (w *chaosEnv) answers(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	_, err := w.agent.API.ListApplications(ctx, &apiservice.ListApplicationsRequest{Limit: 1})
	return err == nil
}

func (w *chaosEnv) rollingBack(ctx context.Context) bool {
	return len(w.listIfAnswered(ctx, modelv1.DeploymentStatus_DEPLOYMENT_ROLLING_BACK)) > 0
}

func (w *chaosEnv) scriptSize() int64 {
	info, err := os.Stat(w.scripts)
	if err != nil {
		return 0
	}
	return info.Size()
}

// finish runs the agent until no work is left. An application that never succeeded, and
// so was never rolled back, gets a revision that succeeds.
func (w *chaosEnv) finish(t *testing.T) {
	w.awaitQuiet(t)
	var never []*chaosApp
	for _, a := range w.apps {
		response, err := w.agent.API.GetApplication(t.Context(), &apiservice.GetApplicationRequest{ApplicationId: appID(a.dir)})
		if err != nil {
			t.Fatal(err)
		}
		if response.GetApplication().GetMostRecentlySuccessfulDeployment() == nil {
			never = append(never, a)
		}
	}
	if len(never) > 0 {
		w.commit(t, never, func(*chaosApp) flaw { return sound })
		w.awaitQuiet(t)
	}
}

// awaitQuiet waits until no work is open.
func (w *chaosEnv) awaitQuiet(t *testing.T) {
	answered := 0 // number of commands known to be answered; asking for all each time would exceed the API's rate limit
	err := w.agent.Await(t.Context(), "everything to end", patience, func(ctx context.Context) (bool, error) {
		w.approve(t)
		apps, err := w.agent.API.ListApplications(ctx, &apiservice.ListApplicationsRequest{Limit: 1000})
		if err != nil {
			return false, err
		}
		evaluated := 0
		for _, a := range apps.GetApplications() {
			if a.GetEvaluatedCommit() == w.head {
				evaluated++
			}
		}
		if evaluated < len(w.apps) {
			return false, fmt.Errorf("%d of %d applications are at commit %s", evaluated, len(w.apps), w.head)
		}
		for ; answered < len(w.commands); answered++ {
			id := w.commands[answered]
			c, err := w.agent.API.GetCommand(ctx, &apiservice.GetCommandRequest{CommandId: id})
			if err != nil {
				return false, fmt.Errorf("command %s: %w", id, err)
			}
			if c.GetCommand().GetStatus() == modelv1.CommandStatus_COMMAND_NOT_HANDLED_YET {
				return false, fmt.Errorf("not answered: %v", c.GetCommand())
			}
		}
		open, err := w.list(ctx, openStatuses()...)
		if err != nil {
			return false, err // an error does not mean that there are none
		}
		if len(open) > 0 {
			d := open[0]
			return false, fmt.Errorf("%d deployments have not ended, such as %s of %s: %s (%s)", len(open), d.GetId(), d.GetApplicationName(), d.GetStatus(), d.GetStatusReason())
		}
		return true, nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

package app

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/c785c783/piped/piped/app/agenttest"
	"github.com/c785c783/piped/piped/marked"
	controlv1 "github.com/c785c783/piped/proto/piped/control/v1"
	modelv1 "github.com/c785c783/piped/proto/piped/model/v1"
)

// process runs the agent as a process of its own, with further arguments.
func (i *infra) process(args ...string) *agenttest.Agent {
	i.t.Helper()
	p := startProcess(i.t, agenttest.Options{Remote: i.repo.Dir, Kubeconfig: i.file("none"), Args: args, More: i.s.more + fmt.Sprintf(
		"  cloudProviders: [{name: tofu, type: OPENTOFU, config: {program: %q, cliConfigFile: %q, driftDetectionEnabled: true}}]\n", i.program, i.rc)})
	data := filepath.Dir(p.KeyFile)
	i.t.Cleanup(func() { marked.Kill("PIPED_OPENTOFU_DIR", filepath.Join(data, "opentofu")) }) // of an agent that was killed, and not started again
	i.c, i.s.dataDir = dial(i.t, p.Address, data), data
	i.c.web = "http://" + p.WebAddress
	return p
}

// journal returns how many times each file was written.
func (i *infra) journal() map[string]int {
	data, _ := os.ReadFile(i.file("journal"))
	out := map[string]int{}
	for line := range strings.Lines(string(data)) {
		out[filepath.Base(strings.TrimSpace(line))]++
	}
	return out
}

// pluginsIn returns the processes of plugins of the runs in a directory, each with its start, since
// numbers of processes return.
func pluginsIn(dir string) map[string]bool {
	out := map[string]bool{}
	for _, pid := range marked.Processes("PIPED_OPENTOFU_DIR", dir) {
		program, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", pid))
		if err != nil || !strings.HasPrefix(filepath.Base(program), "terraform-provider-") {
			continue
		}
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if fields := strings.Fields(string(stat)); err == nil && len(fields) > 21 {
			out[fmt.Sprintf("process %d of %s, started at %s", pid, filepath.Base(program), fields[21])] = true
		}
	}
	return out
}

// TestOpenTofuLockLeftByAKill: the lock of a run that was killed is reported, and the deployment
// waits until a user releases it. The plugins of the killed run, which outlive the agent, are ended.
func TestOpenTofuLockLeftByAKill(t *testing.T) {
	t.Parallel()
	i := newInfra(t)
	state, gate := newStateServer(t), newJournalGate(t, i.file("gate"))
	code := strings.Replace(i.code(i.gated("one", "a", "b")), fmt.Sprintf("  backend \"local\" { path = %q }\n", i.file("state.tfstate")), state.backend(), 1)
	commit := i.repo.Push(t, "add", map[string]string{"net/app.pipecd.yaml": i.app(""), "net/main.tf": code})
	p, app := i.process(), appID("net")
	i.awaitMakingB(app)
	dir := filepath.Join(filepath.Dir(p.KeyFile), "opentofu")
	plugins := pluginsIn(dir)
	if len(plugins) == 0 {
		t.Error("no plugin runs during the apply")
	}
	restart(t, p)
	d := i.c.await(app, "waits for the lock", func(d *modelv1.Deployment) bool {
		return strings.Contains(i.c.logs(d.GetId()), "Waiting: the state is locked by ")
	})
	for plugin := range pluginsIn(dir) {
		if plugins[plugin] {
			t.Errorf("%s outlives the agent's restart", plugin)
		}
	}
	gate.open()
	if state.locked() == "" {
		t.Error("the lock was released without a request")
	}
	var lock struct{ ID string }
	if err := json.Unmarshal([]byte(state.locked()), &lock); err != nil {
		t.Fatal(err)
	}
	mustContain(t, i.c.logs(d.GetId()), "--lock-id="+lock.ID)
	release := func(id string) *modelv1.Command {
		t.Helper()
		resp, err := i.c.control.ReleaseStateLock(i.c.ctx, &controlv1.ReleaseStateLockRequest{DeploymentId: d.GetId(), LockId: id})
		if err != nil {
			t.Fatal(err)
		}
		return i.c.answer(resp.GetCommandId())
	}
	if cmd := release("another"); cmd.GetStatus() != modelv1.CommandStatus_COMMAND_FAILED || state.locked() == "" {
		t.Errorf("the release of another lock was answered with %v", cmd)
	}
	if cmd := release(lock.ID); cmd.GetStatus() != modelv1.CommandStatus_COMMAND_SUCCEEDED {
		t.Errorf("the release was answered with %v", cmd)
	}
	d = i.c.mustEnd(app, commit, modelv1.DeploymentStatus_DEPLOYMENT_SUCCESS)
	mustHaveEndedOnce(t, d)
	if _, err := i.c.control.ReleaseStateLock(i.c.ctx, &controlv1.ReleaseStateLockRequest{DeploymentId: d.GetId(), LockId: lock.ID}); err == nil {
		t.Error("a release was accepted after the deployment")
	}
	i.holds("b", "one")
	if state.locked() != "" {
		t.Errorf("the state stays locked by %s", state.locked())
	}
}

// TestOpenTofuTwoApplicationsOnOneState: the lock of the state makes the second wait for the first.
func TestOpenTofuTwoApplicationsOnOneState(t *testing.T) {
	t.Parallel()
	i := newInfra(t)
	state, gate := newStateServer(t), newJournalGate(t, i.file("gate"))
	code := strings.Replace(i.code(i.gated("one", "b")), fmt.Sprintf("  backend \"local\" { path = %q }\n", i.file("state.tfstate")), state.backend(), 1)
	commit := i.repo.Push(t, "add", map[string]string{
		"net/app.pipecd.yaml": i.app(""), "net/main.tf": code, "twin/app.pipecd.yaml": strings.Replace(i.app(""), "name: net", "name: twin", 1), "twin/main.tf": code,
	})
	i.start()
	var making, waiting int
	for end := time.Now().Add(patience); making != 1 || waiting != 1; time.Sleep(pollInterval) {
		making, waiting = 0, 0
		for _, name := range []string{"net", "twin"} {
			for _, d := range i.c.deployments(appID(name)) {
				log := i.c.logs(d.GetId())
				if strings.Contains(log, "sample_file.b: Creating...") { // it may have waited for the other's plan
					making++
				} else {
					waiting += min(1, strings.Count(log, "the state is locked by "))
				}
			}
		}
		if time.Now().After(end) {
			t.Fatalf("%d applications make b, and %d wait for the lock; want one of each", making, waiting)
		}
	}
	gate.open()
	for _, name := range []string{"net", "twin"} {
		i.c.mustEnd(appID(name), commit, modelv1.DeploymentStatus_DEPLOYMENT_SUCCESS)
	}
	if n := gate.count(); n != 1 {
		t.Errorf("b was written %d times, want once: the second application finds it", n)
	}
}

// TestOpenTofuStaleSync: a sync whose plan is outdated by another run makes one new plan and applies it.
func TestOpenTofuStaleSync(t *testing.T) {
	t.Parallel()
	i := newInfra(t)
	i.calls("apply", 2, fmt.Sprintf("sed -i 's/\"serial\": [0-9]*/\"serial\": 77/' %q", i.file("state.tfstate")))
	i.repo.Push(t, "add", map[string]string{"net/app.pipecd.yaml": i.app(""), "net/main.tf": i.code(i.resource("a", "one", ""))})
	i.start()
	i.c.awaitSyncState(appID("net"), modelv1.ApplicationSyncStatus_SYNCED)
	commit := i.repo.Push(t, "change", map[string]string{"net/main.tf": i.code(i.resource("a", "two", ""))})
	d := i.c.mustEnd(appID("net"), commit, modelv1.DeploymentStatus_DEPLOYMENT_SUCCESS)
	mustContain(t, i.c.logs(d.GetId()), "Another run has changed the state since the plan was made; planning again")
	i.holds("a", "two")
	i.stop() // a comparison may begin, which is a plan
	if plans, applies := i.called("plan")-i.refreshes(), i.called("apply"); plans != 3 || applies != 3 {
		t.Errorf("%d plans and %d applies were made, want 3: of the first deployment, one that was outdated, and one again", plans, applies)
	}
}

// TestOpenTofuStalePlan: a plan whose state was changed by another run is not applied, and the
// stage says what has moved.
func TestOpenTofuStalePlan(t *testing.T) {
	t.Parallel()
	i := newInfra(t)
	approve := "  pipeline:\n    stages: [{name: TERRAFORM_PLAN, id: plan}, {name: WAIT_APPROVAL, id: ok, with: {approvers: []}}, {name: TERRAFORM_APPLY, id: apply}]\n"
	both := i.code(i.resource("a", "one", "") + i.resource("b", "one", ""))
	first := i.repo.Push(t, "add", map[string]string{"net/app.pipecd.yaml": i.app(approve), "net/main.tf": both})
	i.start()
	d := i.c.awaitStage(appID("net"), first, "ok")
	other := i.repo.Push(t, "another run", map[string]string{"twin/app.pipecd.yaml": strings.Replace(i.app(""), "name: net", "name: twin", 1), "twin/main.tf": i.code(i.resource("a", "one", ""))})
	i.c.mustEnd(appID("twin"), other, modelv1.DeploymentStatus_DEPLOYMENT_SUCCESS)
	i.c.approve(d)
	d = i.c.mustEnd(appID("net"), first, modelv1.DeploymentStatus_DEPLOYMENT_FAILURE)
	mustContain(t, d.GetStatusReason(), "was not applied", "does not fit the state any more", "no longer create sample_file.a")
	if _, err := os.Stat(i.file("b")); err == nil {
		t.Error("a part of the plan was applied")
	}
}

// TestOpenTofuConfirmDestroy: a plan that destroys more than is permitted needs a confirmation.
func TestOpenTofuConfirmDestroy(t *testing.T) {
	t.Parallel()
	i := newInfra(t)
	i.repo.Push(t, "add", map[string]string{
		"net/app.pipecd.yaml": i.app("  quickSync: {confirmDestroyAbove: 1}\n"),
		"net/main.tf":         i.code(i.resource("a", "one", "") + i.resource("b", "one", "") + i.resource("c", "one", "")),
	})
	i.start()
	app := appID("net")
	i.c.awaitSyncState(app, modelv1.ApplicationSyncStatus_SYNCED)
	commit := i.repo.Push(t, "remove two", map[string]string{"net/main.tf": i.code(i.resource("a", "two", ""))})
	d := i.c.mustEnd(app, commit, modelv1.DeploymentStatus_DEPLOYMENT_FAILURE)
	mustContain(t, d.GetStatusReason(), "would destroy or replace 2 resources", "--confirm-destroy", "sample_file.b, sample_file.c")
	i.holds("a", "one")
	resp, err := i.c.control.ConfirmPrune(i.c.ctx, &controlv1.ConfirmPruneRequest{ApplicationId: app})
	if err != nil {
		t.Fatal(err)
	}
	if cmd := i.c.answer(resp.GetCommandId()); cmd.GetStatus() != modelv1.CommandStatus_COMMAND_SUCCEEDED {
		t.Fatalf("the sync was answered with %v", cmd)
	}
	i.c.await(app, "has destroyed two", func(d *modelv1.Deployment) bool {
		return d.GetTrigger().GetCommit().GetHash() == commit && d.GetStatus() == modelv1.DeploymentStatus_DEPLOYMENT_SUCCESS
	})
	i.holds("a", "two")
	if _, err := os.Stat(i.file("b")); err == nil {
		t.Error("b was not destroyed")
	}
}

// TestOpenTofuCancel: a cancelled apply is interrupted as the program wants it, and leaves a state
// that the next deployment goes on from.
func TestOpenTofuCancel(t *testing.T) {
	t.Parallel()
	i := newInfra(t)
	gate := newJournalGate(t, i.file("gate"))
	commit := i.repo.Push(t, "add", map[string]string{"net/app.pipecd.yaml": i.app(""), "net/main.tf": i.code(i.gated("one", "a", "b", "c"))})
	i.start()
	app := appID("net")
	d := i.awaitMakingB(app)
	i.awaitFile("gate.began") // an interruption before the plugin makes b would not reach it
	i.c.cancel(&controlv1.CancelDeploymentRequest{DeploymentId: d.GetId()})
	began := time.Now()
	i.c.mustEnd(app, commit, modelv1.DeploymentStatus_DEPLOYMENT_CANCELLED)
	t.Logf("ended %s after the request", time.Since(began).Round(time.Millisecond))
	if _, err := os.Stat(i.file("c")); err == nil {
		t.Error("the apply went on to its end")
	}
	gate.open()
	if cmd := i.c.answer(i.c.sync(app).GetId()); cmd.GetStatus() != modelv1.CommandStatus_COMMAND_SUCCEEDED {
		t.Fatalf("the sync was answered with %v", cmd)
	}
	i.c.awaitSyncState(app, modelv1.ApplicationSyncStatus_SYNCED)
	i.holds("c", "one")
}

// TestOpenTofuUnreadState: an apply that was done stays a success when the state cannot be read after
// it. The resources are recorded as soon as it can be, also by an agent that was killed meanwhile.
func TestOpenTofuUnreadState(t *testing.T) {
	t.Parallel()
	i := newInfra(t)
	i.calls("show", 3, "exit 1") // the first two are of the plan
	commit := i.repo.Push(t, "add", map[string]string{"net/app.pipecd.yaml": i.app(""), "net/main.tf": i.code(i.resource("a", "one", ""))})
	p, app := i.process(), appID("net")
	d := i.c.mustEnd(app, commit, modelv1.DeploymentStatus_DEPLOYMENT_SUCCESS)
	mustContain(t, i.c.logs(d.GetId()), "Warning: the state cannot be read after the apply")
	restart(t, p)
	i.c.wantLive(app, modelv1.Health_HEALTH_HEALTHY, "sample_file a HEALTHY declared")
	i.c.awaitSyncState(app, modelv1.ApplicationSyncStatus_SYNCED)
	if n := i.called("apply"); n != 1 {
		t.Errorf("%d applies were started, want 1", n)
	}
}

package scheduler

import (
	"context"
	"encoding/json"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/c785c783/piped/executor/approval"
	"github.com/c785c783/piped/executor/script"
	"github.com/c785c783/piped/executor/script/sandbox"
	"github.com/c785c783/piped/executor/wait"
	"github.com/c785c783/piped/piped/deploy"
)

// inPipeline runs a test with an env that uses the agent's executors for waits,
// approvals and scripts.
func inPipeline(t *testing.T, test func(t *testing.T, e *env)) {
	inBubble(t, func(t *testing.T, e *env) {
		approvals := approval.New(approval.Config{Store: e.store, Logger: e.logger})
		scripts, err := script.New(script.Config{
			Isolation: sandbox.Settings{Modes: []sandbox.Mode{sandbox.None}},
			Tree: func(string, string) (fs.FS, error) {
				return fstest.MapFS{"app-d/hello.txt": {Data: []byte("hello\n")}}, nil
			},
			Dir: filepath.Join(t.TempDir(), "scripts"), Logger: e.logger,
		})
		if err != nil {
			t.Fatal(err)
		}
		e.executors = map[string]Executor{
			deploy.StageK8sSync: executor(succeed), deploy.StageRollback: executor(succeed),
			deploy.StageWait: wait.New(wait.Config{Now: time.Now}), deploy.StageWaitApproval: approvals,
			deploy.StageScriptRun: scripts, deploy.StageScriptRunRollback: scripts,
		}
		ctx, stop := context.WithCancel(context.Background())
		ended := make(chan error, 1)
		go func() { ended <- approvals.Run(ctx) }()
		defer func() { stop(); <-ended }()
		e.start()
		test(t, e)
	})
}

// gated is a pipeline: sync, wait, prepare, an approval of two out of three users,
// tell. The scripts of prepare and tell have rollbacks.
func gated(p *deploy.Plan) {
	undo := func(base, with string) deploy.Stage {
		return deploy.Stage{ID: "undo-" + base, Name: deploy.StageScriptRunRollback, Rollback: true, Metadata: map[string]string{
			"baseStageID": base, "onRollback": "echo took back " + with,
		}}
	}
	p.Timeout = 24 * time.Hour
	p.Stages = []deploy.Stage{
		{ID: "sync", Name: deploy.StageK8sSync},
		{ID: "wait", Name: deploy.StageWait, Options: json.RawMessage(`{"duration":"10m"}`)},
		{ID: "prepare", Name: deploy.StageScriptRun, Options: json.RawMessage(`{"run":"cat hello.txt"}`)},
		{ID: "gate", Name: deploy.StageWaitApproval, Options: json.RawMessage(`{"approvers":["ann","ben","cid"],"minApproverNum":2}`), Timeout: time.Hour},
		{ID: "tell", Name: deploy.StageScriptRun, Options: json.RawMessage(`{"run":"echo released $SR_APPLICATION_NAME"}`)},
		{ID: "back", Name: deploy.StageRollback, Rollback: true},
		undo("prepare", "what was prepared"), undo("tell", "what was announced"),
	}
}

// vote stores a command on the approval stage, named after its position.
func (e *env) vote(id string, t deploy.CommandType, who, why string) {
	e.t.Helper()
	e.ask(deploy.Command{ID: id, Type: t, DeploymentID: "d", StageID: "gate", Commander: who, Reason: why})
	synctest.Wait()
}

// stages returns "id STATUS" for each stage of a deployment.
func (e *env) stages(id string) []string {
	e.t.Helper()
	var out []string
	for _, s := range e.get(id).Stages {
		out = append(out, fmt.Sprintf("%s %s", s.ID, s.Status))
	}
	return out
}

// TestPipeline runs a pipeline with the commands of users.
func TestPipeline(t *testing.T) {
	t.Parallel()
	cases := []struct {
		name   string
		people func(e *env) // what happens once the approval stage runs
		want   deploy.Status
		reason string
		stages []string // after the approval stage
		says   map[string]string
	}{
		{
			name: "approved by two",
			people: func(e *env) {
				e.vote("1", deploy.CommandApproveStage, "ann", "")
				e.vote("2", deploy.CommandApproveStage, "ann", "")
				e.vote("3", deploy.CommandApproveStage, "eve", "")
				e.askSkip("4", "d", "gate")
				synctest.Wait()
				e.wantAnswer("1", deploy.CommandSucceeded, "")
				e.wantAnswer("2", deploy.CommandFailed, "ann has approved this stage already, and each person counts once; 1 more approval is missing")
				e.wantAnswer("3", deploy.CommandFailed, "eve is not an approver of this stage; the approvers are: ann, ben, cid")
				e.wantAnswer("4", deploy.CommandFailed, "stage gate needs approval and cannot be skipped: approve it, or reject it")
				e.wantStage("d", "gate", deploy.StageRunning, "")
				e.vote("5", deploy.CommandApproveStage, "ben", "")
				e.wantAnswer("5", deploy.CommandSucceeded, "")
			},
			want: deploy.Success, reason: "Deployment completed successfully",
			stages: []string{"gate SUCCESS", "tell SUCCESS", "back NOT_STARTED_YET", "undo-prepare NOT_STARTED_YET", "undo-tell NOT_STARTED_YET"},
			says:   map[string]string{"prepare": "hello", "gate": "Approved by ann, ben", "tell": "released app-d"},
		},
		{
			name: "rejected",
			people: func(e *env) {
				e.vote("1", deploy.CommandApproveStage, "ann", "")
				e.vote("2", deploy.CommandRejectStage, "cid", "not today")
				e.wantAnswer("2", deploy.CommandSucceeded, "")
			},
			want: deploy.Failure, reason: "Stage WAIT_APPROVAL failed: rejected by cid: not today; rolled back to commit beef012",
			stages: []string{"gate FAILURE", "tell NOT_STARTED_YET", "back SUCCESS", "undo-prepare SUCCESS", "undo-tell SKIPPED"},
			says:   map[string]string{"undo-prepare": "took back what was prepared"},
		},
		{
			name:   "no approval",
			people: func(*env) { time.Sleep(2 * time.Hour) },
			want:   deploy.Failure, reason: "Stage WAIT_APPROVAL failed: timed out after 1h0m0s: no approvals yet; rolled back to commit beef012",
			stages: []string{"gate FAILURE", "tell NOT_STARTED_YET", "back SUCCESS", "undo-prepare SUCCESS", "undo-tell SKIPPED"},
		},
		{
			name: "cancelled without a rollback",
			people: func(e *env) {
				e.askCancel("1", "d", func(c *deploy.Command) { c.ForceNoRollback = true })
			},
			want: deploy.Cancelled, reason: "Cancelled by ann; not rolled back, as asked",
			stages: []string{"gate CANCELLED", "tell NOT_STARTED_YET", "back NOT_STARTED_YET", "undo-prepare NOT_STARTED_YET", "undo-tell NOT_STARTED_YET"},
		},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			inPipeline(t, func(t *testing.T, e *env) {
				e.planned("d", gated)
				time.Sleep(9 * time.Minute)
				e.wantStage("d", "wait", deploy.StageRunning, "")
				time.Sleep(2 * time.Minute)
				e.wantStage("d", "gate", deploy.StageRunning, "")
				c.people(e)
				time.Sleep(time.Minute)
				synctest.Wait()
				e.wantEnd("d", c.want, c.reason)
				want := append([]string{"sync SUCCESS", "wait SUCCESS", "prepare SUCCESS"}, c.stages...)
				if diff := cmp.Diff(want, e.stages("d")); diff != "" {
					t.Errorf("stages (-want +got):\n%s", diff)
				}
				for stage, text := range c.says {
					if log := strings.Join(e.log("d", stage), "\n"); !strings.Contains(log, text) {
						t.Errorf("the log of stage %s says %q, want %q in it", stage, log, text)
					}
				}
				e.wantLegal("d")
			})
		})
	}
}

// TestPipelineSkips: a wait is skipped, and a failed script is rolled back.
func TestPipelineSkips(t *testing.T) {
	inPipeline(t, func(t *testing.T, e *env) {
		e.planned("d", gated, func(p *deploy.Plan) {
			p.Stages[3].SkipOn = json.RawMessage(`{"commitMessagePrefixes":[""]}`)
			p.Stages[4].Options = json.RawMessage(`{"run":"echo telling; exit 3"}`)
		})
		synctest.Wait()
		e.askSkip("1", "d", "wait")
		time.Sleep(time.Minute)
		synctest.Wait()
		e.wantAnswer("1", deploy.CommandSucceeded, "")
		e.wantEnd("d", deploy.Failure, "Stage SCRIPT_RUN failed: the script failed: it exited with code 3; rolled back to commit beef012")
		want := []string{"sync SUCCESS", "wait SKIPPED", "prepare SUCCESS", "gate SKIPPED", "tell FAILURE", "back SUCCESS", "undo-prepare SUCCESS", "undo-tell SUCCESS"}
		if diff := cmp.Diff(want, e.stages("d")); diff != "" {
			t.Errorf("stages (-want +got):\n%s", diff)
		}
		if log := strings.Join(e.log("d", "undo-tell"), "\n"); !strings.Contains(log, "took back what was announced") {
			t.Errorf("the log of the rollback script is %q", log)
		}
	})
}

// TestApprovalIsAnnounced: the wait for approval and the approval each send one event,
// in addition to the stage events.
func TestApprovalIsAnnounced(t *testing.T) {
	inPipeline(t, func(t *testing.T, e *env) {
		e.planned("d", gated)
		time.Sleep(11 * time.Minute)
		synctest.Wait()
		e.vote("1", deploy.CommandApproveStage, "ann", "")
		e.vote("2", deploy.CommandApproveStage, "cid", "")
		time.Sleep(time.Minute)
		synctest.Wait()
		events, err := e.store.Events(t.Context(), 0, 0)
		if err != nil {
			t.Fatal(err)
		}
		var got []deploy.EventType
		for _, e := range events {
			if e.StageID == "gate" {
				got = append(got, e.Type)
			}
		}
		want := []deploy.EventType{deploy.EventStageStarted, deploy.EventWaitApproval, deploy.EventStageSucceeded, deploy.EventApproved}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("events of the gate (-want +got):\n%s", diff)
		}
	})
}

package page

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/c785c783/piped/proto/pipecd/apiservice"
	controlv1 "github.com/c785c783/piped/proto/piped/control/v1"
	modelv1 "github.com/c785c783/piped/proto/piped/model/v1"
)

// approvable returns the API of a deployment that waits for an approval.
func approvable(t *testing.T, permissions ...string) *fakeAPI {
	d := waitingDeployment()
	d.PlatformProvider, d.CreatedAtMs, d.Wait = "eu-1", minutesAgo(5), &modelv1.DeploymentWait{WaitsFor: "1 approval of jane", Approval: true, SinceMs: minutesAgo(4)}
	d.Transitions = []*modelv1.Transition{{To: "DEPLOYMENT_RUNNING", Reason: "a slot was free", AtMs: minutesAgo(5)}, {To: "STAGE_RUNNING", StageId: "gate", AtMs: minutesAgo(4)}}
	d.Stages = append(d.Stages, &modelv1.PipelineStage{Id: "rollback", Name: "ROLLBACK", Rollback: true})
	return newFake(t, append(permissions, "view", "view-logs")...).
		on("SearchApplications", &controlv1.SearchApplicationsResponse{}).on("GetStatus", &controlv1.GetStatusResponse{}).
		on("GetDeployment", &apiservice.GetDeploymentResponse{Deployment: d}).
		on("ListRollouts", &controlv1.ListRolloutsResponse{}).
		on("GetPlan", &controlv1.GetPlanResponse{Plan: &controlv1.Plan{Summary: "Pipeline because the image changed", Changes: []*controlv1.PlannedChange{
			{Object: &modelv1.ObjectRef{Kind: "Deployment", Name: "checkout"}, Action: controlv1.PlannedAction_PLANNED_ACTION_UPDATE, Diff: "@@\n-  image: a\n+  image: b\n"},
			{Object: &modelv1.ObjectRef{Kind: "ConfigMap", Name: "old"}, Action: controlv1.PlannedAction_PLANNED_ACTION_DELETE},
		}}})
}

// TestDeployment: the view says what the deployment waits for, shows the pipeline without a rollback
// that is not needed, and offers what the caller may do.
func TestDeployment(t *testing.T) {
	body := golden(t, "deployment", approvable(t, "approve", "cancel").get("/deployments/d-checkout?tab=timeline"))
	for _, want := range []string{"checkout at 1f2ac83 (“Raise the limit”) waits for 1 approval of jane.", "Waiting for approval", "approved by jane", "a slot was free", "/actions/approve?deployment=d-checkout&amp;stage=gate", "/actions/cancel?deployment=d-checkout"} {
		if !strings.Contains(body, want) {
			t.Errorf("the view lacks %q", want)
		}
	}
	if strings.Contains(body, "ROLLBACK") {
		t.Error("the rollback is shown before it is needed")
	}
	if body := bodyOf(t, approvable(t).get("/deployments/d-checkout?tab=timeline")); strings.Contains(body, "/actions/") {
		t.Error("a viewer is offered an action")
	}
}

// TestPlanOfADeployment: the plan says why, and in numbers and lines what changes.
func TestPlanOfADeployment(t *testing.T) {
	body := bodyOf(t, approvable(t).get("/deployments/d-checkout?tab=plan"))
	for _, want := range []string{"Pipeline because the image changed.", "1 object changed, 1 object deleted.", `<span class="added">+  image: b</span>`, "ConfigMap old", "is deleted"} {
		if !strings.Contains(body, want) {
			t.Errorf("the plan lacks %q", want)
		}
	}
}

// TestTransitionMarks: the timeline has the words of badges for each status that the API stores.
func TestTransitionMarks(t *testing.T) {
	for name, want := range map[string]string{
		"DEPLOYMENT_ROLLING_BACK": "Rolling back", "DEPLOYMENT_SUCCESS": "Succeeded", "STAGE_RUNNING": "Running", "STAGE_SKIPPED": "Skipped", "later version": "Unknown",
	} {
		if got := transitionMark(&modelv1.Transition{To: name}).word; got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
}

// TestSelectedStage: without a choice, the stage that failed is shown, else the last that began.
func TestSelectedStage(t *testing.T) {
	stage := func(id string, status modelv1.StageStatus, started int64) *modelv1.PipelineStage {
		return &modelv1.PipelineStage{Id: id, Status: status, StartedAtMs: started}
	}
	a, b, c := stage("a", modelv1.StageStatus_STAGE_SUCCESS, 1), stage("b", modelv1.StageStatus_STAGE_RUNNING, 2), stage("c", modelv1.StageStatus_STAGE_NOT_STARTED_YET, 0)
	undo := &modelv1.PipelineStage{Id: "undo", Rollback: true, Status: modelv1.StageStatus_STAGE_RUNNING, StartedAtMs: 3}
	for name, tc := range map[string]struct {
		stages []*modelv1.PipelineStage
		id     string
		want   string
	}{
		"the one that runs":     {[]*modelv1.PipelineStage{a, b, c}, "", "b"},
		"the one that is asked": {[]*modelv1.PipelineStage{a, b, c}, "c", "c"},
		"none has begun":        {[]*modelv1.PipelineStage{c}, "", "c"},
		"the one that failed":   {[]*modelv1.PipelineStage{a, stage("f", modelv1.StageStatus_STAGE_FAILURE, 2), undo}, "", "f"},
		"no stages":             {nil, "", ""},
	} {
		if got := selected(&modelv1.Deployment{Stages: tc.stages}, tc.id).GetId(); got != tc.want {
			t.Errorf("%s: %q, want %q", name, got, tc.want)
		}
	}
}

// TestEntriesOfLogs: escape sequences and control characters of programs do not reach the browser,
// and the lines of an entry stay together.
func TestEntriesOfLogs(t *testing.T) {
	s := &modelv1.PipelineStage{StartedAtMs: 1000}
	got := entryOf(&modelv1.LogBlock{Index: 6, Log: "\x1b[32mgreen\x1b[0m\r\n\x1b]0;title\x07plain\n\ttab \x00 \u202eevil\n", Severity: modelv1.LogSeverity_ERROR, CreatedAtMs: 62_550}, s)
	want := logLine{
		number: 7, severity: modelv1.LogSeverity_ERROR, at: "01:01.5", text: "green\nplain\n\ttab \uFFFD \uFFFDevil",
		coloured: []coloured{{"ansi-green", "green"}, {"", "\nplain\n\ttab \uFFFD \uFFFDevil"}},
	}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(logLine{}, coloured{})); diff != "" {
		t.Error("entries differ (-want +got):\n" + diff)
	}
}

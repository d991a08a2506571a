package page

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/c785c783/piped/proto/pipecd/apiservice"
	controlv1 "github.com/c785c783/piped/proto/piped/control/v1"
	modelv1 "github.com/c785c783/piped/proto/piped/model/v1"
)

// infraChanges are changes of each kind in a plan of OpenTofu, with names and values that could be
// taken for markup or for something else.
func infraChanges() []*controlv1.PlannedChange {
	change := func(action controlv1.PlannedAction, address string, attributes ...*controlv1.PlannedAttribute) *controlv1.PlannedChange {
		return &controlv1.PlannedChange{
			Object: &modelv1.ObjectRef{Group: "opentofu.piped", Kind: "aws_vpc", Namespace: "infra", Name: "a"}, Action: action, Address: address, Attributes: attributes, Diff: "# " + address + "\n",
		}
	}
	from := func(origin string, c *controlv1.PlannedChange) *controlv1.PlannedChange {
		c.Origin = origin
		return c
	}
	return []*controlv1.PlannedChange{
		change(controlv1.PlannedAction_PLANNED_ACTION_CREATE, `module.net.aws_subnet.a["<b>x</b>"]`,
			&controlv1.PlannedAttribute{Path: "cidr", After: `"10.0.0.0/16"`}, &controlv1.PlannedAttribute{Path: "id", After: "(known after apply)", Unknown: true}),
		change(controlv1.PlannedAction_PLANNED_ACTION_UPDATE, "aws_vpc.a",
			&controlv1.PlannedAttribute{Path: `tags["<script>alert(1)</script>"]`, Before: `"<img src=x onerror=alert(1)>"`, After: "\"two\u202e\x1b[31m\""},
			&controlv1.PlannedAttribute{Path: "password", Before: "(sensitive value)", After: "(sensitive value)", Sensitive: true}),
		change(controlv1.PlannedAction_PLANNED_ACTION_REPLACE, "aws_vpc.b", &controlv1.PlannedAttribute{Path: "region", Before: `"eu"`, After: `"us"`, ForcesReplacement: true}),
		change(controlv1.PlannedAction_PLANNED_ACTION_DELETE, "aws_vpc.c (deposed 0f)"),
		change(controlv1.PlannedAction_PLANNED_ACTION_FORGET, "aws_vpc.d"),
		from("moved from aws_vpc.old", change(controlv1.PlannedAction_PLANNED_ACTION_MOVE, "aws_vpc.e")),
		from("imported as \"<i>1</i>\"", change(controlv1.PlannedAction_PLANNED_ACTION_IMPORT, "aws_vpc.f")),
		{Object: &modelv1.ObjectRef{Group: "opentofu.piped", Kind: "output", Name: "url"}, Action: controlv1.PlannedAction_PLANNED_ACTION_DELETE, Address: "output.url",
			Attributes: []*controlv1.PlannedAttribute{{Before: strings.Repeat("x", 2000)}}},
	}
}

const planDigest = "0a1b2c3d4e5f60718293a4b5c6d7e8f90a1b2c3d4e5f60718293a4b5c6d7e8f9"

// infraAPI is the API of a deployment whose plan awaits an approval.
func infraAPI(t *testing.T) *fakeAPI {
	d := waitingDeployment()
	d.PlatformProvider, d.CreatedAtMs = "tofu", minutesAgo(5)
	plan := &modelv1.PipelineStage{Id: "plan", Name: "TERRAFORM_PLAN", Status: modelv1.StageStatus_STAGE_SUCCESS, Metadata: map[string]string{subjectKey: "plan 0a1b2c3d4e5f of stage plan: 1 to create <i>"}}
	d.Stages = append([]*modelv1.PipelineStage{plan}, append(d.Stages, &modelv1.PipelineStage{Id: "apply", Name: "TERRAFORM_APPLY"})...)
	return newFake(t, "view", "view-logs", "approve").
		on("SearchApplications", &controlv1.SearchApplicationsResponse{}).on("GetStatus", &controlv1.GetStatusResponse{}).
		on("GetDeployment", &apiservice.GetDeploymentResponse{Deployment: d}).on("ListRollouts", &controlv1.ListRolloutsResponse{}).
		on("GetPlan", &controlv1.GetPlanResponse{Plan: &controlv1.Plan{
			Summary: "Plan and apply", ChangesSummary: "1 to create, 1 to update, 1 to delete, 1 to replace", ChangesDigest: planDigest, Changes: infraChanges(),
		}})
}

// TestPlanByAttribute: a plan of OpenTofu is shown by resource and attribute, with its digest next
// to the approval. What a plan contains is text.
func TestPlanByAttribute(t *testing.T) {
	body := golden(t, "deployment-plan", infraAPI(t).get("/deployments/d-checkout?tab=plan"))
	text := strings.Join(strings.Fields(body), " ")
	for _, want := range []string{
		"1 to create, 1 to update, 1 to delete, 1 to replace.", planDigest, "An approval permits plan 0a1b2c3d4e5f of stage plan: 1 to create &lt;i&gt;",
		`module.net.aws_subnet.a[&#34;&lt;b&gt;x&lt;/b&gt;&#34;]`, `<em class="muted">(known after apply)</em>`, `<em class="muted">(sensitive value)</em>`,
		"&lt;img src=x onerror=alert(1)&gt;", "forces replacement", "Create", "Update", "Replace", "Delete", "Forget", "aws_vpc.c (deposed 0f)", "output.url", "(2000 characters)",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("the plan lacks %q", want)
		}
	}
	for _, evil := range []string{"<script>alert", "<img src=x", "<b>x", "\u202e", "\x1b"} {
		if strings.Contains(body, evil) {
			t.Errorf("the page has %q of the plan", evil)
		}
	}
}

// TestApprovalOfAPlan: the dialog says which plan is approved and what that destroys.
func TestApprovalOfAPlan(t *testing.T) {
	body := bodyOf(t, infraAPI(t).get("/actions/approve?deployment=d-checkout&stage=gate"))
	for _, want := range []string{"It permits plan 0a1b2c3d4e5f of stage plan", "<li>aws_vpc.b is deleted and created again</li>", "<li>aws_vpc.c (deposed 0f) is deleted</li>"} {
		if !strings.Contains(body, want) {
			t.Errorf("the dialog lacks %q: %s", want, body)
		}
	}
	if strings.Count(body, "<li>") != 2 {
		t.Errorf("the dialog names more than what is destroyed: %s", body)
	}
}

// TestApprovalOfALargePlan: a dialog names a bounded number of resources, and counts the others.
func TestApprovalOfALargePlan(t *testing.T) {
	var changes []*controlv1.PlannedChange
	for i := range maxDestroyed + 7 {
		changes = append(changes, &controlv1.PlannedChange{Address: fmt.Sprint("a.b", i), Action: controlv1.PlannedAction_PLANNED_ACTION_DELETE})
	}
	f := infraAPI(t).on("GetPlan", &controlv1.GetPlanResponse{Plan: &controlv1.Plan{Changes: changes}})
	body := bodyOf(t, f.get("/actions/approve?deployment=d-checkout&stage=gate"))
	if strings.Count(body, "<li>") != maxDestroyed+1 || !strings.Contains(body, "7 further resources are deleted or replaced") {
		t.Errorf("the dialog has %d lines: %s", strings.Count(body, "<li>"), body)
	}
}

// TestPlanPreviewByAttribute: a plan preview shows a plan like a deployment does, and cuts it.
func TestPlanPreviewByAttribute(t *testing.T) {
	changes := infraChanges()
	for i := range 1000 {
		changes[0].Attributes = append(changes[0].Attributes, &controlv1.PlannedAttribute{Path: fmt.Sprint("list[", i, "]"), After: "1"})
	}
	f := previewer(t).on("GetPlanPreview", &controlv1.GetPlanPreviewResponse{
		PlanPreview:  &controlv1.PlanPreviewBrief{CommandId: "c2", HeadCommit: gitCommit, Status: modelv1.CommandStatus_COMMAND_SUCCEEDED, Applications: 1, ChangedApplications: 1},
		Applications: []*controlv1.PreviewedApplication{{ApplicationId: "net-id", ApplicationName: "net", Directory: "net", Exists: true, Summary: "1 to create", Changes: changes}},
	})
	body := bodyOf(t, f.get("/plan-previews/c2"))
	for _, want := range []string{"aws_vpc.b", "forces replacement", "&lt;img src=x onerror=alert(1)&gt;", "<wbr>[297]", "702 lines are not shown here"} {
		if !strings.Contains(body, want) {
			t.Errorf("the preview lacks %q", want)
		}
	}
	if strings.Contains(body, "[298]") || strings.Contains(body, "<img src=x") {
		t.Error("the preview is not cut, or has markup of the plan")
	}
}

// TestConfirmDestroy: the dialog of a sync leads to the confirmation that the last deployment
// needs. That names exactly what is destroyed, asks for the name of the application, and permits it
// for the deployment that it was read from.
func TestConfirmDestroy(t *testing.T) {
	refused := &controlv1.ConfirmPruneResponse{CommandId: "c1", DeploymentId: "d-refused", Objects: []*modelv1.ObjectRef{{Kind: "aws_vpc", Name: "b"}, {Kind: "aws_vpc", Name: "c"}}}
	f := actor(t).on("ConfirmPrune", refused).on("GetPlan", &controlv1.GetPlanResponse{Plan: &controlv1.Plan{Changes: infraChanges()}})
	infra := &modelv1.Application{Id: "0000net-id", Name: "net", Kind: modelv1.ApplicationKind_TERRAFORM}
	f.on("GetApplication", &apiservice.GetApplicationResponse{Application: infra})
	asked, plans := f.watch("ConfirmPrune"), f.watch("GetPlan")

	sync := bodyOf(t, f.get("/actions/sync?application=0000net-id"))
	for _, want := range []string{"would have destroyed or replaced 2 resources", `href="/actions/confirm-prune?application=0000net-id"`} {
		if !strings.Contains(sync, want) {
			t.Errorf("the dialog of the sync lacks %q: %s", want, sync)
		}
	}
	body := bodyOf(t, f.get("/actions/confirm-prune?application=0000net-id"))
	for _, want := range []string{
		"Destroy or replace 2 resources of net?", "<li>aws_vpc.b is deleted and created again</li>", "<li>aws_vpc.c (deposed 0f) is deleted</li>", "Type <strong>net</strong>",
		"pipectl application sync --confirm-destroy --app-id 0000net-id", `<input type="hidden" name="refused" value="d-refused">`,
	} {
		if !strings.Contains(body, want) {
			t.Errorf("the dialog lacks %q: %s", want, body)
		}
	}
	if strings.Count(body, "<li>") != 2 || (*plans)[0].(*controlv1.GetPlanRequest).GetDeploymentId() != "d-refused" {
		t.Errorf("the dialog names something else, or the plan of %v: %s", *plans, body)
	}
	resp := answerOf(f.page(), request(http.MethodPost, "/actions/confirm-prune", "application=0000net-id&refused=d-refused&confirm=other"))
	if resp.StatusCode != http.StatusUnprocessableEntity {
		t.Errorf("with another name: %s", resp.Status)
	}
	for _, m := range *asked {
		if !m.(*controlv1.ConfirmPruneRequest).GetDryRun() {
			t.Errorf("without the name, %v was requested", m)
		}
	}
	resp = answerOf(f.page(), request(http.MethodPost, "/actions/confirm-prune", "application=0000net-id&refused=d-refused&confirm=net"))
	if body := bodyOf(t, resp); resp.StatusCode != http.StatusOK || !strings.Contains(body, "may destroy or replace 2 resources") {
		t.Errorf("%s: %s", resp.Status, body)
	}
	last := (*asked)[len(*asked)-1].(*controlv1.ConfirmPruneRequest)
	if want := (&controlv1.ConfirmPruneRequest{ApplicationId: "0000net-id", DeploymentId: "d-refused"}); !proto.Equal(last, want) {
		t.Errorf("requested %v, want %v", last, want)
	}
}

// TestSyncWithoutConfirmation: a sync that needs no confirmation is not said to need one.
func TestSyncWithoutConfirmation(t *testing.T) {
	f := actor(t)
	f.answers["ConfirmPrune"] = func(proto.Message) (proto.Message, error) {
		return nil, status.Error(codes.FailedPrecondition, "it did not fail because it would delete too much")
	}
	if body := bodyOf(t, f.get("/actions/sync?application=0000search-id")); strings.Contains(body, "confirm-prune") || !strings.Contains(body, "What Git wants is deployed") {
		t.Errorf("the dialog is %s", body)
	}
}

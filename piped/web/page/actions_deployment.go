package page

import (
	"fmt"
	"net/url"
	"slices"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	controlv1 "github.com/c785c783/piped/proto/piped/control/v1"
	modelv1 "github.com/c785c783/piped/proto/piped/model/v1"
)

// stageOf returns the stage that a query names.
func (v *visit) stageOf(q url.Values) (*modelv1.Deployment, *modelv1.PipelineStage, error) {
	d, err := v.deployment(q)
	if err != nil {
		return nil, nil, err
	}
	i := slices.IndexFunc(d.GetStages(), func(s *modelv1.PipelineStage) bool { return s.Id == q.Get("stage") })
	if i < 0 {
		return nil, nil, status.Errorf(codes.NotFound, "the deployment has no stage %q", q.Get("stage"))
	}
	return d, d.Stages[i], nil
}

// what names a deployment in a sentence.
func what(d *modelv1.Deployment) string {
	commit := d.GetTrigger().GetCommit()
	text := d.ApplicationName + " at " + short(commit.GetHash())
	if message := firstLine(commit.GetMessage()); message != "" {
		text += " (“" + message + "”)"
	}
	return text
}

func prepareApprove(v *visit, q url.Values) (*dialog, error) {
	d, s, err := v.stageOf(q)
	if err != nil {
		return nil, err
	}
	out := &dialog{title: "Approve " + d.ApplicationName + "?", submit: "Approve", fields: []field{reasonField("stored with the decision")},
		text:    "The deployment of " + what(d) + " goes on after " + s.Name + ".",
		command: fmt.Sprintf("pipectl deployment approve --deployment-id %s --stage-id %s", d.Id, s.Id)}
	given, by := approvals(s)
	if missing := s.RequiredApprovals - given; missing > 1 {
		out.text = "The deployment of " + what(d) + " goes on when " + plural(missing-1, "other person has", "other people have") + " approved it, too."
	}
	if len(by) > 0 {
		out.text += " Approved so far by " + strings.Join(by, ", ") + "."
	}
	if subject := permits(d, s); subject != "" {
		out.text += " It permits " + subject + "."
		out.consequences, err = v.destroys(d.Id)
	}
	return out, err
}

// destroys names what the plan of a deployment deletes or replaces.
func (v *visit) destroys(deployment string) ([]string, error) {
	resp, err := v.control.GetPlan(v.ctx, &controlv1.GetPlanRequest{DeploymentId: deployment, Diff: true})
	if err != nil {
		return nil, err
	}
	all := destroyed(resp.GetPlan().GetChanges())
	if n := len(all) - maxDestroyed; n > 0 {
		all = append(all[:maxDestroyed:maxDestroyed], plural(n, "further resource is deleted or replaced", "further resources are deleted or replaced")+": see the plan")
	}
	return all, nil
}

// maxDestroyed is how many resources a dialog names.
const maxDestroyed = 50

func runApprove(v *visit, q url.Values) (*outcome, error) {
	d, s, err := v.stageOf(q)
	if err != nil {
		return nil, err
	}
	resp, err := v.control.ApproveStage(v.ctx, &controlv1.ApproveStageRequest{DeploymentId: d.Id, StageId: s.Id, Reason: q.Get("reason")})
	return decided("Approved", "You have approved "+what(d)+".", d, resp), err
}

func prepareReject(v *visit, q url.Values) (*dialog, error) {
	d, s, err := v.stageOf(q)
	if err != nil {
		return nil, err
	}
	return &dialog{title: "Reject " + d.ApplicationName + "?", submit: "Reject", danger: true, fields: []field{reasonField("shown to the author of the commit")},
		text:         "The deployment of " + what(d) + " fails at " + s.Name + ".",
		consequences: []string{rolledBack(d)},
		command:      fmt.Sprintf("pipectl deployment reject --deployment-id %s --stage-id %s", d.Id, s.Id)}, nil
}

// rolledBack says what an application returns to if a deployment fails.
func rolledBack(d *modelv1.Deployment) string {
	if d.RunningCommitHash == "" {
		return "There is no earlier version to roll back to."
	}
	return "Unless automatic rollback is off, " + d.ApplicationName + " returns to " + short(d.RunningCommitHash) + "."
}

func runReject(v *visit, q url.Values) (*outcome, error) {
	d, s, err := v.stageOf(q)
	if err != nil {
		return nil, err
	}
	resp, err := v.control.RejectStage(v.ctx, &controlv1.RejectStageRequest{DeploymentId: d.Id, StageId: s.Id, Reason: q.Get("reason")})
	return decided("Rejected", "You have rejected "+what(d)+".", d, resp), err
}

func prepareSkip(v *visit, q url.Values) (*dialog, error) {
	d, s, err := v.stageOf(q)
	if err != nil {
		return nil, err
	}
	return &dialog{title: "Skip " + s.Name + "?", submit: "Skip", fields: []field{reasonField("stored with the decision")},
		text:    "The deployment of " + what(d) + " goes on with the next stage at once.",
		command: fmt.Sprintf("pipectl deployment skip --deployment-id %s --stage-id %s", d.Id, s.Id)}, nil
}

func runSkip(v *visit, q url.Values) (*outcome, error) {
	d, s, err := v.stageOf(q)
	if err != nil {
		return nil, err
	}
	resp, err := v.control.SkipStage(v.ctx, &controlv1.SkipStageRequest{DeploymentId: d.Id, StageId: s.Id, Reason: q.Get("reason")})
	return decided("Skipped", s.Name+" ends as skipped.", d, resp), err
}

func prepareRetry(v *visit, q url.Values) (*dialog, error) {
	d, err := v.deployment(q)
	if err != nil {
		return nil, err
	}
	return &dialog{title: "Deploy " + d.ApplicationName + " again?", submit: "Retry", text: "The same commit is deployed with the same strategy: " + what(d) + ".",
		command: "pipectl deployment retry --deployment-id " + d.Id}, nil
}

func runRetry(v *visit, q url.Values) (*outcome, error) {
	d, err := v.deployment(q)
	if err != nil {
		return nil, err
	}
	resp, err := v.control.RetryDeployment(v.ctx, &controlv1.RetryDeploymentRequest{DeploymentId: d.Id})
	return decided("A new deployment was asked for", "It deploys "+what(d)+" again.", d, resp), err
}

func prepareCancel(v *visit, q url.Values) (*dialog, error) {
	d, err := v.deployment(q)
	if err != nil {
		return nil, err
	}
	out := &dialog{title: "Cancel the deployment of " + d.ApplicationName + "?", submit: "Cancel the deployment", danger: true,
		text: "It deploys " + what(d) + ".", command: "pipectl deployment cancel --deployment-id " + d.Id}
	if d.Status == modelv1.DeploymentStatus_DEPLOYMENT_RUNNING {
		out.fields = []field{{kind: "choice", name: "rollback", label: "What is live then", options: []option{
			{"", "As the application is configured", rolledBack(d), true},
			{"yes", "Roll back", "to " + short(d.RunningCommitHash), false},
			{"no", "Leave everything as it is now", "parts of the new version stay", false},
		}}}
	}
	return out, nil
}

func runCancel(v *visit, q url.Values) (*outcome, error) {
	d, err := v.deployment(q)
	if err != nil {
		return nil, err
	}
	resp, err := v.control.CancelDeployment(v.ctx, &controlv1.CancelDeploymentRequest{
		DeploymentId: d.Id, ForceRollback: q.Get("rollback") == "yes", ForceNoRollback: q.Get("rollback") == "no",
	})
	return decided("Cancelling", "The deployment of "+what(d)+" is being cancelled.", d, resp), err
}

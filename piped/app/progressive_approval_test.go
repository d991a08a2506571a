package app

import (
	"crypto/rand"
	"testing"
	"time"

	"google.golang.org/grpc/metadata"

	"github.com/c785c783/piped/piped/access"
	"github.com/c785c783/piped/piped/deploy"
	controlv1 "github.com/c785c783/piped/proto/piped/control/v1"
	modelv1 "github.com/c785c783/piped/proto/piped/model/v1"
)

const twoApprovers = `  pipeline:
    stages:
      - {id: canary, name: K8S_CANARY_ROLLOUT}
      - {id: gate, name: WAIT_APPROVAL, with: {approvers: [ada, grace], minApproverNum: 2}}
      - {id: primary, name: K8S_PRIMARY_ROLLOUT}
      - {id: clean, name: K8S_CANARY_CLEAN}
`

const anotherApprover = `  pipeline:
    stages:
      - {id: canary, name: K8S_CANARY_ROLLOUT}
      - {id: gate, name: WAIT_APPROVAL, with: {requireOther: true}}
      - {id: primary, name: K8S_PRIMARY_ROLLOUT}
      - {id: clean, name: K8S_CANARY_CLEAN}
`

// as returns a client with a new key for a subject.
func (p *progressive) as(subject string) *client {
	p.t.Helper()
	record, key, err := access.NewAPIKey(subject, subject, deploy.ReadWrite, time.Now(), rand.Reader)
	if err == nil {
		err = p.store.CreateAPIKey(p.t.Context(), record)
	}
	if err != nil {
		p.t.Fatal(err)
	}
	other := *p.client
	other.ctx = metadata.NewOutgoingContext(p.t.Context(), metadata.Pairs("authorization", "API-KEY "+key))
	return &other
}

// decide approves or rejects the stage "gate" and returns the finished command.
func (c *client) decide(d *modelv1.Deployment, approve bool) *modelv1.Command {
	c.t.Helper()
	var id string
	var err error
	if approve {
		var resp *controlv1.ApproveStageResponse
		resp, err = c.control.ApproveStage(c.ctx, &controlv1.ApproveStageRequest{DeploymentId: d.GetId(), StageId: "gate"})
		id = resp.GetCommandId()
	} else {
		var resp *controlv1.RejectStageResponse
		resp, err = c.control.RejectStage(c.ctx, &controlv1.RejectStageRequest{DeploymentId: d.GetId(), StageId: "gate", Reason: "not on a Friday"})
		id = resp.GetCommandId()
	}
	if err != nil {
		c.t.Fatal(err)
	}
	return c.answer(id)
}

// TestApprovalByTwoSubjects: two permitted subjects must approve, each counts once, and
// the owner of the agent is not permitted. A single rejection ends the stage.
func TestApprovalByTwoSubjects(t *testing.T) {
	t.Parallel()
	p := newProgressive(t, twoApprovers, "", "")
	ada, grace := p.as("ada"), p.as("grace")
	web := appID("web")

	commit := p.push("v2")
	d := p.awaitStage(web, commit, "gate")
	if answer := p.decide(d, true); answer.GetStatus() == modelv1.CommandStatus_COMMAND_SUCCEEDED {
		t.Errorf("a subject without permission approved: %v", answer)
	}
	for range 2 {
		ada.decide(d, true)
	}
	if got := stageOf(t, p.get(d.GetId()), "gate").GetStatus(); got != modelv1.StageStatus_STAGE_RUNNING {
		t.Errorf("after one approval the stage is %s", got)
	}
	grace.decide(d, true)
	d = p.mustEnd(web, commit, modelv1.DeploymentStatus_DEPLOYMENT_SUCCESS)
	mustContain(t, p.logs(d.GetId()), "ada", "grace")
	last := p.lastGood()

	commit = p.push("v3")
	d = p.awaitStage(web, commit, "gate")
	ada.decide(d, true)
	grace.decide(d, false)
	d = p.mustEnd(web, commit, modelv1.DeploymentStatus_DEPLOYMENT_FAILURE)
	mustHaveStages(t, d, "canary SUCCESS", "gate FAILURE", "primary NOT_STARTED_YET", "clean NOT_STARTED_YET", "Rollback SUCCESS")
	mustContain(t, d.GetStatusReason(), "grace", "not on a Friday", "rolled back to commit")
	last.mustStand(t)
}

// TestApprovalByAnother: with requireOther neither the author of the deployed commit approves
// nor that of an earlier one since the running commit. Both may reject, and another subject
// approves.
func TestApprovalByAnother(t *testing.T) {
	t.Parallel()
	p := newProgressive(t, anotherApprover, "", "")
	ann, ben, ada := p.as("ann@example.com"), p.as("ben"), p.as("ada")
	web := appID("web")
	refused := func(c *client, d *modelv1.Deployment, why string) {
		t.Helper()
		answer := c.decide(d, true)
		if got := answer.GetStatus(); got != modelv1.CommandStatus_COMMAND_FAILED {
			t.Errorf("the approval is %s, want it to fail because %s", got, why)
		}
		mustContain(t, answer.GetMetadata()[deploy.MetaReason], why, "requireOther")
	}

	p.repo.Author, p.repo.Email = "Ann Lee", "ann@example.com"
	first := p.push("v2")
	d := p.awaitStage(web, first, "gate")
	refused(ann, d, "ann@example.com is the author of commit "+deploy.ShortHash(first))
	ann.decide(d, false)
	p.mustEnd(web, first, modelv1.DeploymentStatus_DEPLOYMENT_FAILURE)

	p.repo.Author, p.repo.Email = "Ben", "12345+benny@users.noreply.github.com"
	second := p.push("v3")
	d = p.awaitStage(web, second, "gate")
	refused(ben, d, "ben is the author of commit "+deploy.ShortHash(second))
	refused(ann, d, "ann@example.com is the author of commit "+deploy.ShortHash(first))
	if got := ada.decide(d, true).GetStatus(); got != modelv1.CommandStatus_COMMAND_SUCCEEDED {
		t.Errorf("the approval by another subject is %s", got)
	}
	d = p.mustEnd(web, second, modelv1.DeploymentStatus_DEPLOYMENT_SUCCESS)
	mustContain(t, p.logs(d.GetId()), "The approval by ben does not count", "Approved by ada")
}

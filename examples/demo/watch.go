package main

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/c785c783/piped/proto/pipecd/apiservice"
	modelv1 "github.com/c785c783/piped/proto/piped/model/v1"
)

// watch prints every step of every deployment once.
type watch struct {
	api   apiservice.APIServiceClient
	out   *narrator
	zero  map[string]time.Time // by commit: from when its times are counted
	views map[string]*view     // by deployment
}

// view is what is known of a deployment and what of it was printed.
type view struct {
	deployment  *modelv1.Deployment
	zero        time.Time
	transitions int              // printed
	cause       string           // why it is rolled back, printed
	blocks      map[string]int64 // by stage: index of the last log block printed
	ended       bool             // nothing more will come
}

// event is one thing to print.
type event struct {
	atMs int64
	view *view
	word string // a status, or the stage of a log line
	text string
	log  bool
	bad  bool // a log line about an error
}

func newWatch(api apiservice.APIServiceClient, out *narrator) *watch {
	return &watch{api: api, out: out, zero: map[string]time.Time{}, views: map[string]*view{}}
}

// since says from when the times of a commit's deployments are counted.
func (w *watch) since(commit string, at time.Time) { w.zero[commit] = at }

// deployments returns all deployments as last seen, oldest first.
func (w *watch) deployments() []*modelv1.Deployment {
	var out []*modelv1.Deployment
	for _, v := range w.views {
		out = append(out, v.deployment)
	}
	slices.SortFunc(out, func(a, b *modelv1.Deployment) int {
		return cmp.Or(cmp.Compare(a.CreatedAtMs, b.CreatedAtMs), strings.Compare(a.ApplicationName, b.ApplicationName))
	})
	return out
}

// poll asks for news, prints them in the order they happened, and returns all
// deployments.
func (w *watch) poll(ctx context.Context) ([]*modelv1.Deployment, error) {
	list, err := w.api.ListDeployments(ctx, &apiservice.ListDeploymentsRequest{})
	if err != nil {
		return nil, fmt.Errorf("list the deployments: %w", err)
	}
	var events []event
	for _, d := range list.Deployments {
		v := w.view(d)
		if v.ended {
			continue
		}
		news, err := w.news(ctx, v)
		if err != nil {
			return nil, fmt.Errorf("ask for deployment %s: %w", d.Id, err)
		}
		events = append(events, news...)
	}
	slices.SortStableFunc(events, func(a, b event) int { return cmp.Compare(a.atMs, b.atMs) })
	for _, e := range events {
		w.out.event(e)
	}
	return w.deployments(), nil
}

func (w *watch) view(d *modelv1.Deployment) *view {
	if v, ok := w.views[d.Id]; ok {
		return v
	}
	zero, ok := w.zero[d.Trigger.Commit.Hash]
	if !ok || d.TriggerKind != onCommit {
		zero = time.UnixMilli(d.CreatedAtMs)
	}
	v := &view{deployment: d, zero: zero, blocks: map[string]int64{}}
	w.views[d.Id] = v
	return v
}

// news returns what happened to a deployment since it was asked for last. The
// deployment is read before its logs: once it has ended they are complete.
func (w *watch) news(ctx context.Context, v *view) ([]event, error) {
	resp, err := w.api.GetDeployment(ctx, &apiservice.GetDeploymentRequest{DeploymentId: v.deployment.Id})
	if err != nil {
		return nil, err
	}
	logs, err := w.api.ListStageLogs(ctx, &apiservice.ListStageLogsRequest{DeploymentId: v.deployment.Id})
	if err != nil {
		return nil, err
	}
	v.deployment = resp.Deployment
	v.ended = completed(v.deployment)
	var out []event
	for _, t := range v.deployment.Transitions[v.transitions:] {
		if t.StageId == "" {
			status := strings.TrimPrefix(t.To, "DEPLOYMENT_")
			out = append(out, event{atMs: t.AtMs, view: v, word: status, text: v.reason(t)})
		}
	}
	v.transitions = len(v.deployment.Transitions)
	for _, stage := range v.deployment.Stages {
		for _, b := range logs.StageLogs[stage.Id].GetBlocks() {
			if last, ok := v.blocks[stage.Id]; ok && b.Index <= last {
				continue
			}
			v.blocks[stage.Id] = b.Index
			out = append(out, event{atMs: b.CreatedAtMs, view: v, word: stage.Name, text: b.Log, log: true, bad: b.Severity == modelv1.LogSeverity_ERROR})
		}
	}
	return out, nil
}

// reason says what a person wants to read next to a status.
func (v *view) reason(t *modelv1.Transition) string {
	commit := v.deployment.Trigger.Commit
	switch modelv1.DeploymentStatus(modelv1.DeploymentStatus_value[t.To]) {
	case modelv1.DeploymentStatus_DEPLOYMENT_PENDING:
		text := fmt.Sprintf("%s %q", shortHash(commit.Hash), commit.Message)
		if by := v.deployment.Trigger.Commander; by != "" {
			text += ", asked for by " + by
		}
		return text
	case modelv1.DeploymentStatus_DEPLOYMENT_PLANNED:
		return v.deployment.Summary
	case modelv1.DeploymentStatus_DEPLOYMENT_RUNNING:
		return ""
	case modelv1.DeploymentStatus_DEPLOYMENT_ROLLING_BACK:
		v.cause = t.Reason
	case failure:
		if rest, ok := strings.CutPrefix(t.Reason, v.cause); ok && v.cause != "" {
			return "..." + rest
		}
	}
	return t.Reason
}

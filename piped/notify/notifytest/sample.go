// Package notifytest provides sample notices for the tests of receivers.
package notifytest

import (
	"time"

	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/notify"
)

// At is the time of every sample event.
var At = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// Notice returns a notice of the given event type, with all fields that the courier sets.
func Notice(kind deploy.EventType) notify.Notice {
	commit := deploy.Commit{Hash: "c0ffee0123456789", Message: "Use <v2>", Author: "jane", Branch: "main", URL: "https://git.example.com/apps/commit/c0ffee", At: At}
	n := notify.Notice{
		Event: deploy.Event{Key: "key-" + string(kind), Type: kind, At: At}, Key: "key-" + string(kind), Attempt: 1,
		Details:  deploy.EventPayload{Application: "web", Commit: &commit},
		Mentions: []deploy.Mention{{Event: "*", SlackUsers: []string{"U1"}}, {Event: "DEPLOYMENT_FAILED", SlackGroups: []string{"S1"}}},
	}
	app := deploy.Application{
		ID: "app-1", Name: "web", Kind: deploy.KindKubernetes, Provider: "prod", Description: "the shop", Labels: map[string]string{"env": "prod"},
		Git:  deploy.GitPath{RepoID: "apps", Remote: "https://git.example.com/apps.git", Branch: "main", Dir: "web", ConfigFile: "app.pipecd.yaml"},
		Sync: deploy.SyncState{Status: deploy.Synced, ShortReason: "as in Git", At: At}, CreatedAt: At, UpdatedAt: At,
	}
	d := deploy.Deployment{
		ID: "0123456789abcdef", ApplicationID: app.ID, ApplicationName: app.Name, Git: app.Git, Provider: app.Provider, Labels: app.Labels,
		Trigger: deploy.Trigger{Kind: deploy.OnCommit, Commit: commit, At: At, Strategy: deploy.StrategyPipeline},
		Status:  deploy.Running, StatusReason: "The deployment is running", Summary: "Image v1 to v2",
		Versions: []deploy.ArtifactVersion{{Kind: "CONTAINER_IMAGE", Version: "v2", Name: "web", URL: "registry.example.com/web:v2"}},
		Stages: []deploy.Stage{{
			ID: "stage-1", Name: deploy.StageK8sSync, Desc: "Sync", Visible: true, Status: deploy.StageSuccess, CreatedAt: At, UpdatedAt: At, CompletedAt: At,
			Metadata: map[string]string{"shown": "yes", deploy.MetaCreating: "names of objects"},
		}},
		Metadata: map[string]string{"k": "v"}, RunningCommit: "beef", RunningConfigFile: "app.pipecd.yaml", CreatedAt: At, UpdatedAt: At,
	}
	app.LastTriggered = d.Ref()
	if kind.Group() == deploy.GroupPiped {
		n.Details = deploy.EventPayload{Piped: &deploy.PipedIdentity{ID: "piped-1", Name: "prod agent", Version: "v1.2.3", ProjectID: "shop"}}
		n.Mentions = nil
		return n
	}
	n.Application, n.Event.ApplicationID = &app, app.ID
	switch kind {
	case deploy.EventTriggerFailed, deploy.EventSynced, deploy.EventOutOfSync, deploy.EventHealthy, deploy.EventDegraded:
		n.Details.Reason = "because of <that> & more"
		return n
	}
	n.Deployment, n.Event.DeploymentID = &d, d.ID
	details(&n)
	return n
}

// details sets the payload fields that only some events have.
func details(n *notify.Notice) {
	switch p := &n.Details; n.Event.Type {
	case deploy.EventPlanned:
		p.Summary = n.Deployment.Summary
	case deploy.EventApproved:
		p.Approver = "ann, ben"
	case deploy.EventCancelled:
		p.Commander = "ann"
	case deploy.EventFailed, deploy.EventRollingBack, deploy.EventSelfHealStopped, deploy.EventHeld, deploy.EventReleased:
		p.Reason = "because of <that> & more"
	case deploy.EventRolloutStarted, deploy.EventRolloutEnded, deploy.EventRolloutRecovered, deploy.EventScalingEnded:
		rolloutDetails(n)
	}
	if n.Event.Type.Group() == deploy.GroupStage || n.Event.Type == deploy.EventWaitApproval {
		n.Stage, n.Event.StageID = &n.Deployment.Stages[0], n.Deployment.Stages[0].ID
	}
}

// rolloutDetails sets the payload fields of the events of rollouts and scalings. The start is
// an interruption.
func rolloutDetails(n *notify.Notice) {
	p := &n.Details
	p.Cluster, p.Phase, p.Reason = "prod", deploy.RolloutComplete, "all pods are available"
	p.Workload = &deploy.ObjectRef{Group: "apps", Version: "v1", Kind: "Deployment", Namespace: "shop", Name: "web"}
	r := deploy.Rollout{
		ID: "rollout-2", Kind: deploy.RolloutKindRollout, ApplicationID: n.Event.ApplicationID, ApplicationName: p.Application, DeploymentID: n.Event.DeploymentID,
		Cluster: p.Cluster, Workload: *p.Workload, Revision: 2, Phase: p.Phase, Reason: p.Reason, Images: "web:<v2> log:1", ImagesBefore: "web:v1 log:1",
		ReplicasBefore: 2, ReplicasAfter: 3, StartedAt: At.Add(-42 * time.Second), CompletedAt: At, UpdatedAt: At,
	}
	switch n.Event.Type {
	case deploy.EventRolloutStarted:
		p.Phase, p.Reason, p.Interrupts = deploy.RolloutProgressing, "a deployment changed the pod template; it interrupts a rollout that had not ended", "rollout-1"
		p.Rollout = new(r.Started())
		return
	case deploy.EventRolloutRecovered:
		r.Phase, r.RecoveredAt, p.Reason = deploy.RolloutFailed, At, "its rollout completed after it had failed"
	case deploy.EventScalingEnded:
		r.Kind, r.ChangedBy = deploy.RolloutKindScaling, "kubectl"
	}
	p.Rollout = new(r.Ended())
}

// Foreign returns a notice of a rollout or scaling of a workload that belongs to no
// application.
func Foreign(kind deploy.EventType) notify.Notice {
	n := Notice(kind)
	n.Application, n.Deployment, n.Stage, n.Mentions = nil, nil, nil, nil
	n.Event.ApplicationID, n.Event.DeploymentID, n.Event.StageID = "", "", ""
	n.Details.Application, n.Details.Commit = "", nil
	n.Details.Workload = &deploy.ObjectRef{Group: "apps", Version: "v1", Kind: "DaemonSet", Namespace: "kube-system", Name: "agent"}
	r := n.Details.Rollout
	r.ApplicationID, r.ApplicationName, r.DeploymentID, r.Workload = "", "", "", *n.Details.Workload
	r.ChangedBy, r.FoundLate = "kubectl-set", true
	return n
}

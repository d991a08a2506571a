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
	case deploy.EventRolloutEnded, deploy.EventScalingEnded:
		p.Cluster, p.Phase, p.Reason = "prod", deploy.RolloutComplete, "all pods are available"
		p.Workload = &deploy.ObjectRef{Group: "apps", Version: "v1", Kind: "Deployment", Namespace: "shop", Name: "web"}
	}
	if n.Event.Type.Group() == deploy.GroupStage || n.Event.Type == deploy.EventWaitApproval {
		n.Stage, n.Event.StageID = &n.Deployment.Stages[0], n.Deployment.Stages[0].ID
	}
}

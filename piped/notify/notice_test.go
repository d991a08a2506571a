package notify

import (
	"context"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/store"
	"github.com/c785c783/piped/piped/store/storetest"
)

// TestNotices: a notice has the deployment's status at the time of the event, also when
// the deployment has moved on, with the application, the stage and the mentions.
func TestNotices(t *testing.T) {
	ctx := t.Context()
	s := storetest.New(t, nil)
	if _, err := s.PutApplication(ctx, deploy.Application{ID: "app", Name: "web", Kind: deploy.KindKubernetes, Labels: map[string]string{"env": "new"}}); err != nil {
		t.Fatal(err)
	}
	mentions := `{"mentions":[{"event":"*","slackUsers":["@U1"],"slackGroups":["<!subteam^S1>"]},{"event":"DEPLOYMENT_FAILED","slack":["U2","U1"]}]}`
	_, err := s.CreateDeployment(ctx, store.NewDeployment{Deployment: deploy.Deployment{
		ID: "d", ApplicationID: "app", ApplicationName: "web", Status: deploy.Pending, Labels: map[string]string{"env": "old"},
		Metadata: map[string]string{deploy.MetaNotification: mentions}, Trigger: deploy.Trigger{Commit: deploy.Commit{Hash: "c0ffee"}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	for _, move := range []func(*deploy.Deployment) error{
		func(d *deploy.Deployment) error {
			return d.Plan(deploy.Plan{Stages: []deploy.Stage{{ID: "sync", Name: deploy.StageK8sSync}}}, time.Now())
		},
		func(d *deploy.Deployment) error { return d.Start(time.Now()) },
		func(d *deploy.Deployment) error { return d.StartStage("sync", time.Now()) },
		func(d *deploy.Deployment) error {
			if err := d.FinishStage("sync", deploy.StageFailure, "boom", time.Now()); err != nil {
				return err
			}
			return d.Complete(deploy.Failure, "it failed", time.Now())
		},
	} {
		if _, err := s.UpdateDeployment(ctx, "d", move); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Announce(ctx, deploy.Event{Key: "sync", Type: deploy.EventOutOfSync, ApplicationID: "app", Payload: []byte("{}")}); err != nil {
		t.Fatal(err)
	}
	type shown struct {
		Status   deploy.Status
		Ended    bool
		Stage    deploy.StageStatus
		Env      string
		Accounts []string
	}
	got := map[deploy.EventType]shown{}
	events, err := s.Events(ctx, 0, 0)
	if err != nil {
		t.Fatal(err)
	}
	subjects := New(Config{Store: s}).newSubjectCache()
	for _, e := range events {
		n, err := subjects.notice(context.Background(), e, 1)
		if err != nil {
			t.Fatal(err)
		}
		accounts, _ := n.Mentioned()
		v := shown{Env: n.Labels()["env"], Accounts: accounts}
		if n.Deployment != nil {
			v.Status, v.Ended = n.Deployment.Status, !n.Deployment.CompletedAt.IsZero()
		}
		if n.Stage != nil {
			v.Stage = n.Stage.Status
		}
		got[e.Type] = v
		if n.ApplicationName() != "web" || n.Key != e.Key || e.DeploymentID != "" && n.Commit().Hash != "c0ffee" {
			t.Errorf("%s: %q, key %q", e.Type, n.ApplicationName(), n.Key)
		}
	}
	want := map[deploy.EventType]shown{
		deploy.EventTriggered:    {Status: deploy.Pending, Env: "old", Accounts: []string{"U1"}},
		deploy.EventPlanned:      {Status: deploy.Planned, Env: "old", Accounts: []string{"U1"}},
		deploy.EventStarted:      {Status: deploy.Running, Env: "old", Accounts: []string{"U1"}},
		deploy.EventStageStarted: {Status: deploy.Failure, Ended: true, Stage: deploy.StageRunning, Env: "old"},
		deploy.EventStageFailed:  {Status: deploy.Failure, Ended: true, Stage: deploy.StageFailure, Env: "old"},
		deploy.EventFailed:       {Status: deploy.Failure, Ended: true, Env: "old", Accounts: []string{"U1", "U2"}},
		deploy.EventOutOfSync:    {Env: "new", Accounts: []string{"U1"}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestNoticeOfDeletedDeployment: an event can outlive its application and deployment.
func TestNoticeOfDeletedDeployment(t *testing.T) {
	e := deploy.Event{Key: "k", Type: deploy.EventFailed, ApplicationID: "app", DeploymentID: "d", Payload: deploy.EventPayload{Application: "web"}.JSON()}
	n, err := New(Config{Store: storetest.New(t, nil)}).newSubjectCache().notice(t.Context(), e, 3)
	if err != nil || n.Application != nil || n.Deployment != nil || n.ApplicationName() != "web" || n.Attempt != 3 || n.Order() != "deployment/d" {
		t.Errorf("%+v, %v", n, err)
	}
}

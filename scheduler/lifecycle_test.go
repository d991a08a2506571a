package scheduler

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"

	"github.com/c785c783/piped/piped/deploy"
)

// TestStagesRunInOrder follows a deployment from PLANNED to SUCCESS.
func TestStagesRunInOrder(t *testing.T) {
	inBubble(t, func(t *testing.T, e *env) {
		e.start()
		synctest.Wait() // so that the change feed brings the deployment, not the first scan
		e.planned("d")
		synctest.Wait()
		want := []string{
			"deployment PENDING", "deployment PLANNED", "one NOT_STARTED_YET", "two NOT_STARTED_YET", "back NOT_STARTED_YET",
			"deployment RUNNING", "one RUNNING", "one SUCCESS", "two RUNNING", "two SUCCESS", "deployment SUCCESS",
		}
		if diff := cmp.Diff(want, e.moves("d")); diff != "" {
			t.Errorf("moves (-want +got):\n%s", diff)
		}
		if diff := cmp.Diff([]string{"d/one", "d/two"}, e.ran()); diff != "" {
			t.Errorf("executed (-want +got):\n%s", diff)
		}
		app, err := e.store.Application(t.Context(), "app-d")
		if err != nil {
			t.Fatal(err)
		}
		if app.LastSuccessful == nil || app.LastSuccessful.DeploymentID != "d" || app.Deploying {
			t.Errorf("the application remembers %+v, deploying %v", app.LastSuccessful, app.Deploying)
		}
	})
}

// TestNoStages: a deployment without stages succeeds.
func TestNoStages(t *testing.T) {
	inBubble(t, func(t *testing.T, e *env) {
		e.start()
		e.planned("d", func(p *deploy.Plan) { p.Stages = nil })
		synctest.Wait()
		e.wantEnd("d", deploy.Success, "Deployment completed successfully: it has no stages")
		if diff := cmp.Diff([]string{"deployment PENDING", "deployment PLANNED", "deployment RUNNING", "deployment SUCCESS"}, e.moves("d")); diff != "" {
			t.Errorf("moves (-want +got):\n%s", diff)
		}
	})
}

// TestEnds: the outcome of deployments whose first stage does not succeed.
func TestEnds(t *testing.T) {
	t.Parallel()
	cases := []struct {
		name       string
		one        executor
		back       executor
		noRollback bool // the deployment has no rollback stage
		want       deploy.Status
		reason     string
		executed   []string
	}{
		{
			name: "a failed stage is rolled back", one: fail("the image cannot be pulled"), back: succeed,
			want: deploy.Failure, reason: "Stage K8S_SYNC failed: the image cannot be pulled; rolled back to commit beef012",
			executed: []string{"d/one", "d/back"},
		},
		{
			name: "a failed rollback is in the reason", one: fail("no"), back: fail("no cluster"),
			want: deploy.Failure, reason: "Stage K8S_SYNC failed: no; the rollback failed too: no cluster; the cluster may be in neither state",
			executed: []string{"d/one", "d/back"},
		},
		{
			name: "nothing to roll back to", one: fail("no"), noRollback: true,
			want: deploy.Failure, reason: "Stage K8S_SYNC failed: no", executed: []string{"d/one"},
		},
		{
			name: "a stage that forbids the rollback",
			one: func(context.Context, deploy.StageRun) deploy.StageResult {
				return deploy.StageResult{Status: deploy.StageFailure, Reason: "another writer changed it", NoRollback: true}
			},
			want: deploy.Failure, reason: "Stage K8S_SYNC failed: another writer changed it", executed: []string{"d/one"},
		},
		{
			name: "a panic ends the stage, not the agent", back: succeed,
			one:  func(context.Context, deploy.StageRun) deploy.StageResult { panic("out of range") },
			want: deploy.Failure, reason: "Stage K8S_SYNC failed: internal error in stage K8S_SYNC: out of range; please report it with the agent's log; rolled back to commit beef012",
			executed: []string{"d/one", "d/back"},
		},
		{
			name: "a result that ends nothing", back: succeed,
			one:  func(context.Context, deploy.StageRun) deploy.StageResult { return deploy.StageResult{} },
			want: deploy.Failure, reason: `Stage K8S_SYNC failed: internal error: stage K8S_SYNC ended as ""; please report it with the agent's log; rolled back to commit beef012`,
			executed: []string{"d/one", "d/back"},
		},
		{
			name: "a stage that calls itself running", back: succeed,
			one: func(context.Context, deploy.StageRun) deploy.StageResult {
				return deploy.StageResult{Status: deploy.StageRunning}
			},
			want: deploy.Failure, reason: `Stage K8S_SYNC failed: internal error: stage K8S_SYNC ended as "RUNNING"; please report it with the agent's log; rolled back to commit beef012`,
			executed: []string{"d/one", "d/back"},
		},
		{
			name: "a stage that exits early",
			one: func(context.Context, deploy.StageRun) deploy.StageResult {
				return deploy.StageResult{Status: deploy.StageExited, Reason: "enough"}
			},
			want: deploy.Success, reason: "Deployment completed successfully", executed: []string{"d/one"},
		},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, e *env) {
				e.executors[deploy.StageK8sSync], e.executors[deploy.StageRollback] = c.one, c.back
				e.start()
				e.planned("d", func(p *deploy.Plan) {
					if c.noRollback {
						p.Stages = p.Stages[:2]
					}
				})
				synctest.Wait()
				e.wantEnd("d", c.want, c.reason)
				if diff := cmp.Diff(c.executed, e.ran()); diff != "" {
					t.Errorf("executed (-want +got):\n%s", diff)
				}
			})
		})
	}
}

// TestUnknownStage: a stage without an executor fails.
func TestUnknownStage(t *testing.T) {
	inBubble(t, func(t *testing.T, e *env) {
		delete(e.executors, "TWO")
		e.start()
		e.planned("d")
		synctest.Wait()
		e.wantEnd("d", deploy.Failure, "Stage TWO failed: this agent cannot run stage TWO; rolled back to commit beef012")
	})
}

// TestRefusedAtTheStart: conditions that prevent the start of a planned deployment.
func TestRefusedAtTheStart(t *testing.T) {
	cases := []struct {
		name   string
		before func(e *env) error
		end    deploy.Status
		reason string
	}{
		{"application disabled", func(e *env) error { return e.store.SetDisabled(e.t.Context(), "app-d", true) }, deploy.Failure,
			"The application was disabled before the deployment started"},
		{"application deleted", func(e *env) error { return e.store.DeleteApplication(e.t.Context(), "app-d") }, deploy.Cancelled,
			"The application was deleted before the deployment started"},
		{"provider gone", func(e *env) error { e.providers = []string{"two"}; return nil }, deploy.Failure,
			`The platform provider "one" is no longer in the agent's configuration`},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, e *env) {
				e.planned("d")
				if err := c.before(e); err != nil {
					t.Fatal(err)
				}
				e.start()
				synctest.Wait()
				e.wantEnd("d", c.end, c.reason)
				if len(e.ran()) > 0 {
					t.Errorf("stages ran: %v", e.ran())
				}
			})
		})
	}
}

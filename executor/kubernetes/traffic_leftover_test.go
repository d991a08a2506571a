package kubernetes

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/c785c783/piped/piped/deploy"
)

// TestTrafficThatWasLeft: a deployment that was cancelled without a rollback left traffic
// with its canary. The next one takes it back before it rolls out its own canary.
func TestTrafficThatWasLeft(t *testing.T) {
	t.Parallel()
	l := newTrafficEnv(t, stepsPipeline, variantWorkload+routeManifest)
	l.answer(t, "accept")
	l.pass(t, "canary", "traffic")
	same(t, "weights that are left", "web 50, web-canary 50; static 1", l.weights(t, httpRoutes))
	l.leave(t)
	l.manifests = strings.ReplaceAll(l.manifests, "web:v2", "web:v3")
	said := len(l.said())
	l.ends(t, "canary", deploy.StageSuccess, "", func(line string) {
		if strings.HasPrefix(line, "The canary of commit") {
			same(t, "weights when the next canary is made", "web 1; static 1", l.weights(t, httpRoutes))
		}
	})
	if log := l.said()[said:]; !strings.Contains(log, "An earlier deployment left the traffic shared (canary 50%, primary 50%); all of it goes back to the primary") {
		t.Errorf("the log:\n%s", log)
	}
	l.writes()
	if result := l.execute(t.Context(), "canary", true, nil); result.Status != deploy.StageSuccess {
		t.Errorf("run again, it ended %s: %s", result.Status, result.Reason)
	}
	if writes := l.writes(); len(writes) > 0 {
		t.Errorf("run again, it writes %v", writes)
	}
	l.pass(t, "clean")
	same(t, "weights in the end", "web 1; static 1", l.weights(t, httpRoutes))
}

// TestFirstDeploymentThatSharesTraffic: its rollback has no earlier success, and takes the
// traffic from the canary before it removes it.
func TestFirstDeploymentThatSharesTraffic(t *testing.T) {
	t.Parallel()
	l := newTrafficEnv(t, stepsPipeline, variantWorkload+routeManifest)
	l.d.RunningCommit, l.d.RunningDeploymentID = "", ""
	l.answer(t, "accept")
	l.pass(t, "canary", "traffic")
	l.ends(t, deploy.RollbackID, deploy.StageSuccess, "", func(line string) {
		if strings.HasPrefix(line, "Removing") {
			same(t, "weights when the canary is removed", "web 1; static 1", l.weights(t, httpRoutes))
		}
	})
	if l.deploymentOf(t, "web-canary") {
		t.Error("the canary is still there")
	}
	if !l.deploymentOf(t, "web") {
		t.Error("the primary is gone")
	}
}

// TestRollbackWhereTrafficWasLeft: a deployment that shares no traffic fails where an
// earlier one has left some. The rollback takes it back before it removes the canary,
// and keeps the canary when it cannot.
func TestRollbackWhereTrafficWasLeft(t *testing.T) {
	for _, refused := range []bool{false, true} {
		t.Run(fmt.Sprintf("the route is refused: %t", refused), func(t *testing.T) {
			t.Parallel()
			l := newTrafficEnv(t, stepsPipeline, variantWorkload+routeManifest)
			l.answer(t, "accept")
			l.pass(t, "canary", "traffic")
			l.leave(t)
			if refused {
				l.edit(t, httpRoutes, `{"metadata":{"annotations":{"pipecd.dev/piped":"another"}}}`)
				l.ends(t, deploy.RollbackID, deploy.StageFailure, "may not touch objects of others", nil)
				if !l.deploymentOf(t, "web-canary") {
					t.Error("the canary is gone, and gets half of the traffic")
				}
				return
			}
			l.pass(t, deploy.RollbackID)
			if !strings.Contains(l.said(), "Waiting 1s for requests in progress to end") || l.deploymentOf(t, "web-canary") {
				t.Errorf("the log:\n%s", l.said())
			}
			same(t, "weights", "web 1; static 1", l.weights(t, httpRoutes))
		})
	}
}

// leave ends the deployment without a rollback and begins the next one.
func (l *trafficEnv) leave(t *testing.T) {
	t.Helper()
	left := l.d.Clone().Stages
	for i := range left {
		left[i].Status = deploy.StageNotStarted
	}
	if _, err := l.Store.UpdateDeployment(t.Context(), l.d.ID, func(d *deploy.Deployment) error { return d.Plan(deploy.Plan{Stages: left}, time.Now()) }); err != nil {
		t.Fatal(err)
	}
	l.d.ID, l.d.Trigger.Commit.Hash = "later", "commit-later"
	for i := range l.d.Stages {
		l.d.Stages[i].Metadata, l.d.Stages[i].Status = map[string]string{}, deploy.StageNotStarted
	}
}

package kubernetes

import (
	"context"
	"strings"
	"testing"

	"github.com/c785c783/piped/piped/deploy"
)

// TestRefusedAndInterrupted: the agent ends after it has restored the previous shares, and
// before it stores the stage's end. The stage stays refused, even if the gateway accepts
// the shares by then.
func TestRefusedAndInterrupted(t *testing.T) {
	t.Parallel()
	l := newTrafficEnv(t, stepsPipeline, variantWorkload+routeManifest)
	l.answer(t, "accept")
	l.pass(t, "canary")
	const refused = "the simulated gateway says BackendNotFound; the traffic is shared as before: canary 5%, primary 95%"
	l.ends(t, "traffic", deploy.StageFailure, refused, func(line string) {
		if strings.HasPrefix(line, "Step 1/3") {
			l.answer(t, "unresolved")
		}
	})
	l.answer(t, "accept")
	if result := l.execute(t.Context(), "traffic", true, nil); result.Status != deploy.StageFailure || !strings.Contains(result.Reason, refused) {
		t.Errorf("run again, the stage ended %s: %s", result.Status, result.Reason)
	}
	same(t, "weights", "web 95, web-canary 5; static 1", l.weights(t, httpRoutes))
}

// TestRollbackOfTrafficOnItsWayBack: the stage that gives the primary all the traffic
// is cancelled before the gateways have accepted that. The rollback waits for them
// before it removes the canary.
func TestRollbackOfTrafficOnItsWayBack(t *testing.T) {
	t.Parallel()
	l := newTrafficEnv(t, stepsPipeline, variantWorkload+routeManifest)
	l.answer(t, "accept")
	l.pass(t, "canary", "traffic", "primary")
	l.answer(t, "off")
	l.hurry()
	ctx, stop := context.WithCancelCause(t.Context())
	l.execute(ctx, "back", false, func(line string) {
		if strings.HasPrefix(line, "Waiting: HTTPRoute") {
			stop(deploy.StopCancelled)
		}
	})
	l.pass(t, deploy.RollbackID)
	if !strings.Contains(l.said(), "All traffic goes to the primary again, but not every gateway has accepted that: ") {
		t.Errorf("the canary was removed without asking the gateways:\n%s", l.said())
	}
}

// TestRollbackThatCannotRoute: the primary is restored, and the routes cannot be. A canary
// that has traffic is not removed.
func TestRollbackThatCannotRoute(t *testing.T) {
	t.Parallel()
	l := newTrafficEnv(t, stepsPipeline, variantWorkload+routeManifest)
	l.answer(t, "accept")
	l.pass(t, "canary", "traffic", "primary")
	l.edit(t, httpRoutes, `{"metadata":{"annotations":{"pipecd.dev/piped":"another"}}}`)
	l.ends(t, deploy.RollbackID, deploy.StageFailure, "may not touch objects of others: HTTPRoute "+l.ns+"/web", nil)
	same(t, "weights", "web 50, web-canary 50; static 1", l.weights(t, httpRoutes))
	if !l.deploymentOf(t, "web-canary") {
		t.Error("the canary is gone, and gets half of the traffic")
	}
}

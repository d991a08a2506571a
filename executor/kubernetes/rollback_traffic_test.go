package kubernetes

import (
	"net/http"
	"regexp"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/c785c783/piped/piped/deploy"
)

const (
	wholeCanary = "{name: K8S_CANARY_ROLLOUT, with: {replicas: 100%}}"
	toCanary    = "{name: K8S_TRAFFIC_ROUTING, with: {all: canary}}"
	toPrimary   = "{name: K8S_TRAFFIC_ROUTING, with: {all: primary}}"
	goodCanary  = "{name: K8S_CANARY_ROLLOUT, with: {patches: [{target: {kind: Deployment, name: web}, ops: [{path: '$.spec.template.spec.containers[0].image', value: 'web:2'}]}]}}"
)

// bluegreen is the application "web" whose Service selects the primary.
func bluegreen(image string) string {
	return strings.ReplaceAll(shop(image, "hello"), "app: web}", "app: web, pipecd.dev/variant: primary}")
}

// TestTrafficGoesBackInTime: the traffic leaves a canary at once if the primary was not
// changed, else only after the primary is restored. In the end the last success has all
// traffic, and nothing else is left.
func TestTrafficGoesBackInTime(t *testing.T) {
	for _, c := range []struct {
		name     string
		pipeline []string
		change   string
		fails    bool // a stage
		want     string
		first    string // what is written first
	}{
		{"the primary was not changed", []string{wholeCanary, toCanary}, bluegreen("2"), false, "The traffic goes back first: this deployment has not changed the primary", "services/web"},
		{"the primary was changed, and fails", []string{goodCanary, toCanary, primaryRollout}, bluegreen("bad-image"), true,
			"The primary goes back before the traffic does: this deployment has changed Deployment NS/web", "deployments/web"},
		{"the primary was changed, and the traffic is back", []string{wholeCanary, toCanary, primaryRollout, toPrimary}, bluegreen("2"), false,
			"The primary goes back before the traffic does: this deployment has changed Deployment NS/web", "deployments/web"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			l := newPipelineEnv(t, "", bluegreen("1"), c.pipeline...)
			before := l.lastGood(t)
			l.manifests = c.change
			if result := l.forward(t); (result.Status == deploy.StageFailure) != c.fails {
				t.Fatalf("it ended %s: %s\n%s", result.Status, result.Reason, l.said())
			}
			l.writes()
			said, untilBack := len(l.said()), "" // what the rollback says until the traffic is back
			l.answered = func(r *http.Request) error {
				if r.Method == http.MethodPatch && !r.URL.Query().Has("dryRun") && strings.HasSuffix(r.URL.Path, "/services/web") && untilBack == "" {
					untilBack = l.said()[said:]
				}
				return nil
			}
			l.mustGoBack(t)
			l.wantLogged(t, strings.ReplaceAll(c.want, "NS", l.ns))
			if writes := l.writes(); len(writes) == 0 || !strings.HasSuffix(writes[0], c.first) {
				t.Errorf("writes: %v, want %s first", writes, c.first)
			}
			if c.first == "services/web" && (untilBack == "" || waits.MatchString(untilBack)) {
				t.Errorf("until the traffic was back, it said %q", untilBack)
			}
			before.Assert(t)
		})
	}
}

// waits matches what a stage says when it waits, for pods for example.
var waits = regexp.MustCompile(`Waiting|of \d+ (new )?pods?\b`)

// TestPrimaryKeepsTheTrafficWhereItIs: what is applied between two stages that share
// the traffic does not undo the first one; the set stored for rollbacks has the shares of Git.
func TestPrimaryKeepsTheTrafficWhereItIs(t *testing.T) {
	for _, stage := range []string{primaryRollout, "{name: K8S_SYNC}"} {
		t.Run(stage, func(t *testing.T) {
			t.Parallel()
			l := newPipelineEnv(t, "", bluegreen("1"), wholeCanary, toCanary, stage)
			l.manifests = bluegreen("2")
			l.mustGoForward(t)
			s, err := l.client.CoreV1().Services(l.ns).Get(t.Context(), "web", metav1.GetOptions{})
			if err != nil || s.Spec.Selector["pipecd.dev/variant"] != "canary" {
				t.Errorf("the Service selects %v, %v", s.Spec.Selector, err)
			}
			kept, err := l.Store.AppliedSet(t.Context(), "now")
			if err != nil || strings.Contains(string(kept.Objects), `"pipecd.dev/variant":"canary"`) {
				t.Errorf("kept: %s %v", kept.Objects, err)
			}
		})
	}
}

// TestTrafficFirst states when the traffic goes back before the primary does.
func TestTrafficFirst(t *testing.T) {
	stages := []deploy.Stage{{ID: "canary", Name: "K8S_CANARY_ROLLOUT"}, {ID: "primary", Name: "K8S_PRIMARY_ROLLOUT"}, {ID: "back", Name: deploy.StageRollback, Rollback: true}}
	rec := func(stage string, phase deploy.RolloutPhase) deploy.Rollout {
		return deploy.Rollout{StageID: stage, Phase: phase, Workload: deploy.ObjectRef{Kind: "Deployment", Name: stage}}
	}
	for _, c := range []struct {
		name     string
		rollouts []deploy.Rollout
		first    bool
		why      string
	}{
		{"nothing was rolled out", nil, true, "this deployment has not changed the primary"},
		{"the canary fails", []deploy.Rollout{rec("canary", deploy.RolloutFailed)}, true, "this deployment has not changed the primary"},
		{"the primary stayed as it was", []deploy.Rollout{rec("canary", deploy.RolloutComplete), rec("primary", deploy.RolloutNoRollout)}, true, "this deployment has not changed the primary"},
		{"the primary may have been changed", []deploy.Rollout{rec("canary", deploy.RolloutComplete), rec("primary", deploy.RolloutIntent)}, false, "this deployment has changed Deployment primary"},
		{"the primary fails", []deploy.Rollout{rec("canary", deploy.RolloutComplete), rec("primary", deploy.RolloutFailed)}, false, "this deployment has changed Deployment primary"},
		{"both fail", []deploy.Rollout{rec("canary", deploy.RolloutTimedOut), rec("primary", deploy.RolloutSuperseded)}, true, "the pods of Deployment canary fail"},
		{"the rollback was interrupted", []deploy.Rollout{rec("canary", deploy.RolloutFailed), rec("back", deploy.RolloutApplied)}, true, "this deployment has not changed the primary"},
	} {
		t.Run(c.name, func(t *testing.T) {
			w, _, _ := newWork(t)
			w.run.Deployment.Stages = stages
			w.Clusters = fixed{"one": {Client: unreached(t, "one")}}
			if err := openCluster(t.Context(), w); err != nil {
				t.Fatal(err)
			}
			for _, r := range c.rollouts {
				r.ID, r.ApplicationID, r.DeploymentID, r.Cluster = r.StageID, "app", "now", "one"
				if _, err := w.Store.SaveRollout(t.Context(), r); err != nil {
					t.Fatal(err)
				}
			}
			first, why, err := w.trafficFirst(t.Context())
			if err != nil || first != c.first || why != c.why {
				t.Errorf("first %t, because %s, %v; want %t, %s", first, why, err, c.first, c.why)
			}
		})
	}
}

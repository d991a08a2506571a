package kubernetes

import (
	"errors"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/c785c783/piped/piped/deploy"
)

// TestEvaluate states what the ends of rollouts mean for their stage.
func TestEvaluate(t *testing.T) {
	rec := func(name string, phase deploy.RolloutPhase, reason string) deploy.Rollout {
		return deploy.Rollout{Workload: deploy.ObjectRef{Group: "apps", Kind: "Deployment", Namespace: "shop", Name: name}, Phase: phase, Reason: reason}
	}
	failed := func(reason string, noRollback bool) deploy.StageResult {
		return deploy.StageResult{Status: deploy.StageFailure, Reason: reason, NoRollback: noRollback}
	}
	cases := []struct {
		name  string
		ended []deploy.Rollout
		want  deploy.StageResult // zero: the stage goes on
	}{
		{name: "nothing to wait for"},
		{name: "all ended well", ended: []deploy.Rollout{rec("a", deploy.RolloutComplete, "done"), rec("b", deploy.RolloutNoRollout, "")}},
		{name: "one failed", ended: []deploy.Rollout{rec("a", deploy.RolloutComplete, ""), rec("b", deploy.RolloutFailed, "b: no pod became ready")},
			want: failed("Deployment shop/b: no pod became ready", false)},
		{name: "every failure is reported", ended: []deploy.Rollout{rec("a", deploy.RolloutTimedOut, "no progress"), rec("b", deploy.RolloutFailed, "ImagePullBackOff")},
			want: failed("Deployment shop/a: no progress; Deployment shop/b: ImagePullBackOff", false)},
		{name: "another manager took over", ended: []deploy.Rollout{rec("a", deploy.RolloutSuperseded, "kubectl-edit changed the template")},
			want: failed("Deployment shop/a: kubectl-edit changed the template", true)},
		{name: "it was deleted", ended: []deploy.Rollout{rec("a", deploy.RolloutGone, "it was deleted")},
			want: failed("Deployment shop/a: it was deleted", true)},
		{name: "a failure counts more than a foreign change", ended: []deploy.Rollout{rec("a", deploy.RolloutGone, "it was deleted"), rec("b", deploy.RolloutFailed, "crash loop")},
			want: failed("Deployment shop/b: crash loop", false)},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			var got deploy.StageResult
			if err := evaluate(c.ended); err != nil {
				got = failure(fmt.Errorf("wait: %w", err))
				got.Reason = err.Error()
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("the stage's result (-want +got):\n%s", diff)
			}
		})
	}
}

// TestEnding: a reason names its workload, once.
func TestEnding(t *testing.T) {
	workload := deploy.ObjectRef{Kind: "Deployment", Namespace: "shop", Name: "web"}
	for reason, want := range map[string]string{
		"web: 1 of 2 pods": "Deployment shop/web: 1 of 2 pods",
		"webhook: refused": "Deployment shop/web: webhook: refused",
		"no progress":      "Deployment shop/web: no progress",
	} {
		if got := ending(deploy.Rollout{Workload: workload, Reason: reason}); got != want {
			t.Errorf("ending of %q = %q, want %q", reason, got, want)
		}
	}
}

// TestFailure: an error that is no rollout's lets the rollback happen.
func TestFailure(t *testing.T) {
	want := deploy.StageResult{Status: deploy.StageFailure, Reason: "no cluster"}
	if diff := cmp.Diff(want, failure(errors.New("no cluster"))); diff != "" {
		t.Errorf("result (-want +got):\n%s", diff)
	}
}

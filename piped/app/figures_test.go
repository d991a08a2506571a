package app

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/c785c783/piped/piped/cluster/clustertest"
	controlv1 "github.com/c785c783/piped/proto/piped/control/v1"
	modelv1 "github.com/c785c783/piped/proto/piped/model/v1"
)

// TestFiguresOfARun makes an agent deploy with and without success, and recomputes its
// delivery figures from the transition logs and the ends.
func TestFiguresOfARun(t *testing.T) {
	t.Parallel()
	cluster := clustertest.Shared(t)
	ns, repo, began := cluster.Namespace(t), newRepo(t), time.Now()
	agent := runAgent(t, settings{dataDir: t.TempDir(), remote: repo.Dir, kubeconfig: cluster.Kubeconfig()})
	web := appID("web")
	agent.mustEnd(web, repo.Push(t, "add web", webApp(ns, "v1", "")), modelv1.DeploymentStatus_DEPLOYMENT_SUCCESS)
	agent.mustEnd(web, repo.Push(t, "a bad image", webApp(ns, "does-not-exist", "")), modelv1.DeploymentStatus_DEPLOYMENT_FAILURE)
	agent.mustEnd(web, repo.Push(t, "web v2", webApp(ns, "v2", "")), modelv1.DeploymentStatus_DEPLOYMENT_SUCCESS)
	other := repo.Push(t, "nothing of web", map[string]string{"README.md": "changed"})
	agent.awaitEvaluated(web, other)
	if command := agent.sync(web); command.GetStatus() != modelv1.CommandStatus_COMMAND_SUCCEEDED {
		t.Fatalf("sync by hand: %v", command)
	}
	agent.mustEnd(web, other, modelv1.DeploymentStatus_DEPLOYMENT_SUCCESS)
	until := time.Now()

	resp, err := agent.control.GetDeliveryFigures(agent.ctx, &controlv1.GetDeliveryFiguresRequest{
		ApplicationIds: []string{web}, FromMs: began.UnixMilli(), ToMs: until.UnixMilli(),
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(resp.Applications) != 1 || resp.Applications[0].ApplicationName != "web" {
		t.Fatalf("figures of %v, want of web", resp.Applications)
	}
	type end struct {
		to string
		at int64
	}
	var ends []end    // of deployments, in order of completion
	var leads []int64 // of succeeded deployments that a commit triggered
	for _, d := range agent.deployments(web) {
		log := agent.get(d.GetId()).GetTransitions()
		// The log entry is later than the end that it records, by as long as the store waits for its turn.
		last, at := log[len(log)-1], d.GetCompletedAtMs()
		run := slices.IndexFunc(log, func(m *modelv1.Transition) bool { return m.GetTo() == "DEPLOYMENT_RUNNING" })
		if run < 0 || at < log[run].GetAtMs() || last.GetAtMs() < at {
			t.Errorf("the log has the end %s at %d, which was at %d: %v", last.GetTo(), last.GetAtMs(), at, log)
		}
		ends = append(ends, end{last.GetTo(), at})
		if last.GetTo() == "DEPLOYMENT_SUCCESS" && d.GetTriggerKind() == modelv1.TriggerKind_TRIGGER_KIND_ON_COMMIT {
			leads = append(leads, at-d.GetTrigger().GetCommit().GetCreatedAt()*1000)
		}
	}
	slices.SortFunc(ends, func(a, b end) int { return int(a.at - b.at) })
	slices.Sort(leads)
	var statuses []string
	for _, e := range ends {
		statuses = append(statuses, strings.TrimPrefix(e.to, "DEPLOYMENT_"))
	}
	if got := strings.Join(statuses, " "); got != "SUCCESS FAILURE SUCCESS SUCCESS" || len(leads) != 2 {
		t.Fatalf("the deployments ended as %s, with %d lead times", got, len(leads))
	}
	for _, f := range []*controlv1.DeliveryFigures{resp.Total, resp.Applications[0]} {
		counts := fmt.Sprintf("%d succeeded, %d failed, %d cancelled, failure rate %.2f", f.Succeeded, f.Failed, f.Cancelled, f.GetChangeFailureRate())
		if counts != "3 succeeded, 1 failed, 0 cancelled, failure rate 0.25" {
			t.Error(counts)
		}
		perDay := 3 / (float64(until.UnixMilli()-began.UnixMilli()) / 86_400_000)
		if got := f.GetDeploymentFrequency() / perDay; got < 0.999999 || got > 1.000001 {
			t.Errorf("%f deployments a day, want %f", f.GetDeploymentFrequency(), perDay)
		}
		for what, pair := range map[string][2]int64{
			"median lead time": {f.GetLeadTimeMedianMs(), (leads[0] + leads[1]) / 2},
			"90th percentile":  {f.GetLeadTimeP90Ms(), leads[1]},
			"time to restore":  {f.GetTimeToRestoreMedianMs(), ends[2].at - ends[1].at},
		} {
			if distance := pair[0] - pair[1]; distance < -1 || distance > 1 {
				t.Errorf("%s: %d ms, want %d", what, pair[0], pair[1])
			}
		}
	}
}

package app

import (
	"testing"
	"time"

	"github.com/c785c783/piped/piped/deploy"
)

// TestRolloutChaosFindsFaults: the comparison finds every kind of fault, and none in
// correct records.
func TestRolloutChaosFindsFaults(t *testing.T) {
	t.Parallel()
	start := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	at := func(seconds float64) time.Time { return start.Add(time.Duration(seconds * float64(time.Second))) }
	commits := map[string]rolloutCommit{
		"first":  {at: at(0), contents: map[string]rolloutContent{"web": {1, "v1", "ready"}}},
		"second": {at: at(20), contents: map[string]rolloutContent{"web": {2, "v2", "ready"}}},
		"broken": {at: at(100), contents: map[string]rolloutContent{"web": {3, "v3", "crash-loop"}}},
	}
	// One pod of v1 from 1 s on; v2 comes at 21 s, is ready at 25 s, and v1 gone at 26 s.
	seen := map[string]*oracleDeployment{"web": {
		epochs: []*epoch{
			{image: "v1", generation: 1, begun: at(1), wanted: []wantedReplicas{{at(1), 1}}},
			{image: "v2", generation: 2, begun: at(21), wanted: []wantedReplicas{{at(21), 2}, {at(60), 1}}},
		},
		pods: map[string]*oraclePod{
			"old": {"v1", at(1), at(2), at(26)},
			"a":   {"v2", at(21), at(25), time.Time{}},
			"b":   {"v2", at(21), at(25), at(61)},
		},
	}}
	record := func(phase deploy.RolloutPhase, generation int64, end float64) deploy.Rollout {
		deployment := []string{"", "first", "second", "second"}[generation]
		return deploy.Rollout{
			ID: "of " + deployment, DeploymentID: deployment, StageID: "sync", Workload: deploy.ObjectRef{Kind: "Deployment", Name: "web"},
			Phase: phase, Generation: generation, TemplateDigest: deployment, CompletedAt: at(end),
		}
	}
	with := func(r deploy.Rollout, change func(*deploy.Rollout)) deploy.Rollout { change(&r); return r }
	first, second := record(deploy.RolloutComplete, 1, 3), record(deploy.RolloutComplete, 2, 27)
	failed := with(record(deploy.RolloutFailed, 2, 27), func(r *deploy.Rollout) { r.DeploymentID = "broken" })
	superseded := record(deploy.RolloutSuperseded, 1, 22)
	type found struct{ lost, duplicate, wrong int }
	cases := map[string]struct {
		records  []deploy.Rollout
		reported int // the number of end events of the second rollout
		want     found
	}{
		"all is well":                           {[]deploy.Rollout{first, second}, 1, found{}},
		"a commit took over":                    {[]deploy.Rollout{superseded, second}, 1, found{}},
		"no commit took over":                   {[]deploy.Rollout{first, record(deploy.RolloutSuperseded, 2, 27)}, 1, found{wrong: 1}},
		"no record":                             {[]deploy.Rollout{first}, 0, found{lost: 1}},
		"an intent only":                        {[]deploy.Rollout{first, record(deploy.RolloutIntent, 2, 0)}, 0, found{lost: 1}},
		"no end":                                {[]deploy.Rollout{first, record(deploy.RolloutProgressing, 2, 0)}, 0, found{lost: 2}},
		"an end that is not reported":           {[]deploy.Rollout{first, second}, 0, found{lost: 1}},
		"an end that is reported twice":         {[]deploy.Rollout{first, second}, 2, found{duplicate: 1}},
		"two ends":                              {[]deploy.Rollout{first, second, with(second, func(r *deploy.Rollout) { r.ID, r.Generation = "again", 3 })}, 1, found{duplicate: 1, lost: 1}},
		"complete before its pods are ready":    {[]deploy.Rollout{first, record(deploy.RolloutComplete, 2, 24)}, 1, found{wrong: 2}},
		"complete while an old pod is there":    {[]deploy.Rollout{first, record(deploy.RolloutComplete, 2, 25.5)}, 1, found{wrong: 1}},
		"complete after it was scaled down":     {[]deploy.Rollout{first, record(deploy.RolloutComplete, 2, 70)}, 1, found{}},
		"complete when the next is under way":   {[]deploy.Rollout{record(deploy.RolloutComplete, 1, 40), second}, 1, found{wrong: 3}},
		"failed without a reason":               {[]deploy.Rollout{first, record(deploy.RolloutFailed, 2, 27)}, 1, found{wrong: 1}},
		"failed with a reason, another image":   {[]deploy.Rollout{first, failed}, 1, found{wrong: 1}},
		"gone":                                  {[]deploy.Rollout{first, record(deploy.RolloutGone, 2, 27)}, 1, found{wrong: 1}},
		"nothing to roll out in a new template": {[]deploy.Rollout{first, record(deploy.RolloutNoRollout, 2, 27)}, 1, found{wrong: 1}},
		"an external one":                       {[]deploy.Rollout{first, second, with(second, func(r *deploy.Rollout) { r.ID, r.DeploymentID = "external", "" })}, 1, found{wrong: 1, lost: 1}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			e := rolloutEvidence{rollouts: c.records, deployments: map[string]deploy.Deployment{}, ended: map[string]int{first.ID: 1, second.ID: c.reported}}
			for hash := range commits {
				d := deploy.Deployment{ID: hash, ApplicationName: "web", Status: deploy.Cancelled, CompletedAt: at(22), Stages: []deploy.Stage{{ID: "sync", Name: deploy.StageK8sSync}}}
				d.Trigger.Commit.Hash = hash
				e.deployments[hash] = d
			}
			f, _ := e.compare(seen, commits)
			if got := (found{len(f.lost), len(f.duplicate), len(f.wrong)}); got != c.want {
				t.Errorf("found %+v, want %+v:\n%+v", got, c.want, f)
			}
		})
	}
}

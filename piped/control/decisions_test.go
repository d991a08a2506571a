package control

import (
	"testing"

	"google.golang.org/grpc/codes"

	"github.com/c785c783/piped/piped/deploy"
)

func TestRunningStage(t *testing.T) {
	stages := []deploy.Stage{
		{ID: "a", Name: deploy.StageWaitApproval, Status: deploy.StageSuccess},
		{ID: "b", Name: deploy.StageWaitApproval, Status: deploy.StageRunning},
		{ID: "c", Name: deploy.StageWait, Status: deploy.StageRunning},
	}
	twice := append([]deploy.Stage{{ID: "d", Name: deploy.StageWaitApproval, Status: deploy.StageRunning}}, stages...)
	tests := map[string]struct {
		stages []deploy.Stage
		id     string
		want   string
		code   codes.Code
	}{
		"the only one that waits":    {stages, "", "b", codes.OK},
		"the one that is named":      {twice, "d", "d", codes.OK},
		"two wait and none is named": {twice, "", "", codes.FailedPrecondition},
		"one that has ended":         {stages, "a", "", codes.FailedPrecondition},
		"one of another name":        {stages, "c", "", codes.FailedPrecondition},
		"an unknown one":             {stages, "x", "", codes.NotFound},
		"before there are stages":    {nil, "", "", codes.FailedPrecondition},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := runningStage(deploy.Deployment{ID: "d1", Status: deploy.Running, Stages: tc.stages}, deploy.StageWaitApproval, tc.id)
			code := codes.OK
			if err != nil {
				code = codeOf(deploy.KindOf(err))
			}
			if got.ID != tc.want || code != tc.code {
				t.Errorf("got stage %q, %s (%v); want %q, %s", got.ID, code, err, tc.want, tc.code)
			}
		})
	}
}

// TestSkipWithoutAnID: the only running stage that can be skipped, a wait or an analysis, is
// the default; of two, one must be named.
func TestSkipWithoutAnID(t *testing.T) {
	stage := func(id, name string) deploy.Stage {
		return deploy.Stage{ID: id, Name: name, Status: deploy.StageRunning}
	}
	for name, tc := range map[string]struct {
		stages []deploy.Stage
		want   string
		code   codes.Code
	}{
		"a wait":                 {[]deploy.Stage{stage("w", deploy.StageWait)}, "w", codes.OK},
		"an analysis":            {[]deploy.Stage{stage("a", deploy.StageAnalysis), stage("s", deploy.StageK8sSync)}, "a", codes.OK},
		"a wait and an analysis": {[]deploy.Stage{stage("a", deploy.StageAnalysis), stage("w", deploy.StageWait)}, "", codes.FailedPrecondition},
		"an approval":            {[]deploy.Stage{stage("g", deploy.StageWaitApproval)}, "", codes.FailedPrecondition},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := stageToSkip(deploy.Deployment{ID: "d1", Status: deploy.Running, Stages: tc.stages}, "")
			code := codes.OK
			if err != nil {
				code = codeOf(deploy.KindOf(err))
			}
			if got.ID != tc.want || code != tc.code {
				t.Errorf("got stage %q, %s (%v); want %q, %s", got.ID, code, err, tc.want, tc.code)
			}
		})
	}
}

// TestStageToSkip: requests that the scheduler would reject are rejected at once; a wait can
// be skipped before it runs.
func TestStageToSkip(t *testing.T) {
	stages := []deploy.Stage{
		{ID: "ended", Name: deploy.StageWait, Status: deploy.StageSuccess},
		{ID: "runs", Name: deploy.StageWait, Status: deploy.StageRunning},
		{ID: "gate", Name: deploy.StageWaitApproval, Status: deploy.StageNotStarted},
		{ID: "later", Name: deploy.StageWait, Status: deploy.StageNotStarted},
	}
	for id, want := range map[string]codes.Code{
		"": codes.OK, "runs": codes.OK, "later": codes.OK,
		"ended": codes.FailedPrecondition, "gate": codes.FailedPrecondition, "x": codes.NotFound,
	} {
		got, err := stageToSkip(deploy.Deployment{ID: "d1", Status: deploy.Running, Stages: stages}, id)
		code := codes.OK
		if err != nil {
			code = codeOf(deploy.KindOf(err))
		}
		if code != want || err == nil && id != "" && got.ID != id || id == "" && got.ID != "runs" {
			t.Errorf("stage %q: got %q, %s (%v), want %s", id, got.ID, code, err, want)
		}
	}
}

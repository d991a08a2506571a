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

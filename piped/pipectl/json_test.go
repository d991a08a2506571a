package pipectl

import (
	"encoding/json"
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"

	"github.com/c785c783/piped/proto/pipecd/apiservice"
	controlv1 "github.com/c785c783/piped/proto/piped/control/v1"
	modelv1 "github.com/c785c783/piped/proto/piped/model/v1"
)

// TestNamedJSONIsTheSameWithoutEnums: without enums the JSON equals that of
// encoding/json, including order, numbers and escapes.
func TestNamedJSONIsTheSameWithoutEnums(t *testing.T) {
	for _, m := range []proto.Message{
		&modelv1.Application{
			Id: "app-1", Name: "a \"quoted\" <name> & more", Labels: map[string]string{"z": "1", "a": "<2>"}, CreatedAt: math.MaxInt64, Disabled: true,
			GitPath: &modelv1.ApplicationGitPath{Repo: &modelv1.ApplicationGitRepository{Id: "apps"}, Path: "web"},
		},
		&controlv1.DeliveryFigures{ApplicationId: "app-1", DeploymentFrequency: proto.Float64(1.4), LeadTimeMedianMs: proto.Int64(0), ChangeFailureRate: proto.Float64(1e21)},
		&apiservice.ListStageLogsResponse{StageLogs: map[string]*apiservice.StageLog{"s1": {Blocks: []*modelv1.LogBlock{{Log: "a\nb", Index: 1}, {}}}, "s0": {}}},
		&modelv1.ApplicationPlanPreviewResult{PlanDetails: []byte{0, 255, '<'}, PluginNames: []string{"a", ""}},
		&modelv1.Application{},
	} {
		want, err := json.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		got, err := namedJSON(m)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(string(want), string(got)); diff != "" {
			t.Errorf("%T (-encoding/json +got):\n%s", m, diff)
		}
	}
}

// TestNamedJSONNamesEnums: enums are names, also in lists and nested messages; a number
// without a name stays a number.
func TestNamedJSONNamesEnums(t *testing.T) {
	got, err := namedJSON(&controlv1.GetPlanRequest{Strategy: modelv1.SyncStrategy_PIPELINE})
	if want := `{"strategy":"PIPELINE"}`; err != nil || string(got) != want {
		t.Errorf("got %s, %v, want %s", got, err, want)
	}
	got, err = namedJSON(&controlv1.ListEventsRequest{Statuses: []modelv1.EventStatus{modelv1.EventStatus_EVENT_SUCCESS, 99}})
	if want := `{"statuses":["EVENT_SUCCESS",99]}`; err != nil || string(got) != want {
		t.Errorf("got %s, %v, want %s", got, err, want)
	}
	got, err = namedJSON(&modelv1.Deployment{Stages: []*modelv1.PipelineStage{{Status: modelv1.StageStatus_STAGE_FAILURE}}})
	if want := `{"stages":[{"status":"STAGE_FAILURE"}]}`; err != nil || string(got) != want {
		t.Errorf("got %s, %v, want %s", got, err, want)
	}
}

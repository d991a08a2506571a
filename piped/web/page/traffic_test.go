package page

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/c785c783/piped/piped/config"
	"github.com/c785c783/piped/piped/config/kubernetes"
	"github.com/c785c783/piped/piped/config/strict"
	"github.com/c785c783/piped/proto/pipecd/apiservice"
	controlv1 "github.com/c785c783/piped/proto/piped/control/v1"
	modelv1 "github.com/c785c783/piped/proto/piped/model/v1"
)

// TestTrafficOfAStage: recorded shares come before those of the options, as the planner writes them.
func TestTrafficOfAStage(t *testing.T) {
	options := func(o kubernetes.TrafficRoutingOptions) string {
		text, err := json.Marshal(config.TrafficRoutingOptions{TrafficRoutingOptions: o})
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	recorded := func(primary, canary, baseline string) map[string]string {
		return map[string]string{"primary-percentage": primary, "canary-percentage": canary, "baseline-percentage": baseline}
	}
	const routing = "K8S_TRAFFIC_ROUTING"
	for name, tc := range map[string]struct {
		stage   *modelv1.PipelineStage
		want    string
		planned bool
	}{
		"planned":       {&modelv1.PipelineStage{Name: routing, Options: options(kubernetes.TrafficRoutingOptions{Primary: 80, Canary: 20})}, "primary 80 %, canary 20 %", true},
		"three":         {&modelv1.PipelineStage{Name: routing, Options: options(kubernetes.TrafficRoutingOptions{Primary: 80, Canary: 10, Baseline: 10})}, "primary 80 %, canary 10 %, baseline 10 %", true},
		"all":           {&modelv1.PipelineStage{Name: routing, Options: options(kubernetes.TrafficRoutingOptions{All: kubernetes.Canary})}, "canary 100 %", true},
		"last step":     {&modelv1.PipelineStage{Name: routing, Options: options(kubernetes.TrafficRoutingOptions{Steps: []strict.Percent{10, 60}})}, "primary 40 %, canary 60 %", true},
		"recorded":      {&modelv1.PipelineStage{Name: routing, Options: options(kubernetes.TrafficRoutingOptions{All: kubernetes.Canary}), Metadata: recorded("90", "10", "0")}, "primary 90 %, canary 10 %", false},
		"too much":      {&modelv1.PipelineStage{Name: routing, Options: options(kubernetes.TrafficRoutingOptions{Canary: 120})}, "", true},
		"no options":    {&modelv1.PipelineStage{Name: routing}, "", true},
		"another stage": {&modelv1.PipelineStage{Name: "K8S_SYNC", Options: `{"canary":"20%"}`}, "", false},
		"not whole":     {&modelv1.PipelineStage{Name: "X", Metadata: recorded("90", "20", "0")}, "", false},
		"negative":      {&modelv1.PipelineStage{Name: "X", Metadata: recorded("-10", "110", "0")}, "", false},
		"not a number":  {&modelv1.PipelineStage{Name: "X", Metadata: recorded("<b>", "100", "0")}, "", false},
	} {
		shares, planned := trafficOf(tc.stage)
		if got := trafficText(shares); got != tc.want || planned != tc.planned {
			t.Errorf("%s: %q, planned %t; want %q, %t", name, got, planned, tc.want, tc.planned)
		}
	}
}

// TestTrafficOnThePage: a stage shows its shares, and the application those that are in force
// while a deployment shares its traffic.
func TestTrafficOnThePage(t *testing.T) {
	d := waitingDeployment()
	d.Stages = append(d.Stages,
		&modelv1.PipelineStage{Id: "a", Name: "K8S_TRAFFIC_ROUTING", Status: modelv1.StageStatus_STAGE_SUCCESS, Metadata: map[string]string{"primary-percentage": "80", "canary-percentage": "20", "baseline-percentage": "0"}},
		&modelv1.PipelineStage{Id: "b", Name: "K8S_TRAFFIC_ROUTING", Options: `{"primary":"0%","canary":"100%","baseline":"0%"}`})
	answer := &apiservice.GetDeploymentResponse{Deployment: d}
	body := bodyOf(t, approvable(t).on("GetDeployment", answer).get("/deployments/d-checkout?tab=timeline"))
	for _, want := range []string{`class="traffic-canary" x="80.000%" y="0" width="20.000%"`, "primary 80 %, canary 20 %", "planned:", "canary 100 %"} {
		if !strings.Contains(body, want) {
			t.Errorf("the deployment lacks %q", want)
		}
	}
	f := drifted(t).on("GetDeployment", answer)
	if body := bodyOf(t, f.get("/applications/search")); strings.Contains(body, "canary 20 %") {
		t.Error("the traffic of a deployment that has ended is shown")
	}
	body = bodyOf(t, deploying(t).on("GetDeployment", answer).get("/applications/search"))
	if !strings.Contains(body, "primary 80 %, canary 20 %") || strings.Contains(body, "canary 100 %") {
		t.Error("the application does not show the traffic in force")
	}
	d.Status = modelv1.DeploymentStatus_DEPLOYMENT_ROLLING_BACK
	if body := bodyOf(t, deploying(t).on("GetDeployment", answer).get("/applications/search")); strings.Contains(body, "canary 20 %") {
		t.Error("the traffic of a deployment that is rolled back is shown")
	}
}

// deploying returns the API of an application with a deployment under way.
func deploying(t *testing.T) *fakeAPI {
	f := drifted(t)
	m, err := f.answers["GetApplicationSummary"](nil)
	if err != nil {
		t.Fatal(err)
	}
	summary := m.(*controlv1.GetApplicationSummaryResponse).Summary
	summary.Deployments = []*controlv1.DeploymentBrief{{DeploymentId: "d-checkout"}}
	return f
}

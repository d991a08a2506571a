package app

import (
	"fmt"
	"path/filepath"
	"strings"

	"github.com/c785c783/piped/piped/cluster/clustertest"
)

// matrixStages are the stages of the pipeline of TestEveryStageIsInterrupted, with their
// options when nothing holds them.
var matrixStages = []struct{ id, name, with string }{
	{"canary", "K8S_CANARY_ROLLOUT", "createService: true"},
	{"baseline", "K8S_BASELINE_ROLLOUT", "createService: true"},
	{"traffic", "K8S_TRAFFIC_ROUTING", "steps: [10, 50], interval: 200ms"},
	{"analysis", "ANALYSIS", ""},
	{"wait", "WAIT", "duration: 200ms"},
	{"approval", "WAIT_APPROVAL", ""},
	{"script", "SCRIPT_RUN", "run: 'true'"},
	{"primary", "K8S_PRIMARY_ROLLOUT", ""},
	{"back", "K8S_TRAFFIC_ROUTING", "all: primary"},
	{"clean", "K8S_CANARY_CLEAN", ""},
	{"clean-baseline", "K8S_BASELINE_CLEAN", ""},
}

// firstStep is the HTTPRoute at the first step of stage "traffic".
const firstStep = "web 90, web-canary 10; static 1"

// heldFor is how long a stage is held that nothing ends before. All other applications of the matrix must
// be in the middle of their stages by then, for which drive waits fifteen minutes.
const heldFor = "30m"

// waitLimit is the timeout of the deployment that times out in WAIT. The stage itself
// cannot have a timeout below its duration. The first version has no such limit: it must be
// deployed however slow the machine is.
const waitLimit = "40s"

// cell returns the application for a stage and a way of interruption.
func (m *matrix) cell(stage, way string) *matrixCell {
	c := &matrixCell{stage: stage, way: way, hold: holdOf(stage, way)}
	c.app = progressiveApp{dir: stage + "-" + way, objects: httpRouteOfWeb, spec: m.pipeline(stage, way)}
	if stage == "wait" && way == timedOut {
		c.app.limits = map[string]string{"v2": waitLimit}
	}
	if _, ok := c.hold.(podHold); ok {
		c.app.podLabels = clustertest.BehaviorLabel + ": never-ready" // until the test changes it
	}
	if stage != "analysis" {
		m.checked.open(c.app.dir)
	}
	return c
}

// holdOf returns the hold of a stage.
func holdOf(stage, way string) hold {
	switch stage {
	case "canary", "baseline", "primary":
		return podHold{variant: stage}
	case "traffic":
		if way == cancelled {
			return stepHold{}
		}
		return routeHold{}
	case "analysis":
		return checkHold{}
	case "wait":
		return waitHold{}
	case "script":
		return scriptHold{}
	case "back":
		return routeHold{}
	case "clean":
		return deleteHold{variant: "canary"}
	case "clean-baseline":
		return deleteHold{variant: "baseline"}
	}
	return noHold{} // the missing approval holds the stage
}

// pipeline returns the lines of an application's configuration with its pipeline, for a
// stage that is interrupted in a way.
func (m *matrix) pipeline(stage, way string) string {
	var b strings.Builder
	b.WriteString("  trafficRouting: {method: httproute, httpRoute: {verify: {timeout: " + heldFor + ", settle: 200ms}}}\n  pipeline:\n    stages:\n")
	for _, s := range matrixStages {
		with, limit := s.with, ""
		if s.id == "analysis" {
			with = fmt.Sprintf("duration: 400ms, https: [{url: %q, interval: 200ms, timeout: %s}]", m.checked.url(stage+"-"+way), heldFor)
		}
		if s.id == stage {
			with = m.slow(stage, way, with)
			if way == timedOut && stage != "wait" {
				limit = ", timeout: 2s"
			}
		}
		fmt.Fprintf(&b, "      - {id: %s, name: %s%s, with: {%s}}\n", s.id, s.name, limit, with)
	}
	return b.String()
}

// slow returns the options that let a stage be held.
func (m *matrix) slow(stage, way, with string) string {
	switch {
	case stage == "traffic" && way == cancelled:
		return "steps: [10, 50], interval: " + heldFor
	case stage == "wait":
		return "duration: " + heldFor
	case stage == "script":
		begun, goOn := m.file(stage, way, "begun"), m.file(stage, way, "go-on")
		return fmt.Sprintf("onInterrupted: rerun, run: %q", "touch "+begun+"; until [ -e "+goOn+" ]; do sleep 0.1; done")
	}
	return with
}

// file returns the path of a file that an application's script creates or waits for.
func (m *matrix) file(stage, way, name string) string {
	return filepath.Join(m.dir, stage+"-"+way+"-"+name)
}

package config

import (
	"encoding/json"
	"os"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/c785c783/piped/piped/config/kubernetes"
	"github.com/c785c783/piped/piped/config/strict"
)

func wholeCase(t *testing.T, name string) *Application {
	t.Helper()
	data, err := os.ReadFile("testdata/whole/" + name + ".yaml")
	if err != nil {
		t.Fatal(err)
	}
	app, err := readWhole(data)
	if err != nil {
		t.Fatal(err)
	}
	return app
}

func TestStagesOfAPipeline(t *testing.T) {
	const minute, hour = time.Minute, time.Hour
	want := []Stage{
		{ID: "stage-0", Name: "K8S_SYNC", Desc: "the new version", Timeout: 20 * minute, With: &kubernetes.SyncStageOptions{
			SyncOptions: kubernetes.SyncOptions{Prune: true, AddVariantLabelToSelector: true}, ReadyThreshold: 50,
		}},
		{ID: "settle", Name: "WAIT", With: &WaitOptions{Duration: strict.Duration(90 * time.Second)},
			SkipOn: SkipOptions{CommitMessagePrefixes: []string{"fix:"}, Paths: patterns(t, "docs", "!docs/api")}},
		{ID: "stage-2", Name: "WAIT_APPROVAL", Timeout: 2 * hour, SkipOn: SkipOptions{Paths: patterns(t, "**/*.md")},
			With: &WaitApprovalOptions{Approvers: []string{"ann", "bob", "ann"}, MinApproverNum: 2, Timeout: 2 * hour}},
		{ID: "stage-3", Name: "SCRIPT_RUN", Timeout: 5 * minute, SkipOn: SkipOptions{CommitMessagePrefixes: []string{"docs"}},
			With: &ScriptRunOptions{
				Run: "make smoke", Env: map[string]string{"TARGET": "web"}, OnRollback: "make clean", OnInterrupted: InterruptedReruns, Timeout: 5 * minute,
			}},
		{ID: "stage-4", Name: "WAIT", With: &WaitOptions{Duration: strict.Duration(minute)}},
		{ID: "stage-5", Name: "WAIT_APPROVAL", Timeout: hour, With: &WaitApprovalOptions{Approvers: []string{}, MinApproverNum: 1, Timeout: hour}},
		{ID: "stage-6", Name: "SCRIPT_RUN", Timeout: 6 * hour,
			With: &ScriptRunOptions{OnRollback: "make clean", OnInterrupted: InterruptedFails, Timeout: 6 * hour}},
	}
	got := parseCase(t, "valid-pipeline-every-option").Pipeline.Stages
	for i := range got {
		if o, ok := got[i].With.(options); ok {
			if _, skipOn := o.common(); skipOn != nil {
				*skipOn = SkipOptions{} // the stage has it
			}
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// TestStageOptionsAsJSON states what executors read.
func TestStageOptionsAsJSON(t *testing.T) {
	tests := map[string][]string{
		"valid-canary": {
			`{"replicas":"10%","suffix":"next","createService":true,"patches":[{"target":{"kind":"ConfigMap","name":"web","documentRoot":"$.data.config"},` +
				`"ops":[{"op":"yaml-replace","path":"$.a.b[0]","value":"3"},{"op":"yaml-add","path":"$.a.c","value":"x"},{"op":"yaml-remove","path":"$.a.d"},` +
				`{"op":"json-replace","path":"$.a.e","value":"y"},{"op":"text-regex","path":"v[0-9]+","value":"v2"}]}],"readyThreshold":"50%"}`,
			`{"suffix":"main","createService":true,"addVariantLabelToSelector":true,"prune":true,"readyThreshold":"90%"}`,
			`{}`,
		},
		"valid-bluegreen": {
			`{"replicas":"100%","suffix":"canary","createService":false,"readyThreshold":"100%"}`,
			`{"all":"canary","primary":"0%","canary":"100%","baseline":"0%"}`,
			`{"suffix":"primary","createService":false,"addVariantLabelToSelector":false,"prune":false,"readyThreshold":"100%"}`,
			`{"primary":"100%","canary":"0%","baseline":"0%"}`,
			`{"primary":"100%","canary":"0%","baseline":"0%"}`,
			`{}`,
		},
		"valid-httproute-in-steps": {
			`{"replicas":"1","suffix":"canary","createService":false,"readyThreshold":"100%"}`,
			`{"primary":"50%","canary":"50%","baseline":"0%","steps":["5%","20%","50%"],"interval":"2m0s"}`,
			`{"duration":"1m0s"}`,
			`{"suffix":"primary","createService":false,"addVariantLabelToSelector":false,"prune":false,"readyThreshold":"100%"}`,
			`{"all":"primary","primary":"100%","canary":"0%","baseline":"0%"}`,
			`{}`,
		},
		"valid-istio-with-baseline-and-analysis": {
			`{"replicas":"1","suffix":"canary","createService":false,"readyThreshold":"100%"}`,
			`{"replicas":"2","suffix":"baseline","createService":true,"readyThreshold":"100%"}`,
			`{"primary":"80%","canary":"10%","baseline":"10%"}`,
			`{"duration":"10m0s","metrics":[` +
				`{"interval":"1m0s","failureLimit":2,"skipOnNoData":true,"timeout":"5s","provider":"prom","query":"up","strategy":"THRESHOLD","expected":{"min":0.5,"max":1000},"deviation":"EITHER"},` +
				`{"interval":"1m0s","failureLimit":0,"skipOnNoData":false,"timeout":"30s","provider":"prom","query":"up","strategy":"CANARY_BASELINE","deviation":"HIGH","canaryArgs":{"a":"b"},"baselineArgs":{"a":"c"},"primaryArgs":{"a":"d"}},` +
				`{"interval":"0s","failureLimit":0,"skipOnNoData":false,"timeout":"0s","template":{"name":"errors","appArgs":{"job":"web"}},"strategy":"","deviation":""},` +
				`{"interval":"1m0s","failureLimit":0,"skipOnNoData":false,"timeout":"30s","provider":"prom","query":"up","strategy":"THRESHOLD","expected":{"max":1},"deviation":"LOW"},` +
				`{"interval":"1m0s","failureLimit":0,"skipOnNoData":false,"timeout":"30s","provider":"prom","query":"up","strategy":"PREVIOUS","expected":{"max":1},"deviation":"EITHER"}],` +
				`"logs":[{"interval":"2m0s","failureLimit":0,"skipOnNoData":false,"timeout":"30s","provider":"logs","query":"level=error"}],` +
				`"https":[{"interval":"10m0s","failureLimit":0,"skipOnNoData":false,"timeout":"30s","url":"https://example.com/healthz","method":"GET","expectedCode":200},` +
				`{"interval":"1s","failureLimit":0,"skipOnNoData":false,"timeout":"30s","url":"http://example.com","method":"POST","headers":[{"key":"X-A","value":"b"}],"expectedCode":204,"expectedResponse":"ok"}]}`,
			`{"suffix":"primary","createService":false,"addVariantLabelToSelector":false,"prune":false,"readyThreshold":"100%"}`,
			`{"all":"primary","primary":"100%","canary":"0%","baseline":"0%"}`,
			`{}`, `{}`,
			`{"run":"make sync","envs":{"A":"b"}}`,
		},
	}
	for name, want := range tests {
		checkOptions(t, name, wholeCase(t, name), want)
	}
	checkOptions(t, "approvals of groups", parseCase(t, "valid-approvals-of-groups"), []string{
		`{"approvers":["group:payments"],"minApproverNum":3,"requireOther":true}`,
		`{"approvers":["ann@example.com","group:org/team","groupie"],"minApproverNum":1}`,
		`{"approvers":[],"minApproverNum":1,"requireOther":true}`,
		`{"prune":false,"addVariantLabelToSelector":false,"readyThreshold":"100%"}`,
	})
	checkOptions(t, "this version", parseCase(t, "valid-pipeline-every-option"), []string{
		`{"prune":true,"addVariantLabelToSelector":true,"readyThreshold":"50%"}`,
		`{"duration":"1m30s"}`,
		`{"approvers":["ann","bob","ann"],"minApproverNum":2}`,
		`{"run":"make smoke","env":{"TARGET":"web"},"onInterrupted":"rerun"}`,
		`{"duration":"1m0s"}`,
		`{"approvers":[],"minApproverNum":1}`,
		`{"run":"","onInterrupted":"fail"}`,
	})
}

// checkOptions compares the options of each stage as JSON, and that they survive
// it.
func checkOptions(t *testing.T, name string, app *Application, want []string) {
	t.Helper()
	var got []string
	for _, s := range app.Pipeline.Stages {
		encoded, err := json.Marshal(s.With)
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, string(encoded))
		back := kinds[0].StageOptions()[s.Name]
		if err := json.Unmarshal(encoded, back); err != nil {
			t.Errorf("%s: %s: %v", name, s.Name, err)
		}
		again, err := json.Marshal(back)
		if err != nil || string(again) != string(encoded) {
			t.Errorf("%s: %s: %v, became %s of %s", name, s.Name, err, again, encoded)
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s: -want +got:\n%s", name, diff)
	}
}

func TestSkipOnSurvivesJSON(t *testing.T) {
	want := SkipOptions{CommitMessagePrefixes: []string{"fix:"}, Paths: patterns(t, "docs", "!docs/api")}
	encoded, err := json.Marshal(want)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(`{"commitMessagePrefixes":["fix:"],"paths":["docs","!docs/api"]}`, string(encoded)); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	var got SkipOptions
	if err := json.Unmarshal(encoded, &got); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if !got.Paths.MatchCombined("docs/a.md") || got.Paths.MatchCombined("docs/api/a.md") {
		t.Error("the patterns do not match as they did")
	}
	if got.IsZero() || !(SkipOptions{}).IsZero() {
		t.Error("IsZero is wrong")
	}
}

// TestASyncStageIsAsQuickSyncUnlessWritten: so that both ways label and prune alike.
func TestASyncStageIsAsQuickSyncUnlessWritten(t *testing.T) {
	app := parseCase(t, "valid-every-field")
	want := &kubernetes.SyncStageOptions{SyncOptions: kubernetes.SyncOptions{AddVariantLabelToSelector: true}, ReadyThreshold: 80}
	if diff := cmp.Diff(any(want), app.Pipeline.Stages[0].With); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func TestCommitMatcherSearchesTheSubject(t *testing.T) {
	m := parseCase(t, "valid-pipeline-every-option").CommitMatcher
	for subject, want := range map[string][2]bool{ // quick sync, pipeline
		"docs: a word":       {true, false},
		"the docs":           {false, false},
		"docs: next RELEASE": {true, true},
	} {
		if got := [2]bool{m.QuickSync.MatchString(subject), m.Pipeline.MatchString(subject)}; got != want {
			t.Errorf("%q: got %v, want %v", subject, got, want)
		}
	}
	if none := parseCase(t, "valid-minimal").CommitMatcher; !none.Pipeline.IsZero() || none.Pipeline.MatchString("") {
		t.Error("an expression that is not written matches")
	}
}

func TestPipelineIsNilWithoutStages(t *testing.T) {
	for _, name := range []string{"valid-minimal", "valid-pipeline-without-stages"} {
		if p := parseCase(t, name).Pipeline; p != nil {
			t.Errorf("%s: got %v", name, p)
		}
	}
}

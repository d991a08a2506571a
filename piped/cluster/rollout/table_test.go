package rollout

import (
	"bytes"
	"encoding/gob"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	"github.com/c785c783/piped/piped/deploy"
)

// epoch is the time of the apply in every case; times in the files are relative to it.
var epoch = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// tableCase is one file in testdata: the live state before, the apply, and then what the
// API shows step by step. A step contains only the fields that changed since the previous
// one. Template "B" differs from "A"; "A+x" differs from "A" only in annotations.
type tableCase struct {
	Case    string         `json:"case"`
	Policy  tablePolicy    `json:"policy"`
	Before  map[string]any `json:"before"`  // live before the apply; absent: nothing
	Proven  bool           `json:"proven"`  // an earlier rollout of the live template had completed
	Intent  string         `json:"intent"`  // the intended template; with it the apply is not recorded
	Applied map[string]any `json:"applied"` // what the apply returned
	Steps   []tableStep    `json:"steps"`
}

type tablePolicy struct {
	ReadyThreshold  int    `json:"readyThreshold"`
	Strict          bool   `json:"strict"`
	NoFailFast      bool   `json:"noFailFast"`
	WaitTermination bool   `json:"waitTermination"`
	Since           string `json:"since"`
}

type tableStep struct {
	At       string                    `json:"at"`
	Cached   bool                      `json:"cached"` // the cache only, not confirmed
	Gone     bool                      `json:"gone"`   // the workload is not found
	Homeless bool                      `json:"namespaceGone"`
	Workload map[string]any            `json:"workload"`
	Sets     map[string]map[string]any `json:"sets"` // ReplicaSets by name; null deletes
	Pods     *[]Trouble                `json:"pods"` // the pods' troubles, when pods are read

	Stopping      int32  `json:"stopping"`      // of these pods
	StoppingUntil string `json:"stoppingUntil"` // the end of their grace period

	Want tableWant `json:"want"`
}

type tableWant struct {
	Phase    deploy.RolloutPhase `json:"phase"`
	Reason   string              `json:"reason"`   // contained in the record's reason
	Progress string              `json:"progress"` // exactly, when given
	Confirm  bool                `json:"confirm"`  // of a cached step: a confirmed read is asked for
	NeedPods bool                `json:"needPods"`
	Wake     string              `json:"wake"` // when given: WakeAfter
}

func TestTable(t *testing.T) {
	files, err := filepath.Glob("testdata/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("no cases: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".yaml"), func(t *testing.T) {
			data, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			var c tableCase
			if err := yaml.UnmarshalStrict(data, &c); err != nil {
				t.Fatalf("read %s: %v", file, err)
			}
			runTableCase(t, c)
		})
	}
}

func runTableCase(t *testing.T, c tableCase) {
	policy := Policy{ReadyThreshold: c.Policy.ReadyThreshold, Strict: c.Policy.Strict,
		NoFailFast: c.Policy.NoFailFast, WaitTermination: c.Policy.WaitTermination}
	if c.Policy.Since != "" {
		policy.Since = epoch.Add(duration(t, c.Policy.Since))
	}
	w := newTableState(t)
	rec := w.record(c)
	marks := 0
	for i, step := range c.Steps {
		w.apply(step)
		now := epoch.Add(duration(t, step.At))
		snapshot := w.snapshot(step)
		name := fmt.Sprintf("step %d at %s", i+1, step.At)

		snapshot.Confirmed = false
		cached := Evaluate(rec, snapshot, policy, now)
		if cached.Mark || cached.Record.Phase.Terminal() && !rec.Phase.Terminal() {
			t.Fatalf("%s: marked %s from the cache alone", name, cached.Record.Phase)
		}
		if step.Cached {
			if cached.NeedConfirm != step.Want.Confirm {
				t.Errorf("%s: NeedConfirm = %v, want %v", name, cached.NeedConfirm, step.Want.Confirm)
			}
			checkStep(t, name, step.Want, cached)
			rec = reloaded(t, cached.Record)
			continue
		}
		if !cached.NeedConfirm {
			rec = reloaded(t, cached.Record)
		}
		snapshot.Confirmed = true
		v := Evaluate(rec, snapshot, policy, now)
		if v.Mark {
			marks++
		}
		if v.Mark != (v.Record.Phase.Terminal() && !rec.Phase.Terminal()) {
			t.Errorf("%s: Mark = %v for %s -> %s", name, v.Mark, rec.Phase, v.Record.Phase)
		}
		checkStep(t, name, step.Want, v)
		rec = reloaded(t, v.Record)

		again := Evaluate(rec, snapshot, policy, now)
		if again.Mark || again.Changed {
			t.Errorf("%s: a second evaluation changes the record: %s", name, cmp.Diff(rec, again.Record))
		}
	}
	if marks > 1 {
		t.Errorf("%d terminal marks, want at most one", marks)
	}
}

func checkStep(t *testing.T, name string, want tableWant, v Verdict) {
	t.Helper()
	if v.Record.Phase != want.Phase {
		t.Fatalf("%s: phase %s (%s), want %s", name, v.Record.Phase, v.Progress, want.Phase)
	}
	if !strings.Contains(v.Record.Reason, want.Reason) {
		t.Errorf("%s: reason %q does not say %q", name, v.Record.Reason, want.Reason)
	}
	if want.Progress != "" && v.Progress != want.Progress {
		t.Errorf("%s: progress (-want +got):\n%s", name, cmp.Diff(want.Progress, v.Progress))
	}
	if v.NeedPods != want.NeedPods {
		t.Errorf("%s: NeedPods = %v, want %v", name, v.NeedPods, want.NeedPods)
	}
	if want.Wake != "" && v.WakeAfter != duration(t, want.Wake) {
		t.Errorf("%s: WakeAfter = %s, want %s", name, v.WakeAfter, want.Wake)
	}
}

// reloaded returns rec without unexported data, as a store would. The store's own format,
// which has some fields in columns, is tested in its package.
func reloaded(t *testing.T, rec deploy.Rollout) (read deploy.Rollout) {
	t.Helper()
	var stored bytes.Buffer
	if err := gob.NewEncoder(&stored).Encode(rec); err != nil {
		t.Fatal(err)
	}
	if err := gob.NewDecoder(&stored).Decode(&read); err != nil {
		t.Fatal(err)
	}
	return read
}

// tableState accumulates the state from a case's steps.
type tableState struct {
	t        *testing.T
	workload map[string]any
	sets     map[string]map[string]any
}

func newTableState(t *testing.T) *tableState {
	return &tableState{
		t: t,
		workload: map[string]any{"kind": KindDeployment, "name": "web", "uid": "u1", "replicas": 3,
			"generation": 1, "deadline": "600s", "strategy": "RollingUpdate", "templateManager": "piped"},
		sets: map[string]map[string]any{},
	}
}

// record returns the stored record after the apply.
func (w *tableState) record(c tableCase) deploy.Rollout {
	rec := deploy.Rollout{ID: "r", DeploymentID: "d", Workload: deploy.ObjectRef{Group: "apps", Version: "v1", Kind: KindDeployment, Namespace: "shop", Name: "web"}}
	var before *Workload
	if c.Before != nil {
		maps.Copy(w.workload, c.Before)
		live := w.read()
		before = &live
	}
	rec = Intended(rec, before, c.Intent)
	rec.ProvenBefore = c.Proven
	if c.Intent != "" {
		return rec
	}
	maps.Copy(w.workload, c.Applied)
	applied := w.read()
	rec.Workload.Kind = applied.Kind
	return Applied(rec, applied, epoch)
}

func (w *tableState) apply(step tableStep) {
	maps.Copy(w.workload, step.Workload)
	for name, fields := range step.Sets {
		if fields == nil {
			delete(w.sets, name)
			continue
		}
		set := w.sets[name]
		if set == nil {
			set = map[string]any{"name": name, "uid": "uid-" + name, "ownerUID": "u1", "generation": 1, "observedGeneration": 1}
			w.sets[name] = set
		}
		maps.Copy(set, fields)
	}
}

func (w *tableState) snapshot(step tableStep) Snapshot {
	s := Snapshot{NamespaceGone: step.Homeless}
	if !step.Gone {
		live := w.read()
		s.Workload = &live
	}
	for _, fields := range w.sets {
		var r Revision
		w.decode(fields, &r)
		s.Revisions = append(s.Revisions, r)
	}
	if step.Pods != nil {
		s.Troubles, s.PodsRead = *step.Pods, true
	}
	if s.Stopping = step.Stopping; step.StoppingUntil != "" {
		s.StoppingUntil = epoch.Add(duration(w.t, step.StoppingUntil))
	}
	return s
}

func (w *tableState) read() Workload {
	var live Workload
	w.decode(w.workload, &live)
	return live
}

// decode turns the short forms of the files into values: templates by name,
// durations as text, times as offsets from the apply.
func (w *tableState) decode(fields map[string]any, into any) {
	w.t.Helper()
	out := maps.Clone(fields)
	if name, ok := out["template"].(string); ok {
		base, _, _ := strings.Cut(name, "+")
		out["template"] = map[string]any{"digest": name, "base": base}
	}
	for _, key := range []string{"deadline", "minReady"} {
		if text, ok := out[key].(string); ok {
			out[key] = duration(w.t, text)
		}
	}
	for _, key := range []string{"created", "managedAt", "templateManagedAt"} {
		if text, ok := out[key].(string); ok {
			out[key] = epoch.Add(duration(w.t, text))
		}
	}
	for _, key := range []string{"progressing", "failure"} {
		if c, ok := out[key].(map[string]any); ok {
			c = maps.Clone(c)
			if text, ok := c["updated"].(string); ok {
				c["updated"] = epoch.Add(duration(w.t, text))
			}
			out[key] = c
		}
	}
	data, err := json.Marshal(out)
	if err != nil {
		w.t.Fatal(err)
	}
	if err := yaml.UnmarshalStrict(data, into); err != nil {
		w.t.Fatalf("read %s: %v", data, err)
	}
}

func duration(t *testing.T, text string) time.Duration {
	t.Helper()
	d, err := time.ParseDuration(text)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

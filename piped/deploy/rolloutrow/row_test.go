package rolloutrow

import (
	"encoding/json"
	"maps"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestColumnsAreThoseOfJSON shows that both forms of an export have the same columns.
func TestColumnsAreThoseOfJSON(t *testing.T) {
	t.Parallel()
	text, err := json.Marshal(Row{})
	if err != nil {
		t.Fatal(err)
	}
	var object map[string]any
	if err := json.Unmarshal(text, &object); err != nil {
		t.Fatal(err)
	}
	columns := Columns()
	slices.Sort(columns)
	if diff := cmp.Diff(slices.Sorted(maps.Keys(object)), columns); diff != "" {
		t.Errorf("columns (-JSON +Columns):\n%s", diff)
	}
}

func TestValues(t *testing.T) {
	t.Parallel()
	took := int64(0)
	row := Row{
		ID: "d/s", Revision: 7, Images: []string{"web:2", "log:1"}, ToReplicas: 3, ScheduleMillis: &took,
		StartedAt: At(1_500), CompletedAt: At(0), DurationMillis: Took(1_500, 0),
	}
	got := map[string]string{}
	for i, value := range row.Values() {
		if value != "" && value != "0" {
			got[Columns()[i]] = value
		}
	}
	want := map[string]string{
		"id": "d/s", "revision": "7", "images": "web:2 log:1", "to_replicas": "3", "started_at": "1970-01-01T00:00:01.500Z",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if i := slices.Index(Columns(), "schedule_ms"); row.Values()[i] != "0" {
		t.Errorf("schedule_ms: %q, want 0: it was measured", row.Values()[i])
	}
	if i := slices.Index(Columns(), "pull_ms"); row.Values()[i] != "" {
		t.Errorf("pull_ms: %q, want nothing: it was not measured", row.Values()[i])
	}
}

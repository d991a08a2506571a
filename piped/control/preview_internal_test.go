package control

import (
	"strings"
	"testing"

	"github.com/c785c783/piped/piped/deploy"
)

// TestLargePreviewsAreReturnedWhole: the diffs of a preview are bounded where it is stored, and
// are not cut again.
func TestLargePreviewsAreReturnedWhole(t *testing.T) {
	large, small := strings.Repeat("+  key: value\n", 5<<20/2/14), "+  other: value\n"
	a := deploy.ApplicationPreview{Changes: []deploy.PlannedChange{{Diff: large}, {Diff: small}}}
	for i, c := range previewedApplication(a, true).GetChanges() {
		if want := a.Changes[i].Diff; c.Diff != want {
			t.Errorf("diff %d of %d bytes is returned as %d bytes: %.60q", i, len(want), len(c.Diff), c.Diff)
		}
	}
	// A plan's diffs are cut, and one that does not fit does not cut the smaller ones after it.
	if got := plannedChanges("", a.Changes, len(large)-1); !strings.HasPrefix(got[0].Diff, "... cut") || got[1].Diff != small {
		t.Errorf("%.60q, then %q", got[0].Diff, got[1].Diff)
	}
}

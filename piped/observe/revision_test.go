package observe

import (
	"testing"

	"github.com/c785c783/piped/piped/cluster/rollout"
)

// TestImagesAreThoseOfTheRevision: the images of a template that has no revision yet are not taken for
// those of an earlier revision, or of none: the next rollout would name its own as those before it.
func TestImagesAreThoseOfTheRevision(t *testing.T) {
	revision := func(number int64, template string) rollout.Revision {
		return rollout.Revision{OwnerUID: "u", Name: template, Number: number, Template: rollout.Template{Digest: template}}
	}
	for name, test := range map[string]struct {
		revisions []rollout.Revision
		want      string
	}{
		"none yet":              {nil, ""},
		"only the one before":   {[]rollout.Revision{revision(1, "one")}, ""},
		"that of the template":  {[]rollout.Revision{revision(1, "one"), revision(2, "two")}, "web:v2"},
		"an earlier one, again": {[]rollout.Revision{revision(1, "two"), revision(2, "one")}, ""},
	} {
		w := &rollout.Workload{UID: "u", Kind: rollout.KindDaemonSet, Images: "web:v2", Template: rollout.Template{Digest: "two"}}
		if got := newestImages(rollout.Snapshot{Workload: w, Revisions: test.revisions}); got != test.want {
			t.Errorf("%s: %q, want %q", name, got, test.want)
		}
	}
}

package git

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/git/gittest"
)

func TestSince(t *testing.T) {
	w := newWorktree(t)
	begin := w.git("rev-parse", "HEAD")
	w.git("checkout", "-q", "-b", "topic")
	topic := w.commit("topic")
	w.git("checkout", "-q", gittest.Branch)
	second := w.commit("second")
	w.git("merge", "-q", "--no-ff", "-m", "merge topic", "topic")
	merge := w.git("rev-parse", "HEAD")
	// Somebody merges the branch into their own and pushes that: the branch's head has
	// a first parent that was never on the branch.
	w.git("checkout", "-q", "-b", "own", second)
	own := w.commit("own")
	w.git("merge", "-q", "--no-ff", "-m", "merge the branch", gittest.Branch)
	foxtrot := w.git("rev-parse", "HEAD")
	w.git("checkout", "-q", gittest.Branch)
	w.git("merge", "-q", "--ff-only", "own")
	head := w.commit("head")
	r := open(t, w.dir)
	mustSync(t, r, head, true)

	for name, c := range map[string]struct {
		base, head string
		want       []Step
		ok         bool
	}{
		"the same commit":                    {head, head, nil, true},
		"one commit":                         {begin, second, []Step{{second, begin}}, true},
		"a merge is one commit":              {begin, merge, []Step{{merge, second}, {second, begin}}, true},
		"since a commit that was merged":     {topic, merge, []Step{{merge, second}, {second, begin}}, true},
		"the branch was merged into another": {merge, head, []Step{{head, foxtrot}, {foxtrot, own}, {own, second}}, true},
		"backwards":                          {head, second, nil, false},
		"on another branch":                  {own, merge, nil, false},
	} {
		got, ok, err := r.Since(t.Context(), c.base, c.head)
		if err != nil || ok != c.ok {
			t.Errorf("%s: %t, %v; want %t", name, ok, err, c.ok)
		}
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
	unknown := strings.Repeat("0123456789", 4)
	for _, pair := range [][2]string{{unknown, head}, {head, unknown}} {
		if _, _, err := r.Since(t.Context(), pair[0], pair[1]); !deploy.IsKind(err, deploy.NotFound) {
			t.Errorf("of an unknown commit: %v", err)
		}
	}
}

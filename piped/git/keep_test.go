package git

import (
	"strings"
	"testing"

	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/git/gittest"
)

// TestKeptMergeStays: a kept merge has the tree of git's own merge, also after its files are removed
// and the mirror is opened again, and the same heads give the same commit.
func TestKeptMergeStays(t *testing.T) {
	w := newWorktree(t)
	w.git("checkout", "-q", "-b", "head")
	w.write("dir/theirs", "theirs\n")
	head := w.commit("theirs")
	w.git("checkout", "-q", gittest.Branch)
	w.write("dir/ours", "ours\n")
	ours := w.commit("ours")
	dir := t.TempDir()
	var first string
	for range 2 {
		r := open(t, w.dir, func(c *Config) { c.Dir = dir })
		m, err := r.Merge(t.Context(), "head", head)
		if err != nil {
			t.Fatal(err)
		}
		c, err := r.Keep(m)
		if err != nil {
			t.Fatal(err)
		}
		if err := m.Close(); err != nil {
			t.Fatal(err)
		}
		if first == "" {
			first = c.Hash
		}
		if c.Hash != first || c.Merged != head || c.Message != "theirs" {
			t.Errorf("kept as %+v, want %s of %s", c, first, head)
		}
		if err := r.Close(); err != nil {
			t.Fatal(err)
		}
		r = open(t, w.dir, func(c *Config) { c.Dir = dir })
		kept, err := r.commit(first)
		if err != nil {
			t.Fatal(err)
		}
		if want := w.want(); kept.TreeHash.String() != want {
			t.Errorf("the tree is %s, want %s", kept.TreeHash, want)
		}
		if base, err := r.Base(first); err != nil || base != ours {
			t.Errorf("it merges into %s, %v, want %s", base, err, ours)
		}
		for hash, kind := range map[string]deploy.Kind{ours: deploy.Invalid, strings.Repeat("a", 40): deploy.NotFound, "": deploy.NotFound} {
			if base, err := r.Base(hash); !deploy.IsKind(err, kind) {
				t.Errorf("commit %q merges into %q, %v", hash, base, err)
			}
		}
		if err := r.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

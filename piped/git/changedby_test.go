package git

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/git/gittest"
)

// TestChangedBy: the commits between two that changed a directory, with their authors and
// committers. The git program agrees.
func TestChangedBy(t *testing.T) {
	w := newWorktree(t)
	by := func(author, file, content string) string {
		t.Helper()
		w.write(file, content)
		w.git("add", "-A")
		w.git("commit", "-q", "--author", author+" <"+author+"@example.com>", "-m", author+" changes "+file)
		return w.git("rev-parse", "HEAD")
	}
	begin := by("ann", "web/a", "1")
	db := by("ben", "db/a", "1")
	w.git("checkout", "-q", "-b", "topic")
	topic := by("cleo", "web/b", "1")
	w.git("checkout", "-q", gittest.Branch)
	webx := by("dan", "webx/a", "1")
	w.git("merge", "-q", "--no-ff", "-m", "merge topic", "topic")
	merge := w.git("rev-parse", "HEAD")
	undone := by("eve", "web/a", "2")
	head := by("fay", "web/a", "1")
	// A merge whose result is that of neither side.
	w.git("checkout", "-q", "-b", "other", merge)
	other := by("gus", "web/c", "1")
	w.git("checkout", "-q", gittest.Branch)
	w.git("merge", "-q", "--no-ff", "--no-commit", "other")
	w.write("web/d", "slipped in")
	w.git("add", "-A")
	w.git("commit", "-q", "--author", "hal <hal@example.com>", "-m", "merge other")
	evil := w.git("rev-parse", "HEAD")
	// The directory of an application is removed.
	w.git("rm", "-q", "-r", "db")
	gone := w.commit("no more db")
	// The history of another repository joins.
	w.git("checkout", "-q", "--orphan", "import", gone)
	w.git("rm", "-q", "-r", "-f", ".")
	root := by("ida", "imported/a", "1")
	w.git("checkout", "-q", gittest.Branch)
	w.git("merge", "-q", "--no-ff", "--allow-unrelated-histories", "-m", "import", "import")
	imported := w.git("rev-parse", "HEAD")
	r := open(t, w.dir)
	mustSync(t, r, imported, true)

	for name, c := range map[string]struct {
		base, head string
		dirs       []string
		want       []string
	}{
		"the same commit":               {head, head, []string{"web"}, nil},
		"one commit":                    {undone, head, []string{"web"}, []string{head}},
		"a change that was undone":      {merge, head, []string{"web"}, []string{head, undone}},
		"a merge made no change itself": {db, merge, []string{"web"}, []string{topic}},
		"a merge with a change":         {head, evil, []string{"web"}, []string{evil, other}},
		"changes of others":             {begin, head, []string{"web"}, []string{head, undone, topic}},
		"two directories":               {begin, head, []string{"web", "db"}, []string{head, undone, topic, db}},
		"the whole repository":          {begin, merge, []string{"."}, []string{merge, webx, topic, db}},
		"a removal":                     {evil, gone, []string{"db"}, []string{gone}},
		"the first commit of a history": {gone, imported, []string{"imported"}, []string{root}},
		"no such directory":             {begin, gone, []string{"we"}, nil},
		"backwards":                     {head, begin, []string{"web"}, nil},
		"from a branch beside":          {other, head, []string{"web"}, []string{head, undone}},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := r.ChangedBy(t.Context(), c.base, c.head, c.dirs...)
			if err != nil {
				t.Fatal(err)
			}
			var hashes []string
			for _, commit := range got {
				hashes = append(hashes, commit.Hash)
			}
			if diff := cmp.Diff(c.want, hashes); diff != "" {
				t.Errorf("commits (-want +got):\n%s", diff)
			}
			git := strings.Fields(w.git(append([]string{"log", "--format=%H", c.base + ".." + c.head, "--"}, c.dirs...)...))
			if diff := cmp.Diff(git, append([]string{}, c.want...)); diff != "" {
				t.Errorf("git log differs (-git +want):\n%s", diff)
			}
		})
	}

	got, err := r.ChangedBy(t.Context(), db, topic, "web")
	if err != nil || len(got) != 1 {
		t.Fatalf("%v, %v", got, err)
	}
	want := deploy.Commit{
		Hash: topic, Message: "cleo changes web/b", Branch: gittest.Branch, At: got[0].At,
		Author: "cleo", AuthorEmail: "cleo@example.com", Committer: "c", CommitterEmail: "c@example.com",
	}
	if diff := cmp.Diff(want, got[0]); diff != "" {
		t.Errorf("commit (-want +got):\n%s", diff)
	}
	unknown := strings.Repeat("0123456789", 4)
	for _, pair := range [][2]string{{unknown, head}, {head, unknown}} {
		if _, err := r.ChangedBy(t.Context(), pair[0], pair[1], "web"); !deploy.IsKind(err, deploy.NotFound) {
			t.Errorf("of an unknown commit: %v", err)
		}
	}
}

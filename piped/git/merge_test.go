package git

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/git/gittest"
)

// worktree is a repository that the git program works in: what it says of a merge
// is what is to be said here.
type worktree struct {
	t   *testing.T
	dir string
	now time.Time
}

func newWorktree(t *testing.T) *worktree {
	t.Helper()
	w := &worktree{t: t, dir: t.TempDir(), now: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)}
	w.git("init", "-q", "-b", gittest.Branch)
	w.write("readme", "hello\n")
	w.commit("begin")
	return w
}

// try runs git and returns what it wrote.
func (w *worktree) try(args ...string) (string, error) {
	cmd := exec.Command("git", args...)
	cmd.Dir = w.dir
	w.now = w.now.Add(time.Second)
	when := fmt.Sprintf("%d +0000", w.now.Unix())
	cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_SYSTEM=/dev/null", "GIT_AUTHOR_DATE="+when, "GIT_COMMITTER_DATE="+when,
		"GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@example.com", "GIT_COMMITTER_NAME=c", "GIT_COMMITTER_EMAIL=c@example.com")
	out, err := cmd.CombinedOutput()
	return strings.TrimSpace(string(out)), err
}

func (w *worktree) git(args ...string) string {
	w.t.Helper()
	out, err := w.try(args...)
	if err != nil {
		w.t.Fatalf("git %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return out
}

func (w *worktree) write(name, content string) {
	w.t.Helper()
	file := filepath.Join(w.dir, name)
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		w.t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(content), 0o644); err != nil {
		w.t.Fatal(err)
	}
}

func (w *worktree) commit(message string) string {
	w.t.Helper()
	w.git("add", "-A")
	w.git("commit", "-q", "--allow-empty", "-m", message)
	return w.git("rev-parse", "HEAD")
}

// want returns the tree of git's own merge of branch head into main, "" when there
// are conflicts. Main stays where it is.
func (w *worktree) want() string {
	w.t.Helper()
	w.git("checkout", "-q", gittest.Branch)
	_, err := w.try("merge", "-q", "--no-ff", "-Xno-renames", "-m", "merged", "head")
	tree := ""
	if err == nil {
		tree = w.git("rev-parse", "HEAD^{tree}")
		if w.git("rev-parse", "ORIG_HEAD") != w.git("rev-parse", "HEAD") {
			w.git("reset", "-q", "--hard", "ORIG_HEAD")
		}
		return tree
	}
	w.git("merge", "--abort")
	return tree
}

// merge merges branch head of w into main with a mirror of it.
func (w *worktree) merge(r *Repo) (*Merge, error) {
	return r.Merge(w.t.Context(), "head", w.git("rev-parse", "head"))
}

// TestMergeLikeGit states what a merge comes to, and that the git program says the
// same.
func TestMergeLikeGit(t *testing.T) {
	lines := func(changes ...string) string {
		text := "one\ntwo\nthree\nfour\nfive\nsix\nseven\n"
		return strings.NewReplacer(changes...).Replace(text)
	}
	remove := func(names ...string) func(*worktree) {
		return func(w *worktree) { w.git(append([]string{"rm", "-q", "-r"}, names...)...) }
	}
	write := func(name, content string) func(*worktree) { return func(w *worktree) { w.write(name, content) } }
	both := func(fs ...func(*worktree)) func(*worktree) {
		return func(w *worktree) {
			for _, f := range fs {
				f(w)
			}
		}
	}
	link := func(name, target string) func(*worktree) {
		return func(w *worktree) {
			_ = os.Remove(filepath.Join(w.dir, name)) // it may not be there
			if err := os.Symlink(target, filepath.Join(w.dir, name)); err != nil {
				w.t.Fatal(err)
			}
		}
	}
	executable := func(name string) func(*worktree) {
		return func(w *worktree) {
			if err := os.Chmod(filepath.Join(w.dir, name), 0o755); err != nil {
				w.t.Fatal(err)
			}
		}
	}
	cases := map[string]struct {
		base, ours, theirs func(*worktree)
		conflict           string // "" is none
	}{
		"other files":                      {write("a", "a\n"), write("b", "b\n"), write("c/d", "d\n"), ""},
		"other places of a file":           {write("a", lines()), write("a", lines("one", "1")), write("a", lines("six", "6")), ""},
		"the same change":                  {write("a", lines()), write("a", lines("one", "1")), write("a", lines("one", "1")), ""},
		"the same line":                    {write("a", lines()), write("a", lines("three", "3")), write("a", lines("three", "III")), "a has lines that both sides changed"},
		"adjacent lines":                   {write("a", lines()), write("a", lines("three", "3")), write("a", lines("four", "4")), "a has lines that both sides changed"},
		"a line between":                   {write("a", lines()), write("a", lines("three", "3")), write("a", lines("five", "5")), ""},
		"windows line ends":                {write("a", strings.ReplaceAll(lines(), "\n", "\r\n")), write("a", strings.ReplaceAll(lines("one", "1"), "\n", "\r\n")), write("a", strings.ReplaceAll(lines("six", "6"), "\n", "\r\n")), ""},
		"no line end at the end":           {write("a", lines("seven\n", "seven")), write("a", lines("seven\n", "seven", "one", "1")), write("a", lines("seven\n", "seven", "five", "5")), ""},
		"a line end is added at the end":   {write("a", lines("seven\n", "seven")), write("a", lines("seven\n", "seven", "one", "1")), write("a", lines()), ""},
		"both add at the end":              {write("a", lines()), write("a", lines()+"x\n"), write("a", lines()+"y\n"), "a has lines that both sides changed"},
		"both add at the beginning":        {write("a", lines()), write("a", "x\n"+lines()), write("a", "y\n"+lines()), "a has lines that both sides changed"},
		"one empties, one changes":         {write("a", lines()), write("a", ""), write("a", lines("six", "6")), "a has lines that both sides changed"},
		"modified and deleted":             {write("d/a", lines()), write("d/a", "x\n"), remove("d/a"), "d/a is changed on one side and deleted on the other"},
		"deleted and modified":             {write("d/a", lines()), remove("d/a"), write("d/a", "x\n"), "d/a is changed on one side and deleted on the other"},
		"both delete":                      {write("d/a", lines()), remove("d/a"), remove("d/a"), ""},
		"both add the same":                {write("z", ""), write("a", "x\n"), write("a", "x\n"), ""},
		"both add another":                 {write("z", ""), write("a", "x\n"), write("a", "y\n"), "a has lines that both sides changed"},
		"a directory becomes a file":       {write("d/a", "x\n"), both(remove("d"), write("d", "file\n")), write("e", "e\n"), ""},
		"a file becomes a directory":       {write("d", "x\n"), write("e", "e\n"), both(remove("d"), write("d/a", "file\n")), ""},
		"a directory becomes a changed":    {write("d/a", "x\n"), both(remove("d"), write("d", "file\n")), write("d/b", "e\n"), "d is a file on one side and a directory on the other"},
		"a directory that is thinned out":  {both(write("d/a", "x\n"), write("d/b", "y\n")), both(remove("d"), write("d", "file\n")), remove("d/a"), ""},
		"executable and changed":           {write("a", lines()), executable("a"), write("a", lines("six", "6")), ""},
		"added executable and not":         {write("z", ""), both(write("a", "x\n"), executable("a")), write("a", "x\n"), "a is executable on one side only"},
		"a link is moved on one side":      {link("a", "b"), write("e", "e\n"), link("a", "c"), ""},
		"a link is moved on both sides":    {link("a", "b"), link("a", "d"), link("a", "c"), "a is a link or a submodule that both sides changed"},
		"a file becomes a link on one":     {write("a", "x\n"), link("a", "d"), write("a", "y\n"), "a is a link or a submodule that both sides changed"},
		"binary":                           {write("a", "\x00\n"+lines()), write("a", "\x00\n"+lines("one", "1")), write("a", "\x00\n"+lines("six", "6")), "a is binary and changed on both sides"},
		"several conflicts":                {both(write("a", "x\n"), write("b", "x\n")), both(write("a", "y\n"), write("b", "y\n")), both(write("a", "z\n"), remove("b")), "a has lines that both sides changed; b is changed on one side and deleted on the other"},
		"nothing is left":                  {write("a", "x\n"), remove("readme"), remove("a"), ""},
		"names that sort around a slash":   {both(write("a/x", "1\n"), write("a.b", "1\n"), write("a0", "1\n")), write("a/y", "2\n"), both(write("a.b", "2\n"), write("a0", "2\n")), ""},
		"head is ahead":                    {write("a", "x\n"), func(*worktree) {}, write("a", "y\n"), ""},
		"head is behind":                   {write("a", "x\n"), write("a", "y\n"), func(*worktree) {}, ""},
		"a submodule is moved on one side": {submodule("1"), write("e", "e\n"), submodule("2"), ""},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			w := newWorktree(t)
			c.base(w)
			w.commit("base")
			w.git("checkout", "-q", "-b", "head")
			c.theirs(w)
			w.commit("theirs")
			w.git("checkout", "-q", gittest.Branch)
			c.ours(w)
			w.commit("ours")
			want := w.want()
			if (want == "") != (c.conflict != "") {
				t.Fatalf("git merges to %q", want)
			}
			m, err := w.merge(open(t, w.dir))
			if c.conflict != "" {
				if !deploy.IsKind(err, deploy.Invalid) || !strings.Contains(err.Error(), "there are conflicts: "+c.conflict+"; merge") {
					t.Errorf("got %v, want the conflict %q", err, c.conflict)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			defer m.Close()
			if m.Hash() != want {
				t.Errorf("merged to tree %s, git to %s", m.Hash(), want)
			}
		})
	}
}

// submodule stages a submodule at a commit whose digits are all the same.
func submodule(digit string) func(*worktree) {
	return func(w *worktree) {
		w.git("update-index", "--add", "--cacheinfo", "160000,"+strings.Repeat(digit, 40)+",sub")
		w.write("sub/.keep", "")
		_ = os.RemoveAll(filepath.Join(w.dir, "sub", ".keep")) // an empty directory stands for it
	}
}

// TestMergeRandomHistories merges branches of random histories, crossing ones too,
// and expects the tree that git comes to, or a conflict where git has one. Where
// common ancestors conflict with each other git goes on, and here it ends.
func TestMergeRandomHistories(t *testing.T) {
	clean, conflicts, crossings := 0, 0, 0
	for seed := range uint64(14) {
		w, rnd := newWorktree(t), rand.New(rand.NewPCG(seed, 1))
		for i := range 4 {
			w.write(fmt.Sprintf("dir%d/file%d", i%2, i), numbered(30))
		}
		w.commit("base")
		w.git("branch", "head")
		mirror := open(t, w.dir)
		for range 6 {
			branch := []string{gittest.Branch, "head"}[rnd.IntN(2)]
			w.git("checkout", "-q", branch)
			if rnd.IntN(4) == 0 {
				other := map[string]string{gittest.Branch: "head", "head": gittest.Branch}[branch]
				if _, err := w.try("merge", "-q", "--no-ff", "-Xno-renames", "-m", "cross", other+"~"+fmt.Sprint(rnd.IntN(2))); err != nil {
					_, _ = w.try("merge", "--abort") // there may be no such commit
				}
			}
			w.edit(rnd)
			w.commit("edit")
		}
		want := w.want()
		m, err := w.merge(mirror)
		switch {
		case err != nil && strings.Contains(err.Error(), "cross each other"):
			crossings++
		case deploy.IsKind(err, deploy.Invalid) && strings.Contains(err.Error(), "there are conflicts"):
			conflicts++
			if want != "" {
				t.Errorf("seed %d: %v, but git merges", seed, err)
			}
		case err != nil:
			t.Fatalf("seed %d: %v", seed, err)
		default:
			clean++
			if m.Hash() != want {
				t.Errorf("seed %d: merged to %s, git to %q", seed, m.Hash(), want)
			}
			if err := m.Close(); err != nil {
				t.Error(err)
			}
		}
	}
	if t.Logf("%d clean, %d conflicts, %d crossings", clean, conflicts, crossings); clean < 5 || conflicts < 3 {
		t.Errorf("%d clean merges and %d conflicts show little", clean, conflicts)
	}
}

func numbered(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "line %d\n", i)
	}
	return b.String()
}

// edit changes one line of a file, adds one, or removes or adds a file.
func (w *worktree) edit(rnd *rand.Rand) {
	i := rnd.IntN(4)
	name := fmt.Sprintf("dir%d/file%d", i%2, i)
	data, err := os.ReadFile(filepath.Join(w.dir, name))
	if err != nil {
		data = []byte(numbered(30))
	}
	text := strings.SplitAfter(string(data), "\n")
	at := rnd.IntN(len(text))
	switch rnd.IntN(10) {
	case 0:
		_ = os.Remove(filepath.Join(w.dir, name)) // it may be gone
		return
	case 1:
		w.write(fmt.Sprintf("dir%d/new%d", i%2, rnd.IntN(3)), fmt.Sprintln(rnd.IntN(2)))
		return
	case 2, 3:
		text[at] += fmt.Sprintf("added %d\n", rnd.Uint32())
	default:
		text[at] = fmt.Sprintf("changed %d\n", rnd.Uint32())
	}
	w.write(name, strings.Join(text, ""))
}

// TestMergeCrossedHistories: where two common ancestors are best, their merge is
// what both sides come from.
func TestMergeCrossedHistories(t *testing.T) {
	w := newWorktree(t)
	w.write("a", numbered(20))
	w.commit("base")
	w.git("checkout", "-q", "-b", "head")
	w.write("a", strings.Replace(numbered(20), "line 3\n", "theirs\n", 1))
	theirs := w.commit("theirs")
	w.git("checkout", "-q", gittest.Branch)
	w.write("a", strings.Replace(numbered(20), "line 15\n", "ours\n", 1))
	ours := w.commit("ours")
	w.git("merge", "-q", "--no-ff", "-m", "cross", theirs)
	w.git("checkout", "-q", "head")
	w.git("merge", "-q", "--no-ff", "-m", "cross", ours)
	w.write("a", strings.NewReplacer("line 3\n", "theirs\n", "line 15\n", "theirs, too\n").Replace(numbered(20)))
	w.commit("head changes what main changed before")
	want := w.want()
	m, err := w.merge(open(t, w.dir))
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	if want == "" || m.Hash() != want {
		t.Errorf("merged to %s, git to %q", m.Hash(), want)
	}
}

// TestMergeLeavesNoTrace: what a merge fetched is not in the mirror, and next to it
// only until it is closed, or the mirror is opened again.
func TestMergeLeavesNoTrace(t *testing.T) {
	w := newWorktree(t)
	w.git("checkout", "-q", "-b", "head")
	w.write("new/file", "of the pull request\n")
	head := w.commit("theirs")
	w.git("checkout", "-q", gittest.Branch)
	server, err := gittest.ServeHTTP(filepath.Join(w.dir, ".git"), gittest.HTTPOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	var dir string
	r := open(t, server.URL, func(c *Config) { dir = c.Dir })
	m, err := r.Merge(t.Context(), "head", head)
	if err != nil {
		t.Fatal(err)
	}
	data, err := m.FS().Open("new/file")
	if err != nil {
		t.Fatal(err)
	}
	data.Close()
	changed, err := m.Changed(t.Context(), m.Base.Hash)
	if diff := cmp.Diff([]string{"new/file"}, changed); diff != "" || err != nil {
		t.Errorf("changed (-want +got):\n%s%v", diff, err)
	}
	if _, err := m.Changed(t.Context(), head); !deploy.IsKind(err, deploy.NotFound) {
		t.Errorf("changed since a commit that is not of the mirror: %v", err)
	}
	if m.Head.Hash != head || m.Head.Message != "theirs" || m.Head.Branch != "head" || m.Base.Branch != gittest.Branch {
		t.Errorf("the head is %+v", m.Head)
	}
	if _, err := r.Commit(t.Context(), head); !deploy.IsKind(err, deploy.NotFound) {
		t.Errorf("the mirror knows the head's commit: %v", err)
	}
	mergeDirs := func() int {
		found, err := filepath.Glob(filepath.Join(dir, "*"+mergeDir+"*"))
		if err != nil {
			t.Fatal(err)
		}
		return len(found)
	}
	if mergeDirs() != 1 {
		t.Errorf("%d directories next to the mirror", mergeDirs())
	}
	if err := m.Close(); err != nil || mergeDirs() != 0 {
		t.Errorf("after Close: %d directories next to the mirror, %v", mergeDirs(), err)
	}
	if err := os.MkdirAll(filepath.Join(dir, "repo-1.git"+mergeDir+"of-a-killed-process"), 0o700); err != nil {
		t.Fatal(err)
	}
	open(t, server.URL, func(c *Config) { c.Dir = dir })
	if mergeDirs() != 0 {
		t.Errorf("after the next start: %d directories next to the mirror", mergeDirs())
	}
}

// TestMergeRefused states what cannot be merged, other than conflicts.
func TestMergeRefused(t *testing.T) {
	w := newWorktree(t)
	w.git("checkout", "-q", "--orphan", "stranger")
	stranger := w.commit("nothing in common")
	w.git("checkout", "-q", "-b", "head", gittest.Branch)
	w.write("x", "x\n")
	head := w.commit("head")
	w.git("checkout", "-q", gittest.Branch)
	r := open(t, w.dir)
	cases := map[string]struct{ branch, commit, want string }{
		"no such branch":           {"nobody", head, `has no branch "nobody"`},
		"a commit of another":      {"head", stranger, "is not on branch head"},
		"a commit that is none":    {"head", strings.Repeat("0", 40), "is not on branch head"},
		"an abbreviation":          {"head", head[:8], "full hash"},
		"no name of a branch":      {"a b", head, "expected the name of a branch"},
		"nothing in common":        {"stranger", stranger, "nothing in common"},
		"an option for some shell": {"--upload-pack=x", head, `has no branch`},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			if _, err := r.Merge(t.Context(), c.branch, c.commit); !deploy.IsKind(err, deploy.Invalid) || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %q", err, c.want)
			}
		})
	}
}

// TestMergeTooLarge: what would take too long to compare is a conflict.
func TestMergeTooLarge(t *testing.T) {
	same := bytes.Repeat([]byte("x\n"), 15_000)
	for name, c := range map[string][3][]byte{
		"many lines":      {[]byte(numbered(25_000)), []byte("a\n" + numbered(25_000)), []byte(numbered(25_000) + "b\n")},
		"many same lines": {same, append([]byte("a\n"), same...), append(bytes.Clone(same), "b\n"...)},
	} {
		if _, why := mergeText(c[0], c[1], c[2]); why != "is too large to merge what both sides changed" {
			t.Errorf("%s: %q", name, why)
		}
	}
	long := []byte(numbered(100_000))
	merged, why := mergeText(long, bytes.Replace(long, []byte("line 50000\n"), []byte("a\n"), 1), bytes.Replace(long, []byte("line 50005\n"), []byte("b\n"), 1))
	if why != "" || !bytes.Contains(merged, []byte("a\nline 50001\n")) || !bytes.Contains(merged, []byte("b\nline 50006\n")) {
		t.Errorf("a long text with short changes: %q", why)
	}
}

package gittest

import (
	"os/exec"
	"strings"
	"testing"
	"testing/fstest"
)

func TestGitReadsWhatRepoWrites(t *testing.T) {
	r := New(t)
	if r.Head() != "" {
		t.Errorf("Head of an empty repository = %q", r.Head())
	}
	fsys := fstest.MapFS{"a.yaml": {Data: []byte("a"), Mode: 0o644}, "bin/run.sh": {Data: []byte("#!"), Mode: 0o755}}
	if err := r.CopyDir(fsys, "apps/one"); err != nil {
		t.Fatal(err)
	}
	if err := r.CopyDir(fsys, "."); err != nil {
		t.Fatal(err)
	}
	first := r.Push(t, "first", map[string]string{"apps/one/b.yaml": "b", "apps-x": "x"})

	// Another process goes on.
	r, err := NewRepo(r.Dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Remove("apps/one/bin", "a.yaml"); err != nil {
		t.Fatal(err)
	}
	if err := r.Remove("a.yaml"); err == nil {
		t.Error("what is not there was removed")
	}
	second := r.Push(t, "second", map[string]string{"bin/run.sh": "#!/bin/sh"})
	list := func(commit string) string {
		t.Helper()
		out, err := exec.Command("git", "-c", "safe.directory=*", "-C", r.Dir, "ls-tree", "-r", "--format=%(objectmode) %(path)", commit).Output()
		if err != nil {
			t.Fatal(err)
		}
		return strings.TrimSpace(string(out))
	}
	for commit, want := range map[string]string{
		first:  "100644 a.yaml\n100644 apps-x\n100644 apps/one/a.yaml\n100644 apps/one/b.yaml\n100755 apps/one/bin/run.sh\n100755 bin/run.sh",
		second: "100644 apps-x\n100644 apps/one/a.yaml\n100644 apps/one/b.yaml\n100755 bin/run.sh",
		"HEAD": "100644 apps-x\n100644 apps/one/a.yaml\n100644 apps/one/b.yaml\n100755 bin/run.sh",
	} {
		if got := list(commit); got != want {
			t.Errorf("%s:\n%s\nwant\n%s", commit, got, want)
		}
	}
	if err := r.Reset(first); err != nil {
		t.Fatal(err)
	}
	if got := list("main"); got != list(first) {
		t.Errorf("after Reset:\n%s", got)
	}
	out, err := exec.Command("git", "-c", "safe.directory=*", "-C", r.Dir, "fsck", "--strict").CombinedOutput()
	if err != nil {
		t.Errorf("fsck: %v\n%s", err, out)
	}
	if err := r.Write(map[string]string{"apps-x/y": "y"}); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Commit("both"); err == nil || !strings.Contains(err.Error(), "both a file and a directory") {
		t.Errorf("Commit = %v", err)
	}
	if err := r.Write(map[string]string{"../x": "y"}); err == nil {
		t.Error("a path out of the repository was written")
	}
}

package git

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// TestWorkTreeRemotes of a work tree, of one that was added to a repository, and of a directory without.
func TestWorkTreeRemotes(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"main/.git/config":                "[core]\n\tbare = false\n[remote \"origin\"]\n\turl = git@git.example.com:team/apps.git\n\tfetch = +refs/heads/*:refs/remotes/origin/*\n[remote \"mirror\"]\n\turl = https://mirror.example.com/apps\n",
		"main/.git/worktrees/b/commondir": "../..\n",
		"b/.git":                          "gitdir: " + filepath.Join(dir, "main/.git/worktrees/b") + "\n",
		"plain/README.md":                 "# Apps\n",
		"broken/.git/config":              "[remote\n",
		"local/.git/config":               "[core]\n",
	} {
		at := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(at), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(at, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	both := []string{"git@git.example.com:team/apps.git", "https://mirror.example.com/apps"}
	for name, want := range map[string][]string{"main": both, "b": both, "plain": nil, "local": nil} {
		if got, err := WorkTreeRemotes(filepath.Join(dir, name)); err != nil || !slices.Equal(got, want) {
			t.Errorf("%s: %q, %v; want %q", name, got, err, want)
		}
	}
	if got, err := WorkTreeRemotes(filepath.Join(dir, "broken")); err == nil {
		t.Errorf("a broken configuration: %q, want an error", got)
	}
}

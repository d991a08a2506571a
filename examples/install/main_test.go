package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestTheFoldersAreCurrent(t *testing.T) {
	var out strings.Builder
	if code := run([]string{"-root", ".", "-check"}, &out); code != 0 {
		t.Errorf("exit code %d: %s", code, out.String())
	}
}

// TestStaleFilesAreFoundAndRenewed: what was changed, is missing or should not be there.
func TestStaleFilesAreFoundAndRenewed(t *testing.T) {
	root := t.TempDir()
	if err := os.CopyFS(root, os.DirFS(".")); err != nil {
		t.Fatal(err)
	}
	at := func(name string) string { return filepath.Join(root, filepath.FromSlash(name)) }
	if err := os.WriteFile(at("cluster/deployment.yaml"), []byte("changed"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(at("namespaced/permissions.yaml")); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(at("replicated/volume.yaml"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, dry := range []bool{true, false} {
		stale, err := generate(root, dry)
		slices.Sort(stale)
		want := []string{at("cluster/deployment.yaml"), at("namespaced/permissions.yaml"), at("replicated/volume.yaml")}
		if err != nil || !slices.Equal(stale, want) {
			t.Errorf("stale: %q, %v", stale, err)
		}
	}
	if stale, err := generate(root, true); len(stale) > 0 || err != nil {
		t.Errorf("after the renewal: %q, %v", stale, err)
	}
}

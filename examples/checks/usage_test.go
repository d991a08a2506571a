package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestUsage: a test program ends with its own code, does not see GOTMPDIR, and its processor
// time and that of the processes that it has started is in the table, under its package.
func TestUsage(t *testing.T) {
	root := t.TempDir()
	pkg := filepath.Join(root, "piped", "store")
	table := filepath.Join(root, "usage.txt")
	if err := os.MkdirAll(pkg, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("GOTMPDIR", root)
	t.Setenv(usageFile, table)
	t.Chdir(pkg)
	spin := `i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done`
	if code := execTest([]string{"sh", "-c", `[ -z "$GOTMPDIR" ] || exit 9; sh -c '` + spin + `'; exit 3`}, os.Stderr); code != 3 {
		t.Errorf("the program has ended with 3, and the wrapper with %d", code)
	}
	if code := execTest([]string{"sh", "-c", "kill -QUIT $$"}, os.Stderr); code != 2 {
		t.Errorf("a program that a signal has ended: code %d", code)
	}
	t.Chdir(root)
	sortUsage(table)
	written, err := os.ReadFile(table)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimRight(string(written), "\n"), "\n")
	if len(lines) != 2 || !regexp.MustCompile(`^ +(0\.[1-9]|[1-9]\d*\.\d) s  piped/store$`).MatchString(lines[0]) || !strings.HasSuffix(lines[1], " 0.0 s  piped/store") {
		t.Errorf("table:\n%s", written)
	}
}

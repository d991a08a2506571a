package pipectl_test

import (
	"bytes"
	"strings"
	"testing"

	"github.com/c785c783/piped/piped/pipectl"
)

// TestVersion: the flag and the command show the linker's values.
func TestVersion(t *testing.T) {
	for _, arg := range []string{"version", "--version"} {
		var stdout, stderr bytes.Buffer
		code := pipectl.Program{Version: "v1.2.3", Commit: "abcdef0", Date: "2026-11-22T20:00:00Z"}.Run(t.Context(), []string{arg}, strings.NewReader(""), &stdout, &stderr)
		if want := "Version: v1.2.3, GitCommit: abcdef0, BuildDate: 2026-11-22T20:00:00Z\n"; code != 0 || stdout.String() != want {
			t.Errorf("%s: code %d, printed %q %q, want %q", arg, code, stdout.String(), stderr.String(), want)
		}
	}
}

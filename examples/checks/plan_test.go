package main

import (
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// TestWhatIsNotObservedHoldsNoGenericCode: its copies would hide races, and show some that
// are none.
func TestWhatIsNotObservedHoldsNoGenericCode(t *testing.T) {
	for _, pkg := range notObserved {
		list := exec.Command("go", slices.Concat([]string{"list", "-export", "-f", "{{.Export}}"}, raceFlags(), []string{pkg})...)
		list.Env = append(os.Environ(), "CGO_ENABLED=1")
		archive, err := list.Output()
		if err != nil {
			t.Fatalf("%s: %v", pkg, err)
		}
		symbols, err := exec.Command("go", "tool", "nm", strings.TrimSpace(string(archive))).Output()
		if err != nil {
			t.Fatalf("%s: %v", pkg, err)
		}
		if !strings.Contains(string(symbols), " T "+pkg+".") {
			t.Fatalf("%s: no functions found", pkg)
		}
		for line := range strings.Lines(string(symbols)) {
			if strings.Contains(line, " T ") && strings.Contains(line, "go.shape") {
				t.Errorf("%s has a copy of generic code:%s", pkg, line)
			}
		}
	}
}

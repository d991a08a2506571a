package main

import (
	"io"
	"path/filepath"
	"testing"
)

// TestCheckExitCodes tells problems from mistakes in the command line.
func TestCheckExitCodes(t *testing.T) {
	good := filepath.Join("..", "..", "..", "examples", "apps")
	bad := filepath.Join("..", "..", "config", "testdata", "piped", "values-out-of-range.yaml")
	for _, c := range []struct {
		name string
		args []string
		want int
	}{
		{"in order", []string{"check", good}, 0},
		{"problems", []string{"check", bad}, 1},
		{"problems among what is in order", []string{"check", good, bad}, 1},
		{"no such path", []string{"check", good, "nowhere"}, 2},
		{"nothing there", []string{"check", t.TempDir()}, 2},
		{"unknown flag", []string{"check", "--all"}, 2},
		{"schema", []string{"schema", "piped"}, 0},
		{"schema of something else", []string{"schema", "other"}, 2},
		{"schema with a flag", []string{"schema", "--yaml"}, 2},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := run(t.Context(), launcher, c.args, io.Discard, io.Discard); got != c.want {
				t.Errorf("exit code %d, want %d", got, c.want)
			}
		})
	}
}

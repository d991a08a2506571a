package main

import (
	"io"
	"path/filepath"
	"strings"
	"testing"
)

// TestCheckExitCodes: problems and usage errors have different exit codes.
func TestCheckExitCodes(t *testing.T) {
	good := filepath.Join("..", "..", "..", "examples", "apps")
	pipecd := filepath.Join("..", "..", "..", "examples", "pipecd")
	bad := filepath.Join("..", "..", "config", "testdata", "piped", "values-out-of-range.yaml")
	for _, c := range []struct {
		name string
		args []string
		want int
	}{
		{"in order", []string{"check", good}, 0},
		{"a repository written for PipeCD", []string{"check", pipecd}, 0},
		{"what of it is not read", []string{"check", "--strict", pipecd}, 1},
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
			if got := run(t.Context(), c.args, io.Discard, io.Discard); got != c.want {
				t.Errorf("exit code %d, want %d", got, c.want)
			}
		})
	}
}

// TestRepositoryOfPipeCD: every application of PipeCD's examples repository is found
// and read, and unsupported ones are named.
func TestRepositoryOfPipeCD(t *testing.T) {
	dir := filepath.Join("..", "..", "..", "examples", "pipecd")
	var out, errs strings.Builder
	if code := run(t.Context(), []string{"check", dir}, &out, &errs); code != 0 {
		t.Fatalf("exit code %d:\n%s", code, &out)
	}
	if got := out.String(); !strings.HasSuffix(got, "12 files checked, no problems\n") {
		t.Errorf("it says\n%s", got)
	}
	for text, times := range map[string]int{
		"canary/app.pipecd.yaml:4: spec.owner: unknown field, which is not read\n":                   1,
		"helm-local-chart/.pipe.yaml:8: spec.input.helmValueFiles: unknown field, which is not read": 1,
		"which is not read": 2,
		"helm-remote-chart/app.pipecd.yaml: chart hello of https://charts.example.com/stable: not checked":        1,
		"helm-remote-git-chart/app.pipecd.yaml: get Helm chart manifests/hello at v0.1.2-3-g8fe5d7e: not checked": 1,
		"not checked": 2,
	} {
		if strings.Count(errs.String(), text) != times {
			t.Errorf("it does not say %d times %q:\n%s", times, text, &errs)
		}
	}
}

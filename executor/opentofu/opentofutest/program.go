// Package opentofutest provides OpenTofu and a provider for tests.
package opentofutest

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/c785c783/piped/piped/cluster/clustertest"
)

// Program returns the path of OpenTofu, which TOFU names, or which `make tofu` has built.
func Program(t testing.TB) string {
	t.Helper()
	path, err := clustertest.FindProgram("OpenTofu", "TOFU", "tofu")
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// Source is the source address of the provider of the tests, with the resource sample_file.
const Source = "example.com/piped/sample"

// CLIConfig writes a configuration of OpenTofu that finds the provider of the tests on this
// machine and nothing else, and returns its path.
func CLIConfig(t testing.TB) string {
	t.Helper()
	dir := t.TempDir()
	const version = "1.0.0"
	mirrored := filepath.Join(dir, filepath.FromSlash(Source), version, runtime.GOOS+"_"+runtime.GOARCH)
	if err := os.MkdirAll(mirrored, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(filepath.Join(filepath.Dir(Program(t)), "terraform-provider-sample"), filepath.Join(mirrored, "terraform-provider-sample_v"+version)); err != nil {
		t.Fatal(err)
	}
	rc := filepath.Join(dir, "tofurc")
	text := fmt.Sprintf("provider_installation {\n  filesystem_mirror {\n    path = %q\n  }\n}\n", dir)
	if err := os.WriteFile(rc, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return rc
}

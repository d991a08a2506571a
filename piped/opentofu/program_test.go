package opentofu

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/c785c783/piped/piped/config/opentofu"
	"github.com/c785c783/piped/piped/deploy"
)

// fakeProgram writes a program that knows only its version.
func fakeProgram(t *testing.T, path, version string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte("#!/bin/sh\necho '{\"terraform_version\": \""+version+"\"}'\n"), 0o700); err != nil {
		t.Fatal(err)
	}
}

func TestFind(t *testing.T) {
	dir := t.TempDir()
	fakeProgram(t, filepath.Join(dir, "tofu"), "1.9.0")
	fakeProgram(t, filepath.Join(dir, "1.8.2", "tofu"), "1.8.2")
	one := &opentofu.Provider{Program: filepath.Join(dir, "tofu")}
	many := &opentofu.Provider{Program: filepath.Join(dir, "tofu"), VersionsDir: dir}
	tests := map[string]struct {
		provider *opentofu.Provider
		wanted   string
		required []string
		version  string
		err      string
	}{
		"the provider's":            {one, "", nil, "1.9.0", ""},
		"the same version":          {one, "1.9.0", nil, "1.9.0", ""},
		"another version":           {one, "1.8.2", nil, "", "asks for 1.8.2"},
		"a version that exists":     {many, "1.8.2", []string{"~> 1.8"}, "1.8.2", ""},
		"one that does not":         {many, "1.7.0", nil, "", "there is no program"},
		"required, and older":       {one, "", []string{">= 1.10"}, "", "required_version asks for >= 1.10"},
		"a constraint that is none": {one, "", []string{"newest"}, "", "required_version"},
		"no program":                {&opentofu.Provider{Program: filepath.Join(dir, "none")}, "", nil, "", "install it"},
	}
	var programs Programs
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			found, err := programs.Find(context.Background(), deploy.KindOpenTofu, test.provider, test.wanted, test.required)
			switch {
			case test.err == "" && (err != nil || found.Version != test.version):
				t.Errorf("got %v, %v", found, err)
			case test.err != "" && (!deploy.IsKind(err, deploy.Invalid) || !strings.Contains(err.Error(), test.err)):
				t.Errorf("got %v, want %q of kind invalid", err, test.err)
			}
		})
	}
	fakeProgram(t, filepath.Join(dir, "tofu"), "1.10.10") // a longer file: another size
	if found, err := programs.Find(context.Background(), deploy.KindOpenTofu, one, "", nil); err != nil || found.Version != "1.10.10" {
		t.Errorf("after the program was replaced: %v, %v", found, err)
	}
}

package opentofu

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/c785c783/piped/piped/config/opentofu"
	"github.com/c785c783/piped/piped/deploy"
)

// TestStateInTheRun: Init fails if the backend that the program has noted keeps the state in the
// directory of the run. The notes are those of OpenTofu 1.12.
func TestStateInTheRun(t *testing.T) {
	local := func(path, workspaces string) string {
		return fmt.Sprintf(`{"version": 3, "terraform_version": "1.12.6", "backend": {"type": "local", "config": {"path": %s, "workspace_dir": %s}, "hash": 1}}`, path, workspaces)
	}
	for name, test := range map[string]struct{ noted, workspace, why string }{
		"no backend":                    {"", "", "set path"},
		"no path":                       {local("null", "null"), "", "set path"},
		"relative":                      {local(`"state.tfstate"`, "null"), "default", "set path"},
		"absolute":                      {local(`"/states/net"`, "null"), "", ""},
		"a workspace, and no directory": {local(`"/states/net"`, "null"), "production", "set workspace_dir"},
		"a workspace, and a directory":  {local("null", `"/states"`), "production", ""},
		"remote":                        {`{"version": 3, "backend": {"type": "http", "config": {"address": "https://example.com", "path": null}}}`, "production", ""},
		"a note that cannot be read":    {`{`, "", "read which backend"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			root, program, noted := filepath.Join(dir, "root"), filepath.Join(dir, "tofu"), filepath.Join(dir, "noted")
			if err := os.Mkdir(root, 0o700); err != nil {
				t.Fatal(err)
			}
			script := "#!/bin/sh\ncase $1 in\nversion) echo '{\"terraform_version\": \"1.12.6\"}' ;;\ninit) mkdir .terraform; if [ -s " + noted + " ]; then cp " + noted + " .terraform/terraform.tfstate; fi ;;\nesac\n"
			for file, text := range map[string]string{program: script, noted: test.noted} {
				if err := os.WriteFile(file, []byte(text), 0o700); err != nil {
					t.Fatal(err)
				}
			}
			r, err := Open(Config{Program: Program{Path: program}, Provider: &opentofu.Provider{}, Input: opentofu.Input{Workspace: test.workspace}, Root: root, Dir: ".", Own: filepath.Join(dir, "own")})
			if err != nil {
				t.Fatal(err)
			}
			err = r.Init(t.Context())
			switch {
			case test.why == "" && err != nil:
				t.Errorf("got %v", err)
			case test.why != "" && (err == nil || !strings.Contains(err.Error(), test.why)):
				t.Errorf("got %v, want %q", err, test.why)
			case test.why != "" && strings.HasPrefix(test.why, "set ") && !deploy.IsKind(err, deploy.Invalid):
				t.Errorf("%v is not of kind invalid", err)
			}
		})
	}
}

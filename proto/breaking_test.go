package proto_test

import (
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestReleasedContractIsKept compares the .proto files, as they are and with one
// thing changed in each case, with what was released.
func TestReleasedContractIsKept(t *testing.T) {
	cases := map[string]struct {
		file, old, new string
		want           string // what the comparison says; "" when nothing is broken
	}{
		"as it is":           {},
		"added field":        {"piped/control/v1/stage.proto", "bool no_follow = 4;", "bool no_follow = 4;\n  // Added.\n  bool more = 99;", ""},
		"renumbered field":   {"piped/control/v1/stage.proto", "bool no_follow = 4;", "bool no_follow = 5;", `"no_follow"`},
		"retyped field":      {"piped/control/v1/stage.proto", "bool no_follow = 4;", "int64 no_follow = 4;", `"no_follow"`},
		"lost method":        {"piped/control/v1/control.proto", "  rpc RetryDeployment(RetryDeploymentRequest) returns (RetryDeploymentResponse) {}\n", "", `"RetryDeployment"`},
		"renumbered value":   {"piped/control/v1/application.proto", "CANDIDATE_REASON_DELETED = 3;", "CANDIDATE_REASON_DELETED = 4;", `"3"`},
		"PipeCD's own field": {"piped/model/v1/stage_log.proto", "string log = 2;", "string log = 7;", `"log"`},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			module := copyProtos(t, tc.file, tc.old, tc.new)
			// The environment is that of proto/check.sh under make, so that the tool is compiled once.
			cmd := exec.Command("go", "tool", "-modfile=tools.mod", "buf", "breaking", module, "--against", "released.binpb")
			cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
			out, err := cmd.CombinedOutput()
			if broken := err != nil; broken != (tc.want != "") || !strings.Contains(string(out), tc.want) {
				t.Errorf("%v, want it to say %q:\n%s", err, tc.want, out)
			}
		})
	}
}

// copyProtos returns a folder with buf.yaml and the .proto files, in one of which
// old is replaced.
func copyProtos(t *testing.T, file, old, replacement string) string {
	t.Helper()
	dir := t.TempDir()
	put := func(name string, data []byte) {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, data, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	config, err := os.ReadFile("../buf.yaml")
	if err != nil {
		t.Fatal(err)
	}
	put("buf.yaml", config)
	err = fs.WalkDir(os.DirFS("."), ".", func(path string, _ fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, ".proto") {
			return err
		}
		data, err := os.ReadFile(path)
		if path == file {
			if !strings.Contains(string(data), old) {
				t.Errorf("%s does not hold %q", path, old)
			}
			data = []byte(strings.Replace(string(data), old, replacement, 1))
		}
		put(filepath.Join("proto", path), data)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

package sandbox

import (
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
)

// unprivileged is a user without any files on this machine.
const unprivileged = 64123

// TestWithoutPrivileges runs the tests of this package again as an unprivileged user,
// like most installed agents.
func TestWithoutPrivileges(t *testing.T) {
	if os.Geteuid() != 0 {
		return // all tests run unprivileged already
	}
	// t.TempDir may be below a directory that only root can enter.
	dir, err := os.MkdirTemp("/tmp", "unprivileged-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	if err := os.Chown(dir, unprivileged, unprivileged); err != nil {
		t.Fatal(err)
	}
	program := filepath.Join(dir, "launch")
	if err := os.Link(Program, program); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "/proc/self/exe", "-test.timeout=10m")
	cmd.Dir, cmd.Env = dir, append(os.Environ(), "TMPDIR="+dir, "HOME="+dir, programVariable+"="+program)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: unprivileged, Gid: unprivileged}}
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("as user %d: %v\n%s", unprivileged, err, out)
	}
}

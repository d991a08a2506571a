package sandbox

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/c785c783/piped/executor/script/sandbox/sandboxtest"
)

// users returns the users for scripts of a test.
func users(t *testing.T) Users {
	t.Helper()
	return Users{UID: testUser(), Count: 2, Dir: filepath.Join(sandboxtest.PublicDir(t), "scripts")}
}

// choose selects a way among those with other users.
func choose(t *testing.T, u Users) (Way, error) {
	t.Helper()
	return Choose(t.Context(), t.TempDir(), Settings{Modes: []Mode{OtherUser}, Users: u})
}

func wantRefused(t *testing.T, what string, u Users, why string) {
	t.Helper()
	if way, err := choose(t, u); err == nil || !strings.Contains(err.Error(), why) {
		t.Errorf("%s: chose %q, %v, want an error with %q", what, way, err, why)
	}
}

// asRoot reports whether this user may run scripts as others. If not, it checks that
// they are rejected with the reason.
func asRoot(t *testing.T) bool {
	t.Helper()
	if os.Geteuid() != 0 {
		wantRefused(t, "an agent that is not root", users(t), "the agent runs as user "+strconv.Itoa(os.Geteuid())+": only root can run scripts as another user")
	}
	return os.Geteuid() == 0
}

// TestOtherUser: a user is accepted if it can enter its directory, can open nothing of
// the agent, and has no other processes.
func TestOtherUser(t *testing.T) {
	if !asRoot(t) {
		return
	}
	u := users(t)
	if way, err := choose(t, u); way.Mode != OtherUser || err != nil {
		t.Errorf("chose %q, %v", way, err)
	}
	if info, err := os.Stat(u.Dir); err != nil || info.Mode().Perm() != 0o711 {
		t.Errorf("the directory of scripts: %v, %v", info, err)
	}

	hidden := u
	key := filepath.Join(sandboxtest.PublicDir(t), "key")
	if err := os.WriteFile(key, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	hidden.Hidden = []string{key}
	wantRefused(t, "a secret that all can read", hidden, "can open "+key+": take that right from other users (chmod o-rwx)")
	hidden.Hidden = []string{filepath.Dir(key)}
	wantRefused(t, "a data directory that all can enter", hidden, "can open "+filepath.Dir(key))

	locked := u
	locked.Dir = filepath.Join(t.TempDir(), "scripts")
	if err := os.Chmod(filepath.Dir(locked.Dir), 0o700); err != nil {
		t.Fatal(err)
	}
	wantRefused(t, "a directory out of reach", locked, "set scripts.user.directory to a directory that all users can enter")

	foreign := u
	foreign.Dir = filepath.Join(sandboxtest.PublicDir(t), "scripts")
	if err := os.Symlink(u.Dir, foreign.Dir); err != nil {
		t.Fatal(err)
	}
	wantRefused(t, "a directory of another user", foreign, "is not a directory that only the agent's user writes to")

	wantRefused(t, "no user", Users{Dir: u.Dir}, "scripts.user.uid names no user")
}

// TestSharedUser: a user with other processes is rejected, and these are not killed.
func TestSharedUser(t *testing.T) {
	if !asRoot(t) {
		return
	}
	u := users(t)
	cmd := exec.Command("sleep", "1000")
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(u.UID), Gid: uint32(u.UID)}}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	wantRefused(t, "a user that is not the scripts' own", u, "also runs other processes (["+strconv.Itoa(cmd.Process.Pid)+"])")
	if err := cmd.Process.Signal(syscall.Signal(0)); err != nil {
		t.Errorf("the other process: %v", err)
	}
	// After the start of a script all processes of its user end with it.
	endUser(u.UID)
	if err := cmd.Wait(); err == nil || err.Error() != "signal: killed" {
		t.Errorf("it ended with %v", err)
	}
}

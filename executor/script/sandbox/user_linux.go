package sandbox

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
	"kernel.org/pub/linux/libs/security/libcap/psx"
)

// needed are the capabilities required to run a script as another user: to change the
// owner of its files, to become the user, to end its processes and to remove its files.
var needed = []struct {
	number uint
	name   string
}{
	{unix.CAP_CHOWN, "CAP_CHOWN"}, {unix.CAP_DAC_OVERRIDE, "CAP_DAC_OVERRIDE"}, {unix.CAP_FOWNER, "CAP_FOWNER"},
	{unix.CAP_KILL, "CAP_KILL"}, {unix.CAP_SETGID, "CAP_SETGID"}, {unix.CAP_SETUID, "CAP_SETUID"},
}

// prepareUser gives the script's directory and output to its user. It first checks that
// this process may run the script and that the user has no other processes.
func prepareUser(c Command) error {
	if c.UID <= 0 || c.GID <= 0 {
		return errors.New("scripts.user.uid names no user")
	}
	if err := checkMayBecomeUser(); err != nil {
		return err
	}
	if pids := processesOf(c.UID); len(pids) != 0 {
		return fmt.Errorf("user %d also runs other processes (%v): end them, or set scripts.user to users without other processes", c.UID, pids)
	}
	err := filepath.WalkDir(c.Own, func(path string, _ fs.DirEntry, err error) error {
		return errors.Join(err, os.Lchown(path, c.UID, c.GID))
	})
	if err != nil {
		return fmt.Errorf("give the script's directory to user %d: %w", c.UID, err)
	}
	// So that a script can open /dev/stdout and /dev/stderr. Only a pipe belongs to
	// the agent; other files retain their owner.
	if info, err := os.Stdout.Stat(); err == nil && info.Mode()&os.ModeNamedPipe != 0 {
		return os.Stdout.Chown(c.UID, c.GID)
	}
	return nil
}

// checkMayBecomeUser returns an error unless this process is root with the needed
// capabilities.
func checkMayBecomeUser() error {
	if uid := os.Geteuid(); uid != 0 {
		return fmt.Errorf("the agent runs as user %d: only root can run scripts as another user", uid)
	}
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&header, &data[0]); err != nil {
		return fmt.Errorf("read the capabilities: %w", err)
	}
	var missing []string
	for _, capability := range needed {
		if data[0].Effective&(1<<capability.number) == 0 {
			missing = append(missing, capability.name)
		}
	}
	if len(missing) > 0 {
		return fmt.Errorf("the agent lacks %s, which running scripts as another user needs", strings.Join(missing, ", "))
	}
	return nil
}

// becomeUser changes this process permanently to the script's user.
func becomeUser(c Command) error {
	if err := dropBounds(); err != nil {
		return err
	}
	uid, gid := uintptr(c.UID), uintptr(c.GID)
	for _, step := range []struct {
		call uintptr
		id   uintptr
	}{{unix.SYS_SETGROUPS, 0}, {unix.SYS_SETRESGID, gid}, {unix.SYS_SETRESUID, uid}} {
		if _, _, e := psx.Syscall3(step.call, step.id, step.id, step.id); e != 0 {
			return fmt.Errorf("become user %d with group %d: %w", c.UID, c.GID, e)
		}
	}
	return shed()
}

// checkUser returns an error if this process's user can open hidden files, or cannot
// open the script's files.
func checkUser(c Command) error {
	for _, path := range c.Hidden {
		info, err := os.Stat(path)
		if err != nil {
			continue // not accessible
		}
		if unix.Access(path, unix.R_OK) == nil || info.IsDir() && unix.Access(path, unix.X_OK) == nil {
			return fmt.Errorf("user %d can open %s: take that right from other users (chmod o-rwx)", c.UID, path)
		}
	}
	if _, err := os.Stat(c.Own); errors.Is(err, fs.ErrPermission) {
		return fmt.Errorf("user %d cannot enter %s: set scripts.user.directory to a directory that all users can enter", c.UID, filepath.Dir(c.Own))
	}
	for _, path := range c.Allow {
		if _, err := os.Stat(path); err != nil {
			return fmt.Errorf("user %d cannot open what scripts.allowPaths names: %w", c.UID, err)
		}
	}
	return nil
}

// endUser kills all processes of a user and returns after they have ended, including
// those that do not descend from the script.
func endUser(uid int) {
	for pids := processesOf(uid); len(pids) != 0; pids = processesOf(uid) {
		for _, pid := range pids {
			_ = syscall.Kill(pid, syscall.SIGKILL) // it may have ended
		}
		time.Sleep(killEvery)
	}
}

// processesOf returns the running processes with the UID as real, effective or saved
// user ID.
func processesOf(uid int) (out []int) {
	if uid == 0 {
		return nil
	}
	want := []byte(strconv.Itoa(uid))
	files, _ := filepath.Glob("/proc/[0-9]*/status") // the pattern is valid
	for _, file := range files {
		status, err := os.ReadFile(file)
		if err != nil {
			continue
		}
		ended, ours := false, false
		for line := range bytes.Lines(status) {
			switch f := bytes.Fields(line); {
			case len(f) < 2:
			case string(f[0]) == "State:":
				ended = f[1][0] == 'Z' || f[1][0] == 'X'
			case string(f[0]) == "Uid:":
				for _, id := range f[1:] {
					ours = ours || bytes.Equal(id, want)
				}
			}
		}
		if pid, err := strconv.Atoi(filepath.Base(filepath.Dir(file))); err == nil && ours && !ended {
			out = append(out, pid)
		}
	}
	return out
}

package sandbox

import (
	"errors"
	"fmt"
	"os"
	"syscall"
)

// Users are the users for scripts with OtherUser. Each script runs as a different one,
// so that concurrent scripts cannot access each other.
type Users struct {
	UID   int // of the first user, the others follow; 0 disables OtherUser
	GID   int // of all users; 0 uses the number of each UID
	Count int
	// Dir is the directory of scripts: other users can enter but not list it.
	Dir string
	// Hidden are files and directories that scripts must not be able to open.
	Hidden []string
}

// IDs returns the UID and the GID of the user with index n, from 0 to Count-1.
func (u Users) IDs(n int) (uid, gid int) {
	if uid, gid = u.UID+n, u.GID; gid == 0 {
		gid = uid
	}
	return uid, gid
}

// Open creates Dir if missing. It rejects a directory that another user owns or can
// write to, since Dir may be inside a world-writable directory.
func (u Users) Open() error {
	if err := os.Mkdir(u.Dir, 0o711); err != nil && !errors.Is(err, os.ErrExist) {
		return fmt.Errorf("make the directory of scripts: %w", err)
	}
	info, err := os.Lstat(u.Dir)
	if err != nil {
		return fmt.Errorf("check the directory of scripts: %w", err)
	}
	owner, ok := info.Sys().(*syscall.Stat_t)
	if !ok || !info.IsDir() || int(owner.Uid) != os.Geteuid() || info.Mode().Perm()&0o022 != 0 {
		return fmt.Errorf("%s is not a directory that only the agent's user writes to: remove it, or set scripts.user.directory", u.Dir)
	}
	return os.Chmod(u.Dir, 0o711) // regardless of the umask
}

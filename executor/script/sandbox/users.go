package sandbox

import (
	"errors"
	"fmt"
	"os"
	"syscall"
)

// Users are whom scripts run as with OtherUser: each run as another of them, so that
// scripts that run at once cannot reach each other.
type Users struct {
	UID   int // of the first, the others follow; 0 offers no users
	GID   int // of all; 0 means that each has the GID of its UID's number
	Count int
	// Dir is the directory for scripts: no other user can list it, all can enter it.
	Dir string
	// Hidden are files and directories that scripts must not be able to open.
	Hidden []string
}

// IDs returns the UID and the GID of the user with index n.
func (u Users) IDs(n int) (uid, gid int) {
	if uid, gid = u.UID+n, u.GID; gid == 0 {
		gid = uid
	}
	return uid, gid
}

// Open makes Dir where it is missing. A directory that another user made or can write
// to is refused: Dir may lie in a directory that all users write to.
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
	return os.Chmod(u.Dir, 0o711) // whatever the umask was
}

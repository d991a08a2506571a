package pgtest

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"syscall"
)

// binaries returns the directory of the newest server's programs. It searches Debian's
// versioned directories first, then PATH.
func binaries() (string, error) {
	dirs, err := filepath.Glob("/usr/lib/postgresql/*/bin")
	if err != nil {
		return "", err
	}
	newest, dir := -1, ""
	for _, d := range dirs {
		version, err := strconv.Atoi(filepath.Base(filepath.Dir(d)))
		if err == nil && version > newest && executable(filepath.Join(d, "initdb")) && executable(filepath.Join(d, "postgres")) {
			newest, dir = version, d
		}
	}
	if dir != "" {
		return dir, nil
	}
	if p, err := exec.LookPath("initdb"); err == nil && executable(filepath.Join(filepath.Dir(p), "postgres")) {
		return filepath.Dir(p), nil
	}
	return "", errors.New("no PostgreSQL server found in /usr/lib/postgresql/*/bin nor in PATH: " +
		"install the Debian package postgresql (apt-get install --no-install-recommends postgresql); its service need not run")
}

func executable(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0
}

// unprivileged returns the user that the server runs as, because PostgreSQL refuses to run as
// root. nil means the current user.
func unprivileged() (*syscall.Credential, error) {
	if os.Geteuid() != 0 {
		return nil, nil
	}
	for _, name := range []string{"postgres", "nobody"} {
		u, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, err := strconv.ParseUint(u.Uid, 10, 32)
		if err != nil {
			return nil, fmt.Errorf("user %s: %w", name, err)
		}
		gid, err := strconv.ParseUint(u.Gid, 10, 32)
		if err != nil {
			return nil, fmt.Errorf("user %s: %w", name, err)
		}
		return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}, nil
	}
	return nil, errors.New("PostgreSQL does not run as root, and there is no user postgres or nobody to run it as: run the tests as another user")
}

// tempDir creates a temporary directory that belongs to owner and that owner can access.
func tempDir(owner *syscall.Credential) (string, error) {
	if owner == nil {
		return os.MkdirTemp("", "pgtest-")
	}
	for _, parent := range []string{os.TempDir(), "/tmp", "/var/tmp"} {
		if !open(parent) {
			continue
		}
		dir, err := os.MkdirTemp(parent, "pgtest-")
		if err != nil {
			return "", err
		}
		return dir, os.Chown(dir, int(owner.Uid), int(owner.Gid))
	}
	return "", fmt.Errorf("user %d can reach no temporary directory: set TMPDIR to one that everybody may enter", owner.Uid)
}

// open reports whether all users may enter dir and each directory above it.
func open(dir string) bool {
	dir, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return false
	}
	for {
		info, err := os.Stat(dir)
		if err != nil || info.Mode()&0o001 == 0 {
			return false
		}
		if dir == filepath.Dir(dir) {
			return true
		}
		dir = filepath.Dir(dir)
	}
}

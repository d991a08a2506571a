package sandbox

import (
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// buildRoot builds the root directory of a script and switches this mount namespace to
// it. System paths in it are read-only.
func buildRoot(c Command) error {
	// The mounts below must not propagate to the machine.
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("separate the mounts: %w", err)
	}
	if err := unix.Mount("tmpfs", c.Root, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "mode=755,size=1m"); err != nil {
		return fmt.Errorf("make a root directory: %w", err)
	}
	r := root(c.Root)
	for _, step := range []func(Command) error{r.system, r.devices, r.proc, r.own} {
		if err := step(c); err != nil {
			return err
		}
	}
	return r.enter()
}

// root is the path of the new root directory.
type root string

// bind mounts a path of the machine at the same path.
func (r root) bind(path string, writable bool) error {
	return r.bindAt(path, path, unix.MS_REC, writable)
}

// bindAt mounts a path of the machine at another path; MS_REC in depth includes mounts
// below it.
func (r root) bindAt(path, at string, depth uintptr, writable bool) error {
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	target := filepath.Join(string(r), at)
	if err := makeMountPoint(target, info.IsDir()); err != nil {
		return err
	}
	if err := unix.Mount(path, target, "", unix.MS_BIND|depth, ""); err != nil {
		return fmt.Errorf("show %s: %w", path, err)
	}
	attr := unix.MountAttr{Attr_set: unix.MOUNT_ATTR_NOSUID}
	if !writable {
		attr.Attr_set |= unix.MOUNT_ATTR_RDONLY
	}
	if err := unix.MountSetattr(unix.AT_FDCWD, target, unix.AT_RECURSIVE, &attr); err != nil {
		return fmt.Errorf("protect %s: %w", path, err)
	}
	return nil
}

// makeMountPoint creates an empty directory or, without dir, an empty file to mount on.
func makeMountPoint(target string, dir bool) error {
	if dir {
		return os.MkdirAll(target, 0o755)
	}
	if err := os.MkdirAll(filepath.Dir(target), 0o755); err != nil {
		return err
	}
	file, err := os.OpenFile(target, os.O_CREATE|os.O_RDONLY, 0o644)
	if err != nil {
		return err
	}
	return file.Close()
}

// system mounts programs, libraries and parts of /etc. Symbolic links are copied: on
// most machines /bin is one.
func (r root) system(Command) error {
	for _, path := range append(systemDirs[:len(systemDirs):len(systemDirs)], systemFiles...) {
		info, err := os.Lstat(path)
		if os.IsNotExist(err) {
			continue
		}
		if err != nil {
			return err
		}
		if info.Mode()&os.ModeSymlink != 0 && filepath.Dir(path) == "/" {
			link, err := os.Readlink(path)
			if err == nil {
				err = os.Symlink(link, filepath.Join(string(r), path))
			}
			if err != nil {
				return err
			}
			continue
		}
		if err := r.bind(path, false); err != nil && !os.IsNotExist(err) { // a dangling link
			return err
		}
	}
	return nil
}

// devices mounts the devices that programs need.
func (r root) devices(Command) error {
	for _, path := range devices {
		if _, err := os.Stat(path); err != nil {
			continue
		}
		if err := r.bind(path, true); err != nil {
			return err
		}
	}
	for link, target := range map[string]string{"fd": "/proc/self/fd", "stdin": "/proc/self/fd/0", "stdout": "/proc/self/fd/1", "stderr": "/proc/self/fd/2"} {
		if err := os.Symlink(target, filepath.Join(string(r), "dev", link)); err != nil {
			return err
		}
	}
	return r.fresh("/dev/shm", "tmpfs", "mode=1777,size=64m")
}

// proc mounts the processes of this namespace. It is read-only: with an agent that runs
// as root, the script would own the kernel settings in /proc/sys.
func (r root) proc(Command) error {
	if err := r.fresh("/proc", "proc", ""); err != nil {
		return err
	}
	return readOnly(filepath.Join(string(r), "proc"))
}

// readOnly makes a mount read-only.
func readOnly(at string) error {
	if err := unix.MountSetattr(unix.AT_FDCWD, at, 0, &unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY}); err != nil {
		return fmt.Errorf("protect %s: %w", at, err)
	}
	return nil
}

// fresh mounts a new file system.
func (r root) fresh(at, kind, options string) error {
	target := filepath.Join(string(r), at)
	if err := os.MkdirAll(target, 0o755); err != nil {
		return err
	}
	if err := unix.Mount(kind, target, kind, unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, options); err != nil {
		return fmt.Errorf("mount %s: %w", at, err)
	}
	return nil
}

// own mounts the script's directories and the configured paths. It runs after the mount
// of /tmp, since they may be below it.
func (r root) own(c Command) error {
	if err := r.bindAt(c.Tmp, "/tmp", 0, true); err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Join(string(r), "var"), 0o755); err != nil {
		return err
	}
	if err := os.Symlink("/tmp", filepath.Join(string(r), "var/tmp")); err != nil {
		return err
	}
	if err := r.bindAt(c.Own, c.Own, 0, true); err != nil { // without this root, which is inside
		return err
	}
	for _, path := range c.Allow {
		if err := r.bind(path, true); err != nil {
			return err
		}
	}
	return nil
}

// enter makes r the root directory and makes the old one unreachable.
func (r root) enter() error {
	if err := os.Chdir(string(r)); err != nil {
		return err
	}
	if err := unix.PivotRoot(".", "."); err != nil {
		return fmt.Errorf("change the root directory: %w", err)
	}
	if err := unix.Unmount(".", unix.MNT_DETACH); err != nil {
		return fmt.Errorf("leave the machine's root directory: %w", err)
	}
	if err := os.Chdir("/"); err != nil {
		return err
	}
	return readOnly("/")
}

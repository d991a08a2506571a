package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
)

// dir is the folder of one cluster; everything a cluster keeps is below it.
type dir string

// openDir makes path absolute, since the children must not depend on where
// the parent was started.
func openDir(path string) (dir, error) {
	if path == "" {
		return "", errors.New("no folder given; say which cluster with --dir DIR")
	}
	abs, err := filepath.Abs(path)
	if err != nil {
		return "", fmt.Errorf("finding --dir %s: %w", path, err)
	}
	return dir(abs), nil
}

func (d dir) path(elem ...string) string {
	return filepath.Join(append([]string{string(d)}, elem...)...)
}

func (d dir) kubeconfig() string { return d.path("kubeconfig") }
func (d dir) log(component string) string {
	return d.path("logs", component+".log")
}

// create makes the folder and those below it. They hold private keys.
func (d dir) create() error {
	for _, sub := range []string{"", "logs", "certs", "data"} {
		if err := os.MkdirAll(d.path(sub), 0o700); err != nil {
			return fmt.Errorf("creating the cluster's folder: %w; choose a --dir that can be written", err)
		}
	}
	return nil
}

var errLocked = errors.New("the cluster is up")

// lock takes the folder for this process, until the file is closed or the
// process ends in any way. It fails with errLocked when another has it.
func (d dir) lock() (*os.File, error) {
	f, err := os.OpenFile(d.path("lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("opening the cluster's lock: %w", err)
	}
	err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		err = errLocked
	}
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("locking %s: %w", d, err)
	}
	return f, nil
}

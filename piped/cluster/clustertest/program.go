package clustertest

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// findProgram returns the devcluster program: $DEVCLUSTER, else bin/devcluster
// in the module that holds the working directory.
func findProgram() (string, error) {
	if path := os.Getenv("DEVCLUSTER"); path != "" {
		if err := executable(path); err != nil {
			return "", fmt.Errorf("DEVCLUSTER names no program: %w", err)
		}
		return path, nil
	}
	root, err := moduleRoot()
	if err != nil {
		return "", err
	}
	path := filepath.Join(root, "bin", "devcluster")
	if err := executable(path); err != nil {
		return "", fmt.Errorf("the test cluster is not built: run `make devcluster` in %s, or set DEVCLUSTER to the program: %w", root, err)
	}
	return path, nil
}

func executable(path string) error {
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() || info.Mode()&0o111 == 0 {
		return fmt.Errorf("%s cannot be executed", path)
	}
	return nil
}

// moduleRoot returns the nearest folder above the working directory that holds
// a go.mod.
func moduleRoot() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", fmt.Errorf("find the module: %w", err)
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir, nil
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			return "", errors.New("find the module: no go.mod above the working directory; set DEVCLUSTER to the devcluster program")
		}
		dir = parent
	}
}

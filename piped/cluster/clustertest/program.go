package clustertest

import (
	"fmt"
	"os"
	"path/filepath"
)

// findProgram returns the devcluster program: $DEVCLUSTER, else bin/devcluster
// in the module that holds the working directory.
func findProgram() (string, error) {
	return FindProgram("the test cluster", "DEVCLUSTER", "devcluster")
}

// FindProgram returns a program that tests drive: the one that the environment variable names,
// else the one in bin of the module that holds the working directory. name is also that of the
// target that makes it; what describes it in errors.
func FindProgram(what, variable, name string) (string, error) {
	if path := os.Getenv(variable); path != "" {
		if err := executable(path); err != nil {
			return "", fmt.Errorf("%s names no program: %w", variable, err)
		}
		return path, nil
	}
	root, err := moduleRoot(variable)
	if err != nil {
		return "", err
	}
	path := filepath.Join(root, "bin", name)
	if err := executable(path); err != nil {
		return "", fmt.Errorf("%s is not built: run `make %s` in %s, or set %s to the program: %w", what, name, root, variable, err)
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
func moduleRoot(variable string) (string, error) {
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
			return "", fmt.Errorf("find the module: no go.mod above the working directory; set %s to the program", variable)
		}
		dir = parent
	}
}

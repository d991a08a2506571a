package git

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/go-git/go-git/v5/config"
)

// WorkTreeRemotes returns the addresses of the remotes of a work tree, sorted; none for a directory that
// is not one.
func WorkTreeRemotes(dir string) ([]string, error) {
	at := filepath.Join(dir, ".git")
	info, err := os.Stat(at)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err == nil && !info.IsDir() {
		at, err = commonDir(dir, at)
	}
	if err != nil {
		return nil, fmt.Errorf("find the repository of %s: %w", dir, err)
	}
	file, err := os.Open(filepath.Join(at, "config"))
	if err != nil {
		return nil, fmt.Errorf("read the remotes of %s: %w", dir, err)
	}
	defer file.Close()
	cfg, err := config.ReadConfig(file)
	if err != nil {
		return nil, fmt.Errorf("read the remotes of %s: %w", dir, err)
	}
	var out []string
	for _, r := range cfg.Remotes {
		out = append(out, r.URLs...)
	}
	slices.Sort(out)
	return slices.Compact(out), nil
}

// commonDir returns the directory of the repository that a file .git refers to.
func commonDir(dir, file string) (string, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return "", err
	}
	absolute := func(base, path string) string {
		if filepath.IsAbs(path) {
			return path
		}
		return filepath.Join(base, path)
	}
	at := absolute(dir, strings.TrimSpace(strings.TrimPrefix(string(data), "gitdir:")))
	data, err = os.ReadFile(filepath.Join(at, "commondir"))
	if errors.Is(err, fs.ErrNotExist) {
		return at, nil // of a submodule
	}
	return absolute(at, strings.TrimSpace(string(data))), err
}

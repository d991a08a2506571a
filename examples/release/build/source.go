package build

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"
)

// Source is the work tree that a release is made from.
type Source struct {
	Dir     string
	Version string
	Commit  string    // the full hash
	Dirty   bool      // the work tree differs from the commit: what is made is not of it
	Time    time.Time // of everything that is made: $SOURCE_DATE_EPOCH, or the commit's
}

// ReadSource describes the work tree of dir as a version.
func ReadSource(ctx context.Context, dir, version string) (Source, error) {
	s := Source{Dir: dir, Version: version}
	var err error
	if s.Commit, err = s.Git(ctx, "rev-parse", "HEAD"); err != nil {
		return s, err
	}
	changed, err := s.Git(ctx, "status", "--porcelain")
	if err != nil {
		return s, err
	}
	s.Dirty = changed != ""
	seconds := os.Getenv("SOURCE_DATE_EPOCH")
	if seconds == "" {
		if seconds, err = s.Git(ctx, "log", "-1", "--format=%ct"); err != nil {
			return s, err
		}
	}
	n, err := strconv.ParseInt(seconds, 10, 64)
	if err != nil {
		return s, fmt.Errorf("read the time of the source: SOURCE_DATE_EPOCH %q is no number of seconds", seconds)
	}
	s.Time = time.Unix(n, 0).UTC()
	return s, nil
}

// Git runs a git command in the work tree and returns what it prints, without the space
// around it.
func (s Source) Git(ctx context.Context, args ...string) (string, error) {
	return run(ctx, s.Dir, nil, "git", args...)
}

// Go runs a go command in the work tree, with additional variables.
func (s Source) Go(ctx context.Context, env []string, args ...string) (string, error) {
	return run(ctx, s.Dir, env, "go", args...)
}

// run runs a program and returns what it prints.
func run(ctx context.Context, dir string, env []string, name string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), env...)
	out, err := cmd.Output()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		return "", fmt.Errorf("%s %s: %w: %s", name, strings.Join(args, " "), err, bytes.TrimSpace(exit.Stderr))
	} else if err != nil {
		return "", fmt.Errorf("%s %s: %w", name, strings.Join(args, " "), err)
	}
	return strings.TrimSpace(string(out)), nil
}

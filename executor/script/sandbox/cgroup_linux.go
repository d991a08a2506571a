package sandbox

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// group is the control group (v2) of one script, below the agent's.
type group struct {
	dir  string
	home string // group of the agent and its launchers
}

// groupOf returns the group for the script of a launcher.
func groupOf(launcher int) (group, error) {
	home, err := home()
	return group{filepath.Join(home, fmt.Sprintf("piped-script-%d", launcher)), home}, err
}

// home returns the absolute path of this process's cgroup, of version 2, in the mounted file
// system.
func home() (string, error) {
	groups, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return "", err
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return "", err
	}
	pid := strconv.Itoa(os.Getpid())
	for _, dir := range homeCandidates(string(groups), string(mounts)) {
		members, err := os.ReadFile(filepath.Join(dir, "cgroup.procs"))
		if err == nil && slices.Contains(strings.Fields(string(members)), pid) {
			return dir, nil
		}
	}
	return "", errors.New("no control group of version 2 is mounted that holds the agent")
}

// homeCandidates returns the possible directories of a process's control group (v2),
// one for each mount that contains it. groups and mounts are the contents of its files
// cgroup and mountinfo in /proc.
func homeCandidates(groups, mounts string) (out []string) {
	path := ""
	for line := range strings.Lines(groups) {
		if rest, ok := strings.CutPrefix(line, "0::"); ok {
			path = strings.TrimSuffix(rest, "\n")
		}
	}
	for line := range strings.Lines(mounts) {
		mount, kind, _ := strings.Cut(line, " - ")
		f := strings.Fields(mount)
		if path == "" || len(f) < 5 || !strings.HasPrefix(kind, "cgroup2 ") {
			continue
		}
		if rel, err := filepath.Rel(f[3], path); err == nil && rel != ".." && !strings.HasPrefix(rel, "../") {
			out = append(out, filepath.Join(f[4], rel))
		}
	}
	return out
}

// enterGroup creates the group of this launcher's script and moves this process into
// it, so that its children start there.
func enterGroup() (group, error) {
	g, err := groupOf(os.Getpid())
	if err != nil {
		return group{}, err
	}
	g.end() // left by a killed launcher with the same PID
	if err := os.Mkdir(g.dir, 0o755); err != nil {
		return group{}, fmt.Errorf("make a control group: %w", err)
	}
	err = unix.Access(filepath.Join(g.dir, "cgroup.kill"), unix.W_OK)
	if err != nil {
		err = fmt.Errorf("control groups that can be killed need Linux 5.14: %w", err)
	} else {
		err = enter(g.dir)
	}
	if err != nil {
		return group{}, errors.Join(err, os.Remove(g.dir))
	}
	return g, nil
}

// leave moves this process back to its former group.
func (g group) leave() error { return enter(g.home) }

// enter moves this process into the control group at dir.
func enter(dir string) error {
	if err := os.WriteFile(filepath.Join(dir, "cgroup.procs"), []byte("0"), 0); err != nil {
		return fmt.Errorf("enter control group %s: %w", dir, err)
	}
	return nil
}

// kill kills every process of the group.
func (g group) kill() {
	_ = os.WriteFile(filepath.Join(g.dir, "cgroup.kill"), []byte("1"), 0) // the group may be gone
}

// end kills the processes of the group and removes it.
func (g group) end() {
	for {
		g.kill()
		events, err := os.ReadFile(filepath.Join(g.dir, "cgroup.events"))
		if err != nil || bytes.Contains(events, []byte("populated 0")) {
			break
		}
		time.Sleep(killEvery)
	}
	for limit := time.Now().Add(time.Second); ; time.Sleep(killEvery) {
		if err := os.Remove(g.dir); err == nil || errors.Is(err, fs.ErrNotExist) || time.Now().After(limit) {
			return // an empty group does no harm
		}
	}
}

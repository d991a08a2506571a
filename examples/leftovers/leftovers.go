// Package leftovers finds and ends the processes that a program has started,
// directly or not, and that still run when they should have ended. It knows them
// by an entry of their environment, which children inherit: a process that only
// names the same files, such as a pager of a person, is not one of them. It reads
// /proc, and never touches files. A test starts a process with the entry.
package leftovers

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"time"
)

// killTimeout is how long a process may take to end after SIGTERM.
const killTimeout = 5 * time.Second

// Process is a running process.
type Process struct {
	PID     int
	Command string // with its arguments
}

func (p Process) String() string { return fmt.Sprintf("process %d: %s", p.PID, p.Command) }

// End waits until no process but this one runs with entry, which is NAME=value, in
// its environment. Those that run after wait are ended and returned.
func End(entry string, wait time.Duration) []Process {
	return EndThose(func(environ, _ []byte) bool { return has(environ, entry) }, wait)
}

// EndThose is End for the processes that belong to the caller, by their environment and
// their command line, whose words end with NUL.
func EndThose(belongs func(environ, command []byte) bool, wait time.Duration) []Process {
	left := await(belongs, wait)
	signal(left, syscall.SIGTERM)
	if len(left) > 0 {
		signal(await(belongs, killTimeout), syscall.SIGKILL)
		await(belongs, killTimeout)
	}
	return left
}

func signal(all []Process, s syscall.Signal) {
	for _, p := range all {
		_ = syscall.Kill(p.PID, s) // it may have ended meanwhile
	}
}

// await returns the processes that still run when the time is over, at once when
// there are none.
func await(belongs func(environ, command []byte) bool, timeout time.Duration) []Process {
	for deadline := time.Now().Add(timeout); ; time.Sleep(50 * time.Millisecond) {
		running := those(belongs)
		if len(running) == 0 || time.Now().After(deadline) {
			return running
		}
	}
}

// processes returns the running processes with entry in their environment.
func processes(entry string) []Process {
	return those(func(environ, _ []byte) bool { return has(environ, entry) })
}

// those returns the running processes that belong to the caller. One that
// ends meanwhile, or that ended and was not waited for, is none.
func those(belongs func(environ, command []byte) bool) (running []Process) {
	dirs, _ := filepath.Glob("/proc/[0-9]*")
	for _, dir := range dirs {
		pid, err := strconv.Atoi(filepath.Base(dir))
		if err != nil || pid == os.Getpid() {
			continue
		}
		environ, command := describe(dir)
		if len(command) > 0 && belongs(environ, command) {
			words := bytes.ReplaceAll(bytes.TrimRight(command, "\x00"), []byte{0}, []byte{' '})
			running = append(running, Process{pid, string(words)})
		}
	}
	return running
}

// describe reads the environment and the command line of a process. While it replaces its program,
// both are empty for a moment: they are read again, for the process could be taken for another one.
func describe(dir string) (environ, command []byte) {
	for range 20 {
		environ, _ = os.ReadFile(filepath.Join(dir, "environ"))
		command, _ = os.ReadFile(filepath.Join(dir, "cmdline"))
		if len(environ) > 0 && len(command) > 0 {
			break
		}
		if _, err := os.Readlink(filepath.Join(dir, "exe")); err != nil {
			break // it has no program: it has ended, or is the kernel's
		}
		time.Sleep(time.Millisecond)
	}
	return environ, command
}

// has reports whether the entry is one of those in environ.
func has(environ []byte, entry string) bool {
	for e := range bytes.SplitSeq(environ, []byte{0}) {
		if string(e) == entry {
			return true
		}
	}
	return false
}

// Package marked finds and kills processes by a variable of their environment, which they inherit
// from the process that the agent started: also those that left their process group, and those
// that outlived the agent. It works on Linux only; elsewhere it finds none.
package marked

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
)

// Kill kills every process whose variable names dir or a path below it.
func Kill(variable, dir string) {
	for range 3 { // processes that fork meanwhile are found in the next round
		found := Processes(variable, dir)
		for _, pid := range found {
			_ = syscall.Kill(pid, syscall.SIGKILL) // it may have ended
		}
		if len(found) == 0 {
			return
		}
	}
}

// Processes returns the processes whose variable names dir or a path below it, without this one.
func Processes(variable, dir string) (out []int) {
	mark := []byte(variable + "=" + dir)
	files, _ := filepath.Glob("/proc/[0-9]*/environ") // the pattern is valid
	for _, file := range files {
		env, err := os.ReadFile(file)
		if err != nil { // another user's, or ended
			continue
		}
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(file)))
		if err != nil || pid == os.Getpid() {
			continue
		}
		for assignment := range bytes.SplitSeq(env, []byte{0}) {
			if rest, ok := bytes.CutPrefix(assignment, mark); ok && (len(rest) == 0 || rest[0] == '/') {
				out = append(out, pid)
				break
			}
		}
	}
	return out
}

package script

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/c785c783/piped/executor/script/sandbox"
	"github.com/c785c783/piped/executor/script/sandbox/sandboxtest"
)

// killedEnv names the file to which the script of the re-executed test binary writes.
const killedEnv = "SCRIPT_OF_A_KILLED_AGENT"

// TestScriptsEndWithTheirAgent: when the agent gets SIGKILL, its script ends at once, although it
// ignores signals, and what it started has left the session and emptied its environment.
func TestScriptsEndWithTheirAgent(t *testing.T) {
	if file := os.Getenv(killedEnv); file != "" {
		inModes(t, func(t *testing.T, mode sandbox.Mode) { runUntilKilled(t, mode, file) })
		return
	}
	inModes(t, func(t *testing.T, mode sandbox.Mode) {
		t.Parallel()
		file := filepath.Join(sandboxtest.PublicDir(t), "ticks")
		if err := os.WriteFile(file, nil, 0o666); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(file, 0o666); err != nil {
			t.Fatal(err)
		}
		agent := exec.Command(os.Args[0], "-test.run", "^"+t.Name()[:len(t.Name())-len(mode)-1]+"$/^"+string(mode)+"$")
		// The directories of a killed test are removed with those of this one.
		agent.Env = append(os.Environ(), killedEnv+"="+file, "TMPDIR="+sandboxtest.PublicDir(t))
		if err := agent.Start(); err != nil {
			t.Fatal(err)
		}
		await(t, "the script to run", func() bool { return !lastWrite(t, file).IsZero() })
		killed := time.Now()
		if err := agent.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		_ = agent.Wait() // it was killed
		await(t, "the script to end", func() bool { return time.Since(lastWrite(t, file)) > time.Second })
		t.Logf("the last sign of the script: %s after the agent was killed", lastWrite(t, file).Sub(killed).Round(time.Millisecond))
	})
}

// runUntilKilled runs a script that writes to a file for ever, as an agent that will be killed.
func runUntilKilled(t *testing.T, mode sandbox.Mode, file string) {
	f := newFixtureIn(t, mode)
	f.executor.Isolation.Allow = []string{filepath.Dir(file)}
	f.runScript("trap '' TERM HUP\nsetsid env -i PATH=$PATH sh -c \"trap '' TERM HUP; while :; do echo x >> " + file + "; sleep 0.02; done\" >/dev/null 2>&1 &\nwait")
	t.Error("the agent was not killed")
}

// lastWrite returns when a file was written last, the zero time if it is empty.
func lastWrite(t *testing.T, file string) time.Time {
	info, err := os.Stat(file)
	if err != nil {
		t.Fatal(err)
	}
	if info.Size() == 0 {
		return time.Time{}
	}
	return info.ModTime()
}

func await(t *testing.T, what string, done func() bool) {
	t.Helper()
	for end := time.Now().Add(10 * time.Minute); !done(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("waited ten minutes for %s", what)
		}
	}
}

package script

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/c785c783/piped/executor/script/sandbox"
	"github.com/c785c783/piped/piped/deploy"
)

// TestNothingIsLeft: all processes of a script end with it, whether it exits or is
// stopped, and wherever its children went. The cleanup of newFixture finds leftover
// processes; this test also checks the process group.
func TestNothingIsLeft(t *testing.T) {
	children := map[string]string{
		"none":                  "",
		"in the background":     "sleep 1000 &",
		"deaf to signals":       "(trap '' TERM INT HUP; sleep 1000; sleep 1000) &",
		"of a shell of its own": "sh -c 'sleep 1000 & sleep 1000 & wait' &",
		"in another session":    "setsid sleep 1000 &",
		"holding no output":     "sleep 1000 >/dev/null 2>&1 &",
	}
	ends := map[string]struct {
		last   string // of the script
		stop   deploy.StopReason
		status deploy.StageStatus
		reason string
	}{
		"by itself":       {"exit 1", "", deploy.StageFailure, "the script failed: it exited with code 1"},
		"cancelled":       {"sleep 1000", deploy.StopCancelled, deploy.StageCancelled, "the script was stopped: it was ended by signal 15 (terminated)"},
		"cancelled, deaf": {"trap '' TERM; echo deaf; while :; do sleep 1000; done", deploy.StopCancelled, deploy.StageCancelled, "the script was stopped: it was ended by signal 9 (killed)"},
		// Its child has begun when it is stopped: one that is not yet more than a copy of the shell has the trap.
		"cancelled, ending itself": {"trap 'exit 0' TERM; sh -c 'echo deaf; exec sleep 1000' & wait", deploy.StopCancelled, deploy.StageCancelled, "the script was stopped: it ended after SIGTERM"},
	}
	inModes(t, func(t *testing.T, mode sandbox.Mode) {
		t.Parallel()
		for child, start := range children {
			for end, c := range ends {
				t.Run(end+", children "+child, func(t *testing.T) {
					t.Parallel()
					f := newFixtureIn(t, mode)
					switch { // deaf processes are killed after it, all others end before
					case strings.HasSuffix(end, "deaf"):
						f.executor.Grace = 300 * time.Millisecond
					case strings.HasPrefix(child, "deaf"):
						f.executor.Grace = 15 * time.Second
					}
					f.deployment(options{Run: start + "\necho $$\necho ready\n" + c.last}, nil)
					f.startStage("s")
					stop, result := f.begin("s")
					f.log.await(t, "ready")
					if strings.Contains(c.last, "deaf") { // after its trap is set
						f.log.await(t, "deaf")
					}
					if c.stop != "" {
						stop(c.stop)
					}
					wantResult(t, <-result, c.status, c.reason)
					f.wantNoGroup(f.log.printed()[0])
					f.wantNothingLeft()
				})
			}
		}
	})
}

// TestStopReasons: each stop reason ends the script, and the stage with the
// corresponding status.
func TestStopReasons(t *testing.T) {
	inModes(t, func(t *testing.T, mode sandbox.Mode) {
		for why, want := range map[deploy.StopReason]deploy.StageStatus{
			deploy.StopTimedOut: deploy.StageFailure,
			deploy.StopSkipped:  deploy.StageSkipped,
			deploy.StopShutdown: deploy.StageFailure,
		} {
			t.Run(string(why), func(t *testing.T) {
				f := newFixtureIn(t, mode)
				f.deployment(options{Run: "echo $$; echo ready; sleep 1000"}, nil)
				f.startStage("s")
				stop, result := f.begin("s")
				f.log.await(t, "ready")
				stop(why)
				wantResult(t, <-result, want, "the script was stopped: it was ended by signal 15 (terminated)")
				f.wantNoGroup(f.log.printed()[0])
			})
		}
	})
}

// wantNoGroup fails if a process of the group runs; zombies do not count. In namespaces
// the number has no meaning.
func (f *fixture) wantNoGroup(group string) {
	t := f.t
	t.Helper()
	if f.mode == sandbox.Namespaces {
		return
	}
	files, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		stat, err := os.ReadFile(file)
		if err != nil {
			continue
		}
		_, rest, _ := strings.Cut(string(stat), ") ") // after the name: state, parent, group
		if f := strings.Fields(rest); f[2] == group && f[0] != "Z" && f[0] != "X" {
			t.Errorf("a process of the script's group lives: %s", stat)
		}
	}
}

// TestGrace: all processes of the script get the grace period, not only its shell.
func TestGrace(t *testing.T) { inModes(t, testGrace) }

func testGrace(t *testing.T, mode sandbox.Mode) {
	f := newFixtureIn(t, mode)
	f.deployment(options{Run: `sh -c 'trap "sleep 0.2; echo in order; exit" TERM; echo ready; while :; do sleep 0.05; done'; echo not reached`}, nil)
	f.startStage("s")
	stop, result := f.begin("s")
	f.log.await(t, "ready")
	stop(deploy.StopCancelled)
	wantResult(t, <-result, deploy.StageCancelled, "the script was stopped: it was ended by signal 15 (terminated)")
	if got := f.log.printed(); !slices.Contains(got, "in order") || slices.Contains(got, "not reached") {
		t.Errorf("printed %q, want the child's last words and no more", got)
	}
}

func TestStoppedBeforeTheStart(t *testing.T) {
	f := newFixture(t)
	f.deployment(options{Run: "echo x >> " + f.count}, nil)
	f.startStage("s")
	ctx, stop := context.WithCancelCause(t.Context())
	stop(deploy.StopCancelled)
	if got := f.executor.Execute(ctx, f.stageRun("s", false)); got.Status != deploy.StageCancelled {
		t.Errorf("the stage ended as %+v, want CANCELLED", got)
	}
	f.wantRuns(0)
}

// TestInterrupted: an interrupted script is not run again, unless the stage allows it.
func TestInterrupted(t *testing.T) {
	script := func(f *fixture) string {
		return "echo x >> " + f.count + "; echo ready; [ -e " + f.count + ".go ] || sleep 1000"
	}
	begin := func(t *testing.T, onInterrupted string) *fixture {
		f := newFixture(t)
		f.deployment(options{Run: script(f), OnInterrupted: onInterrupted}, nil)
		f.startStage("s")
		stop, result := f.begin("s")
		f.log.await(t, "ready")
		stop(deploy.StopShutdown)
		<-result
		if err := os.WriteFile(f.count+".go", nil, 0o600); err != nil {
			t.Fatal(err)
		}
		return f
	}
	t.Run("fails", func(t *testing.T) {
		f := begin(t, "")
		for range 2 {
			wantResult(t, f.executor.Execute(t.Context(), f.stageRun("s", true)), deploy.StageFailure,
				"interrupted: the agent ended while the script ran, and its progress is unknown; it is not run again (a SCRIPT_RUN that may be: onInterrupted: rerun)")
		}
		f.wantRuns(1)
	})
	t.Run("runs again", func(t *testing.T) {
		f := begin(t, "rerun")
		wantResult(t, f.executor.Execute(t.Context(), f.stageRun("s", true)), deploy.StageSuccess, "")
		f.wantRuns(2)
	})
}

// TestResumedBeforeTheStart: without a recorded intent the script had not started.
func TestResumedBeforeTheStart(t *testing.T) {
	f := newFixture(t)
	f.deployment(options{Run: "echo x >> " + f.count}, nil)
	f.startStage("s")
	run := f.stageRun("s", false)
	run.SwapMetadata = func(context.Context, string, string, string) error { return errors.New("disk full") }
	wantResult(t, f.executor.Execute(t.Context(), run), deploy.StageFailure, "record that the script is about to start: disk full")
	f.wantRuns(0)
	wantResult(t, f.executor.Execute(t.Context(), f.stageRun("s", true)), deploy.StageSuccess, "")
	f.wantRuns(1)
}

// TestEndIsKnown: an exited script is not run again if the agent died before the
// stage's end was stored.
func TestEndIsKnown(t *testing.T) {
	for code, want := range map[string]deploy.StageResult{
		"0": {Status: deploy.StageSuccess},
		"7": {Status: deploy.StageFailure, Reason: "the script failed: it exited with code 7"},
	} {
		f := newFixture(t)
		f.deployment(options{Run: "echo x >> " + f.count + "; exit " + code, OnInterrupted: "rerun"}, nil)
		f.startStage("s")
		for _, resumed := range []bool{false, true} {
			wantResult(t, f.executor.Execute(t.Context(), f.stageRun("s", resumed)), want.Status, want.Reason)
		}
		f.wantRuns(1)
	}
}

// TestLeftovers: New ends the processes of a killed agent and removes its files.
func TestLeftovers(t *testing.T) {
	f := newFixture(t)
	ws, err := newWorkspace(f.executor.Dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(ws.home, "f"), nil, 0o400); err != nil {
		t.Fatal(err)
	}
	orphan := exec.Command("/bin/sh", "-c", "trap '' TERM; echo ready; while :; do sleep 1000; done")
	orphan.Env = []string{"PATH=" + searchPath, markVariable + "=" + ws.dir}
	orphan.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	out, err := orphan.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := orphan.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := out.Read(make([]byte, 6)); err != nil {
		t.Fatal(err)
	}
	if err := ws.lock.Close(); err != nil { // as the end of the agent does
		t.Fatal(err)
	}
	f.executor = f.newExecutor(f.executor.Dir)
	f.wantNothingLeft()
	var exit *exec.ExitError
	if err := orphan.Wait(); !errors.As(err, &exit) || exit.String() != "signal: killed" {
		t.Errorf("the orphan ended with %v, want it killed", err)
	}
}

// TestNeighboursLive: only the run's own processes are killed.
func TestNeighboursLive(t *testing.T) {
	f := newFixture(t)
	neighbour := exec.Command("sleep", "1000")
	neighbour.Env = []string{markVariable + "=" + f.executor.Dir + "-of-another-agent"}
	if err := neighbour.Start(); err != nil {
		t.Fatal(err)
	}
	f.executor = f.newExecutor(f.executor.Dir)
	if err := neighbour.Process.Signal(syscall.Signal(0)); err != nil {
		t.Errorf("another agent's process is gone: %v", err)
	}
	if err := neighbour.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	if _, err := neighbour.Process.Wait(); err != nil {
		t.Fatal(err)
	}
}

func TestUnlock(t *testing.T) {
	dir := t.TempDir()
	deep := filepath.Join(dir, "a", "b")
	if err := errors.Join(os.MkdirAll(deep, 0o700), os.Chmod(deep, 0o500), os.Chmod(filepath.Dir(deep), 0o000)); err != nil {
		t.Fatal(err)
	}
	if err := unlock(dir); err != nil {
		t.Fatal(err)
	}
	for _, d := range []string{filepath.Dir(deep), deep} {
		if info, err := os.Stat(d); err != nil || info.Mode().Perm() != 0o700 {
			t.Errorf("%s: %v, %v, want mode 0700", d, info, err)
		}
	}
}

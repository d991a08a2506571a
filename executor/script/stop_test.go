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

// TestNothingIsLeft: what a script starts ends with it, whether it ends by
// itself or is stopped, and wherever its children went. newLab's cleanup looks
// for processes; here the process group is asked, too.
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
		"by itself":                {"exit 1", "", deploy.StageFailure, "the script failed: it exited with code 1"},
		"cancelled":                {"sleep 1000", deploy.StopCancelled, deploy.StageCancelled, "the script was stopped: it was ended by signal 15 (terminated)"},
		"cancelled, deaf":          {"trap '' TERM; echo deaf; while :; do sleep 1000; done", deploy.StopCancelled, deploy.StageCancelled, "the script was stopped: it was ended by signal 9 (killed)"},
		"cancelled, ending itself": {"trap 'exit 0' TERM; sleep 1000 & echo deaf; wait", deploy.StopCancelled, deploy.StageCancelled, "the script was stopped: it ended when it was told to"},
	}
	inModes(t, func(t *testing.T, mode sandbox.Mode) {
		for child, start := range children {
			for end, c := range ends {
				t.Run(end+", children "+child, func(t *testing.T) {
					t.Parallel()
					l := newLabIn(t, mode)
					switch { // what is deaf is killed after it, all else ends before
					case strings.HasSuffix(end, "deaf"):
						l.executor.Grace = 300 * time.Millisecond
					case strings.HasPrefix(child, "deaf"):
						l.executor.Grace = 15 * time.Second
					}
					l.deployment(options{Run: start + "\necho $$\necho ready\n" + c.last}, nil)
					l.startStage("s")
					stop, result := l.begin("s")
					l.log.await(t, "ready")
					if strings.Contains(c.last, "deaf") { // its trap is set
						l.log.await(t, "deaf")
					}
					if c.stop != "" {
						stop(c.stop)
					}
					wantResult(t, <-result, c.status, c.reason)
					l.wantNoGroup(l.log.printed()[0])
					l.wantNothingLeft()
				})
			}
		}
	})
}

// TestStopReasons: each reason to stop a stage ends the script, and the stage as
// the reason asks for.
func TestStopReasons(t *testing.T) {
	inModes(t, func(t *testing.T, mode sandbox.Mode) {
		for why, want := range map[deploy.StopReason]deploy.StageStatus{
			deploy.StopTimedOut: deploy.StageFailure,
			deploy.StopSkipped:  deploy.StageSkipped,
			deploy.StopShutdown: deploy.StageFailure,
		} {
			t.Run(string(why), func(t *testing.T) {
				l := newLabIn(t, mode)
				l.deployment(options{Run: "echo $$; echo ready; sleep 1000"}, nil)
				l.startStage("s")
				stop, result := l.begin("s")
				l.log.await(t, "ready")
				stop(why)
				wantResult(t, <-result, want, "the script was stopped: it was ended by signal 15 (terminated)")
				l.wantNoGroup(l.log.printed()[0])
			})
		}
	})
}

// wantNoGroup fails if a process of the group lives. One that has ended and
// waits for its parent to notice does not. In namespaces the number says nothing.
func (l *lab) wantNoGroup(group string) {
	t := l.t
	t.Helper()
	if l.mode == sandbox.Namespaces {
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

// TestGrace: every process of the script, not only its shell, has time to end
// in order.
func TestGrace(t *testing.T) { inModes(t, testGrace) }

func testGrace(t *testing.T, mode sandbox.Mode) {
	l := newLabIn(t, mode)
	l.deployment(options{Run: `sh -c 'trap "sleep 0.2; echo in order; exit" TERM; echo ready; while :; do sleep 0.05; done'; echo not reached`}, nil)
	l.startStage("s")
	stop, result := l.begin("s")
	l.log.await(t, "ready")
	stop(deploy.StopCancelled)
	wantResult(t, <-result, deploy.StageCancelled, "the script was stopped: it was ended by signal 15 (terminated)")
	if got := l.log.printed(); !slices.Contains(got, "in order") || slices.Contains(got, "not reached") {
		t.Errorf("printed %q, want the child's last words and no more", got)
	}
}

func TestStoppedBeforeTheStart(t *testing.T) {
	l := newLab(t)
	l.deployment(options{Run: "echo x >> " + l.count}, nil)
	l.startStage("s")
	ctx, stop := context.WithCancelCause(t.Context())
	stop(deploy.StopCancelled)
	if got := l.executor.Execute(ctx, l.stageRun("s", false)); got.Status != deploy.StageCancelled {
		t.Errorf("the stage ended as %+v, want CANCELLED", got)
	}
	l.wantRuns(0)
}

// TestInterrupted: a script that was cut off by the end of the agent is not run
// a second time, unless the stage allows it.
func TestInterrupted(t *testing.T) {
	script := func(l *lab) string {
		return "echo x >> " + l.count + "; echo ready; [ -e " + l.count + ".go ] || sleep 1000"
	}
	begin := func(t *testing.T, onInterrupted string) *lab {
		l := newLab(t)
		l.deployment(options{Run: script(l), OnInterrupted: onInterrupted}, nil)
		l.startStage("s")
		stop, result := l.begin("s")
		l.log.await(t, "ready")
		stop(deploy.StopShutdown)
		<-result
		if err := os.WriteFile(l.count+".go", nil, 0o600); err != nil {
			t.Fatal(err)
		}
		return l
	}
	t.Run("fails", func(t *testing.T) {
		l := begin(t, "")
		for range 2 {
			wantResult(t, l.executor.Execute(t.Context(), l.stageRun("s", true)), deploy.StageFailure,
				"interrupted: the agent ended while the script ran, and how far it came is unknown; it is not run again (a SCRIPT_RUN that may be: onInterrupted: rerun)")
		}
		l.wantRuns(1)
	})
	t.Run("runs again", func(t *testing.T) {
		l := begin(t, "rerun")
		wantResult(t, l.executor.Execute(t.Context(), l.stageRun("s", true)), deploy.StageSuccess, "")
		l.wantRuns(2)
	})
}

// TestResumedBeforeTheStart: an agent that died before it recorded the intent
// had not started the script.
func TestResumedBeforeTheStart(t *testing.T) {
	l := newLab(t)
	l.deployment(options{Run: "echo x >> " + l.count}, nil)
	l.startStage("s")
	run := l.stageRun("s", false)
	run.SwapMetadata = func(context.Context, string, string, string) error { return errors.New("disk full") }
	wantResult(t, l.executor.Execute(t.Context(), run), deploy.StageFailure, "record that the script is about to start: disk full")
	l.wantRuns(0)
	wantResult(t, l.executor.Execute(t.Context(), l.stageRun("s", true)), deploy.StageSuccess, "")
	l.wantRuns(1)
}

// TestEndIsKnown: a script that ended by itself is not run again although the
// agent died before the stage's end was stored.
func TestEndIsKnown(t *testing.T) {
	for code, want := range map[string]deploy.StageResult{
		"0": {Status: deploy.StageSuccess},
		"7": {Status: deploy.StageFailure, Reason: "the script failed: it exited with code 7"},
	} {
		l := newLab(t)
		l.deployment(options{Run: "echo x >> " + l.count + "; exit " + code, OnInterrupted: "rerun"}, nil)
		l.startStage("s")
		for _, resumed := range []bool{false, true} {
			wantResult(t, l.executor.Execute(t.Context(), l.stageRun("s", resumed)), want.Status, want.Reason)
		}
		l.wantRuns(1)
	}
}

// TestLeftovers: New ends what a killed agent left running and removes its files.
func TestLeftovers(t *testing.T) {
	l := newLab(t)
	ws, err := newWorkspace(l.executor.Dir)
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
	l.executor = l.newExecutor(l.executor.Dir)
	l.wantNothingLeft()
	var exit *exec.ExitError
	if err := orphan.Wait(); !errors.As(err, &exit) || exit.String() != "signal: killed" {
		t.Errorf("the orphan ended with %v, want it killed", err)
	}
}

// TestNeighboursLive: only a run's own processes are killed.
func TestNeighboursLive(t *testing.T) {
	l := newLab(t)
	neighbour := exec.Command("sleep", "1000")
	neighbour.Env = []string{markVariable + "=" + l.executor.Dir + "-of-another-agent"}
	if err := neighbour.Start(); err != nil {
		t.Fatal(err)
	}
	l.executor = l.newExecutor(l.executor.Dir)
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

func TestRunsIn(t *testing.T) {
	for stat, want := range map[string]bool{
		"12 (sh) S 1 34 34 0":        true,
		"12 (a) Z (b) R 1 34 34 0":   true, // a name may hold anything
		"12 (sleep) Z 1 34 34 0":     false,
		"12 (sh) S 34 33 34 0":       false,
		"":                           false,
		"12 (sh) S":                  false,
		"12 (sh) S 1 345 345 0 34 3": false,
	} {
		if got := runsIn([]byte(stat), 34); got != want {
			t.Errorf("%q: %v, want %v", stat, got, want)
		}
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

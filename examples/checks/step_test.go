package main

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/c785c783/piped/examples/leftovers"
)

// shell returns a step that runs a script in a scratch directory.
func shell(t *testing.T, s scratch, name, script string, needs ...*step) *step {
	return &step{name: name, args: []string{"sh", "-c", script}, env: append(os.Environ(), "TMPDIR="+s.dir), log: filepath.Join(t.TempDir(), name), needs: needs}
}

// began continues a script: it waits until the process in the background is the program, which the
// shell and setsid become before it.
func began(program string) string {
	return " until grep -q '^" + program + "' /proc/$!/cmdline; do sleep 0.01; done"
}

func testScratch(t *testing.T) scratch {
	t.Helper()
	s, err := newScratch()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.remove() })
	return s
}

// TestStepsWaitForTheirNeeds: a step runs after what it needs, and not at all when that
// failed; after what it only follows it runs however that ended.
func TestStepsWaitForTheirNeeds(t *testing.T) {
	s := testScratch(t)
	file := filepath.Join(t.TempDir(), "made")
	first := shell(t, s, "first", "sleep 0.1; touch "+file)
	second := shell(t, s, "second", "ls "+file, first)
	broken := shell(t, s, "broken", "echo no such luck; exit 3")
	never := shell(t, s, "never", "rm "+file, broken)
	late := shell(t, s, "late", "grep luck "+broken.log)
	late.after = []*step{broken}
	steps := []*step{late, never, second, first, broken}
	var out bytes.Buffer
	runAll(t.Context(), steps, &out)
	if first.err != nil || second.err != nil || broken.err == nil || late.err != nil || !errors.Is(never.err, errLeftOut) {
		t.Errorf("first %v, second %v, broken %v, late %v, never %v", first.err, second.err, broken.err, late.err, never.err)
	}
	report(&out, steps, s.end(t.Context()), 0, t.TempDir())
	if text := out.String(); !strings.Contains(text, "FAILED broken: no such luck; log: "+broken.log) || strings.Contains(text, "never") {
		t.Errorf("report:\n%s", text)
	}
	if verdict(steps, nil) == nil || verdict([]*step{first, second}, nil) != nil || verdict([]*step{first}, []string{"a file"}) == nil {
		t.Error("wrong verdict")
	}
}

// TestLeftoversAreFoundAndRemoved: a process that left its parent and a file are named
// and removed; what belongs to others is not touched.
func TestLeftoversAreFoundAndRemoved(t *testing.T) {
	s, other := testScratch(t), testScratch(t)
	one := shell(t, s, "leaves", "touch $TMPDIR/file; setsid sleep 600 >/dev/null 2>&1 &"+began("sleep"))
	stays := shell(t, other, "stays", "setsid sleep 600 >/dev/null 2>&1 &"+began("sleep"))
	runAll(t.Context(), []*step{one, stays}, &bytes.Buffer{})
	left := s.endAfter(t.Context(), 300*time.Millisecond)
	if len(left) != 2 || !strings.HasSuffix(left[0], "sleep 600") || left[1] != "file "+filepath.Join(s.dir, "file") {
		t.Errorf("left: %q", left)
	}
	if running := leftovers.EndThose(s.owns, 0); len(running) > 0 {
		t.Errorf("still running: %v", running)
	}
	if _, err := os.Stat(s.dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the directory: %v", err)
	}
	if running := leftovers.EndThose(other.owns, 0); len(running) != 1 {
		t.Errorf("the process of another run: %v", running)
	}
	other.endAfter(t.Context(), 0)
}

// TestLeftoversWithoutAnEnvironment: a process with an empty environment is known by its
// command line.
func TestLeftoversWithoutAnEnvironment(t *testing.T) {
	s := testScratch(t)
	runAll(t.Context(), []*step{shell(t, s, "leaves", "touch $TMPDIR/file; env -i setsid tail -f $TMPDIR/file >/dev/null 2>&1 &"+began("tail"))}, &bytes.Buffer{})
	if left := s.endAfter(t.Context(), 300*time.Millisecond); len(left) != 2 || !strings.HasSuffix(left[0], ": tail -f "+filepath.Join(s.dir, "file")) {
		t.Errorf("left: %q", left)
	}
}

// TestAnInterruptEndsEverything: steps get the signal of a terminal, and what they
// leave is removed.
func TestAnInterruptEndsEverything(t *testing.T) {
	s := testScratch(t)
	ctx, cancel := context.WithCancel(t.Context())
	begun := filepath.Join(t.TempDir(), "begun")
	one := shell(t, s, "long", "trap 'exit 1' INT; touch $TMPDIR/file "+begun+"; sleep 600 & wait")
	go func() {
		for _, err := os.Stat(begun); err != nil; _, err = os.Stat(begun) {
			time.Sleep(5 * time.Millisecond)
		}
		cancel()
	}()
	runAll(ctx, []*step{one}, &bytes.Buffer{})
	if one.err == nil {
		t.Error("an interrupted step passed")
	}
	if left := s.endAfter(ctx, time.Second); len(left) > 0 {
		t.Errorf("left: %q", left)
	}
	if running := leftovers.EndThose(s.owns, 0); len(running) > 0 {
		t.Errorf("still running: %v", running)
	}
}

package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// A report is at most as long as what people see of a CI run without scrolling.
const (
	reportLines = 14
	lineLength  = 480
	slow        = 2 * time.Second
)

// report prints what failed, why, and where the logs are, and ends with the number of
// tests. It writes the tests that took longest to slow.txt.
func report(out io.Writer, steps []*step, leftovers []string, took time.Duration, logs string) {
	var lines []string
	for _, s := range steps {
		if s.err == nil || errors.Is(s.err, errLeftOut) {
			continue
		}
		if s.tests != nil && len(s.tests.failed) > 0 {
			lines = append(lines, s.tests.failures()...)
			continue
		}
		lines = append(lines, fmt.Sprintf("FAILED %s: %s; log: %s", s.name, lastLine(s.log, s.err), s.log))
	}
	for _, l := range leftovers {
		lines = append(lines, "LEFT BEHIND "+l)
	}
	if more := len(lines) - reportLines; more > 0 {
		all := filepath.Join(logs, "failed.txt")
		_ = os.WriteFile(all, []byte(strings.Join(lines, "\n")+"\n"), 0o644) // the lines above it are all in the logs, too
		lines = append(lines[:reportLines], fmt.Sprintf("and %d more: %s", more, all))
	}
	if rest := moreReasons(steps); len(lines) < reportLines {
		lines = append(lines, rest[:min(len(rest), reportLines-len(lines))]...)
	}
	for _, l := range lines {
		if len(l) > lineLength {
			l = l[:lineLength] + "…"
		}
		fmt.Fprintln(out, l)
	}
	writeSlow(filepath.Join(logs, "slow.txt"), steps)
	passed, failed, skipped := 0, 0, 0
	for _, s := range steps {
		if s.tests != nil {
			passed, failed, skipped = passed+s.tests.passed, failed+len(s.tests.failed), skipped+s.tests.skipped
		}
	}
	fmt.Fprintf(out, "logs: %s; took %s\n", logs, took.Round(time.Second))
	fmt.Fprintf(out, "tests: %d passed, %d failed, %d skipped\n", passed, failed, skipped)
}

// failures returns a line for each test that failed, with the first reason.
func (t *tests) failures() (lines []string) {
	for _, f := range t.failed {
		why := ""
		if len(f.why) > 0 {
			why = f.why[0]
		}
		if len(why) > lineLength/2 {
			why = why[:lineLength/2] + "…"
		}
		lines = append(lines, fmt.Sprintf("FAILED %s: %s; log: %s", f.name(), why, f.log))
	}
	return lines
}

// moreReasons returns a line for each further reason of the tests that failed.
func moreReasons(steps []*step) (lines []string) {
	for _, s := range steps {
		if s.tests == nil {
			continue
		}
		for _, f := range s.tests.failed {
			for _, why := range f.why[min(1, len(f.why)):] {
				lines = append(lines, fmt.Sprintf("also %s: %s", f.name(), why))
			}
		}
	}
	return lines
}

// name returns the package within the module, and the test.
func (id testID) name() string {
	return strings.TrimSpace(strings.TrimPrefix(id.Package, module) + " " + id.Test)
}

// lastLine returns the last line of a log, or else the error.
func lastLine(log string, err error) string {
	data, readErr := os.ReadFile(log)
	all := strings.Split(strings.TrimSpace(string(data)), "\n")
	if last := all[len(all)-1]; readErr == nil && last != "" {
		return last
	}
	return err.Error()
}

// writeSlow writes the tests that took longer than slow, the longest first.
func writeSlow(path string, steps []*step) {
	var all []duration
	for _, s := range steps {
		if s.tests != nil {
			all = append(all, s.tests.ended...)
		}
	}
	slices.SortFunc(all, func(a, b duration) int { return cmp.Compare(b.took, a.took) })
	var b strings.Builder
	for _, d := range all {
		if d.took >= slow {
			fmt.Fprintf(&b, "%8.1f s  %s\n", d.took.Seconds(), d.name())
		}
	}
	_ = os.WriteFile(path, []byte(b.String()), 0o644) // a table for people, without which nothing fails
}

// verdict returns an error when a step failed or something was left behind.
func verdict(steps []*step, leftovers []string) error {
	for _, s := range steps {
		if s.err != nil {
			return errors.New("not everything passed; see above")
		}
	}
	if len(leftovers) > 0 {
		return errors.New("the tests left something behind; see above")
	}
	return nil
}

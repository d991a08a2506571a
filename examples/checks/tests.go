package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// tests reads the events that `go test -json` writes. It passes the text on to a log,
// shows the result of each package, and writes the output of each test that failed to a
// file of its own.
type tests struct {
	dir     string // receives the output of failed tests
	log     io.Writer
	out     *lines
	rest    []byte // of a line that is not complete yet
	outputs map[testID]*bytes.Buffer
	failed  []failure
	ended   []duration
	passed  int
	skipped int
}

// testID names a test; Test is empty for the package itself.
type testID struct{ Package, Test string }

// failure is a test or package that failed.
type failure struct {
	testID
	why []string // what its output says about it, the most important first
	log string   // the file with its output
}

// duration is how long a test took, pauses for other tests included.
type duration struct {
	testID
	took time.Duration
}

// event is a line of `go test -json`; see `go doc test2json`.
type event struct {
	Action, Package, ImportPath, Test, Output string
	Elapsed                                   float64 // seconds
}

func (t *tests) begin(log io.Writer, out *lines) {
	t.log, t.out, t.outputs = log, out, map[testID]*bytes.Buffer{}
}

// Write takes a piece of the events. It fails only when the log cannot be written.
func (t *tests) Write(p []byte) (int, error) {
	t.rest = append(t.rest, p...)
	for {
		line, rest, complete := bytes.Cut(t.rest, []byte("\n"))
		if !complete {
			return len(p), nil
		}
		t.rest = rest
		if err := t.line(line); err != nil {
			return 0, err
		}
	}
}

func (t *tests) line(line []byte) error {
	var e event
	if json.Unmarshal(line, &e) != nil || e.Action == "" { // the go command's own words
		_, err := fmt.Fprintf(t.log, "%s\n", line)
		return err
	}
	if e.Package == "" {
		e.Package, _, _ = strings.Cut(e.ImportPath, " ") // of a build
	}
	id := testID{e.Package, e.Test}
	switch e.Action {
	case "output", "build-output":
		return t.output(id, e.Output)
	case "pass", "fail", "skip", "build-fail":
		return t.end(id, e)
	}
	return nil
}

// output keeps the text of a test until it is known how the test ends.
func (t *tests) output(id testID, text string) error {
	if t.outputs[id] == nil {
		t.outputs[id] = &bytes.Buffer{}
	}
	t.outputs[id].WriteString(text)
	if id.Test == "" && (strings.HasPrefix(text, "ok  \t") || strings.HasPrefix(text, "FAIL\t")) {
		t.out.printf("%s", text)
	}
	_, err := io.WriteString(t.log, text)
	return err
}

func (t *tests) end(id testID, e event) error {
	text := t.outputs[id]
	delete(t.outputs, id)
	if id.Test == "" {
		text = t.unended(id.Package, text)
	} else {
		t.ended = append(t.ended, duration{id, time.Duration(e.Elapsed * float64(time.Second))})
	}
	switch {
	case e.Action == "skip" && id.Test != "":
		t.skipped++
	case e.Action == "pass" && id.Test != "":
		t.passed++
	case e.Action == "fail", e.Action == "build-fail":
		return t.fail(id, text)
	}
	return nil
}

// unended adds to the output of a package, which has ended, that of its tests that have not: what a
// crash or the end of the time has interrupted.
func (t *tests) unended(pkg string, own *bytes.Buffer) *bytes.Buffer {
	var all bytes.Buffer
	for _, id := range slices.SortedFunc(maps.Keys(t.outputs), func(a, b testID) int { return cmp.Compare(a.Test, b.Test) }) {
		if id.Package == pkg {
			all.Write(t.outputs[id].Bytes())
			delete(t.outputs, id)
		}
	}
	if own != nil {
		all.Write(own.Bytes())
	}
	return &all
}

// fail records a failure, unless it only repeats that of a subtest or of a test of the
// package.
func (t *tests) fail(id testID, text *bytes.Buffer) error {
	for _, f := range t.failed {
		if f.Package == id.Package && (id.Test == "" || strings.HasPrefix(f.Test, id.Test+"/")) {
			return nil
		}
	}
	if text == nil {
		text = &bytes.Buffer{}
	}
	f := failure{testID: id, why: reasons(text.String(), strings.TrimPrefix(id.Package, module)), log: filepath.Join(t.dir, fileName(id)+".log")}
	t.failed = append(t.failed, f)
	if err := os.MkdirAll(t.dir, 0o755); err != nil {
		return err
	}
	return os.WriteFile(f.log, text.Bytes(), 0o644)
}

// fileName makes a file name of a test's name.
func fileName(id testID) string {
	name := strings.Trim(strings.TrimPrefix(id.Package, module)+"."+id.Test, "./")
	return strings.Map(func(r rune) rune {
		if r == '/' || r == ' ' || r == ':' {
			return '_'
		}
		return r
	}, name)
}

// reasons returns the lines of a test's output that say why it failed: that of a panic or a
// data race, and the errors of the test, each with the lines of a comparison that differ; of
// an output without them, what the test logged, or else the first line there is. dir is the
// folder of the package's source.
func reasons(output, dir string) []string {
	var crashes, errs, logged, others []string
	lines := strings.Split(output, "\n")
	for i, line := range lines {
		text := strings.TrimSpace(line)
		switch {
		case strings.HasPrefix(text, "panic: test timed out"):
			crashes = append(crashes, text+"; "+strings.Join(paragraph(lines[i+1:]), " "))
		case strings.HasPrefix(text, "panic:"), strings.HasPrefix(text, "WARNING: DATA RACE"), strings.HasPrefix(text, "fatal error:"):
			crashes = append(crashes, text)
		case text == "", text == "PASS", isFrame(text), strings.HasPrefix(text, "FAIL"), strings.HasPrefix(text, "exit status"):
		case isMessage(text) && isLog(text, dir):
			logged = append(logged, text)
		case isMessage(text):
			errs = append(errs, text+differences(lines[i+1:]))
		default:
			others = append(others, text)
		}
	}
	if found := append(crashes, errs...); len(found) > 0 {
		return found
	}
	return append(logged, others[:min(1, len(others))]...)
}

// paragraph returns the lines before an empty one: after the end of the time, the tests that run.
func paragraph(lines []string) (out []string) {
	for _, line := range lines {
		if line = strings.TrimSpace(line); line == "" {
			break
		}
		out = append(out, line)
	}
	return out
}

// isLog reports whether a message was written by t.Log, which go test does not distinguish from
// t.Error: by the line of the source that wrote it.
func isLog(message, dir string) bool {
	name, rest, _ := strings.Cut(message, ":")
	number, _, _ := strings.Cut(rest, ":")
	n, err := strconv.Atoi(number)
	if err != nil {
		return false
	}
	source, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil {
		return false // of a helper in another folder: rather an error too many
	}
	lines := strings.Split(string(source), "\n")
	return n <= len(lines) && logCall.MatchString(lines[n-1])
}

var logCall = regexp.MustCompile(`\bt\.Logf?\(`)

// differences returns the lines that differ of the comparison (-want +got) that follows a
// test's message, each after a space.
func differences(after []string) (differing string) {
	for _, line := range after {
		text := strings.TrimSpace(line)
		if isMessage(text) || isFrame(text) {
			break
		}
		if strings.HasPrefix(text, "-") || strings.HasPrefix(text, "+") {
			differing += " " + strings.Join(strings.Fields(text), " ")
		}
	}
	return differing
}

// isFrame reports whether a line is one that begins or ends a test.
func isFrame(line string) bool {
	return strings.HasPrefix(line, "===") || strings.HasPrefix(line, "---")
}

// isMessage reports whether a line was written by t.Error: the name and line of a Go file, and
// a text.
func isMessage(line string) bool {
	file, rest, ok := strings.Cut(line, ".go:")
	return ok && !strings.ContainsAny(file, " \t") && rest != "" && rest[0] >= '0' && rest[0] <= '9'
}

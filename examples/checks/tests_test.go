package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// events are what `go test -json` prints of three packages: one does not build, one takes too long.
const events = `{"ImportPath":"github.com/c785c783/piped/b [github.com/c785c783/piped/b.test]","Action":"build-output","Output":"# github.com/c785c783/piped/b\n"}
{"ImportPath":"github.com/c785c783/piped/b [github.com/c785c783/piped/b.test]","Action":"build-output","Output":"b/b.go:3:2: undefined: x\n"}
{"ImportPath":"github.com/c785c783/piped/b [github.com/c785c783/piped/b.test]","Action":"build-fail"}
{"Action":"start","Package":"github.com/c785c783/piped/b"}
{"Action":"output","Package":"github.com/c785c783/piped/b","Output":"FAIL\tgithub.com/c785c783/piped/b [build failed]\n"}
{"Action":"fail","Package":"github.com/c785c783/piped/b","Elapsed":0}
{"Action":"start","Package":"github.com/c785c783/piped/c"}
{"Action":"run","Package":"github.com/c785c783/piped/c","Test":"TestLong"}
{"Action":"output","Package":"github.com/c785c783/piped/c","Test":"TestLong","Output":"panic: test timed out after 1m0s\n"}
{"Action":"output","Package":"github.com/c785c783/piped/c","Test":"TestLong","Output":"\trunning tests:\n"}
{"Action":"output","Package":"github.com/c785c783/piped/c","Test":"TestLong","Output":"\t\tTestLong (59s)\n"}
{"Action":"output","Package":"github.com/c785c783/piped/c","Test":"TestLong","Output":"\n"}
{"Action":"output","Package":"github.com/c785c783/piped/c","Test":"TestLong","Output":"goroutine 7 [running]:\n"}
{"Action":"output","Package":"github.com/c785c783/piped/c","Output":"FAIL\tgithub.com/c785c783/piped/c\t60s\n"}
{"Action":"fail","Package":"github.com/c785c783/piped/c","Elapsed":60}
{"Action":"start","Package":"github.com/c785c783/piped/a"}
{"Action":"run","Package":"github.com/c785c783/piped/a","Test":"TestGood"}
{"Action":"output","Package":"github.com/c785c783/piped/a","Test":"TestGood","Output":"=== RUN   TestGood\n"}
{"Action":"pass","Package":"github.com/c785c783/piped/a","Test":"TestGood","Elapsed":2.5}
{"Action":"run","Package":"github.com/c785c783/piped/a","Test":"TestBad"}
{"Action":"run","Package":"github.com/c785c783/piped/a","Test":"TestBad/of two"}
{"Action":"output","Package":"github.com/c785c783/piped/a","Test":"TestBad/of two","Output":"=== RUN   TestBad/of_two\n"}
{"Action":"output","Package":"github.com/c785c783/piped/a","Test":"TestBad/of two","Output":"    a_test.go:7: 3, want 4\n"}
{"Action":"fail","Package":"github.com/c785c783/piped/a","Test":"TestBad/of two","Elapsed":0.1}
{"Action":"fail","Package":"github.com/c785c783/piped/a","Test":"TestBad","Elapsed":0.1}
{"Action":"output","Package":"github.com/c785c783/piped/a","Output":"FAIL\tgithub.com/c785c783/piped/a\t2.7s\n"}
{"Action":"fail","Package":"github.com/c785c783/piped/a","Elapsed":2.7}
`

// TestFailuresAreNamedOnce reads events in pieces of any size: the same failures come
// out, each once, with its reason and a log that holds its output.
func TestFailuresAreNamedOnce(t *testing.T) {
	for _, size := range []int{1, 7, 100, len(events)} {
		dir := t.TempDir()
		var log, out bytes.Buffer
		ts := &tests{dir: dir}
		ts.begin(&log, &lines{w: &out})
		for rest := events; rest != ""; {
			n := min(size, len(rest))
			if _, err := ts.Write([]byte(rest[:n])); err != nil {
				t.Fatal(err)
			}
			rest = rest[n:]
		}
		want := []string{
			"FAILED b: b/b.go:3:2: undefined: x; log: " + filepath.Join(dir, "b.log"),
			"FAILED c: panic: test timed out after 1m0s; running tests: TestLong (59s); log: " + filepath.Join(dir, "c.log"),
			"FAILED a TestBad/of two: a_test.go:7: 3, want 4; log: " + filepath.Join(dir, "a.TestBad_of_two.log"),
		}
		if diff := cmp.Diff(want, ts.failures()); diff != "" {
			t.Errorf("in pieces of %d (-want +got):\n%s", size, diff)
		}
		if text, err := os.ReadFile(filepath.Join(dir, "a.TestBad_of_two.log")); err != nil || !strings.Contains(string(text), "3, want 4") {
			t.Errorf("the log of a failed test: %q, %v", text, err)
		}
		if want := "FAIL\tgithub.com/c785c783/piped/b [build failed]\nFAIL\tgithub.com/c785c783/piped/c\t60s\nFAIL\tgithub.com/c785c783/piped/a\t2.7s\n"; out.String() != want {
			t.Errorf("shown: %q", out.String())
		}
		if ts.passed != 1 {
			t.Errorf("%d tests passed, want 1", ts.passed)
		}
	}
}

func TestReasons(t *testing.T) {
	dir := t.TempDir()
	source := "package x\n\n\n\nt.Logf(`seed %d`, seed)\n"
	if err := os.WriteFile(filepath.Join(dir, "log_test.go"), []byte(source), 0o600); err != nil {
		t.Fatal(err)
	}
	cases := map[string]struct {
		output string
		want   []string
	}{
		"a message": {"=== RUN   TestX\n    x_test.go:3: log: something\n--- FAIL: TestX\n", []string{"x_test.go:3: log: something"}},
		"a comparison": {"    x_test.go:3: names (-want +got):\n          []string{\n          \t\"a\",\n        - \t\"b\",\n        + \t\"c\",\n          }\n    x_test.go:9: - more\n--- FAIL: TestX\n",
			[]string{`x_test.go:3: names (-want +got): - "b", + "c",`, "x_test.go:9: - more"}},
		"text before it":       {"2026/01/02 starting\n    x_test.go:3: wrong\n", []string{"x_test.go:3: wrong"}},
		"what it logged first": {"    log_test.go:5: seed 7\n    log_test.go:4: wrong\n", []string{"log_test.go:4: wrong"}},
		"only what it logged":  {"    log_test.go:5: seed 7\n", []string{"log_test.go:5: seed 7"}},
		"a panic":              {"    x_test.go:3: wrong\npanic: runtime error: index out of range [recovered]\n", []string{"panic: runtime error: index out of range [recovered]", "x_test.go:3: wrong"}},
		"a data race":          {"==================\nWARNING: DATA RACE\nRead at 0x1 by goroutine 7:\n", []string{"WARNING: DATA RACE"}},
		"a leak":               {"PASS\nfound unexpected goroutines:\n[Goroutine 5]\nexit status 1\nFAIL\tx\t1s\n", []string{"found unexpected goroutines:"}},
		"nothing was said":     {"--- FAIL: TestX\n", nil},
	}
	for name, c := range cases {
		if diff := cmp.Diff(c.want, reasons(c.output, dir)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

// TestReportHasRoomForReasons: where few tests failed, all that they say is shown.
func TestReportHasRoomForReasons(t *testing.T) {
	ts := &tests{failed: []failure{{testID{module + "a", "TestX"}, []string{"x_test.go:3: wrong", "x_test.go:9: worse"}, "x.log"}}}
	var out bytes.Buffer
	report(&out, []*step{{name: "tests", err: os.ErrInvalid, tests: ts}}, nil, 0, t.TempDir())
	if want := "FAILED a TestX: x_test.go:3: wrong; log: x.log\nalso a TestX: x_test.go:9: worse\n"; !strings.HasPrefix(out.String(), want) {
		t.Errorf("%s\nwant the beginning\n%s", out.String(), want)
	}
}

// TestReportEndsWithTheFailures: however many tests failed, the last 20 lines name the
// first of them, the file with all of them, and the counts.
func TestReportEndsWithTheFailures(t *testing.T) {
	logs := t.TempDir()
	ts := &tests{passed: 7}
	for range 50 {
		ts.failed = append(ts.failed, failure{testID{module + "a", "TestX"}, []string{strings.Repeat("long ", 100)}, "x.log"})
	}
	var out bytes.Buffer
	report(&out, []*step{{name: "tests", err: os.ErrInvalid, tests: ts}}, []string{"process 7: sleep"}, 0, logs)
	printed := strings.Split(strings.TrimSuffix(out.String(), "\n"), "\n")
	if len(printed) > 20 || !strings.HasPrefix(printed[0], "FAILED a TestX: long long") || !strings.Contains(out.String(), "x.log") {
		t.Errorf("%d lines:\n%s", len(printed), out.String())
	}
	if want := "tests: 7 passed, 50 failed, 0 skipped"; printed[len(printed)-1] != want {
		t.Errorf("the last line is %q, want %q", printed[len(printed)-1], want)
	}
	all, err := os.ReadFile(filepath.Join(logs, "failed.txt"))
	if err != nil || strings.Count(string(all), "FAILED a TestX") != 50 || !strings.Contains(string(all), "LEFT BEHIND process 7: sleep") {
		t.Errorf("failed.txt: %v\n%s", err, all)
	}
}

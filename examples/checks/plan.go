package main

import (
	"fmt"
	"path/filepath"
)

// notObserved are packages that the race detector does not instrument: the SQLite
// engine, C that was translated to Go, which locks by itself, shares no memory with us, and
// is several times slower when each of its accesses is observed. Such a package must have
// no copy of generic code: the linker may take it in place of an instrumented one, and what
// that orders is not seen.
var notObserved = []string{"modernc.org/sqlite/lib"}

// notChecked are packages whose pointers into memory that is not Go's are not checked: those
// that SQLite, translated from C, consists of. The checks would take a twentieth of the time of
// the tests that use it.
var notChecked = []string{"modernc.org/libc", "modernc.org/memory"}

// raceFlags instrument everything else for the race detector, which checks pointers, too.
func raceFlags() []string {
	const unchecked = "-d=checkptr=0"
	flags := []string{"-race"}
	for _, pkg := range notObserved {
		flags = append(flags, "-gcflags="+pkg+"=-race=false "+unchecked)
	}
	for _, pkg := range notChecked {
		flags = append(flags, "-gcflags="+pkg+"="+unchecked)
	}
	return flags
}

// noRaceSleep ends a program with the race detector at once, not a second later, which
// each package and each sandbox of a script would take. What is still running then, and
// could race, is found as a leaked goroutine.
const noRaceSleep = "GORACE=atexit_sleep_ms=0"

// lessCollection lets test programs collect garbage less often: a third less computing
// for memory that is there. The agents that tests start have it, too; what measures memory
// sets its own.
const lessCollection = "GOGC=400"

// noDebugInfo leaves what only debuggers read out of test programs, which takes half of the
// time to link them. Vet, which go test would run too, is a part of lint.
const noDebugInfo = "-ldflags=-s -w"

// plan makes the steps of a check.
type plan struct {
	bin, logs string
	base      string // commit that a change is compared with
	self      string // the program of the checks
	env       []string
}

// all returns the steps of everything that must pass. The control plane is compiled
// next to the tests that need none. The end-to-end tests of one package take longest, and
// start as soon as they can; the others fill the processor time in which those wait.
func (p plan) all() ([]*step, error) {
	packages, err := listPackages()
	if err != nil {
		return nil, err
	}
	var light, cluster []string
	for _, pkg := range packages {
		if pkg.endToEnd() {
			cluster = append(cluster, pkg.ImportPath)
		} else if pkg.tested() {
			light = append(light, pkg.ImportPath)
		}
	}
	devcluster, tofu, build := p.make("devcluster"), p.make("tofu"), p.make("build")
	lint := p.make("lint")
	lint.needs = []*step{build}                        // it uses what that has compiled
	lint.args = append([]string{"nice"}, lint.args...) // on a new machine it compiles for minutes, while tests wait for servers
	own := p.make("devcluster-test")
	own.needs = []*step{devcluster}
	tests, endToEnd := p.goTest("tests", 3, light), p.goTest("end-to-end tests", 2, cluster)
	tests.args, endToEnd.args = append(tests.args, "-count=1"), append(endToEnd.args, "-count=1")
	tests.args = append([]string{"nice", "-n", "5"}, tests.args...) // the end-to-end tests, which take longest, get the processors first
	endToEnd.needs = []*step{devcluster, tofu, build}
	own.after = []*step{tests} // next to the end of the end-to-end tests, which mostly waits
	return []*step{devcluster, tofu, build, lint, own, tests, endToEnd}, nil
}

// change returns the steps for the packages that differ from the base commit, and those
// that depend on them.
func (p plan) change() ([]*step, error) {
	packages, err := listPackages()
	if err != nil {
		return nil, err
	}
	files, err := changedFiles(p.base)
	if err != nil {
		return nil, err
	}
	build, lint := p.make("build"), p.make("lint")
	lint.needs = []*step{build}
	steps := []*step{build, lint}
	if reached := reach(packages, files); len(reached) > 0 {
		steps = append(steps, p.goTest("tests", 2, reached))
	}
	return steps, nil
}

// make returns a step that makes a target of the Makefile.
func (p plan) make(target string) *step {
	return &step{name: target, args: []string{"make", "-s", target}, env: p.env, log: logFile(p.logs, target)}
}

// goTest returns a step that tests packages, a number of them at a time: more than there
// are cores, for tests wait more than they compute.
func (p plan) goTest(name string, atOnce int, packages []string) *step {
	args := append([]string{"go", "test", "-json", "-timeout=80m", "-vet=off", noDebugInfo, fmt.Sprintf("-p=%d", atOnce), "-exec=" + p.self + " exec"}, raceFlags()...)
	return &step{
		name: name, args: append(args, packages...), env: append(p.env, "CGO_ENABLED=1", noRaceSleep, lessCollection), log: logFile(p.logs, name),
		tests: &tests{dir: filepath.Join(p.logs, "failed")},
	}
}

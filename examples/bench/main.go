// Command bench prints the agent's figures, measured on a devcluster: one
// tab-separated line per figure with its name, value, unit, target, and pass or
// miss. What depends on the machine stands next to a floor measured in the same
// run. It exits with 1 when a figure could not be measured or a ratio to a floor
// missed its target, not when a figure that depends on the machine did.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/c785c783/piped/piped/cluster/clustertest"
)

// benchmark is one way of measuring, for one or more figures.
type benchmark struct {
	name string
	run  func(ctx context.Context, e *environment) error
	long bool // runs only if it is selected
}

// benchmarks are all there are, in the order they run.
func benchmarks() []benchmark {
	return []benchmark{
		{name: "sync", run: measureSync},
		{name: "first", run: measureFirstCall},
		{name: "thousand", run: measureThousand},
		{name: "idle", run: measureIdle},
		{name: "rollouts", run: measureRollouts},
		{name: "touch50", run: measureTouch(50, 3, 3*time.Second)},
		{name: "touch200", run: measureTouch(200, 2, 10*time.Second)},
		{name: "stores", run: measureStores},
		{name: "flat", run: measureFlat},
		{name: "api", run: measureAPI},
		{name: "drift", run: measureDrift},
		{name: "foreign", run: measureForeign},
		{name: "fleet", run: measureFleet},
		{name: "search", run: measureSearch},
		{name: "page", run: measurePage},
		{name: "pages", run: measurePages},
		{name: "history", run: measureHistory, long: true},
		{name: "soak", run: measureSoak, long: true},
	}
}

// names are those of the benchmarks.
func names() []string {
	var all []string
	for _, b := range benchmarks() {
		all = append(all, b.name)
	}
	return all
}

// environment is what every benchmark starts from.
type environment struct {
	*report
	piped      string // the agent's program
	dir        string // for everything the run writes
	apiFor     time.Duration
	drift      int           // applications of the part drift
	foreign    int           // Deployments of the part foreign
	fleet      int           // applications of the part fleet
	steadyFor  time.Duration // of the part fleet
	soakFor    time.Duration // of the part soak
	historyMiB int           // of each repository of the part history
	cluster    *clustertest.Cluster
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	err := run(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) (err error) {
	if dir := os.Getenv(profileDir); dir != "" {
		return runProfiled(ctx, dir, os.Args[len(os.Args)-1])
	}
	bin := flag.String("bin", "bin", "the folder with piped and devcluster")
	profiles := flag.String("profile", "", "a folder: run the agent inside this program and write its profiles there: processor, memory, and what goroutines wait for")
	selection := flag.String("run", "", "a regular expression: run only the parts it matches, of "+strings.Join(names(), ", "))
	apiFor := flag.Duration("api", time.Minute, "how long the part api lets clients call")
	drift := flag.Int("drift", 1000, "how many applications the part drift has; at least 20")
	foreign := flag.Int("foreign", 5000, "how many Deployments the part foreign has, each with 11 ReplicaSets; at least 100")
	fleet := flag.Int("fleet", 5000, "how many applications the part fleet has; at least 400")
	historyMiB := flag.Int("history", 1024, "how many MiB of history each of the 20 repositories of the part history has, which the agent stores; at least 16")
	soakFor := flag.Duration("soak", 30*time.Minute, "how long the part soak deploys; at least 15m")
	steadyFor := flag.Duration("steady", 5*time.Minute, "how long the part fleet deploys at its steady load")
	flag.Parse()
	selected, err := regexp.Compile(*selection)
	if err != nil {
		return fmt.Errorf("-run: %w", err)
	}
	if !slices.ContainsFunc(names(), selected.MatchString) {
		return fmt.Errorf("-run %q matches no part; expected a regular expression for some of %s", *selection, strings.Join(names(), ", "))
	}
	if *drift < 20 {
		return fmt.Errorf("-drift %d: expected at least 20 applications", *drift)
	}
	if *foreign < foreignPerNamespace {
		return fmt.Errorf("-foreign %d: expected at least %d Deployments", *foreign, foreignPerNamespace)
	}
	if *historyMiB < historyCommits {
		return fmt.Errorf("-history %d: expected at least %d MiB", *historyMiB, historyCommits)
	}
	if *fleet < fleetRepos*driftBurst*2 {
		return fmt.Errorf("-fleet %d: expected at least %d applications", *fleet, fleetRepos*driftBurst*2)
	}
	dir, err := os.MkdirTemp("", "piped-bench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if err := os.Setenv("DEVCLUSTER", filepath.Join(*bin, "devcluster")); err != nil {
		return err
	}
	cluster, err := clustertest.Start(ctx, clustertest.Options{})
	if err != nil {
		return err
	}
	defer cluster.Stop()
	e := &environment{report: &report{out: os.Stdout}, piped: filepath.Join(*bin, "piped"), dir: dir, apiFor: *apiFor, drift: *drift, foreign: *foreign, fleet: *fleet, steadyFor: *steadyFor, soakFor: *soakFor, historyMiB: *historyMiB, cluster: cluster}
	if *profiles != "" {
		if err := e.profileTo(*profiles); err != nil {
			return err
		}
	}
	var errs []error
	for _, b := range benchmarks() {
		if !selected.MatchString(b.name) || b.long && *selection == "" {
			continue
		}
		if err := b.run(ctx, e); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", b.name, err))
		}
		if ctx.Err() != nil {
			break
		}
	}
	if len(e.missed) > 0 {
		errs = append(errs, fmt.Errorf("missed: %s", strings.Join(e.missed, ", ")))
	}
	return errors.Join(errs...)
}

// Command checks runs the checks of this repository and reports what failed.
//
//	checks all      everything that must pass: lint, and all tests with real servers
//	checks change   what one runs before a commit: lint, and the tests of the packages
//	                that the change reaches, without the end-to-end ones
//	checks exec     runs a test program for the go command, and records its processor time
//
// It runs the steps of a check side by side, writes the output of each to a file of its
// own below -logs, and ends with a summary: which tests failed, why, and where their
// logs are. All that the steps leave in the temporary directory, and every process of
// theirs that is still running, is removed and fails the check. It never changes a
// tracked file.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

// run executes one command line and returns the exit code: 0 passed, 1 failed, 2 wrong
// usage, 130 interrupted.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	flags := flag.NewFlagSet("checks", flag.ContinueOnError)
	flags.SetOutput(stderr)
	bin := flags.String("bin", "bin", "folder of the programs that are built and tested")
	base := flags.String("base", "HEAD", "commit that the change is compared with")
	if err := flags.Parse(args); err != nil {
		return 2
	}
	if flags.Arg(0) == "exec" && flags.NArg() > 1 {
		return execTest(flags.Args()[1:], stderr)
	}
	plans := map[string]func(p plan) ([]*step, error){"all": plan.all, "change": plan.change}
	steps := plans[flags.Arg(0)]
	if steps == nil || flags.NArg() != 1 {
		fmt.Fprintln(stderr, "usage: checks [flags] all | change | exec PROGRAM")
		return 2
	}
	if err := check(ctx, steps, *bin, *base, stdout); err != nil {
		fmt.Fprintln(stderr, "checks:", err)
		if ctx.Err() != nil {
			return 130
		}
		return 1
	}
	return 0
}

// check runs the steps of a plan in a temporary directory of their own and reports how
// they ended.
func check(ctx context.Context, steps func(plan) ([]*step, error), bin, base string, stdout io.Writer) (err error) {
	bin, err = filepath.Abs(bin)
	if err != nil {
		return err
	}
	logs := filepath.Join(bin, "logs")
	if err := errors.Join(os.RemoveAll(logs), os.MkdirAll(logs, 0o755)); err != nil {
		return err
	}
	scratch, err := newScratch()
	if err != nil {
		return err
	}
	self, err := os.Executable()
	if err != nil {
		return errors.Join(err, scratch.remove())
	}
	usage := filepath.Join(logs, "usage.txt")
	p := plan{bin: bin, logs: logs, base: base, self: self, env: append(os.Environ(), usageFile+"="+usage, "TMPDIR="+scratch.dir, "GOTMPDIR="+os.TempDir(), "DEVCLUSTER="+filepath.Join(bin, "devcluster"), "TOFU="+filepath.Join(bin, "tofu"), "PIPED_BINARY="+filepath.Join(bin, "piped"))}
	all, err := steps(p)
	if err != nil {
		return errors.Join(err, scratch.remove())
	}
	began := time.Now()
	runAll(ctx, all, stdout)
	sortUsage(usage)
	leftovers := scratch.end(ctx)
	report(stdout, all, leftovers, time.Since(began), logs)
	if ctx.Err() != nil {
		return errors.New("interrupted; everything that was started has ended")
	}
	return verdict(all, leftovers)
}

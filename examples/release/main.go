// Command release makes what users install, from a commit, into a directory:
//
//	release -version VERSION image   the agent's container image
//	release -version VERSION all     everything of a release: programs, image, chart
//
// It compiles for every architecture on this machine, needs no container engine, and
// asks no service for anything but Go modules. Only -push sends something.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/c785c783/piped/examples/release/build"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

// options are the values of the flags.
type options struct {
	version, bin, dist, push string
}

// run executes one command line and returns its exit code: 0, 1 for a failure, 2 for
// wrong usage.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	var o options
	flags := flag.NewFlagSet("release", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.StringVar(&o.version, "version", "", "the version")
	flags.StringVar(&o.bin, "bin", "bin", "folder for the programs of each architecture")
	flags.StringVar(&o.dist, "dist", "dist", "folder for what is made")
	flags.StringVar(&o.push, "push", "", "with image: where to push it, such as registry.example.com/team/piped")
	if err := flags.Parse(args); err != nil {
		return 2
	}
	commands := map[string]func(context.Context, build.Source, options, io.Writer) error{"image": makeImage, "all": makeRelease}
	command := commands[flags.Arg(0)]
	if command == nil || flags.NArg() != 1 || o.version == "" {
		fmt.Fprintln(stderr, "usage: release -version VERSION [flags] image | all")
		return 2
	}
	source, err := build.ReadSource(ctx, ".", o.version)
	if err == nil {
		err = command(ctx, source, o, stdout)
	}
	if err != nil {
		fmt.Fprintln(stderr, "release:", err)
		return 1
	}
	return 0
}

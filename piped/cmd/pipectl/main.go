// Command pipectl is the command line client of piped's control API.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/c785c783/piped/piped/pipectl"
)

// Set by the linker; see the Makefile, and examples/release/build.
var version, commit, date string

func main() { os.Exit(run()) }

func run() int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	return pipectl.Program{Version: version, Commit: commit, Date: date}.Run(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr)
}

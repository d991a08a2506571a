// Command pipectl is the command line client of piped's control API.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/c785c783/piped/piped/pipectl"
)

func main() { os.Exit(run()) }

func run() int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	return pipectl.Run(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr)
}

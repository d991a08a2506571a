package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"sync"
	"syscall"

	"github.com/spf13/cobra"
	"k8s.io/klog/v2"

	"github.com/c785c783/piped/executor/script/sandbox"
	"github.com/c785c783/piped/piped/app"
	"github.com/c785c783/piped/piped/build"
	"github.com/c785c783/piped/piped/config"
	"github.com/c785c783/piped/piped/starter"
)

// runFlags are the flags of piped run.
type runFlags struct {
	config, level, format string
	starter               starter.Options
	dryRun                bool
}

func runCommand(stdout, stderr io.Writer) *cobra.Command {
	var f runFlags
	cmd := &cobra.Command{
		Use: "run (--config FILE | --repo URL)", Short: "Run the agent until it is stopped", Args: cobra.NoArgs,
		Long: `Run the agent until it is stopped.

With --config the agent watches the configuration file and the files it names: changes
take effect within seconds, or at once with SIGHUP. An invalid configuration is rejected
with the reason in the log, and the previous one stays in effect.

With --repo no file is needed: the agent deploys every app.pipecd.yaml of the repository
to the cluster that kubectl would use, and prints an address that signs a browser in to
its page. It serves on loopback addresses only. With --dry-run it prints what it would
deploy instead, and changes nothing. piped config init writes the same configuration as a
file.

SIGINT or SIGTERM stops the agent gracefully: active deployments resume after the
next start. A second signal ends it at once.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			log, err := newLogger(stderr, f.level, f.format)
			if err != nil {
				return err
			}
			klog.SetSlogLogger(slog.New(clientLog{log.Handler()}).With("component", "client-go"))
			if err := f.check(cmd); err != nil {
				return err
			}
			if err := sandbox.Hide(); err != nil { // from other processes of the same user
				return err
			}
			options := newOptions(log)
			if f.dryRun {
				return dryRun(cmd.Context(), f.starter, options, stdout)
			}
			if f.config != "" {
				options.ConfigFile = f.config
				return runAgent(cmd.Context(), fileOf(f.config), options, nil)
			}
			made, err := starter.New(cmd.Context(), f.starter)
			if err != nil {
				return err
			}
			return runAgent(cmd.Context(), parsed(made), options, greeting{
				first: fmt.Sprintf("piped deploys %s.", made), client: "pipectl application list", end: "what runs goes on at the next start",
			}.printTo(stdout))
		},
	}
	cmd.Flags().StringVar(&f.config, "config", "", "the agent's configuration file (kind: Piped)")
	cmd.Flags().StringVar(&f.level, "log-level", "info", "debug, info, warn or error")
	cmd.Flags().StringVar(&f.format, "log-format", "text", "text or json")
	cmd.Flags().BoolVar(&f.dryRun, "dry-run", false, "with --repo: print what would be deployed, and change nothing")
	addStarterFlags(cmd.Flags(), &f.starter)
	addRunFlags(cmd.Flags(), &f.starter)
	cmd.MarkFlagsOneRequired("config", "repo")
	cmd.MarkFlagsMutuallyExclusive("config", "repo")
	return cmd
}

// newOptions returns the options of an agent of this program.
func newOptions(log *slog.Logger) app.Options {
	b := built()
	o := app.Options{Version: b.Version, Logger: log}
	if b.Commit != build.Unknown {
		o.Commit = b.Commit
	}
	return o
}

// greet tells a user where an agent is served; it ends with ctx.
type greet func(ctx context.Context, cfg *config.Piped, agent *app.App)

// runAgent runs the agent until ctx ends. The greeting may be nil.
func runAgent(ctx context.Context, start configure, options app.Options, greet greet) error {
	reload := make(chan os.Signal, 1)
	signal.Notify(reload, syscall.SIGHUP)
	defer signal.Stop(reload)
	options.Reload = reload
	log := options.Logger
	cfg, agent, err := newAgent(ctx, start, options)
	if cause := context.Cause(ctx); cause != nil && (errors.Is(err, cause) || errors.Is(err, context.Canceled)) {
		log.Info("the agent stops before it works", "reason", cause) // a standby waits until then
		return nil
	}
	if err != nil {
		return err
	}
	running, stop := context.WithCancel(ctx)
	var background sync.WaitGroup
	background.Go(func() { giveBackMemory(running) })
	background.Go(func() { logStop(running, ctx, log) })
	if greet != nil {
		background.Go(func() { greet(running, cfg, agent) })
	}
	defer background.Wait()
	defer stop()
	return agent.Run(ctx)
}

// configure returns the configuration to start with, and its warnings.
type configure func() (*config.Piped, []string, error)

// fileOf reads a configuration file.
func fileOf(path string) configure {
	return func() (*config.Piped, []string, error) { return app.Kinds().LoadPiped(path) }
}

// newAgent returns an agent and its configuration, which is read again if it has changed while the
// agent stood by.
func newAgent(ctx context.Context, read configure, o app.Options) (*config.Piped, *app.App, error) {
	for {
		cfg, warnings, err := read()
		if err != nil {
			return nil, nil, err
		}
		for _, w := range warnings {
			o.Logger.Warn("configuration", "warning", w)
		}
		agent, err := app.New(ctx, cfg, o)
		if !errors.Is(err, app.ErrChanged) {
			return cfg, agent, err
		}
		o.Logger.Info("the configuration is loaded again: it has changed while this replica stood by")
	}
}

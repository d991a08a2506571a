package main

import (
	"context"
	"errors"
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

func runCommand(launcher sandbox.Launcher, stdout, stderr io.Writer) *cobra.Command {
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
			b := built()
			options := app.Options{Version: b.Version, Logger: log, ConfigFile: f.config, Launcher: launcher}
			if b.Commit != build.Unknown {
				options.Commit = b.Commit
			}
			if f.dryRun {
				return dryRun(cmd.Context(), f.starter, options, stdout)
			}
			return runAgent(cmd.Context(), f, options, stdout)
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

// runAgent runs the agent until ctx ends.
func runAgent(ctx context.Context, f runFlags, options app.Options, stdout io.Writer) error {
	reload := make(chan os.Signal, 1)
	signal.Notify(reload, syscall.SIGHUP)
	defer signal.Stop(reload)
	options.Reload = reload
	log, start := options.Logger, configure(fileOf(f.config))
	var made starter.Configuration
	if f.config == "" {
		var err error
		if made, err = starter.New(ctx, f.starter); err != nil {
			return err
		}
		start = parsed(made)
	}
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
	if f.config == "" {
		background.Go(func() { greet(running, made, cfg, agent, stdout) })
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

// Command piped is the agent: see README.md.
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
	_ "time/tzdata" // time zones of sync windows, independent of the machine

	"github.com/spf13/cobra"
	"k8s.io/klog/v2"

	"github.com/c785c783/piped/executor/script/sandbox"
	"github.com/c785c783/piped/piped/app"
	"github.com/c785c783/piped/piped/build"
)

// Set by the linker; see the Makefile.
var version, commit string

// built describes this program.
func built() build.Info { return build.Read(version, commit) }

// versionLine formats the version in one line.
func versionLine() string {
	b := built()
	return fmt.Sprintf("Version: %s, GitCommit: %s, GoVersion: %s", b.Version, b.Commit, b.Go)
}

// exitKilled is the exit code after a second signal, like that of a shell command ended
// by Ctrl-C.
const exitKilled = 130

func main() {
	launcher := sandbox.Main() // it does not return in a process that runs a script
	ctx, stop := context.WithCancelCause(context.Background())
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM)
	go func() {
		first := <-signals // a graceful shutdown
		stop(stopSignal{first})
		<-signals // an immediate exit
		os.Exit(exitKilled)
	}()
	stderr := os.Stderr
	silence()
	os.Exit(run(ctx, launcher, os.Args[1:], os.Stdout, stderr))
}

// stopSignal is the signal that stopped the agent.
type stopSignal struct{ os.Signal }

// Error returns the signal's name as in kill.
func (s stopSignal) Error() string {
	if s.Signal == syscall.SIGTERM {
		return "SIGTERM"
	}
	return "SIGINT"
}

// silence discards the standard error of libraries that write to it, such as
// Kustomize's warnings without file names. Relevant messages are in the agent's log and
// in stage logs.
func silence() {
	if null, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0); err == nil {
		os.Stderr = null
	}
}

// run executes one command line and returns its exit code. The agent starts scripts
// with launcher.
func run(ctx context.Context, launcher sandbox.Launcher, args []string, stdout, stderr io.Writer) int {
	root := &cobra.Command{
		Use: "piped", Short: "A GitOps agent for progressive delivery on Kubernetes", Version: versionLine(),
		SilenceUsage: true, SilenceErrors: true, CompletionOptions: cobra.CompletionOptions{HiddenDefaultCmd: true},
	}
	root.AddCommand(runCommand(launcher, stderr), checkCommand(launcher, stdout, stderr), schemaCommand(stdout), apiKeyCommand(stdout), backupCommand(stdout, stderr),
		restoreCommand(stderr), versionCommand(stdout))
	root.SetVersionTemplate("{{.Version}}\n")
	root.SetArgs(args)
	root.SetOut(stdout)
	root.SetErr(stderr)
	err := root.ExecuteContext(ctx)
	if err == nil {
		return 0
	}
	f := &failure{exitFailed, err}
	errors.As(err, &f)
	if f.err != nil {
		fmt.Fprintf(stderr, "piped: %v\n", err)
	}
	return f.code
}

func runCommand(launcher sandbox.Launcher, stderr io.Writer) *cobra.Command {
	var path, level, format string
	cmd := &cobra.Command{
		Use: "run --config FILE", Short: "Run the agent until it is stopped", Args: cobra.NoArgs,
		Long: `Run the agent until it is stopped.

The agent watches the configuration file and the files it names: changes take effect
within seconds, or at once with SIGHUP. An invalid configuration is rejected with
the reason in the log, and the previous one stays in effect.

SIGINT or SIGTERM stops the agent gracefully: active deployments resume after the
next start. A second signal ends it at once.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			log, err := newLogger(stderr, level, format)
			if err != nil {
				return err
			}
			klog.SetSlogLogger(slog.New(clientLog{log.Handler()}).With("component", "client-go"))
			reload := make(chan os.Signal, 1)
			signal.Notify(reload, syscall.SIGHUP)
			defer signal.Stop(reload)
			if err := sandbox.Hide(); err != nil { // from other processes of the same user
				return err
			}
			b := built()
			options := app.Options{Version: b.Version, Logger: log, ConfigFile: path, Reload: reload, Launcher: launcher}
			if b.Commit != build.Unknown {
				options.Commit = b.Commit
			}
			agent, err := newAgent(cmd.Context(), options)
			if cause := context.Cause(cmd.Context()); cause != nil && (errors.Is(err, cause) || errors.Is(err, context.Canceled)) {
				log.Info("the agent stops before it works", "reason", cause) // a standby waits until then
				return nil
			}
			if err != nil {
				return err
			}
			running, stop := context.WithCancel(cmd.Context())
			var background sync.WaitGroup
			background.Go(func() { giveBackMemory(running) })
			background.Go(func() { logStop(running, cmd.Context(), log) })
			defer background.Wait()
			defer stop()
			return agent.Run(cmd.Context())
		},
	}
	cmd.Flags().StringVar(&path, "config", "", "the agent's configuration file (kind: Piped)")
	cmd.Flags().StringVar(&level, "log-level", "info", "debug, info, warn or error")
	cmd.Flags().StringVar(&format, "log-format", "text", "text or json")
	_ = cmd.MarkFlagRequired("config") // the flag exists
	return cmd
}

// newAgent returns the agent of the configuration file, which is loaded again if it has changed
// while the agent stood by.
func newAgent(ctx context.Context, o app.Options) (*app.App, error) {
	for {
		cfg, warnings, err := app.Kinds().LoadPiped(o.ConfigFile)
		if err != nil {
			return nil, err
		}
		for _, w := range warnings {
			o.Logger.Warn("configuration", "warning", w)
		}
		agent, err := app.New(ctx, cfg, o)
		if !errors.Is(err, app.ErrChanged) {
			return agent, err
		}
		o.Logger.Info("the configuration is loaded again: it has changed while this replica stood by")
	}
}

// logStop waits until the agent has stopped, and logs the signal that ended it.
func logStop(running, command context.Context, log *slog.Logger) {
	<-running.Done()
	if cause := context.Cause(command); cause != nil {
		log.Info("the agent stops", "reason", cause)
	}
}

func newLogger(w io.Writer, level, format string) (*slog.Logger, error) {
	var options slog.HandlerOptions
	var parsed slog.Level
	if err := parsed.UnmarshalText([]byte(level)); err != nil {
		return nil, fmt.Errorf("--log-level %q: use debug, info, warn or error", level)
	}
	options.Level = parsed
	switch format {
	case "text":
		return slog.New(slog.NewTextHandler(w, &options)), nil
	case "json":
		return slog.New(slog.NewJSONHandler(w, &options)), nil
	}
	return nil, fmt.Errorf("--log-format %q: use text or json", format)
}

func versionCommand(stdout io.Writer) *cobra.Command {
	return &cobra.Command{
		Use: "version", Short: "Print the version", Args: cobra.NoArgs,
		Run: func(*cobra.Command, []string) {
			fmt.Fprintln(stdout, versionLine())
		},
	}
}

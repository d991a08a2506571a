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
	"syscall"
	_ "time/tzdata" // time zones of sync windows, independent of the machine

	"github.com/spf13/cobra"

	"github.com/c785c783/piped/piped/build"
)

// Set by the linker; see the Makefile, and examples/release/build.
var version, commit, date string

// built describes this program.
func built() build.Info { return build.Read(version, commit, date) }

// versionLine formats the version in one line.
func versionLine() string {
	b := built()
	return fmt.Sprintf("Version: %s, GitCommit: %s, GoVersion: %s", b.Version, b.Commit, b.Go)
}

// exitKilled is the exit code after a second signal, like that of a shell command ended
// by Ctrl-C.
const exitKilled = 130

func main() {
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
	os.Exit(run(ctx, os.Args[1:], os.Stdout, stderr))
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

// run executes one command line and returns its exit code.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	root := &cobra.Command{
		Use: "piped", Short: "A GitOps agent for progressive delivery on Kubernetes", Version: versionLine(),
		SilenceUsage: true, SilenceErrors: true, CompletionOptions: cobra.CompletionOptions{HiddenDefaultCmd: true},
	}
	root.AddCommand(runCommand(stdout, stderr), configCommand(stdout), initCommand(stdout, stderr), importCommand(stdout, stderr), checkCommand(stdout, stderr), schemaCommand(stdout), apiKeyCommand(stdout), backupCommand(stdout, stderr),
		restoreCommand(stderr), versionCommand(stdout), manCommand(), installCommand(stdout, stderr), uninstallCommand(stdout), observeCommand(stdout, stderr))
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

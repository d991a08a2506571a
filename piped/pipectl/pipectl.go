// Package pipectl implements the client's commands, each a thin layer over calls of the
// agent's API.
//
// It keeps the flags, output, messages and exit codes of PipeCD's pipectl, so that
// scripts written for that one work. It adds hints to errors and ends waits that cannot
// succeed. Data is written to stdout, messages for users to stderr. It stores nothing
// but the token of a sign-in, and connects to nothing but the agent.
//
// Run is the whole program, for use in tests.
package pipectl

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/c785c783/piped/piped/build"
	"github.com/c785c783/piped/piped/config/endpoint"
)

// Run is Program.Run without values from the linker.
func Run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	return Program{}.Run(ctx, args, stdin, stdout, stderr)
}

// Program contains the version, commit and date set by the linker; "" uses the values
// recorded by the Go tool.
type Program struct{ Version, Commit, Date string }

// Run executes the command line args (without the program's name) and returns its exit
// code: ExitSuccess, ExitError or one of the others. Errors are written to stderr with
// a hint where possible. Flags take precedence over PIPECTL_* environment variables,
// and these over the configuration file. Every command ends soon after ctx.
func (p Program) Run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	root := newRoot(build.Read(p.Version, p.Commit, p.Date))
	root.SetArgs(args)
	root.SetIn(stdin)
	root.SetOut(stdout)
	root.SetErr(stderr)
	err := root.ExecuteContext(ctx)
	if err == nil {
		return ExitSuccess
	}
	code := exitCode(ctx, err)
	if code == ExitInterrupted {
		err = fmt.Errorf("interrupted: %w", err)
	}
	log.New(stderr, "", log.LstdFlags).Println(err)
	var h *hinted
	if errors.As(err, &h) && code != ExitInterrupted {
		fmt.Fprintln(stderr, "Hint:", h.hint)
	}
	return code
}

func newRoot(b build.Info) *cobra.Command {
	root := &cobra.Command{
		Use:           "pipectl",
		Short:         "The command line tool for piped.",
		Version:       versionLine(b),
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	t := &tool{now: time.Now, dirs: endpoint.Directories()}
	root.PersistentPreRun = func(cmd *cobra.Command, _ []string) { t.given = cmd.Flags() }
	t.register(root.PersistentFlags())
	root.SetVersionTemplate("{{.Version}}\n")
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return hint(err, "see '%s --help' for the flags", cmd.CommandPath())
	})
	root.AddCommand(
		newApplication(t),
		newDeployment(t),
		newEvent(t),
		newPlanPreview(t),
		newPreview(t),
		newEncrypt(t),
		newPiped(t),
		newAPIKey(t),
		newLogin(t),
		newLoginLink(t),
		newLogout(t),
		newWhoami(t),
		newAccess(t),
		newSession(t),
		newUser(t),
		newAudit(t),
		newDeadLetter(t),
		newFigures(t),
		newRollout(t),
		newTrace(t),
		newStatus(t),
		newMigrate(t),
		newTransfer(t),
		newPlugin(),
		newVersion(b),
	)
	asGroup(root)
	completeReferences(t, root)
	return root
}

// Command returns the command line for documentation: its commands with their flags.
func Command(b build.Info) *cobra.Command { return newRoot(b) }

// InPipeCD reports whether PipeCD's pipectl has a command, with the flags and messages
// that it has here.
func InPipeCD(cmd *cobra.Command) bool {
	switch strings.TrimPrefix(cmd.CommandPath(), "pipectl ") {
	case "application get", "application list", "application add", "application delete", "application disable", "application sync",
		"deployment list", "deployment logs", "deployment wait-status", "event register", "plan-preview", "encrypt",
		"piped enable", "piped disable", "migrate database", "migrate application-config",
		"transfer backup", "transfer restore piped", "transfer restore application", "plugin push", "version",
		"completion bash", "completion zsh", "completion fish", "completion powershell":
		return true
	}
	return false
}

// requiredFlag annotates the flags that a command always takes.
const requiredFlag = "piped.dev/required"

// Required reports whether a command always takes a flag.
func Required(f *pflag.Flag) bool { return f.Annotations[requiredFlag] != nil }

// asGroup makes cmd a group of commands: alone it prints its help, and a
// command it does not have is an error that names those it has.
func asGroup(cmd *cobra.Command) *cobra.Command {
	cmd.Args = cobra.ArbitraryArgs
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 {
			return cmd.Help()
		}
		var names []string
		for _, c := range cmd.Commands() {
			if c.IsAvailableCommand() {
				names = append(names, c.Name())
			}
		}
		return hint(fmt.Errorf("unknown command %q for %q", args[0], cmd.CommandPath()),
			"the commands of '%s' are: %s", cmd.CommandPath(), strings.Join(names, ", "))
	}
	return cmd
}

// required makes cmd reject arguments and require the given flags.
func required(cmd *cobra.Command, flags ...string) *cobra.Command {
	for _, f := range flags {
		if err := cmd.Flags().SetAnnotation(f, requiredFlag, []string{"true"}); err != nil {
			panic(fmt.Sprintf("pipectl: %s: %v", cmd.Name(), err)) // the command has no such flag
		}
	}
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		if len(args) > 0 {
			return hint(fmt.Errorf("%q takes flags only, and %q is none", cmd.CommandPath(), args[0]),
				"see '%s --help' for the flags", cmd.CommandPath())
		}
		return nil
	}
	run := cmd.RunE
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		var missing []string
		for _, f := range flags {
			if !cmd.Flags().Changed(f) {
				missing = append(missing, fmt.Sprintf("%q", f))
			}
		}
		if len(missing) > 0 {
			return hint(fmt.Errorf("required flag(s) %s not set", strings.Join(missing, ", ")),
				"see '%s --help' for the flags", cmd.CommandPath())
		}
		return run(cmd, args)
	}
	return cmd
}

// hinted is an error with a hint.
type hinted struct {
	err  error
	hint string
}

func hint(err error, format string, args ...any) error {
	return &hinted{err: err, hint: fmt.Sprintf(format, args...)}
}

func (h *hinted) Error() string { return h.err.Error() }
func (h *hinted) Unwrap() error { return h.err }

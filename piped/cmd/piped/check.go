package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"github.com/spf13/cobra"

	"github.com/c785c783/piped/executor/script/sandbox"
	"github.com/c785c783/piped/piped/app"
)

func checkCommand(launcher sandbox.Launcher, stdout, stderr io.Writer) *cobra.Command {
	strict := false
	cmd := &cobra.Command{
		Use:   "check [PATH...]",
		Short: "Check configurations and manifests, without an agent or a cluster",
		Long: `Check files as the agent would read them, and print every problem with its file
and line. Nothing is asked over the network, and nothing is written but temporary files.

PATH is a file, a directory or a Git repository without a work tree, whose HEAD
is read; the default is the current directory. Of a directory are checked, at any
depth, app.pipecd.yaml, *.pipecd.yaml and .pipe.yaml with the manifests they
declare, files of the kinds AnalysisTemplate and EventWatcher in .pipe/, and piped.yaml where it is an agent's
configuration. When the file of an agent's configuration is a PATH, the
applications are checked against it: spec.platformProvider, and what the tenancy
rules allow. How this machine isolates the scripts of stages from an agent that
runs as the same user is tried, and noted.

A key that is not known is not read, which is a warning, and with --strict a
problem. A typing error of a known key always is one.

Problems go to the standard output, warnings to the standard error. The exit code
is 1 when there are problems, and 2 when the command line is wrong or names
nothing that could be checked.`,
		RunE: func(cmd *cobra.Command, paths []string) error {
			if len(paths) == 0 {
				paths = []string{"."}
			}
			c := &checker{strict: strict}
			if err := c.check(cmd.Context(), paths); err != nil {
				return err
			}
			for _, w := range sorted(c.warnings) {
				fmt.Fprintln(stderr, "warning: "+w)
			}
			for i, agent := range c.agents {
				fmt.Fprintln(stderr, isolationNote(cmd.Context(), launcher, app.ScriptIsolation(agent, c.read[i])))
			}
			problems := sorted(c.problems)
			for _, p := range problems {
				fmt.Fprintln(stdout, p)
			}
			fmt.Fprintf(stdout, "%s checked, %s\n", count(len(c.files), "file"), count(len(problems), "problem"))
			if len(problems) > 0 {
				return &failure{code: exitFailed}
			}
			return nil
		},
	}
	cmd.Flags().BoolVar(&strict, "strict", false, "Call it a problem, not a warning, that part of a file is not read.")
	cmd.SetFlagErrorFunc(usageError)
	return cmd
}

// isolationNote says how this machine isolates the scripts of an agent with that
// configuration, which is tried.
func isolationNote(ctx context.Context, launcher sandbox.Launcher, s sandbox.Settings) string {
	way, err := chooseIsolation(ctx, launcher, s)
	if err != nil {
		return fmt.Sprintf("warning: stages that run scripts will fail on this machine: %v", err)
	}
	return fmt.Sprintf("note: isolation of scripts on this machine: %s, ended by %s: %s", way.Mode, way.EndedBy, way.Mode.Holds())
}

func chooseIsolation(ctx context.Context, launcher sandbox.Launcher, s sandbox.Settings) (way sandbox.Way, err error) {
	dir, err := os.MkdirTemp("", "piped-check-")
	if err != nil {
		return way, fmt.Errorf("make a directory to try it in: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	if _, err := os.Stat(s.Users.Dir); s.Users.UID != 0 && errors.Is(err, fs.ErrNotExist) { // else it is the agent's
		defer os.Remove(s.Users.Dir)
	}
	return launcher.Choose(ctx, dir, s)
}

// count returns a number and the noun that goes with it.
func count(n int, noun string) string {
	switch n {
	case 0:
		return "no " + noun + "s"
	case 1:
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

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

func checkCommand(stdout, stderr io.Writer) *cobra.Command {
	strict := false
	cmd := &cobra.Command{
		Use:   "check [PATH...]",
		Short: "Check configurations and manifests, without an agent or a cluster",
		Long: `Check files as the agent would read them, and print every problem with its file
and line. The command uses no network and writes only temporary files.

PATH is a file, a directory or a bare Git repository, whose HEAD is read; the
default is the current directory. In a directory the command checks, at any depth,
app.pipecd.yaml, *.pipecd.yaml and .pipe.yaml with their manifests, files of the
kinds AnalysisTemplate and EventWatcher in .pipe/, and piped.yaml if it is an
agent's configuration. If a PATH is an agent's configuration file, the applications
are checked against it: spec.platformProvider and the tenancy rules. Roles that no
user can have, and roles that select none of the applications, are warnings. The
command also tests how this machine isolates the scripts of an agent that runs as the same
user.

An unknown key is ignored by the agent. It is a warning, and with --strict a
problem. A likely misspelling of a known key is always a problem.

Problems are written to the standard output, warnings to the standard error. The
exit code is 1 when there are problems, and 2 when the command line is wrong or
contains nothing to check.`,
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
				fmt.Fprintln(stderr, isolationNote(cmd.Context(), app.ScriptIsolation(agent, c.read[i])))
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
	cmd.Flags().BoolVar(&strict, "strict", false, "Report parts of a file that are not read as problems instead of warnings.")
	cmd.SetFlagErrorFunc(usageError)
	return cmd
}

// isolationNote describes how this machine isolates scripts with that configuration, by
// trying it.
func isolationNote(ctx context.Context, s sandbox.Settings) string {
	way, err := chooseIsolation(ctx, s)
	if err != nil {
		return fmt.Sprintf("warning: stages that run scripts will fail on this machine: %v", err)
	}
	return fmt.Sprintf("note: isolation of scripts on this machine: %s, ended by %s: %s", way.Mode, way.EndedBy, way.Mode.Holds())
}

func chooseIsolation(ctx context.Context, s sandbox.Settings) (way sandbox.Way, err error) {
	dir, err := os.MkdirTemp("", "piped-check-")
	if err != nil {
		return way, fmt.Errorf("make a directory to try it in: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	if _, err := os.Stat(s.Users.Dir); s.Users.UID != 0 && errors.Is(err, fs.ErrNotExist) { // an existing directory belongs to the agent
		defer os.Remove(s.Users.Dir)
	}
	return sandbox.Choose(ctx, dir, s)
}

// count formats a number and its noun.
func count(n int, noun string) string {
	switch n {
	case 0:
		return "no " + noun + "s"
	case 1:
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

package main

import (
	"bufio"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/c785c783/piped/piped/starter"
)

func initCommand(stdout, stderr io.Writer) *cobra.Command {
	var o starter.ApplicationOptions
	cmd := &cobra.Command{
		Use: "init [DIR]", Short: "Write the configuration of an application", Args: cobra.MaximumNArgs(1),
		Long: `Write the app.pipecd.yaml of an application into DIR, by default the current directory,
and check it with the manifests, the kustomization or the chart there, as piped check
does. An existing file is not overwritten. Without --pipeline the command asks on a
terminal, and takes quick elsewhere.

The pipelines:
` + pipelines(),
		RunE: func(cmd *cobra.Command, args []string) error {
			dir := "."
			if len(args) > 0 {
				dir = args[0]
			}
			if o.Pipeline == "" {
				o.Pipeline = "quick"
				if term.IsTerminal(int(os.Stdin.Fd())) {
					o.Pipeline = ask(os.Stdin, stdout)
				}
			}
			return initApplication(cmd, dir, o, stdout, stderr)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&o.Name, "name", "", "the name of the application; default: that of the directory")
	flags.StringVar(&o.Namespace, "namespace", "", "the namespace of objects that name none; it is created")
	flags.StringVar(&o.Pipeline, "pipeline", "", "how changes are released: "+strings.Join(slices.Sorted(maps.Keys(starter.Pipelines)), ", "))
	flags.StringVar(&o.Service, "service", "", "the Service that a bluegreen pipeline switches; default: the only one")
	cmd.SetFlagErrorFunc(usageError)
	return cmd
}

// pipelines describes the pipelines, one a line.
func pipelines() string {
	var out strings.Builder
	for _, name := range slices.Sorted(maps.Keys(starter.Pipelines)) {
		fmt.Fprintf(&out, "  %-9s  %s\n", name, starter.Pipelines[name])
	}
	return strings.TrimSuffix(out.String(), "\n")
}

// ask asks a person how changes are released; an empty answer means quick.
func ask(in io.Reader, out io.Writer) string {
	fmt.Fprintf(out, "How are changes released?\n%s\n[quick] ", pipelines())
	answer, _ := bufio.NewReader(in).ReadString('\n') // the end of the input is an empty answer
	if answer = strings.TrimSpace(answer); answer != "" {
		return answer
	}
	return "quick"
}

// initApplication writes the configuration, and checks it.
func initApplication(cmd *cobra.Command, dir string, o starter.ApplicationOptions, stdout, stderr io.Writer) error {
	app, err := starter.NewApplication(dir, o)
	if err != nil {
		return err
	}
	text, err := app.File()
	if err != nil {
		return err
	}
	path := filepath.Join(dir, starter.ApplicationFile)
	if err := writeNew(path, text); err != nil {
		return err
	}
	c := &checker{}
	if err := c.check(cmd.Context(), []string{dir}); err != nil {
		return err
	}
	for _, w := range sorted(c.warnings) {
		fmt.Fprintln(stderr, "warning: "+w)
	}
	for _, p := range sorted(c.problems) {
		fmt.Fprintln(stdout, p)
	}
	fmt.Fprintf(stdout, "%s is written (%s)\n", path, app)
	if len(c.problems) > 0 {
		return &failure{exitFailed, fmt.Errorf("%s to correct, see above; then check again with piped check %s", count(len(c.problems), "problem"), dir)}
	}
	fmt.Fprintf(stdout, "Next: commit it. piped run --repo URL --dry-run shows what the agent would do.\n")
	return nil
}

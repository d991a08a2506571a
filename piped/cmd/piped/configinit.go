package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"github.com/spf13/cobra"

	"github.com/c785c783/piped/piped/starter"
)

func configCommand(stdout io.Writer) *cobra.Command {
	cmd := &cobra.Command{Use: "config", Short: "Write the agent's configuration", Args: cobra.NoArgs}
	cmd.AddCommand(configInitCommand(stdout))
	return cmd
}

func configInitCommand(stdout io.Writer) *cobra.Command {
	var o starter.Options
	var output string
	cmd := &cobra.Command{
		Use: "init --repo URL", Short: "Write a commented configuration for one repository and one cluster", Args: cobra.NoArgs,
		Long: `Write a commented configuration for one repository and one cluster: the one with which
piped run --repo runs. Paths in it are absolute. It contains no secrets.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			made, err := starter.New(cmd.Context(), o)
			if err != nil {
				return err
			}
			text, err := made.File()
			if err != nil {
				return err
			}
			if output == "-" {
				_, err = io.WriteString(stdout, text)
				return err
			}
			if err := writeNew(output, text); err != nil {
				return err
			}
			_, err = fmt.Fprintf(stdout, "%s deploys %s. Next: piped run --config %s\n", output, made, output)
			return err
		},
	}
	addStarterFlags(cmd.Flags(), &o)
	cmd.Flags().StringVarP(&output, "output", "o", "-", "the file to write, which must not exist; - is the standard output")
	_ = cmd.MarkFlagRequired("repo") // the flag exists
	cmd.SetFlagErrorFunc(usageError)
	return cmd
}

// writeNew writes a file that does not exist.
func writeNew(path, text string) error {
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("%s exists, and is not overwritten: move it away first", path)
	}
	if err != nil {
		return fmt.Errorf("write the configuration: %w", err)
	}
	_, err = io.WriteString(file, text)
	return errors.Join(err, file.Close())
}

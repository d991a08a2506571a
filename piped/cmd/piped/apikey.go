package main

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/c785c783/piped/piped/app"
	"github.com/c785c783/piped/piped/config"
	"github.com/c785c783/piped/piped/deploy"
)

// apiKeyCommand is for whoever has the files of an agent and no key; everybody
// else uses pipectl apikey.
func apiKeyCommand(stdout io.Writer) *cobra.Command {
	cmd := &cobra.Command{Use: "apikey", Short: "Make a key to the control API when none is left", Args: cobra.NoArgs}
	cmd.AddCommand(createAPIKeyCommand(stdout))
	return cmd
}

func createAPIKeyCommand(stdout io.Writer) *cobra.Command {
	var path, name, subject, role string
	cmd := &cobra.Command{
		Use: "create --config FILE --name NAME", Short: "Make a key and print it", Args: cobra.NoArgs,
		Long: `Make a key and print it: it is not stored and cannot be shown again.

This needs no key, but the data directory and the database of the agent: run it
as the agent's user, where the agent runs. The agent need not be stopped. Use it
when owner.key is lost; otherwise use pipectl apikey create, which is recorded in
the audit log.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, _, err := config.LoadPiped(path)
			if err != nil {
				return err
			}
			key, err := app.CreateAPIKey(cmd.Context(), cfg, name, subject, deploy.Role(role))
			if err != nil {
				return err
			}
			_, err = fmt.Fprintln(stdout, key)
			return err
		},
	}
	cmd.Flags().StringVar(&path, "config", "", "the agent's configuration file (kind: Piped)")
	cmd.Flags().StringVar(&name, "name", "", "the key's name, unique among enabled keys")
	cmd.Flags().StringVar(&subject, "subject", "", "who acts with the key; the name if not set")
	cmd.Flags().StringVar(&role, "role", string(deploy.ReadWrite), "READ_ONLY or READ_WRITE")
	_ = cmd.MarkFlagRequired("config") // the flags exist
	_ = cmd.MarkFlagRequired("name")
	cmd.SetFlagErrorFunc(usageError)
	return cmd
}

package main

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/c785c783/piped/piped/app"
	"github.com/c785c783/piped/piped/deploy"
)

// apiKeyCommand creates API keys from an agent's files, for users without a key. With a
// key, use pipectl apikey.
func apiKeyCommand(stdout io.Writer) *cobra.Command {
	cmd := &cobra.Command{Use: "apikey", Short: "Create an API key from the agent's files, without an existing key", Args: cobra.NoArgs}
	cmd.AddCommand(createAPIKeyCommand(stdout))
	return cmd
}

func createAPIKeyCommand(stdout io.Writer) *cobra.Command {
	var path, name, subject, role string
	cmd := &cobra.Command{
		Use: "create --config FILE --name NAME", Short: "Create an API key and print it", Args: cobra.NoArgs,
		Long: `Create an API key and print it. The key is not stored and cannot be shown again.

The command needs no existing key, but the agent's data directory and database:
run it as the agent's user on the agent's machine. The agent may be running. Use
it when owner.key is lost; otherwise use pipectl apikey create, which is recorded
in the audit log.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, _, err := app.Kinds().LoadPiped(path)
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
	cmd.Flags().StringVar(&subject, "subject", "", "the subject of the key; default: its name")
	cmd.Flags().StringVar(&role, "role", string(deploy.ReadWrite), "READ_ONLY or READ_WRITE")
	_ = cmd.MarkFlagRequired("config") // the flags exist
	_ = cmd.MarkFlagRequired("name")
	cmd.SetFlagErrorFunc(usageError)
	return cmd
}

package pipectl

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/c785c783/piped/proto/pipecd/apiservice"
)

func newPiped(t *tool) *cobra.Command {
	cmd := &cobra.Command{Use: "piped", Short: "Manage the agent itself."}
	cmd.AddCommand(
		newPipedConfig(t),
		newPipedSwitch(t, "enable", "Enable the agent: it deploys again.", func(ctx context.Context, c *client, id string) error {
			_, err := c.EnablePiped(ctx, &apiservice.EnablePipedRequest{PipedId: id})
			return err
		}),
		newPipedSwitch(t, "disable", "Disable the agent: no new deployment is triggered, running ones continue.", func(ctx context.Context, c *client, id string) error {
			_, err := c.DisablePiped(ctx, &apiservice.DisablePipedRequest{PipedId: id})
			return err
		}))
	return asGroup(cmd)
}

// newPipedSwitch returns the command enable or disable. Like PipeCD's pipectl it writes
// its result to stdout, even on failure.
func newPipedSwitch(t *tool, use, short string, call func(ctx context.Context, c *client, id string) error) *cobra.Command {
	var id string
	cmd := &cobra.Command{
		Use:   use,
		Short: short,
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := ask(cmd, t, func(ctx context.Context, c *client) (struct{}, error) {
				err := call(ctx, c, id)
				if err != nil {
					fmt.Fprintf(cmd.OutOrStdout(), "Failed to %s Piped %s (%v)\n", use, id, err)
					return struct{}{}, unknownPiped(failed("failed to "+use+" piped", err))
				}
				_, err = fmt.Fprintf(cmd.OutOrStdout(), "Successfully %sd Piped %s\n", use, id)
				return struct{}{}, err
			})
			return err
		},
	}
	cmd.Flags().StringVar(&id, "piped-id", "", "The Piped ID.")
	return required(cmd, "piped-id")
}

package pipectl

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	controlv1 "github.com/c785c783/piped/proto/piped/control/v1"
)

func newDeadLetter(t *tool) *cobra.Command {
	cmd := &cobra.Command{Use: "dead-letter", Short: "Replay or drop the notifications that were given up."}
	cmd.AddCommand(newDeadLetterReplay(t), newDeadLetterDrop(t))
	return asGroup(cmd)
}

func newDeadLetterReplay(t *tool) *cobra.Command {
	req := &controlv1.ReplayDeadLettersRequest{}
	cmd := &cobra.Command{
		Use:   "replay",
		Short: "Deliver again all notifications that were given up for a receiver.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			return callAndReport(cmd, t, "Successfully replayed %s", func(ctx context.Context, c *client) (string, error) {
				resp, err := c.control.ReplayDeadLetters(ctx, req)
				if err != nil {
					return "", unknownReceiver(failed("failed to replay the notifications", err))
				}
				return givenUp(resp.GetCount(), req.Receiver), nil
			})
		},
	}
	return aboutReceiver(cmd, &req.Receiver)
}

func newDeadLetterDrop(t *tool) *cobra.Command {
	req, yes := &controlv1.DropDeadLettersRequest{}, false
	cmd := &cobra.Command{
		Use:   "drop",
		Short: "Delete all notifications that were given up for a receiver.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			question := fmt.Sprintf("Delete all notifications that were given up for %s? They cannot be replayed.", req.Receiver)
			if err := confirm(cmd, yes, question); err != nil {
				return err
			}
			return callAndReport(cmd, t, "Successfully dropped %s", func(ctx context.Context, c *client) (string, error) {
				resp, err := c.control.DropDeadLetters(ctx, req)
				if err != nil {
					return "", unknownReceiver(failed("failed to drop the notifications", err))
				}
				return givenUp(resp.GetCount(), req.Receiver), nil
			})
		},
	}
	cmd.Flags().BoolVarP(&yes, "yes", "y", false, "Do not ask.")
	return aboutReceiver(cmd, &req.Receiver)
}

// aboutReceiver adds the flag that names a receiver.
func aboutReceiver(cmd *cobra.Command, receiver *string) *cobra.Command {
	cmd.Flags().StringVar(receiver, "receiver", "", "The name of the receiver, as 'pipectl status' shows it.")
	return required(cmd, "receiver")
}

func unknownReceiver(err error) error {
	return unknown(err, "'pipectl status' shows the names of the receivers")
}

// givenUp counts the notifications of a receiver.
func givenUp(n int32, receiver string) string {
	return count(int(n), "notification") + " of " + receiver
}

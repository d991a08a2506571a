package pipectl

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/proto/pipecd/apiservice"
	controlv1 "github.com/c785c783/piped/proto/piped/control/v1"
	modelv1 "github.com/c785c783/piped/proto/piped/model/v1"
)

// decision is a command of piped's API on a deployment; request returns the command's
// ID.
type decision struct {
	use, short, done string
	request          func(ctx context.Context, c *client, deploymentID, stageID, reason string) (commandID string, err error)
}

func decisions() []decision {
	return []decision{
		{"approve", "Approve a stage that waits for approval.", "Approved the stage", func(ctx context.Context, c *client, d, s, r string) (string, error) {
			resp, err := c.control.ApproveStage(ctx, &controlv1.ApproveStageRequest{DeploymentId: d, StageId: s, Reason: r})
			return resp.GetCommandId(), err
		}},
		{"reject", "Reject a stage that waits for approval; it fails.", "Rejected the stage", func(ctx context.Context, c *client, d, s, r string) (string, error) {
			resp, err := c.control.RejectStage(ctx, &controlv1.RejectStageRequest{DeploymentId: d, StageId: s, Reason: r})
			return resp.GetCommandId(), err
		}},
		{"skip", "Skip a WAIT or ANALYSIS stage.", "Skipped the stage", func(ctx context.Context, c *client, d, s, r string) (string, error) {
			resp, err := c.control.SkipStage(ctx, &controlv1.SkipStageRequest{DeploymentId: d, StageId: s, Reason: r})
			return resp.GetCommandId(), err
		}},
	}
}

func newDecision(t *tool, what decision) *cobra.Command {
	var id, stage, reason string
	w := wait{}
	cmd := &cobra.Command{
		Use:   what.use,
		Short: what.short,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return w.with(cmd, t, func(ctx context.Context) error {
				return w.decide(ctx, what.use, what.done, func(ctx context.Context) (string, error) {
					return what.request(ctx, w.client, id, stage, reason)
				})
			})
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&id, "deployment-id", "", "The deployment ID.")
	flags.StringVar(&stage, "stage-id", "", "The stage ID. Can be left out when just one stage can be meant.")
	flags.StringVar(&reason, "reason", "", "The reason, stored with the decision.")
	w.register(flags, time.Minute)
	return required(cmd, "deployment-id")
}

func newDeploymentCancel(t *tool) *cobra.Command {
	req := &controlv1.CancelDeploymentRequest{}
	w := wait{}
	cmd := &cobra.Command{
		Use:   "cancel",
		Short: "Cancel a deployment that has not ended.",
		Long: `Cancel a deployment that has not ended. --force-rollback and --force-no-rollback
override what the configuration says about rolling back.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if req.ForceRollback && req.ForceNoRollback {
				return errors.New("force-rollback and force-no-rollback exclude each other: give one of them")
			}
			return w.with(cmd, t, func(ctx context.Context) error {
				return w.decide(ctx, "cancel", "Cancelled the deployment", func(ctx context.Context) (string, error) {
					resp, err := w.client.control.CancelDeployment(ctx, req)
					return resp.GetCommandId(), err
				})
			})
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&req.DeploymentId, "deployment-id", "", "The deployment ID.")
	flags.BoolVar(&req.ForceRollback, "force-rollback", false, "Roll back, regardless of the application's configuration.")
	flags.BoolVar(&req.ForceNoRollback, "force-no-rollback", false, "Do not roll back, regardless of the application's configuration.")
	w.register(flags, time.Minute)
	return required(cmd, "deployment-id")
}

func newDeploymentReleaseLock(t *tool) *cobra.Command {
	req := &controlv1.ReleaseStateLockRequest{}
	w := wait{}
	cmd := &cobra.Command{
		Use:   "release-lock",
		Short: "Release the lock of a state of OpenTofu or Terraform, for which a deployment waits.",
		Long: `Release the lock of a state of OpenTofu or Terraform, for which a deployment waits.
Do so only if the run that has the lock was killed: the stage's log says who has it,
since when, and what its ID is.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return w.with(cmd, t, func(ctx context.Context) error {
				return w.decide(ctx, "release the lock", "Released the lock", func(ctx context.Context) (string, error) {
					resp, err := w.client.control.ReleaseStateLock(ctx, req)
					return resp.GetCommandId(), err
				})
			})
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&req.DeploymentId, "deployment-id", "", "The deployment ID.")
	flags.StringVar(&req.LockId, "lock-id", "", "The ID of the lock.")
	w.register(flags, time.Minute)
	return required(cmd, "deployment-id", "lock-id")
}

func newDeploymentRetry(t *tool) *cobra.Command {
	req := &controlv1.RetryDeploymentRequest{}
	w := wait{}
	cmd := &cobra.Command{
		Use:   "retry",
		Short: "Repeat a deployment that has ended: same commit, same strategy.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			return w.with(cmd, t, func(ctx context.Context) error {
				return w.sync(ctx, func(ctx context.Context) (string, error) {
					resp, err := w.client.control.RetryDeployment(ctx, req)
					if err != nil {
						return "", unknownDeployment(failed("failed to retry deployment", err))
					}
					return resp.GetCommandId(), nil
				})
			})
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&req.DeploymentId, "deployment-id", "", "The deployment ID.")
	w.register(flags, 5*time.Minute)
	w.registerWhole(cmd)
	return required(cmd, "deployment-id")
}

// decide sends a request and waits for the result of its command.
func (w *wait) decide(ctx context.Context, use, done string, request func(context.Context) (string, error)) error {
	ctx, cancel := context.WithTimeout(ctx, w.timeout)
	defer cancel()
	id, err := request(ctx)
	if err != nil {
		return unknownDeployment(failed("failed to "+use, err))
	}
	return w.answered(ctx, id, use, done)
}

// answered waits until the agent has completed a command.
func (w *wait) answered(ctx context.Context, id, use, done string) error {
	w.log.infof("Sent the request and waiting for its answer...")
	err := w.poll(ctx, "the agent to answer the request", func() (bool, error) {
		resp, err := w.client.GetCommand(ctx, &apiservice.GetCommandRequest{CommandId: id})
		if status.Code(err) == codes.NotFound {
			return false, fmt.Errorf("command %q not found", id)
		}
		if err != nil {
			return false, w.transient("failed to get command", err)
		}
		switch c := resp.GetCommand(); c.GetStatus() {
		case modelv1.CommandStatus_COMMAND_SUCCEEDED:
			return true, nil
		case modelv1.CommandStatus_COMMAND_FAILED, modelv1.CommandStatus_COMMAND_TIMEOUT:
			refused := fmt.Errorf("failed to %s: the request ended as %s", use, strings.TrimPrefix(c.Status.String(), "COMMAND_"))
			return false, withReason(refused, c.GetMetadata()[deploy.MetaReason])
		}
		return false, nil
	})
	if err == nil {
		w.log.infof("%s", done)
	}
	return err
}

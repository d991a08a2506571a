package pipectl

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/c785c783/piped/proto/pipecd/apiservice"
	modelv1 "github.com/c785c783/piped/proto/piped/model/v1"
)

func newDeployment(conn *connection, logs *logging) *cobra.Command {
	cmd := &cobra.Command{Use: "deployment", Short: "Manage deployments."}
	cmd.AddCommand(newDeploymentGet(conn), newDeploymentList(conn), newDeploymentLogs(conn), newDeploymentWaitStatus(conn, logs),
		newDeploymentCancel(conn, logs), newDeploymentPlan(conn), newDeploymentChain(conn))
	for _, d := range decisions() {
		cmd.AddCommand(newDecision(conn, logs, d))
	}
	return asGroup(cmd)
}

func newDeploymentGet(conn *connection) *cobra.Command {
	var id string
	cmd := &cobra.Command{
		Use:   "get",
		Short: "Show one deployment with its stages and every change of their statuses.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			return query(cmd, conn, func(ctx context.Context, c *client) (*modelv1.Deployment, error) {
				resp, err := c.GetDeployment(ctx, &apiservice.GetDeploymentRequest{DeploymentId: id})
				if err != nil {
					return nil, unknownDeployment(failed("failed to get deployment", err))
				}
				return resp.Deployment, nil
			})
		},
	}
	cmd.Flags().StringVar(&id, "deployment-id", "", "The deployment ID.")
	return required(cmd, "deployment-id")
}

func newDeploymentList(conn *connection) *cobra.Command {
	req := &apiservice.ListDeploymentsRequest{}
	var labels []string
	cmd := &cobra.Command{
		Use:   "list",
		Short: "Show the list of deployments, last updated first.",
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			if _, err := statusesFromNames(req.Statuses); err != nil {
				return err
			}
			for _, kind := range req.Kinds {
				if err := checkKind(kind); err != nil {
					return err
				}
			}
			if req.Labels, err = labelsFromPairs(labels); err != nil {
				return err
			}
			return query(cmd, conn, func(ctx context.Context, c *client) (*apiservice.ListDeploymentsResponse, error) {
				resp, err := c.ListDeployments(ctx, req)
				if err != nil {
					return nil, failed("failed to list deployment", err)
				}
				return resp, nil
			})
		},
	}
	flags := cmd.Flags()
	flags.StringSliceVar(&req.Statuses, "status", nil, fmt.Sprintf("The statuses to show. (%s)", strings.Join(statusNames(), "|")))
	flags.StringSliceVar(&req.ApplicationIds, "app-id", nil, "The application IDs to show.")
	flags.StringSliceVar(&req.Kinds, "app-kind", nil, fmt.Sprintf("The kinds of application to show. (%s)", strings.Join(kindNames(), "|")))
	flags.StringVar(&req.ApplicationName, "app-name", "", "The application name.")
	flags.StringSliceVar(&labels, "label", nil, "A label that must match, as KEY:VALUE. Can be given several times.")
	flags.Int32Var(&req.Limit, "limit", 30, "The most deployments to show.")
	flags.StringVar(&req.Cursor, "cursor", "", "The cursor that the list before ended with.")
	return required(cmd)
}

func newDeploymentLogs(conn *connection) *cobra.Command {
	var id string
	cmd := &cobra.Command{
		Use:   "logs",
		Short: "Show the logs of a deployment's stages.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			return query(cmd, conn, func(ctx context.Context, c *client) (*apiservice.ListStageLogsResponse, error) {
				resp, err := c.ListStageLogs(ctx, &apiservice.ListStageLogsRequest{DeploymentId: id})
				if err != nil {
					return nil, unknownDeployment(failed("failed to list stage logs", err))
				}
				return resp, nil
			})
		},
	}
	cmd.Flags().StringVar(&id, "deployment-id", "", "The deployment ID.")
	return required(cmd, "deployment-id")
}

func newDeploymentWaitStatus(conn *connection, logs *logging) *cobra.Command {
	var id string
	var statuses []string
	w := wait{}
	cmd := &cobra.Command{
		Use:   "wait-status",
		Short: "Wait until a deployment reaches one of the given statuses.",
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			if w.statuses, err = statusesFromNames(statuses); err != nil {
				return err
			}
			return w.with(cmd, conn, logs, func(ctx context.Context) error { return w.deployment(ctx, id) })
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&id, "deployment-id", "", "The deployment ID.")
	flags.StringSliceVar(&statuses, "status", nil, fmt.Sprintf("The statuses to wait for. (%s)", strings.Join(statusNames(), "|")))
	w.register(flags, 15*time.Minute)
	return required(cmd, "deployment-id", "status")
}

package pipectl

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/c785c783/piped/proto/pipecd/apiservice"
	controlv1 "github.com/c785c783/piped/proto/piped/control/v1"
	modelv1 "github.com/c785c783/piped/proto/piped/model/v1"
)

func newApplicationSync(t *tool) *cobra.Command {
	var id, commit, strategy string
	var override, confirmPrune bool
	var statuses []string
	w := wait{}
	cmd := &cobra.Command{
		Use:   "sync",
		Short: "Deploy the head of an application's branch, or another commit.",
		Long: `Deploy the head of an application's branch, or --commit, with the strategy that
--strategy names. With --wait, show its stages until it has ended; on a terminal
with the last line of the stage's log. --override-sync-windows starts it
whatever the sync windows say. --confirm-prune repeats a deployment that would
have deleted too much, and permits it.`,
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			if w.statuses, err = statusesFromNames(statuses); err != nil {
				return err
			}
			number, err := strategyFromName(strategy)
			if err != nil {
				return err
			}
			if confirmPrune {
				return w.with(cmd, t, func(ctx context.Context) error { return w.confirmPrune(ctx, id) })
			}
			own := cmd.Flags().Changed("commit") || cmd.Flags().Changed("strategy") || override
			return w.with(cmd, t, func(ctx context.Context) error {
				return w.sync(ctx, func(ctx context.Context) (string, error) {
					if !own {
						resp, err := w.client.SyncApplication(ctx, &apiservice.SyncApplicationRequest{ApplicationId: id})
						return resp.GetCommandId(), syncFailed(err)
					}
					resp, err := w.client.control.SyncApplication(ctx, &controlv1.SyncApplicationRequest{
						ApplicationId: id, Commit: commit, Strategy: number, OverrideSyncWindows: override,
					})
					return resp.GetCommandId(), syncFailed(err)
				})
			})
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&id, "app-id", "", "The application ID.")
	flags.StringVar(&commit, "commit", "", "The commit to deploy: at least 7 digits of its hash. Empty means the branch's head.")
	registerStrategy(flags, &strategy)
	flags.BoolVar(&override, "override-sync-windows", false, "Deploy even while a sync window holds manual syncs.")
	flags.BoolVar(&confirmPrune, "confirm-destroy", false, "The same as --confirm-prune, for the resources that a plan of OpenTofu or Terraform destroys.")
	flags.BoolVar(&confirmPrune, "confirm-prune", false,
		"Repeat the newest deployment, which failed because it would have deleted too much, and permit that.")
	flags.StringSliceVar(&statuses, "wait-status", nil,
		fmt.Sprintf("The statuses to wait for. Empty means returning as soon as the deployment is triggered. (%s)", strings.Join(statusNames(), "|")))
	w.register(flags, 5*time.Minute)
	w.registerWhole(cmd)
	cmd.MarkFlagsMutuallyExclusive("wait", "wait-status")
	for _, other := range []string{"commit", "strategy", "override-sync-windows"} {
		cmd.MarkFlagsMutuallyExclusive("confirm-prune", other)
		cmd.MarkFlagsMutuallyExclusive("confirm-destroy", other)
	}
	return required(cmd, "app-id")
}

// confirmPrune repeats a deployment with the permission to delete the objects that it
// failed for, and lists them.
func (w *wait) confirmPrune(ctx context.Context, app string) error {
	return w.sync(ctx, func(ctx context.Context) (string, error) {
		resp, err := w.client.control.ConfirmPrune(ctx, &controlv1.ConfirmPruneRequest{ApplicationId: app})
		for _, o := range resp.GetObjects() {
			w.log.infof("Permitted to delete: %s %s", o.GetKind(), objectName(o))
		}
		return resp.GetCommandId(), syncFailed(err)
	})
}

// syncFailed and rollbackFailed describe a failed request; nil stays nil.
func syncFailed(err error) error {
	if err == nil {
		return nil
	}
	return unknownApplication(failed("failed to sync application", err))
}

func rollbackFailed(app string, err error) error {
	if err == nil {
		return nil
	}
	err = failed("failed to roll back application", err)
	if status.Code(err) != codes.NotFound {
		return err
	}
	return hint(err, "'pipectl deployment list --app-id=%s --status=%s' shows what the application can go back to; 'pipectl application sync --app-id=%s --commit=...' deploys another commit; 'pipectl application list' shows the applications",
		app, modelv1.DeploymentStatus_DEPLOYMENT_SUCCESS, app)
}

func newApplicationRollback(t *tool) *cobra.Command {
	req := &controlv1.RollbackApplicationRequest{}
	var to string
	w := wait{}
	cmd := &cobra.Command{
		Use:   "rollback",
		Short: "Deploy an earlier state of an application, and hold the application there.",
		Long: `Deploy an earlier state of an application again. The rollback cancels pending and
running deployments of the application, unless --wait-for-running is given. The
application is then held at the commit: self-healing restores that commit, until a
new commit changes the application or it is synced.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return w.with(cmd, t, func(ctx context.Context) error {
				if isHash(to) {
					req.Commit = to
				} else {
					req.DeploymentId = to
				}
				return w.sync(ctx, func(ctx context.Context) (string, error) {
					resp, err := w.rollback(ctx, req)
					if err == nil {
						w.log.infof("Rolling back to commit %s", resp.GetCommit())
						w.sayOpen(resp.GetOpen(), req.WaitForRunning)
					}
					return resp.GetCommandId(), rollbackFailed(req.GetApplicationId(), err)
				})
			})
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&req.ApplicationId, "app-id", "", "The application ID.")
	flags.StringVar(&to, "to", "", "The deployment ID, or the commit: at least 7 digits of its hash. Empty means the newest success of another commit than the last one's.")
	flags.StringVar(&req.Reason, "reason", "", "The reason of the rollback, shown while the application is held.")
	flags.BoolVar(&req.WaitForRunning, "wait-for-running", false, "Wait for the deployments of the application that wait or run instead of cancelling them.")
	w.register(flags, 5*time.Minute)
	w.registerWhole(cmd)
	return required(cmd, "app-id")
}

// rollback requests a rollback. A value that matches no commit is tried as a deployment
// ID.
func (w *wait) rollback(ctx context.Context, req *controlv1.RollbackApplicationRequest) (*controlv1.RollbackApplicationResponse, error) {
	resp, err := w.client.control.RollbackApplication(ctx, req)
	if status.Code(err) != codes.NotFound || req.GetCommit() == "" {
		return resp, err
	}
	id, ambiguous := idOf(ctx, w.client, req.GetCommit(), referenceFlags()["deployment-id"])
	if ambiguous != nil || id == req.GetCommit() {
		return resp, err
	}
	req.Commit, req.DeploymentId = "", id
	return w.client.control.RollbackApplication(ctx, req)
}

// sayOpen reports what happens to the deployments that precede a rollback.
func (w *wait) sayOpen(open []*modelv1.Deployment, waits bool) {
	for _, d := range open {
		what := "Cancelling"
		if waits || d.GetStatus() == modelv1.DeploymentStatus_DEPLOYMENT_ROLLING_BACK {
			what = "Waiting for"
		}
		w.log.infof("%s deployment %s of commit %s, which is %s", what, d.GetId(), shortHash(d.GetTrigger().GetCommit().GetHash()),
			strings.TrimPrefix(d.GetStatus().String(), "DEPLOYMENT_"))
	}
}

// isHash reports whether s is a hash or a prefix of one; deployment IDs contain dashes.
func isHash(s string) bool { return strings.Trim(s, "0123456789abcdef") == "" }

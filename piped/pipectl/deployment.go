package pipectl

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/c785c783/piped/proto/pipecd/apiservice"
	modelv1 "github.com/c785c783/piped/proto/piped/model/v1"
)

func newDeployment(t *tool) *cobra.Command {
	cmd := &cobra.Command{Use: "deployment", Aliases: []string{"deploy"}, Short: "Manage deployments."}
	cmd.AddCommand(newDeploymentGet(t), newDeploymentList(t), newDeploymentLogs(t), newDeploymentWaitStatus(t), newDeploymentWatch(t),
		newDeploymentRetry(t), newDeploymentCancel(t), newDeploymentReleaseLock(t), newDeploymentPlan(t), newDeploymentChain(t), newDeploymentAnalysis(t))
	for _, d := range decisions() {
		cmd.AddCommand(newDecision(t, d))
	}
	return asGroup(cmd)
}

func newDeploymentGet(t *tool) *cobra.Command {
	var id string
	cmd := &cobra.Command{
		Use:   "get",
		Short: "Show one deployment with its stages and every change of status.",
		Long: `Show one deployment with its stages and every change of status, with reason and
time.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return query(cmd, t, formatTable, func(ctx context.Context, c *client) (*modelv1.Deployment, error) {
				resp, err := c.GetDeployment(ctx, &apiservice.GetDeploymentRequest{DeploymentId: id})
				if err != nil {
					return nil, unknownDeployment(failed("failed to get deployment", err))
				}
				return resp.Deployment, nil
			}, (*printer).deployment)
		},
	}
	cmd.Flags().StringVar(&id, "deployment-id", "", "The deployment ID.")
	return required(cmd, "deployment-id")
}

func newDeploymentList(t *tool) *cobra.Command {
	req := &apiservice.ListDeploymentsRequest{}
	var labels []string
	var since, until string
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
			for _, bound := range []struct {
				flag, text string
				ms         *int64
			}{{"ended-since", since, &req.CompletedFromMs}, {"ended-until", until, &req.CompletedToMs}} {
				if *bound.ms, err = optionalTime(bound.flag, bound.text, t.now()); err != nil {
					return err
				}
			}
			return query(cmd, t, formatJSON, func(ctx context.Context, c *client) (*apiservice.ListDeploymentsResponse, error) {
				resp, err := c.ListDeployments(ctx, req)
				if err != nil {
					return nil, failed("failed to list deployment", err)
				}
				return resp, nil
			}, func(p *printer, resp *apiservice.ListDeploymentsResponse) error {
				return p.deployments(resp, int(req.Limit))
			})
		},
	}
	flags := cmd.Flags()
	flags.StringSliceVar(&req.Statuses, "status", nil, fmt.Sprintf("The statuses to show. (%s)", strings.Join(statusNames(), "|")))
	flags.StringSliceVar(&req.ApplicationIds, "app-id", nil, "The application IDs to show.")
	flags.StringSliceVar(&req.Kinds, "app-kind", nil, fmt.Sprintf("The kinds of application to show. (%s)", strings.Join(kindNames(), "|")))
	flags.StringVar(&req.ApplicationName, "app-name", "", "The application name.")
	flags.StringSliceVar(&labels, "label", nil, "A label that must match, as KEY:VALUE. Can be given several times.")
	flags.StringVar(&since, "ended-since", "", "Only deployments that ended at or after this time: how long ago (such as 12h, 30d or 4w), or a time such as 2026-01-31 or 2026-01-31T12:00:00Z.")
	flags.StringVar(&until, "ended-until", "", "Only deployments that ended before this time, in the same formats.")
	flags.Int32Var(&req.Limit, "limit", 30, "The most deployments to show.")
	flags.StringVar(&req.Cursor, "cursor", "", "The cursor from the end of the previous list.")
	return required(cmd)
}

func newDeploymentWaitStatus(t *tool) *cobra.Command {
	var id string
	var statuses []string
	w := wait{}
	cmd := &cobra.Command{
		Use:   "wait-status",
		Short: "Wait until a deployment reaches one of the given statuses.",
		Long: `Wait until a deployment reaches one of the given statuses. The exit code is 1
when it has ended in another one.`,
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			if w.statuses, err = statusesFromNames(statuses); err != nil {
				return err
			}
			return w.with(cmd, t, func(ctx context.Context) error { return w.deployment(ctx, id) })
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&id, "deployment-id", "", "The deployment ID.")
	flags.StringSliceVar(&statuses, "status", nil, fmt.Sprintf("The statuses to wait for. (%s)", strings.Join(statusNames(), "|")))
	w.register(flags, 15*time.Minute)
	return required(cmd, "deployment-id", "status")
}

// deployments returns the table of deployments; limit is the requested page size.
func (p *printer) deployments(resp *apiservice.ListDeploymentsResponse, limit int) error {
	t := newTable(fixed("ID"), flexible("APPLICATION"), fixed("STATUS"), fixed("COMMIT"), flexible("SUMMARY"), flexible("REASON"), fixed("CREATED"))
	for _, d := range resp.GetDeployments() {
		t.add(d.GetId(), d.GetApplicationName(), deploymentStatus(d.GetStatus()), shortHash(d.GetTrigger().GetCommit().GetHash()),
			d.GetSummary(), p.statusReason(d), p.ageSeconds(d.GetCreatedAt()))
	}
	return p.table(t, "No deployments.", ifMore(t, limit, resp))
}

// statusReason is the reason of a deployment's status, or the approval that it waits
// for.
func (p *printer) statusReason(d *modelv1.Deployment) cell {
	if !d.GetWait().GetApproval() {
		return cell{text: d.GetStatusReason()}
	}
	c := p.waits(d.GetWait())
	c.text = "waits for " + c.text
	return c
}

func (p *printer) deployment(d *modelv1.Deployment) error {
	commit := d.GetTrigger().GetCommit()
	err := p.fields(
		field{"ID", d.GetId()},
		field{"Application", named(d.GetApplicationName(), d.GetApplicationId())},
		field{"Status", deploymentStatus(d.GetStatus())},
		field{"Reason", d.GetStatusReason()},
		field{"Waits for", p.waits(d.GetWait())},
		field{"Summary", d.GetSummary()},
		field{"Commit", strings.TrimSpace(commit.GetHash() + " " + firstLine(commit.GetMessage()))},
		field{"Ran before", d.GetRunningCommitHash()},
		field{"Cause", word(d.GetTriggerKind(), "TRIGGER_KIND_")},
		field{"Asked by", d.GetTrigger().GetCommander()},
		field{"Chain", d.GetDeploymentChainId()},
		field{"Repeats", d.GetRetryOf()},
		field{"Superseded by", d.GetSupersededBy()},
		field{"Created", p.when(d.GetCreatedAtMs())},
		field{"Started", p.when(d.GetStartedAtMs())},
		field{"Ended", p.when(d.GetCompletedAtMs())},
	)
	return errors.Join(err, p.section("Stages", stageTable(p, d.GetStages())), p.section("Changes of status", p.transitions(d)))
}

func (p *printer) transitions(d *modelv1.Deployment) *table {
	names := stageNames(d)
	t := newTable(fixed("TIME"), fixed("OF"), fixed("TO"), flexible("REASON"))
	for _, m := range d.GetTransitions() {
		of := "deployment"
		if m.GetStageId() != "" {
			of = names.of(m.GetStageId())
		}
		to := strings.TrimPrefix(strings.TrimPrefix(m.GetTo(), "DEPLOYMENT_"), "STAGE_")
		t.add(time.UnixMilli(m.GetAtMs()).UTC().Format(time.TimeOnly), of, colored(to), m.GetReason())
	}
	return t
}

package pipectl

import (
	"cmp"
	"context"
	"errors"

	"github.com/spf13/cobra"

	controlv1 "github.com/c785c783/piped/proto/piped/control/v1"
	modelv1 "github.com/c785c783/piped/proto/piped/model/v1"
)

func newDeploymentPlan(t *tool) *cobra.Command {
	req := &controlv1.GetPlanRequest{}
	var strategy string
	cmd := &cobra.Command{
		Use:   "plan",
		Short: "Show strategy, reason and stages of a deployment, or of one that a sync would make.",
		Long: `Show strategy, reason and stages of a deployment, or, with --app-id, of one that
a sync would make. With --diff also show what changes, in the namespaces in
which it is applied, and the live changes that it would undo.`,
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			if (req.DeploymentId == "") == (req.ApplicationId == "") {
				return errors.New("give one of deployment-id and app-id")
			}
			if req.Strategy, err = strategyFromName(strategy); err != nil {
				return err
			}
			return query(cmd, t, formatTable, func(ctx context.Context, c *client) (*controlv1.Plan, error) {
				resp, err := c.control.GetPlan(ctx, req)
				switch {
				case err == nil:
					return resp.Plan, nil
				case req.ApplicationId != "":
					return nil, unknownApplication(failed("failed to get the plan", err))
				}
				return nil, unknownDeployment(failed("failed to get the plan", err))
			}, (*printer).plan)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&req.DeploymentId, "deployment-id", "", "The deployment ID.")
	flags.StringVar(&req.ApplicationId, "app-id", "", "The application ID: plan a sync of it without deploying anything.")
	flags.StringVar(&req.Commit, "commit", "", "With app-id, the commit: at least 7 digits of its hash. Empty means the branch's head.")
	registerStrategy(flags, &strategy)
	flags.BoolVar(&req.Diff, "diff", false, "Show how the rendered objects change, secrets masked.")
	return required(cmd)
}

func newDeploymentChain(t *tool) *cobra.Command {
	var id string
	cmd := &cobra.Command{
		Use:   "chain",
		Short: "Show a deployment chain with the state of its blocks.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			return query(cmd, t, formatTable, func(ctx context.Context, c *client) (*controlv1.DeploymentChain, error) {
				resp, err := c.control.GetDeploymentChain(ctx, &controlv1.GetDeploymentChainRequest{DeploymentChainId: id})
				if err != nil {
					return nil, unknown(failed("failed to get the deployment chain", err),
						"a deployment of a chain names it as deployment_chain_id in 'pipectl deployment get'")
				}
				return resp.Chain, nil
			}, (*printer).chain)
		},
	}
	cmd.Flags().StringVar(&id, "chain-id", "", "The ID of the chain.")
	return required(cmd, "chain-id")
}

func (p *printer) plan(plan *controlv1.Plan) error {
	err := p.fields(
		field{"Application", plan.GetApplicationId()},
		field{"Deployment", plan.GetDeploymentId()},
		field{"Commit", plan.GetCommit()},
		field{"Runs now", plan.GetRunningCommit()},
		field{"Strategy", plan.GetStrategy()},
		field{"Reason", plan.GetReason()},
		field{"Summary", plan.GetSummary()},
		field{"Would wait", cell{text: plan.GetHoldReason(), color: yellow}},
		field{"Plan", plan.GetChangesSummary()},
		field{"Plan digest", plan.GetChangesDigest()},
		field{"Note", plan.GetChangesNote()},
	)
	return errors.Join(err, p.section("Stages", stageTable(p, plan.GetStages())),
		p.section("Live changes that it undoes", p.driftTable(plan.GetUndoes())), p.changes(plan.GetChanges()))
}

// changes lists the changes to objects, with their diffs if requested.
func (p *printer) changes(changes []*controlv1.PlannedChange) error {
	t := newTable(fixed("ACTION"), fixed("KIND"), fixed("OBJECT"))
	for _, c := range changes {
		t.add(word(c.GetAction(), "PLANNED_ACTION_"), c.GetObject().GetKind(), changeName(c))
	}
	if err := p.section("Changes", t); err != nil {
		return err
	}
	for _, c := range changes {
		if c.GetDiff() == "" {
			continue
		}
		if err := errors.Join(p.linef("\n%s", p.paint(cyan, clean(c.GetObject().GetKind()+" "+changeName(c)))), p.diff(c.GetDiff())); err != nil {
			return err
		}
	}
	return nil
}

// changeName returns the name of a changed object: that for the platform's program if it has one.
func changeName(c *controlv1.PlannedChange) string {
	return cmp.Or(c.GetAddress(), objectName(c.GetObject()))
}

// stageTable lists the visible stages.
func stageTable(p *printer, stages []*modelv1.PipelineStage) *table {
	t := newTable(fixed("STAGE"), fixed("ID"), fixed("STATUS"), fixed("TOOK"), flexible("REASON"))
	for _, s := range stages {
		if s.GetVisible() || s.GetStatus() != modelv1.StageStatus_STAGE_NOT_STARTED_YET {
			t.add(s.GetName(), s.GetId(), stageStatus(s.GetStatus()), took(s, p.now), s.GetStatusReason())
		}
	}
	return t
}

func (p *printer) chain(c *controlv1.DeploymentChain) error {
	err := p.fields(
		field{"Chain", c.GetId()},
		field{"State", colored(word(c.GetState(), "CHAIN_STATE_"))},
		field{"Created", p.when(c.GetCreatedAtMs())},
		field{"Ended", p.when(c.GetCompletedAtMs())},
	)
	t := newTable(fixed("BLOCK"), flexible("APPLICATION"), fixed("DEPLOYMENT"), fixed("STATUS"), flexible("REASON"))
	for i, block := range c.GetBlocks() {
		for _, m := range block.GetMembers() {
			t.add(i, m.GetApplicationName(), m.GetDeploymentId(), deploymentStatus(m.GetStatus()), m.GetReason())
		}
	}
	return errors.Join(err, p.section("Deployments", t))
}

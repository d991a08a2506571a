package pipectl

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	controlv1 "github.com/c785c783/piped/proto/piped/control/v1"
	modelv1 "github.com/c785c783/piped/proto/piped/model/v1"
)

// Prefixes that enum names of rollouts carry and people need not type.
const (
	rolloutKindPrefix    = "ROLLOUT_KIND_"
	rolloutOutcomePrefix = "ROLLOUT_OUTCOME_"
)

func newApplicationRollouts(t *tool) *cobra.Command {
	req := &controlv1.ListRolloutsRequest{}
	var labels, outcomes []string
	var kind string
	cmd := &cobra.Command{
		Use:   "rollouts",
		Short: "Show rollouts of workloads, newest first, also those that others than the agent caused.",
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			if req.Labels, err = labelsFromPairs(labels); err != nil {
				return err
			}
			if err := rolloutFilter(req, kind, outcomes); err != nil {
				return err
			}
			return query(cmd, t, formatTable, func(ctx context.Context, c *client) (*controlv1.ListRolloutsResponse, error) {
				resp, err := c.control.ListRollouts(ctx, req)
				if err != nil {
					return nil, failed("failed to list rollouts", err)
				}
				return resp, nil
			}, (*printer).rollouts)
		},
	}
	flags := cmd.Flags()
	flags.StringSliceVar(&req.ApplicationIds, "app-id", nil, "The application IDs. Empty means all.")
	flags.StringVar(&req.DeploymentId, "deployment-id", "", "Only rollouts that this deployment caused.")
	flags.StringSliceVar(&labels, "label", nil, "A label that must match, as KEY:VALUE. Can be given several times.")
	flags.StringVar(&kind, "kind", "", fmt.Sprintf("Only rollouts of this kind. (%s)", strings.Join(unprefixed(modelv1.RolloutKind_name, rolloutKindPrefix), "|")))
	flags.StringSliceVar(&outcomes, "outcome", nil, fmt.Sprintf("Only rollouts that ended so. (%s)", strings.Join(unprefixed(modelv1.RolloutOutcome_name, rolloutOutcomePrefix), "|")))
	flags.Int32Var(&req.Limit, "limit", 30, "The most rollouts to show.")
	flags.StringVar(&req.Cursor, "cursor", "", "The cursor that the list before ended with.")
	return required(cmd)
}

// rolloutFilter reads the names of kinds and outcomes.
func rolloutFilter(req *controlv1.ListRolloutsRequest, kind string, outcomes []string) error {
	if kind != "" {
		number, err := number(kind, "kind", modelv1.RolloutKind_value, modelv1.RolloutKind_name, rolloutKindPrefix)
		if err != nil {
			return err
		}
		req.Kind = modelv1.RolloutKind(number)
	}
	for _, o := range outcomes {
		number, err := number(o, "outcome", modelv1.RolloutOutcome_value, modelv1.RolloutOutcome_name, rolloutOutcomePrefix)
		if err != nil {
			return err
		}
		req.Outcomes = append(req.Outcomes, modelv1.RolloutOutcome(number))
	}
	return nil
}

// unprefixed are an enum's names without their prefix and without number 0,
// which says nothing.
func unprefixed(enum map[int32]string, prefix string) []string {
	var out []string
	for _, name := range namesOf(enum)[1:] {
		out = append(out, strings.TrimPrefix(name, prefix))
	}
	return out
}

// number reads an enum's name in any case, with or without its prefix.
func number(name, what string, values map[string]int32, names map[int32]string, prefix string) (int32, error) {
	n, ok := values[prefix+strings.TrimPrefix(strings.ToUpper(name), prefix)]
	if !ok || n == 0 {
		return 0, hint(fmt.Errorf("invalid %s: %s", what, name), "choose one of: %s", strings.Join(unprefixed(names, prefix), ", "))
	}
	return n, nil
}

func (p *printer) rollouts(resp *controlv1.ListRolloutsResponse) error {
	t := newTable(fixed("STARTED"), flexible("APPLICATION"), fixed("WORKLOAD"), fixed("OUTCOME"), fixed("TOOK"), fixed("REPLICAS"), fixed("COMMIT"),
		flexible("CAUSED BY"), flexible("REASON"))
	for _, r := range resp.GetRollouts() {
		by := r.GetCausedBy()
		if by == "" {
			by = r.GetDeploymentId()
		}
		took := ""
		if r.GetCompletedAtMs() != 0 {
			took = fmt.Sprintf("%.1fs", float64(r.GetCompletedAtMs()-r.GetStartedAtMs())/1000)
		}
		t.add(p.age(r.GetStartedAtMs()), r.GetApplicationName(), r.GetWorkload().GetKind()+" "+objectName(r.GetWorkload()),
			colored(word(r.GetOutcome(), rolloutOutcomePrefix)), took, fmt.Sprintf("%d→%d", r.GetFromReplicas(), r.GetToReplicas()),
			shortHash(r.GetCommit()), by, r.GetReason())
	}
	return p.table(t, "No rollouts.", resp.GetCursor())
}

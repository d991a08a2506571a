package pipectl

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	controlv1 "github.com/c785c783/piped/proto/piped/control/v1"
	modelv1 "github.com/c785c783/piped/proto/piped/model/v1"
)

// Prefixes of the enum names of rollouts, optional for users.
const (
	rolloutKindPrefix    = "ROLLOUT_KIND_"
	rolloutOutcomePrefix = "ROLLOUT_OUTCOME_"
)

func newRollout(t *tool) *cobra.Command {
	cmd := &cobra.Command{Use: "rollout", Short: "See rollouts and scalings of workloads."}
	list := newApplicationRollouts(t)
	list.Use = "list"
	cmd.AddCommand(list)
	return asGroup(cmd)
}

func newApplicationRollouts(t *tool) *cobra.Command {
	req := &controlv1.ListRolloutsRequest{}
	var labels, outcomes []string
	var kind, since, until string
	cmd := &cobra.Command{
		Use:   "rollouts",
		Short: "Show rollouts and scalings of workloads, also those that others caused, newest first.",
		Long: `Show rollouts and scalings of workloads, also those that others than the agent
caused, the last that started first. Where a provider has rollouts.watch: all, these
include workloads of no application, which have a dash as APPLICATION.

SCHEDULE, PULL and READY are how long the slowest new pod took from its creation until a
node was found, until its last container had started, and until it was ready, in whole
seconds, as clusters report times. A dash is for what was not measured.

--output csv and --output jsonl write all that match, or as many as --limit says, one
line for each as it comes; docs/concepts/rollouts.md lists their columns.`,
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			if req.Labels, err = labelsFromPairs(labels); err != nil {
				return err
			}
			if err := rolloutFilter(req, kind, outcomes); err != nil {
				return err
			}
			if err := rolloutsWhen(req, since, until, t.now()); err != nil {
				return err
			}
			p, err := t.printer(cmd, formatTable, formatCSV, formatJSONLines)
			if err != nil {
				return err
			}
			if p.format == formatCSV || p.format == formatJSONLines {
				if !cmd.Flags().Changed("limit") {
					req.Limit = 0
				}
				return exportRollouts(cmd, t, p, req)
			}
			resp, err := ask(cmd, t, func(ctx context.Context, c *client) (*controlv1.ListRolloutsResponse, error) {
				return listRollouts(ctx, c, req)
			})
			if err != nil {
				return err
			}
			return p.print(resp, func(p *printer) error { return p.rollouts(resp) })
		},
	}
	flags := cmd.Flags()
	flags.StringSliceVar(&req.ApplicationIds, "app-id", nil, "The application IDs. Empty means all.")
	flags.StringVar(&req.DeploymentId, "deployment-id", "", "Only rollouts that this deployment caused.")
	flags.StringSliceVar(&labels, "label", nil, "A label that must match, as KEY:VALUE. Can be given several times.")
	flags.StringSliceVar(&req.Namespaces, "namespace", nil, "Only rollouts of workloads in these namespaces.")
	flags.StringSliceVar(&req.Workloads, "workload", nil, "Only rollouts of workloads with these names.")
	flags.StringVar(&kind, "kind", "", fmt.Sprintf("Only rollouts of this kind. (%s)", strings.Join(unprefixed(modelv1.RolloutKind_name, rolloutKindPrefix), "|")))
	flags.StringSliceVar(&outcomes, "outcome", nil, fmt.Sprintf("Only rollouts with these outcomes. (%s)", strings.Join(unprefixed(modelv1.RolloutOutcome_name, rolloutOutcomePrefix), "|")))
	flags.StringVar(&since, "since", "", "Only rollouts that started at or after this time: how long ago (such as 12h, 30d or 4w), or a time such as 2026-01-31 or 2026-01-31T12:00:00Z.")
	flags.StringVar(&until, "until", "", "Only rollouts that started before this time, in the same formats.")
	flags.Int32Var(&req.Limit, "limit", 30, "The most rollouts to show.")
	flags.StringVar(&req.Cursor, "cursor", "", "The cursor from the end of the previous list.")
	return required(cmd)
}

// rolloutsWhen parses the range of time; "" is unbounded.
func rolloutsWhen(req *controlv1.ListRolloutsRequest, since, until string, now time.Time) error {
	for flag, bound := range map[string]struct {
		text string
		ms   *int64
	}{"since": {since, &req.FromMs}, "until": {until, &req.ToMs}} {
		var err error
		if *bound.ms, err = optionalTime(flag, bound.text, now); err != nil {
			return err
		}
	}
	return nil
}

func listRollouts(ctx context.Context, c *client, req *controlv1.ListRolloutsRequest) (*controlv1.ListRolloutsResponse, error) {
	resp, err := c.control.ListRollouts(ctx, req)
	if err != nil {
		return nil, failed("failed to list rollouts", err)
	}
	return resp, nil
}

// rolloutFilter parses the names of kinds and outcomes.
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

// unprefixed returns an enum's names without prefix and without number 0, the
// unspecified value.
func unprefixed(enum map[int32]string, prefix string) []string {
	var out []string
	for _, name := range namesOf(enum)[1:] {
		out = append(out, strings.TrimPrefix(name, prefix))
	}
	return out
}

// number parses an enum's name, case-insensitive, with or without prefix.
func number(name, what string, values map[string]int32, names map[int32]string, prefix string) (int32, error) {
	n, ok := values[prefix+strings.TrimPrefix(strings.ToUpper(name), prefix)]
	if !ok || n == 0 {
		return 0, hint(fmt.Errorf("invalid %s: %s", what, name), "choose one of: %s", strings.Join(unprefixed(names, prefix), ", "))
	}
	return n, nil
}

func (p *printer) rollouts(resp *controlv1.ListRolloutsResponse) error {
	t := newTable(fixed("STARTED"), fixed("KIND"), flexible("APPLICATION"), fixed("WORKLOAD"), fixed("CLUSTER"), fixed("OUTCOME"), fixed("TOOK"), fixed("SCHEDULE"), fixed("PULL"),
		fixed("READY"), fixed("REPLICAS"), fixed("COMMIT"), flexible("CAUSED BY"), flexible("REASON"))
	for _, r := range resp.GetRollouts() {
		by := r.GetCausedBy()
		if by == "" {
			by = r.GetDeploymentId()
		}
		took := ""
		if r.GetCompletedAtMs() != 0 {
			took = fmt.Sprintf("%.1fs", float64(r.GetCompletedAtMs()-r.GetStartedAtMs())/1000)
		}
		t.add(p.age(r.GetStartedAtMs()), strings.ToLower(unprefix(r.GetKind(), rolloutKindPrefix)), r.GetApplicationName(),
			r.GetWorkload().GetKind()+" "+objectName(r.GetWorkload()), r.GetWorkload().GetCluster(), colored(word(r.GetOutcome(), rolloutOutcomePrefix)), took,
			wholeSeconds(r.ScheduleMs), wholeSeconds(r.PullMs), wholeSeconds(r.ReadyMs), fmt.Sprintf("%d→%d", r.GetFromReplicas(), r.GetToReplicas()),
			shortHash(r.GetCommit()), by, r.GetReason())
	}
	return p.table(t, "No rollouts.", resp.GetCursor())
}

// wholeSeconds formats a step of a rollout; "" for nil.
func wholeSeconds(ms *int64) string {
	if ms == nil {
		return ""
	}
	return inSeconds(ms) + "s"
}

// unprefix returns an enum's name without its prefix.
func unprefix(value fmt.Stringer, prefix string) string {
	return strings.TrimPrefix(value.String(), prefix)
}

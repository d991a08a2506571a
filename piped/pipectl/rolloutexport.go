package pipectl

import (
	"context"
	"encoding/csv"
	"encoding/json"
	"io"

	"github.com/spf13/cobra"

	"github.com/c785c783/piped/piped/deploy/rolloutrow"
	controlv1 "github.com/c785c783/piped/proto/piped/control/v1"
	modelv1 "github.com/c785c783/piped/proto/piped/model/v1"
)

// exportPage is the page size of an export.
const exportPage = 1000

// exportRollouts requests and writes pages until the limit of req, or all.
func exportRollouts(cmd *cobra.Command, t *tool, p *printer, req *controlv1.ListRolloutsRequest) error {
	c, err := t.dial(cmd.Context())
	if err != nil {
		return err
	}
	defer c.close()
	write, err := rolloutWriter(p.out, p.format)
	if err != nil {
		return err
	}
	left := int(req.GetLimit()) // 0: no limit
	for {
		req.Limit = exportPage
		if left > 0 {
			req.Limit = int32(min(left, exportPage))
		}
		page, err := rolloutPage(cmd.Context(), c, req)
		if err != nil {
			return err
		}
		if err := write(page.GetRollouts()); err != nil {
			return err
		}
		if left > 0 {
			if left -= len(page.GetRollouts()); left <= 0 {
				return nil
			}
		}
		if req.Cursor = page.GetCursor(); req.Cursor == "" {
			return nil
		}
	}
}

func rolloutPage(ctx context.Context, c *client, req *controlv1.ListRolloutsRequest) (*controlv1.ListRolloutsResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	return listRollouts(ctx, c, req)
}

// rolloutWriter returns the writer of a format: CSV (RFC 4180) with a header line, or
// one JSON object per line.
func rolloutWriter(out io.Writer, format string) (func([]*modelv1.Rollout) error, error) {
	if format == formatJSONLines {
		encoder := json.NewEncoder(out)
		encoder.SetEscapeHTML(false)
		return func(rollouts []*modelv1.Rollout) error {
			for _, r := range rollouts {
				if err := encoder.Encode(rowOf(r)); err != nil {
					return err
				}
			}
			return nil
		}, nil
	}
	w := csv.NewWriter(out)
	w.UseCRLF = true
	if err := w.Write(rolloutrow.Columns()); err != nil {
		return nil, err
	}
	return func(rollouts []*modelv1.Rollout) error {
		for _, r := range rollouts {
			row := rowOf(r).Values()
			for i := range row {
				row[i] = clean(row[i])
			}
			if err := w.Write(row); err != nil {
				return err
			}
		}
		w.Flush()
		return w.Error()
	}, nil
}

func rowOf(r *modelv1.Rollout) rolloutrow.Row {
	w := r.GetWorkload()
	return rolloutrow.Row{
		ID: r.GetId(), Kind: unprefix(r.GetKind(), rolloutKindPrefix), ApplicationID: r.GetApplicationId(), ApplicationName: r.GetApplicationName(),
		DeploymentID: r.GetDeploymentId(), StageID: r.GetStageId(), Cluster: w.GetCluster(), WorkloadKind: w.GetKind(), Namespace: w.GetNamespace(),
		Workload: w.GetName(), UID: w.GetUid(), Revision: r.GetRevision(), RevisionName: r.GetRevisionName(), Commit: r.GetCommit(),
		Images: append([]string{}, r.GetImages()...), Outcome: unprefix(r.GetOutcome(), rolloutOutcomePrefix), Reason: r.GetReason(),
		CausedBy: r.GetCausedBy(), SupersededBy: r.GetSupersededBy(),
		StartedAt: rolloutrow.At(r.GetStartedAtMs()), CompletedAt: rolloutrow.At(r.GetCompletedAtMs()), MarkedAt: rolloutrow.At(r.GetMarkedAtMs()),
		DurationMillis: rolloutrow.Took(r.GetStartedAtMs(), r.GetCompletedAtMs()),
		ScheduleMillis: r.ScheduleMs, PullMillis: r.PullMs, ReadyMillis: r.ReadyMs, FromReplicas: r.GetFromReplicas(), ToReplicas: r.GetToReplicas(),
	}
}

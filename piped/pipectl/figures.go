package pipectl

import (
	"context"
	"encoding/csv"
	"fmt"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	controlv1 "github.com/c785c783/piped/proto/piped/control/v1"
)

func newFigures(t *tool) *cobra.Command {
	req := &controlv1.GetDeliveryFiguresRequest{}
	var labels []string
	var since, until string
	cmd := &cobra.Command{
		Use:   "figures",
		Short: "Show delivery figures: deployment frequency, lead time, change failure rate, time to restore.",
		Long: `Show delivery figures of the deployments that ended in a range of time, for each
application and for all of them together:

  PER DAY    successes per 24 hours of the range
  LEAD TIME  from a commit, by its committer's clock, to the success of the
             deployment that it triggered: the median, and the 90th percentile
  FAILED %   failures among failures and successes; a rollback is a failure
  RESTORED   from the end of a failure to the next success of the application:
             the median

Cancelled deployments are counted and enter no other figure. A dash is for what was
not measured. docs/reference/metrics.md has the definitions in full.

--output csv writes a line for each application, with durations in seconds, and one
without ID for all of them.`,
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			if req.Labels, err = labelsFromPairs(labels); err != nil {
				return err
			}
			r, err := timeRange(since, until, t.now())
			if err != nil {
				return err
			}
			req.FromMs, req.ToMs = r.from.UnixMilli(), r.to.UnixMilli()
			return showFigures(cmd, t, req, r)
		},
	}
	flags := cmd.Flags()
	flags.StringSliceVar(&req.ApplicationIds, "app-id", nil, "The application IDs. Empty means all.")
	flags.StringSliceVar(&labels, "label", nil, "A label that must match, as KEY:VALUE. Can be given several times.")
	flags.StringVar(&since, "since", "30d", "The begin of the range: how long ago (such as 12h, 30d or 4w), or a time such as 2026-01-31 or 2026-01-31T12:00:00Z.")
	flags.StringVar(&until, "until", "", "The end of the range, in the same ways. Empty means now.")
	return required(cmd)
}

// showFigures requests delivery figures and writes them.
func showFigures(cmd *cobra.Command, t *tool, req *controlv1.GetDeliveryFiguresRequest, r span) error {
	p, err := t.printer(cmd, formatTable, formatCSV)
	if err != nil {
		return err
	}
	resp, err := ask(cmd, t, func(ctx context.Context, c *client) (*controlv1.GetDeliveryFiguresResponse, error) {
		resp, err := c.control.GetDeliveryFigures(ctx, req)
		if err != nil {
			return nil, failed("failed to get the delivery figures", err)
		}
		return resp, nil
	})
	if err != nil {
		return err
	}
	if p.format == formatCSV {
		return p.figuresCSV(resp, r)
	}
	return p.print(resp, func(p *printer) error { return p.figures(resp, r) })
}

// figures returns a table of the applications with the total as the last row.
func (p *printer) figures(resp *controlv1.GetDeliveryFiguresResponse, r span) error {
	t := newTable(flexible("APPLICATION"), fixed("SUCCEEDED"), fixed("FAILED"), fixed("CANCELLED"), fixed("PER DAY"), fixed("LEAD TIME"), fixed("90TH"),
		fixed("FAILED %"), fixed("RESTORED"))
	row := func(name string, f *controlv1.DeliveryFigures) {
		t.add(name, f.GetSucceeded(), f.GetFailed(), f.GetCancelled(), decimal(f.DeploymentFrequency, 1, 2), formatDuration(f.LeadTimeMedianMs), formatDuration(f.LeadTimeP90Ms),
			decimal(f.ChangeFailureRate, 100, 1), formatDuration(f.TimeToRestoreMedianMs))
	}
	for _, f := range resp.GetApplications() {
		row(f.GetApplicationName(), f)
	}
	if len(t.rows) > 0 {
		row("all", resp.GetTotal())
	}
	return p.table(t, fmt.Sprintf("No deployment has ended between %s.", r), "")
}

// figuresCSV writes a line for each application, and one without ID for the total.
// Durations are in seconds; missing values are empty.
func (p *printer) figuresCSV(resp *controlv1.GetDeliveryFiguresResponse, r span) error {
	w := csv.NewWriter(p.out)
	rows := [][]string{{
		"application_id", "application_name", "from", "to", "succeeded", "failed", "cancelled", "deployments_per_day",
		"lead_time_median_seconds", "lead_time_p90_seconds", "change_failure_rate", "time_to_restore_median_seconds",
	}}
	for _, f := range append(resp.GetApplications(), resp.GetTotal()) {
		rows = append(rows, []string{
			f.GetApplicationId(), clean(f.GetApplicationName()), r.from.UTC().Format(time.RFC3339), r.to.UTC().Format(time.RFC3339),
			fmt.Sprint(f.GetSucceeded()), fmt.Sprint(f.GetFailed()), fmt.Sprint(f.GetCancelled()), decimal(f.DeploymentFrequency, 1, -1),
			inSeconds(f.LeadTimeMedianMs), inSeconds(f.LeadTimeP90Ms), decimal(f.ChangeFailureRate, 1, -1), inSeconds(f.TimeToRestoreMedianMs),
		})
	}
	return w.WriteAll(rows)
}

// decimal formats a figure, multiplied by factor, with digits after the point (-1: as
// many as needed); "" for nil.
func decimal(v *float64, factor float64, digits int) string {
	if v == nil {
		return ""
	}
	return strconv.FormatFloat(*v*factor, 'f', digits, 64)
}

// inSeconds formats milliseconds as seconds; "" for nil.
func inSeconds(ms *int64) string {
	if ms == nil {
		return ""
	}
	return strconv.FormatFloat(float64(*ms)/1000, 'f', -1, 64)
}

// formatDuration formats milliseconds for users, such as 8.4s, 12m5s, 3h20m or 4d6h; ""
// for nil.
func formatDuration(ms *int64) string {
	if ms == nil {
		return ""
	}
	d := time.Duration(*ms) * time.Millisecond
	whole := func(unit, part time.Duration, name, partName string) string {
		d := d.Round(part)
		return fmt.Sprintf("%d%s%d%s", d/unit, name, d%unit/part, partName)
	}
	switch {
	case d.Round(time.Second/10) < time.Minute:
		return fmt.Sprintf("%.1fs", d.Seconds())
	case d.Round(time.Second) < time.Hour:
		return whole(time.Minute, time.Second, "m", "s")
	case d.Round(time.Minute) < 48*time.Hour:
		return whole(time.Hour, time.Minute, "h", "m")
	}
	return whole(24*time.Hour, time.Hour, "d", "h")
}

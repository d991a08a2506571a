package pipectl

import (
	"context"
	"encoding/csv"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	controlv1 "github.com/c785c783/piped/proto/piped/control/v1"
)

func newFigures(t *tool) *cobra.Command {
	req := &controlv1.GetDeliveryFiguresRequest{}
	var labels []string
	var since, until, by, per string
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

--by divides the range into calendar days, or weeks from Monday, of a time zone. A
failure counts on the day on which it ended. 'pipectl deployment list' with
--ended-since and --ended-until lists the deployments of a row.

--output csv writes a line for each application, with durations in seconds, and one
without ID for all of them; with --by, lines for each day or week.`,
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			if req.Labels, err = labelsFromPairs(labels); err != nil {
				return err
			}
			r, err := timeRange(since, until, t.now())
			if err != nil {
				return err
			}
			req.FromMs, req.ToMs = r.from.UnixMilli(), r.to.UnixMilli()
			if err := bucketed(req, by, per); err != nil {
				return err
			}
			return showFigures(cmd, t, req, r)
		},
	}
	flags := cmd.Flags()
	flags.StringSliceVar(&req.ApplicationIds, "app-id", nil, "The application IDs. Empty means all.")
	flags.StringSliceVar(&labels, "label", nil, "A label that must match, as KEY:VALUE. Can be given several times.")
	flags.StringVar(&since, "since", "30d", "The begin of the range: how long ago (such as 12h, 30d or 4w), or a time such as 2026-01-31 or 2026-01-31T12:00:00Z.")
	flags.StringVar(&until, "until", "", "The end of the range, in the same ways. Empty means now.")
	flags.StringVar(&by, "by", "", "Also divide the range. (day|week)")
	flags.StringVar(&per, "per", "", "With --by, also show the applications of each part. (application)")
	flags.StringVar(&req.TimeZone, "time-zone", "UTC", "The time zone of days and weeks, such as Europe/Berlin.")
	return required(cmd)
}

// bucketed parses --by and --per.
func bucketed(req *controlv1.GetDeliveryFiguresRequest, by, per string) error {
	buckets := map[string]controlv1.FiguresBucket{
		"": controlv1.FiguresBucket_FIGURES_BUCKET_UNSPECIFIED, "day": controlv1.FiguresBucket_FIGURES_BUCKET_DAY, "week": controlv1.FiguresBucket_FIGURES_BUCKET_WEEK,
	}
	var ok bool
	if req.Bucket, ok = buckets[by]; !ok {
		return hint(fmt.Errorf("figures cannot be shown by %q", by), "--by is day or week")
	}
	switch req.BucketApplications = per == "application"; {
	case per != "" && per != "application":
		return hint(fmt.Errorf("figures cannot be shown per %q", per), "--per is application")
	case per != "" && by == "":
		return hint(errors.New("--per needs --by"), "without --by, the figures of each application are shown anyway")
	}
	return nil
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
	if len(resp.GetBuckets()) == 0 {
		return p.print(resp, func(p *printer) error { return p.figures(resp, r) })
	}
	zone, err := time.LoadLocation(req.TimeZone)
	if err != nil {
		zone = time.UTC // this machine lacks the zone
	}
	return p.print(resp, func(p *printer) error { return p.bucketFigures(resp, zone) })
}

// figureColumns returns columns that are followed by those of figureCells.
func figureColumns(first ...column) *table {
	return newTable(append(first, fixed("SUCCEEDED"), fixed("FAILED"), fixed("CANCELLED"), fixed("PER DAY"), fixed("LEAD TIME"), fixed("90TH"), fixed("FAILED %"), fixed("RESTORED"))...)
}

func figureCells(f *controlv1.DeliveryFigures, first ...any) []any {
	return append(first, f.GetSucceeded(), f.GetFailed(), f.GetCancelled(), decimal(f.DeploymentFrequency, 1, 2), formatDuration(f.LeadTimeMedianMs), formatDuration(f.LeadTimeP90Ms),
		decimal(f.ChangeFailureRate, 100, 1), formatDuration(f.TimeToRestoreMedianMs))
}

// figures prints a table of the applications with the total as the last row.
func (p *printer) figures(resp *controlv1.GetDeliveryFiguresResponse, r span) error {
	t := figureColumns(flexible("APPLICATION"))
	for _, f := range resp.GetApplications() {
		t.add(figureCells(f, f.GetApplicationName())...)
	}
	if len(t.rows) > 0 {
		t.add(figureCells(resp.GetTotal(), "all")...)
	}
	return p.table(t, fmt.Sprintf("No deployment has ended between %s.", r), "")
}

// bucketFigures prints a table of the buckets with the total as the last row. Times are shown
// where a bucket does not begin with a day.
func (p *printer) bucketFigures(resp *controlv1.GetDeliveryFiguresResponse, zone *time.Location) error {
	t := figureColumns(fixed("FROM"), flexible("APPLICATION"))
	for _, b := range resp.GetBuckets() {
		from := strings.TrimSuffix(time.UnixMilli(b.GetFromMs()).In(zone).Format("2006-01-02 15:04"), " 00:00")
		for _, f := range b.GetApplications() {
			t.add(figureCells(f, from, f.GetApplicationName())...)
		}
		t.add(figureCells(b.GetTotal(), from, "all")...)
	}
	t.add(figureCells(resp.GetTotal(), "all", "all")...)
	return t.write(p.screen)
}

// figuresCSV writes a line for each application, and one without ID for the total; with
// buckets the lines of each of them, instead. Durations are in seconds; missing values are empty.
func (p *printer) figuresCSV(resp *controlv1.GetDeliveryFiguresResponse, r span) error {
	w := csv.NewWriter(p.out)
	rows := [][]string{{
		"application_id", "application_name", "from", "to", "succeeded", "failed", "cancelled", "deployments_per_day",
		"lead_time_median_seconds", "lead_time_p90_seconds", "change_failure_rate", "time_to_restore_median_seconds",
	}}
	add := func(figures []*controlv1.DeliveryFigures, r span) {
		for _, f := range figures {
			rows = append(rows, []string{
				f.GetApplicationId(), clean(f.GetApplicationName()), r.from.UTC().Format(time.RFC3339), r.to.UTC().Format(time.RFC3339),
				fmt.Sprint(f.GetSucceeded()), fmt.Sprint(f.GetFailed()), fmt.Sprint(f.GetCancelled()), decimal(f.DeploymentFrequency, 1, -1),
				inSeconds(f.LeadTimeMedianMs), inSeconds(f.LeadTimeP90Ms), decimal(f.ChangeFailureRate, 1, -1), inSeconds(f.TimeToRestoreMedianMs),
			})
		}
	}
	if len(resp.GetBuckets()) == 0 {
		add(append(resp.GetApplications(), resp.GetTotal()), r)
	}
	for _, b := range resp.GetBuckets() {
		add(append(b.GetApplications(), b.GetTotal()), span{time.UnixMilli(b.GetFromMs()), time.UnixMilli(b.GetToMs())})
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

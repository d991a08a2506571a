package pipectl

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	controlv1 "github.com/c785c783/piped/proto/piped/control/v1"
)

func newDeploymentAnalysis(t *tool) *cobra.Command {
	req := &controlv1.GetAnalysisSeriesRequest{}
	cmd := &cobra.Command{
		Use:   "analysis",
		Short: "Show the checks of a deployment's analyses, running or ended, with their samples.",
		Long: `Show the checks of a deployment's analyses, running or ended: for each check what is
expected, how many failures there were and how many are tolerated, and the samples
with what was measured. A sample without data, and one for which the provider gave no
answer, have a verdict of their own.

VALUE is the measured value, or the least and the greatest of several; COMPARED is what
a comparison compared it with, such as the baseline.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return query(cmd, t, formatTable, func(ctx context.Context, c *client) (*controlv1.GetAnalysisSeriesResponse, error) {
				resp, err := c.control.GetAnalysisSeries(ctx, req)
				if err != nil {
					return nil, unknownDeployment(failed("failed to get the analysis", err))
				}
				return resp, nil
			}, (*printer).analysis)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&req.DeploymentId, "deployment-id", "", "The deployment ID.")
	flags.StringVar(&req.StageId, "stage-id", "", "Only this stage.")
	flags.Int32Var(&req.Limit, "limit", 30, "The most samples of each check to show, the newest.")
	return required(cmd, "deployment-id")
}

func (p *printer) analysis(resp *controlv1.GetAnalysisSeriesResponse) error {
	if len(resp.GetSeries()) == 0 {
		return p.linef("No analysis has started.")
	}
	var errs []error
	for i, s := range resp.GetSeries() {
		if i > 0 {
			errs = append(errs, p.linef(""))
		}
		errs = append(errs, p.series(s))
	}
	return errors.Join(errs...)
}

// series prints one check with its samples.
func (p *printer) series(s *controlv1.AnalysisSeries) error {
	interval := ""
	if s.GetIntervalMs() > 0 {
		interval = (time.Duration(s.GetIntervalMs()) * time.Millisecond).String()
	}
	failures := fmt.Sprintf("%d of %d tolerated", s.GetFailures(), s.GetFailureLimit())
	if s.GetKind() == controlv1.AnalysisCheckKind_ANALYSIS_CHECK_KIND_UNSPECIFIED { // the limit is not known
		failures = fmt.Sprint(s.GetFailures())
	}
	against := s.GetComparedQuery()
	if against == s.GetQuery() {
		against = ""
	}
	t := newTable(fixed("AT"), fixed("VERDICT"), fixed("VALUE"), optional("COMPARED"), fixed("COUNTS"), flexible("MEASURED"))
	for _, sample := range s.GetSamples() {
		counts := "no"
		if sample.GetCounted() {
			counts = "yes"
		}
		t.add(time.UnixMilli(sample.GetAtMs()).UTC().Format(time.RFC3339), verdict(sample.GetVerdict()), valueRange(sample.GetValues()), valueRange(sample.GetCompared()),
			counts, sample.GetText())
	}
	err := p.fields(
		field{"Check", named(s.GetName(), s.GetCheckId())},
		field{"Stage", named(s.GetStageName(), s.GetStageId())},
		field{"Kind", strings.TrimSpace(word(s.GetKind(), "ANALYSIS_CHECK_KIND_") + " " + s.GetStrategy())},
		field{"Provider", s.GetProvider()},
		field{"Query", s.GetQuery()},
		field{"Compared with", against},
		field{"Expected", s.GetExpected()},
		field{"Every", interval},
		field{"Failures", failures},
		field{"Omitted", omitted(s.GetSamplesOmitted())},
	)
	return errors.Join(err, p.section("Samples", t))
}

func omitted(samples int32) string {
	if samples == 0 {
		return ""
	}
	return fmt.Sprintf("%d older samples", samples)
}

func verdict(v controlv1.AnalysisVerdict) cell {
	c := cell{text: word(v, "ANALYSIS_VERDICT_"), color: yellow}
	switch v {
	case controlv1.AnalysisVerdict_ANALYSIS_VERDICT_OK:
		c.color = green
	case controlv1.AnalysisVerdict_ANALYSIS_VERDICT_FAILED, controlv1.AnalysisVerdict_ANALYSIS_VERDICT_ERROR:
		c.color = red
	}
	return c
}

// valueRange formats a value, or the least and the greatest of several.
func valueRange(values []float64) string {
	if len(values) == 0 {
		return ""
	}
	low, high := slices.Min(values), slices.Max(values)
	if low == high {
		return significant(low)
	}
	return significant(low) + " to " + significant(high)
}

// significant formats a number with up to five significant digits.
func significant(v float64) string { return strconv.FormatFloat(v, 'g', 5, 64) }

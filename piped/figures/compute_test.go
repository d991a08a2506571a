package figures_test

import (
	"context"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/figures"
)

var from = time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)

// at returns the time that many minutes after the start of the range.
func at(minutes int) time.Time { return from.Add(time.Duration(minutes) * time.Minute) }

// succeeded, failed and cancelled return deployments that ended at a minute; for a
// success, the commit was made lead minutes before.
func succeeded(app string, end, lead int) deploy.DeploymentOutcome {
	return deploy.DeploymentOutcome{ApplicationID: app, ApplicationName: "the " + app, Status: deploy.Success, CompletedAt: at(end), CommittedAt: at(end - lead)}
}

func failed(app string, end int, restored ...int) deploy.DeploymentOutcome {
	d := deploy.DeploymentOutcome{ApplicationID: app, ApplicationName: "the " + app, Status: deploy.Failure, CompletedAt: at(end), CommittedAt: at(end - 1)}
	for _, minute := range restored {
		d.RestoredAt = at(minute)
	}
	return d
}

func cancelled(app string, end int) deploy.DeploymentOutcome {
	return deploy.DeploymentOutcome{ApplicationID: app, ApplicationName: "the " + app, Status: deploy.Cancelled, CompletedAt: at(end), CommittedAt: at(end - 1)}
}

func byHand(d deploy.DeploymentOutcome) deploy.DeploymentOutcome {
	d.CommittedAt = time.Time{}
	return d
}

func minutes(n float64) *time.Duration { return new(time.Duration(n * float64(time.Minute))) }

// TestTotal checks totals of a range of two days. For a single application the total
// equals the application's own figures.
func TestTotal(t *testing.T) {
	for name, c := range map[string]struct {
		ended []deploy.DeploymentOutcome
		want  deploy.DeliveryFigures
	}{
		"nothing ended: there were no deployments, and nothing else was measured": {
			nil, deploy.DeliveryFigures{DeploymentFrequency: new(0.0)},
		},
		"what was cancelled is counted, and enters nothing": {
			[]deploy.DeploymentOutcome{cancelled("a", 1), cancelled("a", 2)},
			deploy.DeliveryFigures{Cancelled: 2, DeploymentFrequency: new(0.0)},
		},
		"failures only": {
			[]deploy.DeploymentOutcome{failed("a", 1), failed("a", 2)},
			deploy.DeliveryFigures{Failed: 2, DeploymentFrequency: new(0.0), ChangeFailureRate: new(1.0)},
		},
		"successes only": {
			[]deploy.DeploymentOutcome{succeeded("a", 10, 3)},
			deploy.DeliveryFigures{Succeeded: 1, DeploymentFrequency: new(0.5), ChangeFailureRate: new(0.0), LeadTimeMedian: minutes(3), LeadTimeP90: minutes(3)},
		},
		"a success by hand has no lead time": {
			[]deploy.DeploymentOutcome{byHand(succeeded("a", 10, 3)), succeeded("a", 20, 7)},
			deploy.DeliveryFigures{Succeeded: 2, DeploymentFrequency: new(1.0), ChangeFailureRate: new(0.0), LeadTimeMedian: minutes(7), LeadTimeP90: minutes(7)},
		},
		"a committer whose clock is ahead measures nothing": {
			[]deploy.DeploymentOutcome{succeeded("a", 10, -1)},
			deploy.DeliveryFigures{Succeeded: 1, DeploymentFrequency: new(0.5), ChangeFailureRate: new(0.0)},
		},
		"the median of an even number lies between the two in the middle": {
			[]deploy.DeploymentOutcome{succeeded("a", 10, 9), succeeded("a", 20, 2), succeeded("a", 30, 5), succeeded("a", 40, 1)},
			deploy.DeliveryFigures{Succeeded: 4, DeploymentFrequency: new(2.0), ChangeFailureRate: new(0.0), LeadTimeMedian: minutes(3.5), LeadTimeP90: minutes(9)},
		},
		"each failure has its time until the next success": {
			[]deploy.DeploymentOutcome{failed("a", 10, 40), failed("a", 30, 40), succeeded("a", 40, 4), failed("a", 50)},
			deploy.DeliveryFigures{Succeeded: 1, Failed: 3, DeploymentFrequency: new(0.5), ChangeFailureRate: new(0.75), LeadTimeMedian: minutes(4), LeadTimeP90: minutes(4),
				TimeToRestoreMedian: minutes(20)},
		},
		"the 90th percentile of ten is the ninth": {
			[]deploy.DeploymentOutcome{
				succeeded("a", 99, 10), succeeded("b", 99, 1), succeeded("c", 99, 2), succeeded("a", 99, 3), succeeded("b", 99, 4), succeeded("c", 99, 5),
				succeeded("a", 99, 6), succeeded("b", 99, 7), succeeded("c", 99, 8), succeeded("c", 99, 9),
			},
			deploy.DeliveryFigures{Succeeded: 10, DeploymentFrequency: new(5.0), ChangeFailureRate: new(0.0), LeadTimeMedian: minutes(5.5), LeadTimeP90: minutes(9)},
		},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(c.want, figures.Compute(c.ended, from, from.Add(48*time.Hour)).Total); diff != "" {
				t.Errorf("total (-want +got):\n%s", diff)
			}
		})
	}
}

// TestApplicationsAndTotal: the total is computed from all deployments; its median is not
// the median of the applications' medians.
func TestApplicationsAndTotal(t *testing.T) {
	other := succeeded("z", 30, 100)
	other.ApplicationName = "the a" // names are not unique
	report := figures.Compute([]deploy.DeploymentOutcome{
		other, succeeded("b", 10, 1), succeeded("b", 20, 2), succeeded("b", 30, 3), failed("a", 5, 9),
	}, from, from.Add(24*time.Hour))
	want := deploy.DeliveryReport{
		From: from, To: from.Add(24 * time.Hour),
		Total: deploy.DeliveryFigures{
			Succeeded: 4, Failed: 1, DeploymentFrequency: new(4.0), ChangeFailureRate: new(0.2), LeadTimeMedian: minutes(2.5), LeadTimeP90: minutes(100),
			TimeToRestoreMedian: minutes(4),
		},
		Applications: []deploy.DeliveryFigures{
			{ApplicationID: "a", ApplicationName: "the a", Failed: 1, DeploymentFrequency: new(0.0), ChangeFailureRate: new(1.0), TimeToRestoreMedian: minutes(4)},
			{ApplicationID: "z", ApplicationName: "the a", Succeeded: 1, DeploymentFrequency: new(1.0), ChangeFailureRate: new(0.0), LeadTimeMedian: minutes(100), LeadTimeP90: minutes(100)},
			{ApplicationID: "b", ApplicationName: "the b", Succeeded: 3, DeploymentFrequency: new(3.0), ChangeFailureRate: new(0.0), LeadTimeMedian: minutes(2), LeadTimeP90: minutes(3)},
		},
	}
	if diff := cmp.Diff(want, report); diff != "" {
		t.Errorf("report (-want +got):\n%s", diff)
	}
}

// nothing is a store without deployments; it records the query.
type nothing struct{ asked deploy.FiguresQuery }

func (n *nothing) Outcomes(_ context.Context, q deploy.FiguresQuery) ([]deploy.DeploymentOutcome, error) {
	n.asked = q
	return nil, nil
}

func TestRange(t *testing.T) {
	now := from.Add(time.Hour)
	for name, c := range map[string]struct {
		from, to, wantTo time.Time
		problem          string
	}{
		"until now":             {from: from, wantTo: now},
		"not beyond now":        {from: from, to: now.Add(time.Hour), wantTo: now},
		"until a time":          {from: from, to: at(30), wantTo: at(30)},
		"without begin":         {problem: "delivery figures need a time range: set its start"},
		"with nothing in it":    {from: at(30), to: at(30), problem: "the time range starts at 2026-03-01T00:30:00Z, which is not before its end, 2026-03-01T00:30:00Z: choose an earlier start"},
		"that begins after now": {from: now.Add(time.Second), problem: "the time range starts at 2026-03-01T01:00:01Z, which is not before its end, 2026-03-01T01:00:00Z: choose an earlier start"},
	} {
		t.Run(name, func(t *testing.T) {
			st := &nothing{}
			report, err := figures.NewReader(st, func() time.Time { return now }).Figures(t.Context(), deploy.FiguresQuery{From: c.from, To: c.to})
			if c.problem != "" {
				if !deploy.IsKind(err, deploy.Invalid) || err.Error() != c.problem {
					t.Fatalf("got %v, want Invalid: %s", err, c.problem)
				}
				return
			}
			if err != nil || !report.To.Equal(c.wantTo) || !st.asked.To.Equal(c.wantTo) || !report.From.Equal(c.from) {
				t.Errorf("figures of %s to %s, asked until %s (%v); want until %s", report.From, report.To, st.asked.To, err, c.wantTo)
			}
		})
	}
}

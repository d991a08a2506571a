package figures_test

import (
	"context"
	"testing"
	"time"
	_ "time/tzdata" // a machine may lack the database

	"github.com/google/go-cmp/cmp"

	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/figures"
)

// outcomes is a store with these deployments, ordered by their end.
type outcomes []deploy.DeploymentOutcome

func (o outcomes) Outcomes(context.Context, deploy.FiguresQuery) ([]deploy.DeploymentOutcome, error) {
	return o, nil
}

func utc(text string) time.Time {
	at, err := time.Parse(time.RFC3339, text)
	if err != nil {
		panic(err)
	}
	return at
}

func zone(t *testing.T, name string) *time.Location {
	t.Helper()
	z, err := time.LoadLocation(name)
	if err != nil {
		t.Fatal(err)
	}
	return z
}

// TestBucketBounds: buckets are calendar days or weeks of a time zone and cover the range
// without gaps, whether anything ended in them or not.
func TestBucketBounds(t *testing.T) {
	now := utc("2027-01-01T00:00:00Z")
	for name, c := range map[string]struct {
		q    deploy.FiguresQuery
		want []string
	}{
		"whole days": {
			deploy.FiguresQuery{Bucket: deploy.BucketDay, From: utc("2026-03-01T00:00:00Z"), To: utc("2026-03-03T00:00:00Z")},
			[]string{"2026-03-01T00:00:00Z", "2026-03-02T00:00:00Z", "2026-03-03T00:00:00Z"},
		},
		"parts of days": {
			deploy.FiguresQuery{Bucket: deploy.BucketDay, From: utc("2026-02-28T23:00:00Z"), To: utc("2026-03-01T00:00:01Z")},
			[]string{"2026-02-28T23:00:00Z", "2026-03-01T00:00:00Z", "2026-03-01T00:00:01Z"},
		},
		"part of a day": {
			deploy.FiguresQuery{Bucket: deploy.BucketDay, From: utc("2026-03-01T01:00:00Z"), To: utc("2026-03-01T02:00:00Z")},
			[]string{"2026-03-01T01:00:00Z", "2026-03-01T02:00:00Z"},
		},
		"weeks begin on Monday": { // 2026-03-01 is a Sunday
			deploy.FiguresQuery{Bucket: deploy.BucketWeek, From: utc("2026-03-01T12:00:00Z"), To: utc("2026-03-10T00:00:00Z")},
			[]string{"2026-03-01T12:00:00Z", "2026-03-02T00:00:00Z", "2026-03-09T00:00:00Z", "2026-03-10T00:00:00Z"},
		},
		"a week from Monday": {
			deploy.FiguresQuery{Bucket: deploy.BucketWeek, From: utc("2026-03-02T00:00:00Z"), To: utc("2026-03-09T00:00:00Z")},
			[]string{"2026-03-02T00:00:00Z", "2026-03-09T00:00:00Z"},
		},
		"days where clocks change": { // on 29 March 2026, Berlin goes from UTC+1 to UTC+2
			deploy.FiguresQuery{Bucket: deploy.BucketDay, Zone: zone(t, "Europe/Berlin"), From: utc("2026-03-28T12:00:00Z"), To: utc("2026-03-30T12:00:00Z")},
			[]string{"2026-03-28T12:00:00Z", "2026-03-28T23:00:00Z", "2026-03-29T22:00:00Z", "2026-03-30T12:00:00Z"},
		},
		"days where one was skipped": { // Apia went from 29 to 31 December 2011, at 10:00 UTC
			deploy.FiguresQuery{Bucket: deploy.BucketDay, Zone: zone(t, "Pacific/Apia"), From: utc("2011-12-29T12:00:00Z"), To: utc("2011-12-31T12:00:00Z")},
			[]string{"2011-12-29T12:00:00Z", "2011-12-30T10:00:00Z", "2011-12-31T10:00:00Z", "2011-12-31T12:00:00Z"},
		},
		"the range ends now": {
			deploy.FiguresQuery{Bucket: deploy.BucketWeek, From: utc("2026-12-28T00:00:00Z")},
			[]string{"2026-12-28T00:00:00Z", "2027-01-01T00:00:00Z"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			report, err := figures.NewReader(outcomes(nil), func() time.Time { return now }).Figures(t.Context(), c.q)
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for i, b := range report.Buckets {
				if i == 0 {
					got = append(got, b.From.UTC().Format(time.RFC3339))
				} else if !b.From.Equal(report.Buckets[i-1].To) {
					t.Errorf("bucket %d begins at %s, the one before ends at %s", i, b.From, report.Buckets[i-1].To)
				}
				got = append(got, b.To.UTC().Format(time.RFC3339))
				if f := b.Total.DeploymentFrequency; f == nil || *f != 0 {
					t.Errorf("bucket %d is empty, and has the frequency %v", i, f)
				}
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("bounds (-want +got):\n%s", diff)
			}
		})
	}
}

func TestTooManyBuckets(t *testing.T) {
	r := figures.NewReader(outcomes(nil), func() time.Time { return utc("2026-01-01T00:00:00Z").AddDate(3, 0, 0) })
	q := deploy.FiguresQuery{Bucket: deploy.BucketDay, From: utc("2026-01-01T00:00:00Z"), To: utc("2026-01-01T00:00:00Z").AddDate(0, 0, figures.MaxBuckets)}
	if report, err := r.Figures(t.Context(), q); err != nil || len(report.Buckets) != figures.MaxBuckets {
		t.Errorf("%d buckets, %v", len(report.Buckets), err)
	}
	q.To = q.To.Add(time.Second)
	if _, err := r.Figures(t.Context(), q); !deploy.IsKind(err, deploy.Invalid) {
		t.Errorf("one more: %v", err)
	}
}

// TestFiguresOfBuckets: a deployment counts in the bucket in which it ended, and its limits
// belong to the later one. The frequency is per 24 hours of the bucket.
func TestFiguresOfBuckets(t *testing.T) {
	const hour = 60
	ended := outcomes{
		succeeded("a", 2*hour, 30), failed("b", 3*hour, 30*hour), // first day; restored on the second
		succeeded("a", 24*hour, 10), succeeded("b", 30*hour, 20), cancelled("a", 31*hour), // second day
	}
	r := figures.NewReader(ended, func() time.Time { return from.Add(60 * time.Hour) })
	report, err := r.Figures(t.Context(), deploy.FiguresQuery{From: from, Bucket: deploy.BucketDay, BucketApplications: true})
	if err != nil {
		t.Fatal(err)
	}
	day := func(n, hours int, total deploy.DeliveryFigures, apps ...deploy.DeliveryFigures) deploy.DeliveryReport {
		begin := from.Add(time.Duration(n) * 24 * time.Hour)
		return deploy.DeliveryReport{From: begin, To: begin.Add(time.Duration(hours) * time.Hour), Total: total, Applications: apps}
	}
	a, b := deploy.DeliveryFigures{ApplicationID: "a", ApplicationName: "the a"}, deploy.DeliveryFigures{ApplicationID: "b", ApplicationName: "the b"}
	of := func(f deploy.DeliveryFigures, with func(*deploy.DeliveryFigures)) deploy.DeliveryFigures {
		with(&f)
		return f
	}
	want := []deploy.DeliveryReport{
		day(0, 24, deploy.DeliveryFigures{
			Succeeded: 1, Failed: 1, DeploymentFrequency: new(1.0), ChangeFailureRate: new(0.5), LeadTimeMedian: minutes(30), LeadTimeP90: minutes(30), TimeToRestoreMedian: minutes(27 * hour),
		}, of(a, func(f *deploy.DeliveryFigures) {
			f.Succeeded, f.DeploymentFrequency, f.ChangeFailureRate, f.LeadTimeMedian, f.LeadTimeP90 = 1, new(1.0), new(0.0), minutes(30), minutes(30)
		}), of(b, func(f *deploy.DeliveryFigures) {
			f.Failed, f.DeploymentFrequency, f.ChangeFailureRate, f.TimeToRestoreMedian = 1, new(0.0), new(1.0), minutes(27*hour)
		})),
		day(1, 24, deploy.DeliveryFigures{
			Succeeded: 2, Cancelled: 1, DeploymentFrequency: new(2.0), ChangeFailureRate: new(0.0), LeadTimeMedian: minutes(15), LeadTimeP90: minutes(20),
		}, of(a, func(f *deploy.DeliveryFigures) {
			f.Succeeded, f.Cancelled, f.DeploymentFrequency, f.ChangeFailureRate, f.LeadTimeMedian, f.LeadTimeP90 = 1, 1, new(1.0), new(0.0), minutes(10), minutes(10)
		}), of(b, func(f *deploy.DeliveryFigures) {
			f.Succeeded, f.DeploymentFrequency, f.ChangeFailureRate, f.LeadTimeMedian, f.LeadTimeP90 = 1, new(1.0), new(0.0), minutes(20), minutes(20)
		})),
		day(2, 12, deploy.DeliveryFigures{DeploymentFrequency: new(0.0)}),
	}
	if diff := cmp.Diff(want, report.Buckets); diff != "" {
		t.Errorf("buckets (-want +got):\n%s", diff)
	}
	if report.Total.Succeeded != 3 || len(report.Applications) != 2 {
		t.Errorf("the range as a whole: %+v", report.Total)
	}
	report, err = r.Figures(t.Context(), deploy.FiguresQuery{From: from, Bucket: deploy.BucketWeek})
	if err != nil || len(report.Buckets) != 2 || report.Buckets[0].Applications != nil { // 1 March 2026 is a Sunday
		t.Errorf("weeks without applications: %+v, %v", report.Buckets, err)
	}
}

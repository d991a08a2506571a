package health

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/c785c783/piped/piped/deploy"
)

// TestPulse: each case lists observations by second: "30 degraded" is observed from
// second 30 on. "deploys" and "ended" are observations too. The pulse is evaluated at the
// times that it asks for, and at each observation. The wanted value lists the
// notifications.
func TestPulse(t *testing.T) {
	for name, c := range map[string]struct {
		degraded bool // already notified
		seen     string
		until    int
		want     string
	}{
		"healthy says nothing":                                   {seen: "0 healthy", until: 9000},
		"degraded is notified once it lasts":                     {seen: "0 healthy, 10 degraded", until: 9000, want: "40 DEGRADED"},
		"a moment of it is not notified":                         {seen: "0 healthy, 10 degraded, 39 healthy", until: 9000},
		"degraded from the first sight":                          {seen: "5 degraded", until: 100, want: "35 DEGRADED"},
		"healthy again is notified once it lasts":                {seen: "0 degraded, 50 healthy", until: 9000, want: "30 DEGRADED, 80 HEALTHY"},
		"healthy for a moment is not notified":                   {seen: "0 degraded, 50 healthy, 79 degraded", until: 9000, want: "30 DEGRADED"},
		"a restart repeats nothing":                              {degraded: true, seen: "0 degraded", until: 9000},
		"fixed while the agent was away":                         {degraded: true, seen: "0 healthy", until: 9000, want: "30 HEALTHY"},
		"on its way for less than ten minutes":                   {seen: "0 progressing, 599 healthy", until: 9000},
		"on its way for ten minutes":                             {seen: "0 progressing", until: 9000, want: "600 DEGRADED"},
		"degraded and on its way by turns, and never healthy":    {seen: "0 degraded, 20 progressing, 40 degraded, 60 progressing, 80 degraded, 100 progressing", until: 9000, want: "600 DEGRADED"},
		"on its way, and then degraded":                          {seen: "0 progressing, 590 degraded", until: 9000, want: "600 DEGRADED"},
		"suspended is on purpose":                                {seen: "0 degraded, 60 suspended", until: 9000, want: "30 DEGRADED, 90 HEALTHY"},
		"not while a deployment is under way":                    {seen: "0 degraded, 20 deploys, 45 healthy", until: 9000},
		"at the end of a deployment at once":                     {seen: "0 degraded, 20 deploys, 45 degraded, 48 ended", until: 9000, want: "50 DEGRADED"},
		"fixed by a deployment, at once":                         {degraded: true, seen: "0 degraded, 20 healthy, 21 ended", until: 9000, want: "23 HEALTHY"},
		"on its way at the end of a deployment has its time":     {seen: "0 healthy, 10 progressing, 11 ended", until: 9000, want: "610 DEGRADED"},
		"what is seen may lag behind the end of a deployment":    {seen: "0 degraded, 5 ended, 6 healthy", until: 9000},
		"healthy at the end of a deployment, and never anything": {seen: "0 healthy, 5 ended", until: 9000},
		"what flaps has to be healthy for longer": {
			seen:  "0 degraded, 100 healthy, 200 degraded, 300 healthy, 400 degraded, 500 healthy",
			until: 9000, want: "30 DEGRADED, 130 HEALTHY, 230 DEGRADED, 1100 HEALTHY",
		},
		"once in a while is no flapping": {
			seen:  "0 degraded, 100 healthy, 1000 degraded, 1100 healthy",
			until: 9000, want: "30 DEGRADED, 130 HEALTHY, 1030 DEGRADED, 1130 HEALTHY",
		},
	} {
		t.Run(name, func(t *testing.T) {
			got := strings.Join(notifications(t, NewPulse(c.degraded), c.seen, c.until), ", ")
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("notifications (-want +got):\n%s", diff)
			}
		})
	}
}

// notifications replays the observations and returns what becomes due.
func notifications(t *testing.T, p *Pulse, seen string, until int) (got []string) {
	t.Helper()
	zero := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	at := func(second int) time.Time { return zero.Add(time.Duration(second) * time.Second) }
	events := map[int]string{}
	for one := range strings.SplitSeq(seen, ", ") {
		var second int
		var what string
		if _, err := fmt.Sscan(one, &second, &what); err != nil {
			t.Fatal(err)
		}
		events[second] = what
	}
	var next time.Time
	for second := range until {
		now := at(second)
		switch what := events[second]; what {
		case "":
			if next.IsZero() || now.Before(next) {
				continue
			}
		case "deploys":
			p.Deploys(now)
			next = time.Time{} // the end of the deployment is reported
			continue
		case "ended":
			p.Ended(now)
		default:
			p.See(deploy.Health(strings.ToUpper(what)), now)
		}
		var due deploy.Health
		if due, next = p.Verdict(now); due != "" {
			got = append(got, fmt.Sprintf("%d %s", second, due))
			p.Notified(due, now)
			_, next = p.Verdict(now)
		}
	}
	return got
}

// TestQuiet: an application that has always been healthy, or has been healthy again for
// long, need not be remembered.
func TestQuiet(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	p := NewPulse(false)
	p.See(deploy.Healthy, now)
	if !p.Quiet() {
		t.Error("a healthy application is not quiet")
	}
	p.See(deploy.HealthDegraded, now)
	if p.Quiet() {
		t.Error("a degraded application is quiet")
	}
	p.Notified(deploy.HealthDegraded, now.Add(degradedFor))
	p.See(deploy.Healthy, now.Add(time.Minute))
	p.Notified(deploy.Healthy, now.Add(2*time.Minute))
	if _, next := p.Verdict(now.Add(2 * time.Minute)); p.Quiet() || !next.Equal(now.Add(12*time.Minute)) {
		t.Errorf("an application that has just recovered is quiet, or asks for %s", next)
	}
	if p.Verdict(now.Add(12 * time.Minute)); !p.Quiet() {
		t.Error("an application that has long been healthy is not quiet")
	}
}

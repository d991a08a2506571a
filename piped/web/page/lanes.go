package page

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	modelv1 "github.com/c785c783/piped/proto/piped/model/v1"
)

// Sizes of lanes, in pixels, and limits.
const (
	lanesShown = 40 // applications and workloads without one that are drawn
	laneTracks = 4  // bars that can stand below one another in a lane
	trackSize  = 14
	lanePad    = 9
	barShare   = 0.012 // of the axis: the least room of a bar
)

// lanes are rollouts on a time axis, with a lane per application, and per workload without one.
type lanes struct {
	ticks []tick
	lanes []lane
	more  int // lanes that are not drawn
}

// tick divides the axis. It names the part of the axis that begins there.
type tick struct {
	x, width string
	label    string
	path     string // shows the part of the axis alone
}

type lane struct {
	name, path string
	title      string // describes the workload; "" for an application
	summary    string
	height     int
	bars       []bar
}

type bar struct {
	x1, x2 string
	y      int
	mark   mark
	title  string
	path   string // of the deployment; "" for none
	thin   bool   // did not come to an end of its own
	open   bool   // has not ended
}

// newLanes draws rollouts, the newest first, on the axis of a scope. Lanes are in the order of
// names, so that they stay where they are.
func newLanes(rows []*modelv1.Rollout, s *scope, now time.Time) lanes {
	by := map[string][]*modelv1.Rollout{}
	var order []string // the last active first
	for _, r := range rows {
		key := laneOfRollout(r)
		if by[key] == nil {
			order = append(order, key)
		}
		by[key] = append(by[key], r)
	}
	out := lanes{ticks: ticksOf(s)}
	if len(order) > lanesShown {
		out.more, order = len(order)-lanesShown, order[:lanesShown]
	}
	for _, key := range order {
		out.lanes = append(out.lanes, newLane(by[key], s, now))
	}
	slices.SortStableFunc(out.lanes, func(a, b lane) int {
		return cmp.Or(cmp.Compare(a.name, b.name), cmp.Compare(a.path, b.path), cmp.Compare(a.title, b.title))
	})
	return out
}

// laneOfRollout identifies the lane of a rollout: its application, or its workload in its
// cluster if it has none.
func laneOfRollout(r *modelv1.Rollout) string {
	w := r.GetWorkload()
	return cmp.Or(r.ApplicationId, strings.Join([]string{"", w.GetCluster(), w.GetKind(), w.GetNamespace(), w.GetName()}, "/"))
}

func newLane(rows []*modelv1.Rollout, s *scope, now time.Time) lane {
	first := rows[0]
	l := lane{name: cmp.Or(first.ApplicationName, first.GetWorkload().GetName())}
	if first.ApplicationId != "" {
		l.path = applicationPath(first.ApplicationId, first.ApplicationName)
	} else {
		l.title = placeOf(first.Workload)
	}
	failed := 0
	var ends [laneTracks]float64 // by track: share of the axis up to which it is taken
	tracks := 1
	for _, r := range slices.Backward(rows) {
		from, to := s.share(r.StartedAtMs), s.share(cmp.Or(r.CompletedAtMs, r.MarkedAtMs, s.to.UnixMilli()))
		track := max(slices.IndexFunc(ends[:], func(end float64) bool { return end <= from }), 0)
		ends[track] = max(to, from) + barShare
		tracks = max(tracks, track+1)
		b := bar{
			x1: percent(from), x2: percent(max(to, from+0.00001)), y: lanePad + trackSize/2 + track*trackSize, mark: rolloutMark(r.Outcome), title: rolloutTitle(r, now),
			open: cmp.Or(r.CompletedAtMs, r.MarkedAtMs) == 0,
		}
		if r.DeploymentId != "" {
			b.path = deploymentPath(r.DeploymentId)
		}
		b.thin = b.mark.role == roleMuted
		if b.mark.role == roleBad {
			failed++
		}
		l.bars = append(l.bars, b)
	}
	l.height = 2*lanePad + tracks*trackSize
	l.summary = fmt.Sprint(len(rows))
	if failed > 0 {
		l.summary += ", " + plural(failed, "failed", "failed")
	}
	return l
}

// laneKey are samples of bars, with what they mean.
func laneKey() []bar {
	sample := func(words string, o modelv1.RolloutOutcome) bar {
		m := rolloutMark(o)
		return bar{x1: "4", x2: "17", y: trackSize / 2, mark: m, title: words, thin: m.role == roleMuted, open: o == modelv1.RolloutOutcome_ROLLOUT_OUTCOME_PROGRESSING}
	}
	return []bar{
		sample("complete", modelv1.RolloutOutcome_ROLLOUT_OUTCOME_COMPLETE), sample("under way", modelv1.RolloutOutcome_ROLLOUT_OUTCOME_PROGRESSING),
		sample("failed or timed out", modelv1.RolloutOutcome_ROLLOUT_OUTCOME_FAILED), sample("superseded or deleted", modelv1.RolloutOutcome_ROLLOUT_OUTCOME_SUPERSEDED),
	}
}

// share returns where a time is on the axis, from 0 to 1.
func (s *scope) share(ms int64) float64 {
	x := float64(ms-s.from.UnixMilli()) / float64(max(s.to.Sub(s.from).Milliseconds(), 1))
	return min(max(x, 0), 1)
}

// tickSteps are the distances of ticks, with the form of their labels.
func tickSteps() []struct {
	step time.Duration
	form string
} {
	const minutes, hours, days = "15:04", "Mon 15:04", "2 Jan"
	return []struct {
		step time.Duration
		form string
	}{
		{time.Second, "15:04:05"}, {10 * time.Second, "15:04:05"}, {time.Minute, minutes}, {5 * time.Minute, minutes}, {10 * time.Minute, minutes}, {30 * time.Minute, minutes},
		{time.Hour, minutes}, {4 * time.Hour, hours}, {12 * time.Hour, hours}, {day, "Mon 2"}, {2 * day, days}, {7 * day, days}, {28 * day, days}, {112 * day, days}, {364 * day, "Jan 2006"},
	}
}

// ticksOf returns up to eight ticks at round times of the scope's zone, with the rest before the
// first one.
func ticksOf(s *scope) []tick {
	steps := tickSteps()
	chosen := steps[len(steps)-1]
	for _, step := range steps {
		if s.to.Sub(s.from) <= 7*step.step {
			chosen = step
			break
		}
	}
	var out []tick
	_, offset := s.from.Zone()
	shift := time.Duration(offset) * time.Second
	at := s.from.Add(shift).Truncate(chosen.step).Add(-shift)
	for ; at.Before(s.to) && len(out) < 64; at = at.Add(chosen.step) {
		from, to := at, at.Add(chosen.step)
		if from.Before(s.from) {
			from = s.from
		}
		if to.After(s.to) {
			to = s.to
		}
		x, end := s.share(from.UnixMilli()), s.share(to.UnixMilli())
		t := tick{x: percent(x), width: percent(end - x), path: s.between(from, to)}
		if end-x > 0.06 {
			t.label = at.In(s.to.Location()).Format(chosen.form)
			if at.Before(s.from) {
				t.label = ""
			}
		}
		out = append(out, t)
	}
	return out
}

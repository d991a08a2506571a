package main

import (
	"fmt"
	"io"
	"slices"
	"time"
)

// report prints figures.
type report struct {
	out    io.Writer
	missed []string // the ratios that missed their target
}

// info prints a figure that has no target.
func (r *report) info(name string, value float64, unit string) {
	fmt.Fprintf(r.out, "%s\t%.2f\t%s\t-\t-\n", name, value, unit)
}

// atMost prints a figure that passes if it is no larger than target.
func (r *report) atMost(name string, value float64, unit string, target float64) {
	verdict := "pass"
	if value > target {
		verdict = "miss"
	}
	fmt.Fprintf(r.out, "%s\t%.2f\t%s\t<= %g\t%s\n", name, value, unit, target, verdict)
}

// ratio prints how a figure stands to its floor of the same run. One that misses
// its target makes the program fail.
func (r *report) ratio(name string, value, floor, target float64) {
	r.bound(name, value/floor, "x", target)
}

// bound prints a figure that does not depend on the machine. One that is larger than target makes the
// program fail.
func (r *report) bound(name string, value float64, unit string, target float64) {
	r.atMost(name, value, unit, target)
	if value > target {
		r.missed = append(r.missed, name)
	}
}

// exactly prints a number that passes if it is the target; the program fails if
// it is not.
func (r *report) exactly(name string, value, target int) {
	verdict := "pass"
	if value != target {
		verdict = "miss"
		r.missed = append(r.missed, name)
	}
	fmt.Fprintf(r.out, "%s\t%d\t\t= %d\t%s\n", name, value, target, verdict)
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// quantile returns the value below which a share q of the sample lies.
func quantile(sample []time.Duration, q float64) time.Duration {
	sorted := slices.Sorted(slices.Values(sample))
	return sorted[min(len(sorted)-1, int(q*float64(len(sorted))))]
}

// ratioOf returns the median of the ratios of two samples, pair by pair: each pair
// was measured one right after the other, while the machine was as busy.
func ratioOf(sample, floors []time.Duration) float64 {
	ratios := make([]float64, len(sample))
	for i := range sample {
		ratios[i] = float64(sample[i]) / float64(floors[i])
	}
	slices.Sort(ratios)
	n := len(ratios)
	return (ratios[(n-1)/2] + ratios[n/2]) / 2
}

func median(sample []time.Duration) time.Duration { return quantile(sample, 0.5) }
func worst(sample []time.Duration) time.Duration  { return slices.Max(sample) }

package kubernetes

import (
	"fmt"

	"github.com/c785c783/piped/piped/config/strict"
)

// complete fills the shares, which sum to 100 then, or reports why they make no
// sense.
func (o *TrafficRoutingOptions) complete(d *strict.Document, at string, s *Spec) {
	written := o.written(d, at)
	if len(o.Steps) == 0 && d.Has(at+".interval") {
		d.Problemf(at+".interval", "needs steps, which it is between")
	}
	var ok bool
	switch {
	case o.All != "":
		ok = excludes(d, at, "all", written)
		o.setAll()
	case len(o.Steps) > 0:
		ok = o.completeSteps(d, at) && excludes(d, at, "steps", written)
	default:
		ok = o.completeSum(d, at)
	}
	if ok && s.TrafficRouting.Method == PodSelector && !o.whole() {
		d.Problemf(at, "trafficRouting.method %s sends all traffic to the primary or all to the canary; expected 100 for one of them, or another method", PodSelector)
	}
}

// whole reports whether one of primary and canary gets all the traffic, at every
// step.
func (o *TrafficRoutingOptions) whole() bool {
	return o.Primary == 100 || o.Canary == 100 && len(o.Steps) < 2
}

// written lists the fields other than all that are in the document.
func (o *TrafficRoutingOptions) written(d *strict.Document, at string) []string {
	var fields []string
	for _, f := range []string{"primary", "canary", "baseline", "steps"} {
		if d.Has(at+"."+f) && (f != "steps" || len(o.Steps) > 0) {
			fields = append(fields, f)
		}
	}
	return fields
}

// excludes reports the fields that field excludes, and whether there are none.
func excludes(d *strict.Document, at, field string, others []string) bool {
	ok := true
	for _, f := range others {
		if f != field {
			d.Problemf(at+"."+f, "excludes %s; keep one of them", field)
			ok = false
		}
	}
	return ok
}

func (o *TrafficRoutingOptions) setAll() {
	shares := map[Variant]*strict.Percent{Primary: &o.Primary, Canary: &o.Canary, Baseline: &o.Baseline}
	for variant, share := range shares {
		*share = 0
		if variant == o.All {
			*share = 100
		}
	}
}

func (o *TrafficRoutingOptions) completeSteps(d *strict.Document, at string) bool {
	ok := true
	last := strict.Percent(0)
	for i, step := range o.Steps {
		if step <= last || step > 100 {
			d.Problemf(fmt.Sprintf("%s.steps[%d]", at, i), "expected a percentage above %d and of at most 100, found %d", last, step)
			ok = false
		}
		last = step
	}
	if o.Interval <= 0 {
		d.Problemf(at+".interval", "required with steps; expected a duration above 0")
		ok = false
	}
	o.Canary, o.Primary = last, 100-last
	return ok
}

// completeSum gives the primary what the others leave, or checks that all three
// make 100.
func (o *TrafficRoutingOptions) completeSum(d *strict.Document, at string) bool {
	ok := true
	for field, share := range map[string]strict.Percent{"primary": o.Primary, "canary": o.Canary, "baseline": o.Baseline} {
		if share > 100 {
			d.Problemf(at+"."+field, "expected a percentage from 0 to 100, found %d", share)
			ok = false
		}
	}
	switch rest := 100 - o.Canary - o.Baseline; {
	case !ok:
	case !d.Has(at+".primary") && rest >= 0:
		o.Primary = rest
	case o.Primary != rest:
		d.Problemf(at, "primary, canary and baseline make %d; expected 100", o.Primary+o.Canary+o.Baseline)
		ok = false
	}
	return ok
}

package traffic

import (
	"errors"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/runtime"

	"github.com/c785c783/piped/piped/config/kubernetes"
)

// dialect describes how a kind of route represents its weighted destinations.
type dialect struct {
	// role returns the variant that a destination belongs to, and false for destinations of
	// no variant.
	role func(destination map[string]any) (kubernetes.Variant, bool)
	// become changes a destination of the primary into one of variant v.
	become func(destination map[string]any, v kubernetes.Variant)
	// port returns the destination's port, nil if it has none.
	port func(destination map[string]any) any
	// unset returns the default weight of a destination in a rule with n destinations.
	unset func(n int) int
	// floor keeps weights that add up to 100 at that sum and rounds down the weights of
	// canary and baseline. Without it, weights are multiplied by 100 if the shares cannot
	// be represented exactly otherwise.
	floor bool
	// most is the maximum weight of a destination, 0 for no limit.
	most int
}

// part is one destination of a rule.
type part struct {
	fields  map[string]any
	weight  int
	variant kubernetes.Variant // "" for a destination of no variant
	pool    int                // canary and baseline: index of the primary's part to share with
}

// split returns copies of a rule's destinations in which the weight of each of the primary's
// destinations is divided among the variants. It returns nil if none of the rule's traffic
// goes to a variant.
func (d dialect) split(destinations []any, s Shares) ([]any, error) {
	parts, err := d.parts(destinations)
	if err != nil {
		return nil, err
	}
	pools := d.pool(parts)
	if sum(pools) == 0 {
		return nil, nil
	}
	scale := d.scale(parts, pools, s)
	out := make([]any, 0, len(parts)+2)
	for i, p := range parts {
		switch {
		case p.variant == "":
			if scale != 1 {
				p.fields["weight"] = int64(p.weight * scale)
			}
			out = append(out, p.fields)
		case p.variant == kubernetes.Primary:
			out = append(out, d.divide(parts, i, pools[i]*scale, s)...)
		default:
			out = append(out, p.fields) // divide sets its weight
		}
	}
	return out, d.checkWeights(out)
}

// parts parses the destinations. The parts hold copies of their fields.
func (d dialect) parts(destinations []any) ([]part, error) {
	var parts []part
	for i, v := range destinations {
		fields, ok := v.(map[string]any)
		if !ok {
			return nil, fmt.Errorf("destination %d is no mapping", i)
		}
		p := part{fields: runtime.DeepCopyJSON(fields), weight: d.unset(len(destinations))}
		switch weight := fields["weight"].(type) {
		case nil:
		case int64:
			p.weight = int(weight)
		case float64:
			p.weight = int(weight)
		default:
			return nil, fmt.Errorf("the weight of destination %d is no number", i)
		}
		if p.weight < 0 {
			return nil, fmt.Errorf("the weight of destination %d is negative", i)
		}
		p.variant, _ = d.role(p.fields)
		parts = append(parts, p)
	}
	return parts, nil
}

// pool returns the weight that the variants share for each part of the primary, by index.
// It is the part's own weight plus the weights of canary and baseline parts in Git with the
// same port, which are added to the first part of the primary if none has their port. It
// sets their field pool, and returns nil if the primary has no part.
func (d dialect) pool(parts []part) map[int]int {
	pools := map[int]int{}
	first := -1
	for i, p := range parts {
		if p.variant == kubernetes.Primary {
			pools[i] = p.weight
			if first < 0 {
				first = i
			}
		}
	}
	if first < 0 {
		return nil
	}
	for i, p := range parts {
		if p.variant == "" || p.variant == kubernetes.Primary {
			continue
		}
		to := slices.IndexFunc(parts, func(q part) bool { return q.variant == kubernetes.Primary && d.port(q.fields) == d.port(p.fields) })
		if to < 0 {
			to = first
		}
		parts[i].pool = to
		pools[to] += p.weight
	}
	return pools
}

// scale returns the factor for all weights. If a single pool gets all of the rule's traffic,
// scale sets its weight to 100 and returns 1.
func (d dialect) scale(parts []part, pools map[int]int, s Shares) int {
	others := 0
	for _, p := range parts {
		if p.variant == "" {
			others += p.weight
		}
	}
	if others == 0 && len(pools) == 1 {
		for i := range pools {
			pools[i] = 100
		}
		return 1
	}
	if d.floor && others+sum(pools) == 100 {
		return 1
	}
	for _, weight := range pools {
		if weight*s.Canary%100 != 0 || weight*s.Baseline%100 != 0 {
			return 100
		}
	}
	return 1
}

// divide shares weight among the primary's part i and the other variants. It returns the
// primary's destination and the added ones. A variant's destination that is already in Git
// gets the share instead and keeps its position; further ones of the pool get weight 0.
func (d dialect) divide(parts []part, i, weight int, s Shares) []any {
	primary := parts[i].fields
	out := []any{primary}
	rest := weight
	for _, v := range []kubernetes.Variant{kubernetes.Canary, kubernetes.Baseline} {
		share := weight * s.Of(v) / 100
		rest -= share
		there := false
		for _, p := range parts {
			if p.variant == v && p.pool == i {
				p.fields["weight"] = int64(0)
				if !there {
					p.fields["weight"] = int64(share)
				}
				there = true
			}
		}
		if there || share == 0 {
			continue
		}
		added := runtime.DeepCopyJSON(primary)
		d.become(added, v)
		added["weight"] = int64(share)
		out = append(out, added)
	}
	d.become(primary, kubernetes.Primary)
	primary["weight"] = int64(rest)
	return out
}

var errNoWeight = errors.New("its weights would make 0, and all its requests would fail")

// checkWeights returns an error for weights that the cluster would reject, and if all
// weights are 0.
func (d dialect) checkWeights(destinations []any) error {
	total := 0
	for _, v := range destinations {
		weight := d.unset(len(destinations))
		if w, ok := v.(map[string]any)["weight"].(int64); ok {
			weight = int(w)
		}
		if d.most > 0 && weight > d.most {
			return fmt.Errorf("a weight of %d is needed, and at most %d is possible; write smaller weights in Git", weight, d.most)
		}
		total += weight
	}
	if total == 0 {
		return errNoWeight
	}
	return nil
}

func sum(pools map[int]int) (total int) {
	for _, weight := range pools {
		total += weight
	}
	return total
}

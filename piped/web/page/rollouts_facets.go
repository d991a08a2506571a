package page

import (
	"cmp"
	"slices"
	"strings"

	modelv1 "github.com/c785c783/piped/proto/piped/model/v1"
)

// rolloutOutcomes are the outcomes of rollouts, in the order of their facet, by their names in
// the address.
func rolloutOutcomes() []modelv1.RolloutOutcome {
	return []modelv1.RolloutOutcome{
		modelv1.RolloutOutcome_ROLLOUT_OUTCOME_PROGRESSING, modelv1.RolloutOutcome_ROLLOUT_OUTCOME_HELD, modelv1.RolloutOutcome_ROLLOUT_OUTCOME_FAILED,
		modelv1.RolloutOutcome_ROLLOUT_OUTCOME_TIMED_OUT, modelv1.RolloutOutcome_ROLLOUT_OUTCOME_COMPLETE, modelv1.RolloutOutcome_ROLLOUT_OUTCOME_SUPERSEDED,
		modelv1.RolloutOutcome_ROLLOUT_OUTCOME_NO_ROLLOUT, modelv1.RolloutOutcome_ROLLOUT_OUTCOME_GONE,
	}
}

func outcomeName(o modelv1.RolloutOutcome) string {
	return strings.TrimPrefix(o.String(), "ROLLOUT_OUTCOME_")
}

func rolloutKindName(k modelv1.RolloutKind) string {
	return strings.TrimPrefix(k.String(), "ROLLOUT_KIND_")
}

// rolloutFacet is a filter by a value that a rollout has.
type rolloutFacet struct {
	name, title string
	value       func(*modelv1.Rollout) string
}

func rolloutFacets() []rolloutFacet {
	return []rolloutFacet{
		{"outcome", "Outcome", func(r *modelv1.Rollout) string { return outcomeName(r.Outcome) }},
		{"kind", "Kind", func(r *modelv1.Rollout) string { return rolloutKindName(r.Kind) }},
		{"namespace", "Namespace", func(r *modelv1.Rollout) string { return r.GetWorkload().GetNamespace() }},
		{"application", "Application", rolloutApplication},
	}
}

// rolloutApplication returns what addresses call the application of a rollout; "" for a rollout
// of none.
func rolloutApplication(r *modelv1.Rollout) string {
	if r.ApplicationId == "" {
		return ""
	}
	return applicationRef(r.ApplicationId, r.ApplicationName)
}

// matches reports whether a rollout matches the facets, but one.
func (r *rolloutsView) matches(row *modelv1.Rollout, but string) bool {
	for _, f := range rolloutFacets() {
		wanted := r.q[f.name]
		if f.name != but && f.name != "application" && len(wanted) > 0 && !slices.Contains(wanted, f.value(row)) { // the API matches applications
			return false
		}
	}
	return true
}

// count returns the facets with the values that rollouts have.
func (r *rolloutsView) count(rows []*modelv1.Rollout) []facet {
	var out []facet
	for _, by := range rolloutFacets() {
		counts := map[string]int32{}
		for _, chosen := range r.q[by.name] {
			if !slices.Contains(r.unknown, chosen) {
				counts[chosen] = 0
			}
		}
		for _, row := range rows {
			if value := by.value(row); value != "" && r.matches(row, by.name) {
				counts[value]++
			}
		}
		f := facet{name: by.name, title: by.title}
		for value, n := range counts {
			f.values = append(f.values, r.facetValue(by.name, value, n))
		}
		slices.SortFunc(f.values, func(a, b facetValue) int { return cmp.Or(cmp.Compare(b.count, a.count), cmp.Compare(a.label, b.label)) })
		if len(f.values) > 1 || len(r.q[by.name]) > 0 {
			out = append(out, f)
		}
	}
	return out
}

func (r *rolloutsView) facetValue(name, value string, n int32) facetValue {
	f := facetValue{value: value, label: value, count: n, path: r.toggled(name, value), chosen: slices.Contains(r.q[name], value)}
	switch name {
	case "outcome":
		f.mark = rolloutMark(modelv1.RolloutOutcome(modelv1.RolloutOutcome_value["ROLLOUT_OUTCOME_"+value]))
		f.label = f.mark.word
	case "kind":
		f.label = facetLabel("kind", value)
	case "application":
		f.label = shownName(value)
	}
	return f
}

package page

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	modelv1 "github.com/c785c783/piped/proto/piped/model/v1"
)

// trafficShare is the share of a variant in percent.
type trafficShare struct {
	variant string
	percent int
}

// variants are the variants that share traffic, in the order in which they are drawn.
var variants = []string{"primary", "canary", "baseline"}

// trafficOf returns how a stage shares the traffic, nil if it does not, or not yet as far as is
// known. planned means that the shares are those of its options, of which it has set none so far.
func trafficOf(s *modelv1.PipelineStage) (shares []trafficShare, planned bool) {
	if shares := recordedShares(s.Metadata); shares != nil {
		return shares, false
	}
	if s.Name != "K8S_TRAFFIC_ROUTING" || s.Rollback {
		return nil, false
	}
	return plannedShares(s.Options), true
}

// recordedShares returns the shares that a stage has recorded, in the keys of PipeCD.
func recordedShares(metadata map[string]string) []trafficShare {
	percent := map[string]int{}
	for _, variant := range variants {
		text, ok := metadata[variant+"-percentage"]
		n, err := strconv.Atoi(text)
		if ok && err != nil {
			return nil
		}
		percent[variant] = n
	}
	return wholeShares(percent)
}

// plannedShares returns the shares that the options of a stage name: of several steps the last.
func plannedShares(options string) []trafficShare {
	var o struct {
		All                       string
		Primary, Canary, Baseline string
		Steps                     []string
	}
	if json.Unmarshal([]byte(options), &o) != nil {
		return nil
	}
	if slices.Contains(variants, o.All) {
		return wholeShares(map[string]int{o.All: 100})
	}
	if n := len(o.Steps); n > 0 {
		o.Canary, o.Baseline = o.Steps[n-1], ""
	}
	canary, baseline := percentOf(o.Canary), percentOf(o.Baseline)
	return wholeShares(map[string]int{"primary": 100 - canary - baseline, "canary": canary, "baseline": baseline})
}

// percentOf returns the number of a percentage such as `20%`; 0 for none.
func percentOf(text string) int {
	n, _ := strconv.Atoi(strings.TrimSuffix(text, "%"))
	return n
}

// wholeShares returns the shares of those that have any; nil unless they make 100 percent.
func wholeShares(percent map[string]int) (out []trafficShare) {
	sum := 0
	for _, variant := range variants {
		n := percent[variant]
		if n < 0 || n > 100 {
			return nil
		}
		if sum += n; n > 0 {
			out = append(out, trafficShare{variant, n})
		}
	}
	if sum != 100 {
		return nil
	}
	return out
}

// trafficText returns shares in words, such as `primary 80 %, canary 20 %`.
func trafficText(shares []trafficShare) string {
	parts := make([]string, len(shares))
	for i, s := range shares {
		parts[i] = fmt.Sprintf("%s %d %%", s.variant, s.percent)
	}
	return strings.Join(parts, ", ")
}

// trafficBars returns shares as they are drawn beside one another.
func trafficBars(shares []trafficShare) (out []segment) {
	at := 0
	for _, s := range shares {
		out = append(out, segment{s.variant, percent(float64(at) / 100), percent(float64(s.percent) / 100)})
		at += s.percent
	}
	return out
}

// currentTraffic returns the shares that a deployment under way has set last; nil if it has set
// none, or takes them back.
func currentTraffic(d *modelv1.Deployment) (shares []trafficShare) {
	if d.GetStatus() == modelv1.DeploymentStatus_DEPLOYMENT_ROLLING_BACK {
		return nil
	}
	for _, s := range d.GetStages() {
		if set := recordedShares(s.Metadata); set != nil {
			shares = set
		}
	}
	return shares
}

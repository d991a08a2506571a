package page

import (
	"fmt"
	"strings"

	controlv1 "github.com/c785c783/piped/proto/piped/control/v1"
)

// figureKind is one of the four figures.
type figureKind struct {
	name, title string
	column      string // head of a column
	about       string
	value       func(*controlv1.DeliveryFigures) (float64, bool) // false: not measured
	words       func(float64) string
}

// figureKinds are the four figures, in their order.
func figureKinds() []figureKind {
	time := func(ms *int64) (float64, bool) {
		if ms == nil {
			return 0, false
		}
		return float64(*ms), true
	}
	number := func(n *float64) (float64, bool) {
		if n == nil {
			return 0, false
		}
		return *n, true
	}
	took := func(n float64) string { return millis(int64(n)) }
	return []figureKind{
		{"frequency", "Deployment frequency", "Frequency", "successful deployments", func(f *controlv1.DeliveryFigures) (float64, bool) { return number(f.DeploymentFrequency) }, perDay},
		{"lead", "Lead time", "Lead time", "median from commit to live", func(f *controlv1.DeliveryFigures) (float64, bool) { return time(f.LeadTimeMedianMs) }, took},
		{"failures", "Change failure rate", "Failure rate", "failures among those that ended", func(f *controlv1.DeliveryFigures) (float64, bool) { return number(f.ChangeFailureRate) }, share},
		{"restore", "Time to restore", "Time to restore", "median from a failure to the next success", func(f *controlv1.DeliveryFigures) (float64, bool) { return time(f.TimeToRestoreMedianMs) }, took},
	}
}

// perDay writes a number per day; one that is below 1 per week.
func perDay(n float64) string {
	switch {
	case n >= 9.95:
		return fmt.Sprintf("%.0f a day", n)
	case n >= 1 || n == 0:
		return strings.Replace(fmt.Sprintf("%.1f a day", n), ".0", "", 1)
	}
	return strings.Replace(fmt.Sprintf("%.1f a week", n*7), ".0", "", 1)
}

// share writes a ratio in percent.
func share(n float64) string {
	if n > 0 && n < .1 {
		return strings.Replace(fmt.Sprintf("%.1f %%", n*100), ".0", "", 1)
	}
	return fmt.Sprintf("%.0f %%", n*100)
}

// figure writes a figure, a dash for one that was not measured.
func (k figureKind) figure(f *controlv1.DeliveryFigures) string {
	if f == nil {
		return unmeasured
	}
	n, ok := k.value(f)
	if !ok {
		return unmeasured
	}
	return k.words(n)
}

// plotted writes a figure for the script that draws it; "" for one that was not measured.
func (k figureKind) plotted(f *controlv1.DeliveryFigures) string {
	if n, ok := k.value(f); f != nil && ok {
		return fmt.Sprint(n)
	}
	return ""
}

// unmeasured stands for a figure that was not measured.
const unmeasured = "–"

// p90 writes the 90th percentile of the lead time.
func p90(f *controlv1.DeliveryFigures) string {
	if f.LeadTimeP90Ms == nil {
		return unmeasured
	}
	return millis(*f.LeadTimeP90Ms)
}

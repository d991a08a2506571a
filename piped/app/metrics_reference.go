package app

import (
	"cmp"
	"regexp"
	"slices"
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/c785c783/piped/piped/figures"
	"github.com/c785c783/piped/piped/notify"
	"github.com/c785c783/piped/piped/pullpreview"
)

// Metric describes a metric that GET /metrics serves.
type Metric struct {
	Name, Type, Help string // Type is counter, gauge or histogram
	Labels           []string
}

// Metrics describes the agent's own metrics as they are registered, by name.
func Metrics() []Metric {
	r := &described{}
	newCounted(r)
	for _, read := range []prometheus.Collector{&figures.Stored{}, liveMetrics{}, notify.Backlog{}, pullpreview.Active(nil)} {
		r.MustRegister(read)
	}
	slices.SortFunc(r.metrics, func(a, b Metric) int { return cmp.Compare(a.Name, b.Name) })
	return r.metrics
}

// described is a Registerer that records descriptions only.
type described struct{ metrics []Metric }

// Register implements prometheus.Registerer.
func (d *described) Register(c prometheus.Collector) error {
	d.MustRegister(c)
	return nil
}

// Unregister implements prometheus.Registerer.
func (*described) Unregister(prometheus.Collector) bool { return false }

// description matches the text of a Desc, which has no accessors.
var description = regexp.MustCompile(`^Desc\{fqName: "(.*)", help: "(.*)", unit: ".*", constLabels: \{.*\}, variableLabels: \{(.*)\}\}$`)

// MustRegister implements prometheus.Registerer.
func (d *described) MustRegister(collectors ...prometheus.Collector) {
	for _, c := range collectors {
		descriptions := make(chan *prometheus.Desc, 100) // more than any collector has
		c.Describe(descriptions)
		close(descriptions)
		for desc := range descriptions {
			m := description.FindStringSubmatch(desc.String())
			labels := strings.FieldsFunc(m[3], func(r rune) bool { return r == ',' })
			slices.Sort(labels)
			d.metrics = append(d.metrics, Metric{Name: m[1], Type: typeOf(c, m[1]), Help: strings.ReplaceAll(m[2], `\"`, `"`), Labels: labels})
		}
	}
}

// typeOf returns the type of a collector's metric. Our own collectors have gauges, and counters,
// which are known by their names.
func typeOf(c prometheus.Collector, name string) string {
	switch c.(type) {
	case *prometheus.CounterVec, prometheus.Counter:
		return "counter"
	case *prometheus.HistogramVec, prometheus.Histogram:
		return "histogram"
	}
	if strings.HasSuffix(name, "_total") {
		return "counter"
	}
	return "gauge"
}

package notify

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/metric"
)

// Metrics counts the results of deliveries. Its methods must not block.
type Metrics interface {
	// Delivered records a delivery and the time since its event.
	Delivered(receiver string, after time.Duration)
	// Failed records a failed attempt that will be retried.
	Failed(receiver string)
	// GaveUp records a delivery that became a dead letter.
	GaveUp(receiver string)
}

// noMetrics discards all metrics.
type noMetrics struct{}

func (noMetrics) Delivered(string, time.Duration) {}
func (noMetrics) Failed(string)                   {}
func (noMetrics) GaveUp(string)                   {}

// NewMetrics returns Metrics that are registered with Prometheus.
func NewMetrics(r prometheus.Registerer) Metrics {
	const subsystem = "notifications"
	return &prometheusMetrics{
		delivered: metric.Counters(r, subsystem, "delivered_total", "Notifications that a receiver has accepted.", "receiver"),
		failed:    metric.Counters(r, subsystem, "failed_attempts_total", "Failed attempts to notify a receiver. They are repeated.", "receiver"),
		gaveUp:    metric.Counters(r, subsystem, "given_up_total", "Notifications that were given up.", "receiver"),
		delay: metric.Histograms(r, "notification", "delay_seconds", "Time from an event until a receiver has accepted its notification.",
			metric.WorkBuckets(), "receiver"),
	}
}

// prometheusMetrics implements Metrics.
type prometheusMetrics struct {
	delivered, failed, gaveUp *prometheus.CounterVec
	delay                     *prometheus.HistogramVec
}

// Delivered implements Metrics.
func (m *prometheusMetrics) Delivered(receiver string, after time.Duration) {
	m.delivered.WithLabelValues(receiver).Inc()
	m.delay.WithLabelValues(receiver).Observe(max(0, after).Seconds())
}

// Failed implements Metrics.
func (m *prometheusMetrics) Failed(receiver string) { m.failed.WithLabelValues(receiver).Inc() }

// GaveUp implements Metrics.
func (m *prometheusMetrics) GaveUp(receiver string) { m.gaveUp.WithLabelValues(receiver).Inc() }

var (
	waitingDesc = metric.Desc("notifications_waiting", "Notifications that a receiver has not accepted yet.", "receiver")
	oldestDesc  = metric.Desc("notifications_oldest_seconds", "Age of the oldest notification that a receiver has not accepted yet; 0 when there is none.", "receiver")
	deadDesc    = metric.Desc("notifications_dead", "Notifications that were given up and are stored with their errors.", "receiver")
)

// Backlog collects the number of pending and dead deliveries of each receiver. It
// implements prometheus.Collector.
type Backlog struct {
	Status func(context.Context) ([]deploy.ReceiverState, error) // of the Courier
	Now    func() time.Time
}

// Describe implements prometheus.Collector.
func (Backlog) Describe(out chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{waitingDesc, oldestDesc, deadDesc} {
		out <- d
	}
}

// Collect implements prometheus.Collector.
func (b Backlog) Collect(out chan<- prometheus.Metric) {
	ctx, done := context.WithTimeout(context.Background(), metric.ScrapeTimeout)
	defer done()
	states, err := b.Status(ctx)
	if err != nil {
		out <- prometheus.NewInvalidMetric(waitingDesc, err)
		return
	}
	for _, s := range states {
		metric.Gauge(out, waitingDesc, float64(s.Pending), s.Name)
		metric.Gauge(out, oldestDesc, metric.Age(s.OldestPending, b.Now()), s.Name)
		metric.Gauge(out, deadDesc, float64(s.Dead), s.Name)
	}
}

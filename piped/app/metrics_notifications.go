package app

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/c785c783/piped/piped/deploy"
)

// notificationFigures are those of what receivers are told. They implement
// notify.Metrics.
type notificationFigures struct {
	delivered, failed, given *prometheus.CounterVec
	delay                    *prometheus.HistogramVec
}

func newNotificationFigures(auto promauto.Factory) *notificationFigures {
	const part = "notifications"
	return &notificationFigures{
		delivered: counters(auto, part, "delivered_total", "Notifications that a receiver has accepted.", "receiver"),
		failed:    counters(auto, part, "failed_attempts_total", "Failed attempts to notify a receiver. They are repeated.", "receiver"),
		given:     counters(auto, part, "given_up_total", "Notifications that were given up.", "receiver"),
		delay: histograms(auto, "notification", "delay_seconds", "Time from an event until a receiver has accepted its notification.",
			workBuckets, "receiver"),
	}
}

// Delivered implements notify.Metrics.
func (f *notificationFigures) Delivered(receiver string, after time.Duration) {
	f.delivered.WithLabelValues(receiver).Inc()
	f.delay.WithLabelValues(receiver).Observe(max(0, after).Seconds())
}

// Failed implements notify.Metrics.
func (f *notificationFigures) Failed(receiver string) { f.failed.WithLabelValues(receiver).Inc() }

// GaveUp implements notify.Metrics.
func (f *notificationFigures) GaveUp(receiver string) { f.given.WithLabelValues(receiver).Inc() }

var (
	waitingDesc    = describe("notifications_waiting", "Notifications that a receiver has not accepted yet.", "receiver")
	oldestToldDesc = describe("notifications_oldest_seconds", "Age of the oldest notification that a receiver has not accepted yet; 0 when there is none.", "receiver")
	deadDesc       = describe("notifications_dead", "Notifications that were given up and are stored with their errors.", "receiver")
)

// receiverFigures are how far the receivers are, as stored.
type receiverFigures struct {
	status func(context.Context) ([]deploy.ReceiverState, error)
	now    func() time.Time
}

// Describe implements prometheus.Collector.
func (f receiverFigures) Describe(out chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{waitingDesc, oldestToldDesc, deadDesc} {
		out <- d
	}
}

// Collect implements prometheus.Collector.
func (f receiverFigures) Collect(out chan<- prometheus.Metric) {
	ctx, done := context.WithTimeout(context.Background(), scrapeTimeout)
	defer done()
	states, err := f.status(ctx)
	if err != nil {
		out <- prometheus.NewInvalidMetric(waitingDesc, err)
		return
	}
	for _, s := range states {
		gauge(out, waitingDesc, float64(s.Pending), s.Name)
		gauge(out, oldestToldDesc, secondsSince(s.OldestPending, f.now()), s.Name)
		gauge(out, deadDesc, float64(s.Dead), s.Name)
	}
}

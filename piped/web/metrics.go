package web

import (
	"net/http"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/c785c783/piped/piped/metric"
)

// Delivery is the result of a delivery to a webhook.
type Delivery string

// The results of deliveries.
const (
	Accepted Delivery = "accepted" // parsed, whether it had an effect or not
	Refused  Delivery = "refused"  // cannot be parsed
	Unproven Delivery = "unproven" // signature or token missing or wrong
	Busy     Delivery = "busy"     // the sender should retry
)

// DeliveryMetrics counts deliveries to configured webhooks. Its method must be fast and safe
// for concurrent use.
type DeliveryMetrics interface {
	Delivered(webhook string, what Delivery)
}

// noMetrics discards the counts.
type noMetrics struct{}

func (noMetrics) Delivered(string, Delivery) {}

// NewMetrics returns DeliveryMetrics that are registered with Prometheus.
func NewMetrics(r prometheus.Registerer) DeliveryMetrics {
	return &prometheusMetrics{metric.Counters(r, "webhook", "deliveries_total",
		"Deliveries of Git hosts to webhooks, by result: `accepted`, `unproven` (the secret is wrong), `refused` or `busy`.", "webhook", "result")}
}

// prometheusMetrics implements DeliveryMetrics.
type prometheusMetrics struct{ deliveries *prometheus.CounterVec }

// Delivered implements DeliveryMetrics.
func (m *prometheusMetrics) Delivered(webhook string, what Delivery) {
	m.deliveries.WithLabelValues(webhook, string(what)).Inc()
}

// deliveryOf returns the result of a delivery by its status code.
func deliveryOf(code int) Delivery {
	switch {
	case code < http.StatusMultipleChoices:
		return Accepted
	case code == http.StatusUnauthorized:
		return Unproven
	case code == http.StatusServiceUnavailable:
		return Busy
	}
	return Refused
}

package web

import "net/http"

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

package web

import "net/http"

// Delivery is what became of a delivery to a webhook.
type Delivery string

// What becomes of deliveries.
const (
	Accepted Delivery = "accepted" // read, whether there was something to do or not
	Refused  Delivery = "refused"  // it cannot be read
	Unproven Delivery = "unproven" // its signature or token is missing or wrong
	Busy     Delivery = "busy"     // the sender is to come again
)

// Observer is told of deliveries to the webhooks there are. Its method must be quick and
// safe for concurrent use.
type Observer interface {
	Delivered(webhook string, what Delivery)
}

// silent is an Observer that nobody asked for.
type silent struct{}

func (silent) Delivered(string, Delivery) {}

// deliveryOf returns what became of a delivery, by its answer.
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

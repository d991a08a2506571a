package deploy

import "time"

// Delivery is one event to send to one receiver of notifications.
type Delivery struct {
	Receiver string
	// Order groups deliveries that must be sent in the order of their event numbers; "" means
	// no order.
	Order string
	Event Event

	Attempts  int       // failed attempts
	NextAt    time.Time // earliest time of the next attempt
	Error     string    // why the last attempt failed
	CreatedAt time.Time // when the event was routed to the receiver
	GivenUpAt time.Time // zero while attempts continue
}

// ReceiverState is the delivery state of a receiver of notifications.
type ReceiverState struct {
	Name          string
	Pending       int
	OldestPending time.Time  // when the oldest pending delivery was created; zero without one
	Error         string     // why the last attempt of a pending delivery failed
	Dead          int        // abandoned deliveries
	DeadLetters   []Delivery // the newest of them, at most 20
	OldestDead    Delivery   // the first that was given up; zero without one
}

// Mention lists the users to mention in messages about an event, "*" for all events.
// The JSON names are PipeCD's.
type Mention struct {
	Event       string   `json:"event"`
	Slack       []string `json:"slack,omitempty"` // PipeCD's older name of SlackUsers
	SlackUsers  []string `json:"slackUsers,omitempty"`
	SlackGroups []string `json:"slackGroups,omitempty"`
}

// MetaNotification is the key of Deployment.Metadata for the mentions of the
// application's configuration: {"mentions": [...]}, a JSON object with a list of
// Mention. The format is PipeCD's.
const MetaNotification = "DeploymentNotification"

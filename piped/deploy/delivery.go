package deploy

import "time"

// Delivery is what one receiver of notifications is to be told of one event.
type Delivery struct {
	Receiver string
	// Order joins what must be handed over in the order of the events' numbers; ""
	// waits for nothing.
	Order string
	Event Event

	Attempts  int       // that have failed
	NextAt    time.Time // not tried before
	Error     string    // why the last attempt failed
	CreatedAt time.Time // when the event was led to the receiver
	GivenUpAt time.Time // zero for as long as it is tried
}

// ReceiverState is how far a receiver of notifications is.
type ReceiverState struct {
	Name          string
	Pending       int
	OldestPending time.Time  // since when the oldest waits; zero when none does
	Error         string     // why the last attempt of something that waits failed
	Dead          int        // deliveries that were given up
	DeadLetters   []Delivery // the newest of them, at most 20
}

// Mention says whom to mention in a message about an event, "*" for every one. The
// names in JSON are PipeCD's.
type Mention struct {
	Event       string   `json:"event"`
	Slack       []string `json:"slack,omitempty"` // PipeCD's older name of SlackUsers
	SlackUsers  []string `json:"slackUsers,omitempty"`
	SlackGroups []string `json:"slackGroups,omitempty"`
}

// MetaNotification is the key of the Deployment.Metadata that holds whom the
// application's configuration has mentioned: {"mentions": [...]}, a JSON object with
// a list of Mention. It is PipeCD's.
const MetaNotification = "DeploymentNotification"

package deploy

import (
	"crypto/sha256"
	"encoding/hex"
	"maps"
	"slices"
	"strings"
	"time"
)

// EventStatus is the state of a registered event. The wire adds PipeCD's EVENT_
// prefix.
type EventStatus string

// The statuses of a registered event. All but EventOpen are terminal.
const (
	EventOpen     EventStatus = "NOT_HANDLED"
	EventHandled  EventStatus = "SUCCESS"
	EventFailure  EventStatus = "FAILURE"
	EventOutdated EventStatus = "OUTDATED"
)

// EventStatuses lists every status in the order of PipeCD's enum numbers.
func EventStatuses() []EventStatus {
	return []EventStatus{EventOpen, EventHandled, EventFailure, EventOutdated}
}

// RegisteredEvent is an externally registered event, such as a new image, to be written
// into Git. (An Event, in contrast, is sent by the agent.)
type RegisteredEvent struct {
	ID       string
	Name     string
	Data     string            // the value to write
	Labels   map[string]string // a rule must list exactly these
	Contexts map[string]string // written as trailers of the commit
	Key      string            // EventKey of name and labels; only the newest event of a key is applied
	Trigger  TriggerCommit

	Status            EventStatus
	StatusDescription string // explanation for users; for an open event, why it is still open
	// Handlings record the results in the repositories so far.
	Handlings []EventHandling
	// Newer is derived: the ID of the newest event of the key, "" if this event is the newest.
	Newer string

	CreatedAt time.Time // unique among the events of a key
	UpdatedAt time.Time
	HandledAt time.Time // zero while it is open
}

// TriggerCommit is the source commit that caused an event, such as the one an image was
// built from.
type TriggerCommit struct {
	Hash    string    `json:"hash,omitempty"`
	URL     string    `json:"url,omitempty"`
	Title   string    `json:"title,omitempty"`
	Message string    `json:"message,omitempty"`
	Author  string    `json:"author,omitempty"`
	At      time.Time `json:"at,omitzero"`
}

// EventHandling records the handling of an event in one repository, on its branch or in
// a pull request.
type EventHandling struct {
	RepoID         string      `json:"repoID"`
	PullRequest    bool        `json:"pullRequest,omitempty"`
	Status         EventStatus `json:"status"` // EventOpen is retried
	Description    string      `json:"description,omitempty"`
	Commit         string      `json:"commit,omitempty"` // the pushed commit
	PullRequestURL string      `json:"pullRequestURL,omitempty"`
	At             time.Time   `json:"at"`
}

// Handling returns the handling of e in one repository; without one, it returns an open
// handling.
func (e RegisteredEvent) Handling(repoID string, pullRequest bool) EventHandling {
	for _, h := range e.Handlings {
		if h.RepoID == repoID && h.PullRequest == pullRequest {
			return h
		}
	}
	return EventHandling{RepoID: repoID, PullRequest: pullRequest, Status: EventOpen}
}

// EventKey returns the key shared by events of one name and equal labels: the hex
// SHA-256 of the name, followed by /key:value of each label, sorted by key. It is
// PipeCD's.
func EventKey(name string, labels map[string]string) string {
	var b strings.Builder
	b.WriteString(name)
	for _, k := range slices.Sorted(maps.Keys(labels)) {
		b.WriteString("/" + k + ":" + labels[k])
	}
	sum := sha256.Sum256([]byte(b.String()))
	return hex.EncodeToString(sum[:])
}

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

// The statuses of a registered event. All but EventOpen are final.
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

// RegisteredEvent is something that was registered from outside, such as a new
// image, and that is to be written into Git. (An Event is what the agent tells.)
type RegisteredEvent struct {
	ID       string
	Name     string
	Data     string            // what is written
	Labels   map[string]string // rules name exactly these
	Contexts map[string]string // become trailers of the commit
	Key      string            // EventKey of name and labels: of equal ones only the newest counts
	Trigger  TriggerCommit

	Status            EventStatus
	StatusDescription string // why, for a person; while it is open, what it waits for
	// Handlings are what was done about it so far.
	Handlings []EventHandling
	// Newer is derived: the ID of the newest event of the key, "" of that one itself.
	Newer string

	CreatedAt time.Time // no two events of a key have the same
	UpdatedAt time.Time
	HandledAt time.Time // zero while it is open
}

// TriggerCommit is the commit elsewhere, such as of the code that an image was
// built from, that caused an event.
type TriggerCommit struct {
	Hash    string    `json:"hash,omitempty"`
	URL     string    `json:"url,omitempty"`
	Title   string    `json:"title,omitempty"`
	Message string    `json:"message,omitempty"`
	Author  string    `json:"author,omitempty"`
	At      time.Time `json:"at,omitzero"`
}

// EventHandling is what was done about an event in one repository, on its branch
// or in a pull request.
type EventHandling struct {
	RepoID         string      `json:"repoID"`
	PullRequest    bool        `json:"pullRequest,omitempty"`
	Status         EventStatus `json:"status"` // EventOpen: it is tried again
	Description    string      `json:"description,omitempty"`
	Commit         string      `json:"commit,omitempty"` // that was pushed
	PullRequestURL string      `json:"pullRequestURL,omitempty"`
	At             time.Time   `json:"at"`
}

// Handling returns what was done about e in one place; it is open when nothing was.
func (e RegisteredEvent) Handling(repoID string, pullRequest bool) EventHandling {
	for _, h := range e.Handlings {
		if h.RepoID == repoID && h.PullRequest == pullRequest {
			return h
		}
	}
	return EventHandling{RepoID: repoID, PullRequest: pullRequest, Status: EventOpen}
}

// EventKey returns what events of one name and equal labels have in common: the
// hex SHA-256 of the name, followed by /key:value of each label, sorted by key. It
// is PipeCD's.
func EventKey(name string, labels map[string]string) string {
	var b strings.Builder
	b.WriteString(name)
	for _, k := range slices.Sorted(maps.Keys(labels)) {
		b.WriteString("/" + k + ":" + labels[k])
	}
	sum := sha256.Sum256([]byte(b.String()))
	return hex.EncodeToString(sum[:])
}

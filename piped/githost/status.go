package githost

import (
	"context"
	"strings"
	"unicode/utf8"

	"github.com/c785c783/piped/piped/deploy"
)

// State is what a status says of a commit.
type State string

// The states of a commit. Hosts that do not know a state are told the nearest.
const (
	StatePending   State = "pending"
	StateRunning   State = "running" // GitHub, Gitea: pending
	StateSuccess   State = "success"
	StateFailure   State = "failure"
	StateCancelled State = "cancelled" // GitHub: error, Gitea: warning
)

// Status is what is said of a commit in one context.
type Status struct {
	Context     string // what says it; a later one of the same context replaces it
	State       State
	Description string // cut to what the host takes
	TargetURL   string // "" for none
}

// SetStatus says something of a commit, by its full hash. Saying it again changes
// nothing.
func (a *API) SetStatus(ctx context.Context, remote, commit string, s Status) error {
	return a.at(remote, "set the status of commit "+deploy.ShortHash(commit), func(path string) error {
		return a.setStatus(ctx, path, commit, s)
	})
}

// cut returns a text of one line and at most limit characters.
func cut(text string, limit int) string {
	text = strings.Join(strings.Fields(text), " ")
	if utf8.RuneCountInString(text) <= limit {
		return text
	}
	runes := []rune(text)
	return strings.TrimSpace(string(runes[:limit-1])) + "…"
}

package githost

import (
	"context"
	"strings"
	"unicode/utf8"

	"github.com/c785c783/piped/piped/deploy"
)

// State is a commit state.
type State string

// The commit states. A host without a state gets the nearest one.
const (
	StatePending   State = "pending"
	StateRunning   State = "running" // GitHub, Gitea: pending
	StateSuccess   State = "success"
	StateFailure   State = "failure"
	StateCancelled State = "cancelled" // GitHub: error, Gitea: warning
)

// Status is the status of a commit in one context.
type Status struct {
	Context     string // identifies the status; a later one with the same context replaces it
	State       State
	Description string // truncated to the host's limit
	TargetURL   string // "" for none
}

// SetStatus sets a status of a commit, given by its full hash. It is idempotent.
func (a *API) SetStatus(ctx context.Context, remote, commit string, s Status) error {
	return a.at(remote, "set the status of commit "+deploy.ShortHash(commit), func(path string) error {
		return a.setStatus(ctx, path, commit, s)
	})
}

// Commit returns the full hash of a commit, given by its first characters. An error is of kind Invalid
// if the repository has no such commit, or several.
func (a *API) Commit(ctx context.Context, remote, abbreviated string) (hash string, err error) {
	err = a.at(remote, "find commit "+abbreviated, func(path string) error {
		hash, err = a.commit(ctx, path, abbreviated)
		if err == nil && !strings.HasPrefix(strings.ToLower(hash), strings.ToLower(abbreviated)) { // of a branch or tag of that name
			return deploy.Errorf(deploy.Invalid, "no commit begins with these characters")
		}
		return err
	})
	return hash, err
}

// cut returns text on one line, truncated to limit characters.
func cut(text string, limit int) string {
	text = strings.Join(strings.Fields(text), " ")
	if utf8.RuneCountInString(text) <= limit {
		return text
	}
	runes := []rune(text)
	return strings.TrimSpace(string(runes[:limit-1])) + "…"
}

package git

import (
	"context"
	"strings"

	"github.com/go-git/go-git/v5/plumbing/object"

	"github.com/c785c783/piped/piped/deploy"
)

// maxTrailerHistory is how many of the newest commits are searched for a trailer.
const maxTrailerHistory = 500

// WithTrailer returns the newest of the last 500 commits of head's history, head included,
// whose message has the trailer; ok is false if there is none.
func (r *Repo) WithTrailer(ctx context.Context, head, key, value string) (c deploy.Commit, ok bool, err error) {
	return r.find(ctx, head, maxTrailerHistory, func(c *object.Commit) bool { return trailer(c.Message, key) == value })
}

// trailer returns the value of a trailer of a commit's message: of a line "key: value" in the
// last paragraph, "" if there is none. Keys are not case-sensitive. Of several lines the last
// counts.
func trailer(message, key string) (value string) {
	message = strings.TrimSpace(strings.ReplaceAll(message, "\r\n", "\n"))
	paragraphs := strings.Split(message, "\n\n")
	if len(paragraphs) == 1 {
		return "" // the subject
	}
	for line := range strings.Lines(paragraphs[len(paragraphs)-1]) {
		k, v, ok := strings.Cut(line, ":")
		if ok && strings.EqualFold(strings.TrimSpace(k), key) {
			value = strings.TrimSpace(v)
		}
	}
	return value
}

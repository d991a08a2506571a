package githost

import (
	"context"
	"strings"
)

// comment is a comment of a pull request.
type comment struct {
	id     int64
	author string
	body   string
}

// Limits of comments.
const (
	// MaxComment is the size of the largest comment that every host accepts, in bytes:
	// GitHub's limit.
	MaxComment = 65536
	// maxCommentPages limits how many pages of perPage comments are searched.
	maxCommentPages = 20
	perPage         = 100
)

// UpsertComment sets the caller's comment that contains marker to body: it edits the
// comment if there is one, else creates it. The body must contain the marker. Comments of
// others are never changed.
func (a *API) UpsertComment(ctx context.Context, remote string, number int, marker, body string) error {
	return a.comment(ctx, remote, number, marker, body, true)
}

// EditComment is like UpsertComment but creates no comment.
func (a *API) EditComment(ctx context.Context, remote string, number int, marker, body string) error {
	return a.comment(ctx, remote, number, marker, body, false)
}

func (a *API) comment(ctx context.Context, remote string, number int, marker, body string, add bool) error {
	return a.at(remote, "comment on a pull request", func(path string) error {
		there, err := a.find(ctx, path, number, marker)
		switch {
		case err != nil:
			return err
		case there == nil && add:
			return a.addComment(ctx, path, number, body)
		case there == nil || there.body == body:
			return nil
		}
		return a.editComment(ctx, path, number, there.id, body)
	})
}

// find returns the caller's comment that contains marker, or nil.
func (a *API) find(ctx context.Context, path string, number int, marker string) (*comment, error) {
	me, err := a.self(ctx)
	if err != nil {
		return nil, err
	}
	for page := 1; page <= maxCommentPages; page++ {
		found, more, err := a.comments(ctx, path, number, page)
		if err != nil {
			return nil, err
		}
		for _, c := range found {
			if strings.EqualFold(c.author, me) && strings.Contains(c.body, marker) {
				return &c, nil
			}
		}
		if !more {
			break
		}
	}
	return nil, nil
}

// self returns the account name of the caller's comments. It is requested once.
func (a *API) self(ctx context.Context) (string, error) {
	a.mu.Lock()
	me := a.me
	a.mu.Unlock()
	if me != "" {
		return me, nil
	}
	me, err := a.account(ctx)
	if err != nil {
		return "", err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.me = me
	return me, nil
}

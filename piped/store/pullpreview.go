package store

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/c785c783/piped/piped/deploy"
)

const selectPullPreview = "SELECT repo_id, number, head, body, extended_until, dismissed, dismissed_by FROM pull_previews"

// PullPreviews returns the previews of pull requests, by repository and number: all, those of one
// repository, or that of one pull request. Those that have ended are not among them.
func (s *Store) PullPreviews(ctx context.Context, repoID string, number int) ([]deploy.PullPreview, error) {
	list, err := s.RetainedPullPreviews(ctx, repoID, number)
	return slices.DeleteFunc(list, func(p deploy.PullPreview) bool { return p.Ended }), err
}

// RetainedPullPreviews is PullPreviews with those that have ended.
func (s *Store) RetainedPullPreviews(ctx context.Context, repoID string, number int) ([]deploy.PullPreview, error) {
	f := &filter{}
	if repoID != "" {
		f.add("repo_id = ?", repoID)
	}
	if number != 0 {
		f.add("number = ?", number)
	}
	list, err := all(ctx, s, scanPullPreview, selectPullPreview+f.where()+" ORDER BY repo_id, number", f.args...)
	return list, s.fail(err, "list the previews of pull requests")
}

func scanPullPreview(row scanner) (p deploy.PullPreview, err error) {
	var body string
	var extended int64
	if err := row.Scan(&p.RepoID, &p.Number, &p.Head, &body, &extended, &p.Dismissed, &p.DismissedBy); err != nil {
		return p, err
	}
	p.ExtendedUntil = fromMilli(extended)
	return p, decode(body, &p)
}

// PutPullPreview stores what a preview is like, and leaves what users decided about it.
func (s *Store) PutPullPreview(ctx context.Context, p deploy.PullPreview) error {
	body, err := encode(p)
	if err == nil {
		err = s.write(ctx, func(t *tx) error {
			t.changed(deploy.TopicPullPreview, p.Key(), "")
			return t.insert(ctx, "pull_previews", "repo_id, number, head, body, updated_at",
				"ON CONFLICT (repo_id, number) DO UPDATE SET head = excluded.head, body = excluded.body, updated_at = excluded.updated_at",
				[][]any{{p.RepoID, p.Number, p.Head, body, toMilli(t.store.now())}})
		})
	}
	return s.fail(err, "store the preview of pull request "+p.Key())
}

// DropPullPreview deletes what is known of the preview of a pull request. It does nothing if
// nothing is.
func (s *Store) DropPullPreview(ctx context.Context, repoID string, number int) error {
	key := deploy.PullPreview{RepoID: repoID, Number: number}.Key()
	err := s.write(ctx, func(t *tx) error {
		n, err := t.exec(ctx, "DELETE FROM pull_previews WHERE repo_id = ? AND number = ?", repoID, number)
		if n > 0 {
			t.changed(deploy.TopicPullPreview, key, "")
		}
		return err
	})
	return s.fail(err, "delete the preview of pull request "+key)
}

// DismissPullPreview stores that a user has the preview of a head removed. NotFound if there is
// no such preview, Conflict if the pull request has another head.
func (s *Store) DismissPullPreview(ctx context.Context, repoID string, number int, head, by string) error {
	return s.decidePullPreview(ctx, repoID, number, head, "dismissed = ?, dismissed_by = ?, extended_until = 0", head, by)
}

// ExtendPullPreview stores that the preview of a head is not removed before a time. Errors are
// those of DismissPullPreview.
func (s *Store) ExtendPullPreview(ctx context.Context, repoID string, number int, head string, until time.Time) error {
	return s.decidePullPreview(ctx, repoID, number, head, "extended_until = ?", toMilli(until))
}

func (s *Store) decidePullPreview(ctx context.Context, repoID string, number int, head, set string, args ...any) error {
	key := deploy.PullPreview{RepoID: repoID, Number: number}.Key()
	err := s.write(ctx, func(t *tx) error {
		is, ok, err := one(ctx, t, scanText, "SELECT head FROM pull_previews WHERE repo_id = ? AND number = ?"+t.store.dialect.forUpdate(), repoID, number)
		switch {
		case err != nil:
			return err
		case !ok:
			return deploy.Errorf(deploy.NotFound, "pull request %s has no preview", key)
		case is != head:
			return deploy.Errorf(deploy.Conflict, "pull request %s has commit %s now, not %s: look at its preview, and ask again", key, deploy.ShortHash(is), deploy.ShortHash(head))
		}
		t.changed(deploy.TopicPullPreview, key, "")
		_, err = t.exec(ctx, fmt.Sprintf("UPDATE pull_previews SET %s, updated_at = ? WHERE repo_id = ? AND number = ?", set),
			append(args, toMilli(t.store.now()), repoID, number)...)
		return err
	})
	return s.fail(err, "decide on the preview of pull request "+key)
}

package store

import (
	"cmp"
	"context"
	"slices"

	"github.com/c785c783/piped/piped/deploy"
)

// SetCandidates replaces the stored candidates of a repository by cs, which may be empty.
// changed reports whether they differ.
func (s *Store) SetCandidates(ctx context.Context, repoID string, cs []deploy.Candidate) (changed bool, err error) {
	cs = slices.Clone(cs)
	slices.SortFunc(cs, byPath)
	body, err := encode(cs)
	if err != nil {
		return false, s.fail(err, "store the candidates of repository "+repoID)
	}
	if len(cs) == 0 {
		body = ""
	}
	old, _, err := one(ctx, s, scanText, "SELECT body FROM candidates WHERE repo_id = ?", repoID)
	if err != nil || old == clean(body) {
		return false, s.fail(err, "read the candidates of repository "+repoID)
	}
	err = s.write(ctx, func(t *tx) error {
		if body == "" {
			_, err := t.exec(ctx, "DELETE FROM candidates WHERE repo_id = ?", repoID)
			return err
		}
		return t.insert(ctx, "candidates", "repo_id, body", "ON CONFLICT (repo_id) DO UPDATE SET body = excluded.body", [][]any{{repoID, body}})
	})
	return err == nil, s.fail(err, "store the candidates of repository "+repoID)
}

// Candidates returns the candidates of all repositories, by repository and path.
func (s *Store) Candidates(ctx context.Context) ([]deploy.Candidate, error) {
	lists, err := all(ctx, s, func(row scanner) (cs []deploy.Candidate, err error) {
		var body string
		if err := row.Scan(&body); err != nil {
			return nil, err
		}
		return cs, decode(body, &cs)
	}, "SELECT body FROM candidates ORDER BY repo_id")
	return slices.Concat(lists...), s.fail(err, "read the candidates")
}

func byPath(a, b deploy.Candidate) int {
	return cmp.Or(cmp.Compare(a.Git.Dir, b.Git.Dir), cmp.Compare(a.Git.ConfigFile, b.Git.ConfigFile))
}

package trigger

import (
	"context"

	"github.com/c785c783/piped/piped/git"
)

// changeCache caches the files changed between a base commit and the head, because most
// applications of a repository have the same base.
type changeCache struct {
	repo   *git.Repo
	head   string
	byBase map[string][]string
}

// since returns the files changed between base and the head. The error is of kind NotFound
// if base is not in the mirror.
func (c *changeCache) since(ctx context.Context, base string) ([]string, error) {
	if files, ok := c.byBase[base]; ok {
		return files, nil
	}
	files, err := c.repo.Changed(ctx, base, c.head)
	if err != nil {
		return nil, err
	}
	c.byBase[base] = files
	return files, nil
}

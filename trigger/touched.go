package trigger

import (
	"context"
	"strings"

	"github.com/c785c783/piped/piped/config"
	"github.com/c785c783/piped/piped/git"
)

// touched reports whether changed files concern the application in dir, and
// names one that does. Files matched by ignores do not count at all; of the
// others count those below dir and those matched by paths. Unlike in PipeCD, an
// ignored file vetoes nothing but itself.
func touched(dir string, paths, ignores config.Patterns, changed []string) (string, bool) {
	prefix := dir + "/"
	if dir == "." || dir == "" {
		prefix = ""
	}
	for _, file := range changed {
		if (strings.HasPrefix(file, prefix) || paths.Match(file)) && !ignores.Match(file) {
			return file, true
		}
	}
	return "", false
}

// changeCache holds the files changed between a base commit and the head: most
// applications of a repository share their base.
type changeCache struct {
	repo   *git.Repo
	head   string
	byBase map[string][]string
}

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

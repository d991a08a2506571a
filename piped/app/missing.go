package app

import (
	"context"
	"strings"
	"sync"
	"time"

	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/git"
)

const (
	// missingPatience bounds the fetch for a reader of a commit that a mirror lacks. It is
	// shorter than the time that components have to stop.
	missingPatience = 20 * time.Second
	// missingRetry is how long a commit that the remote does not have counts as missing.
	missingRetry = time.Minute
)

// missing records which commits a remote does not have, so that each is asked for once. A mirror can
// lack commits that the store names: another replica, with mirrors of its own, has seen them while
// this one stood by or was stopped. It is safe for concurrent use.
type missing struct {
	mu    sync.Mutex
	known map[string]time.Time // when the remote was last asked without success, by missingKey
}

func missingKey(repoID, commits string) string { return repoID + "\x00" + commits }

// readCommits returns the result of read, which needs some commits of a mirror. If the mirror lacks
// them, it fetches them once. The error is NotFound if the remote does not have them, and
// Unavailable while it cannot be asked: no deployment must fail for a mirror that is behind.
func readCommits[T any](ctx context.Context, r *repositories, repoID, commits string, read func(*git.Repo) (T, error)) (result T, err error) {
	mirror, err := r.mirror(repoID)
	if err != nil {
		return result, err
	}
	if hasBeenRead(mirror) {
		result, err = read(mirror)
		if !deploy.IsKind(err, deploy.NotFound) || r.missing.isKnown(missingKey(repoID, commits)) {
			return result, err
		}
	} else {
		err = deploy.Errorf(deploy.Unavailable, "repository %q has not been read yet: the log says why", repoID)
	}
	ctx, stop := context.WithTimeout(ctx, missingPatience)
	defer stop()
	if _, _, syncErr := mirror.Sync(ctx); syncErr != nil {
		return result, deploy.Errorf(deploy.Unavailable, "%w; it cannot be fetched now: %w", err, syncErr)
	}
	result, err = read(mirror)
	if deploy.IsKind(err, deploy.NotFound) {
		r.missing.add(missingKey(repoID, commits))
	}
	return result, err
}

// at returns the mirror of a repository, after a fetch if it lacks one of the commits.
func (r *repositories) at(ctx context.Context, repoID string, commits ...string) (*git.Repo, error) {
	mirror, err := readCommits(ctx, r, repoID, strings.Join(commits, ".."), func(m *git.Repo) (*git.Repo, error) {
		for _, hash := range commits {
			if _, err := m.At(hash); err != nil {
				return nil, err
			}
		}
		return m, nil
	})
	if deploy.IsKind(err, deploy.NotFound) { // the remote does not have it, either
		return r.mirror(repoID)
	}
	return mirror, err
}

// isKnown reports whether the remote did not have commits when it was asked recently.
func (m *missing) isKnown(key string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	at, ok := m.known[key]
	return ok && time.Since(at) < missingRetry
}

// add records that the remote does not have commits, and forgets what was recorded long ago.
func (m *missing) add(key string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.known == nil {
		m.known = map[string]time.Time{}
	}
	for key, at := range m.known {
		if time.Since(at) >= missingRetry {
			delete(m.known, key)
		}
	}
	m.known[key] = time.Now()
}

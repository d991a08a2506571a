package store

import (
	"context"
	"time"

	"github.com/c785c783/piped/piped/deploy"
)

// EndedDeployments returns up to limit (0: all) deployments that ended at since or
// later, those that ended first first. One may be committed after another that ended
// a little later: who goes on from the last one looks back as long as a write may
// take.
func (s *Store) EndedDeployments(ctx context.Context, since time.Time, limit int) ([]deploy.Deployment, error) {
	var f filter
	f.add("completed_at > 0") // the condition of its index
	f.add("completed_at >= ?", toMilli(since))
	query := f.limit(selectDeployment+f.where()+" ORDER BY completed_at, id", limit)
	ds, err := deployments(ctx, s, query, f.args...)
	return ds, s.fail(err, "list the deployments that have ended")
}

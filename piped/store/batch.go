package store

import (
	"cmp"
	"context"
	"slices"

	"github.com/c785c783/piped/piped/deploy"
)

// batchSize is how many items share one transaction. It is large enough to amortize the cost
// of a commit, and small enough that other writers do not wait long.
const batchSize = 50

// CreateDeployments calls CreateDeployment for several items. They share transactions, but an
// error affects only one item. The returned slices are as long as ns: the stored deployment
// and the error of each item.
func (s *Store) CreateDeployments(ctx context.Context, ns []NewDeployment) ([]deploy.Deployment, []error) {
	created, errs := make([]deploy.Deployment, len(ns)), make([]error, len(ns))
	s.inBatches(ctx, len(ns), func(i int) string { return ns[i].Deployment.ApplicationID }, func(t *tx, i int) (err error) {
		created[i], err = t.createDeployment(ctx, ns[i])
		return err
	}, func(i int, err error) {
		created[i], errs[i] = deploy.Deployment{}, s.fail(err, "create deployment "+ns[i].Deployment.ID)
	})
	return created, errs
}

// PutApplications calls PutApplication for several items. They share transactions, but an
// error affects only one item. The returned slices are as long as apps: whether each item was
// changed, and its error.
func (s *Store) PutApplications(ctx context.Context, apps []deploy.Application) (changed []bool, errs []error) {
	changed, errs = make([]bool, len(apps)), make([]error, len(apps))
	s.inBatches(ctx, len(apps), func(i int) string { return apps[i].ID }, func(t *tx, i int) (err error) {
		if err := checkIdentity(apps[i]); err != nil {
			return err
		}
		changed[i], err = t.putApplication(ctx, apps[i])
		return err
	}, func(i int, err error) {
		changed[i], errs[i] = false, s.fail(err, "put application "+apps[i].ID)
	})
	return changed, errs
}

// inBatches calls do for the items 0 to n-1, several in one transaction, sorted by the
// applications that they lock. If a transaction fails because of one item, each of its items
// is written again in a separate transaction. failed is called for each item that was not
// stored.
func (s *Store) inBatches(ctx context.Context, n int, application func(int) string, do func(*tx, int) error, failed func(int, error)) {
	order := make([]int, n)
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(application(a), application(b)) })
	write := func(items ...int) error {
		return s.write(ctx, func(t *tx) error {
			for _, i := range items {
				if err := do(t, i); err != nil {
					return err
				}
			}
			return nil
		})
	}
	for batch := range slices.Chunk(order, batchSize) {
		err := write(batch...)
		alone := err != nil && !deploy.IsKind(s.fail(err, "write"), deploy.Unavailable) && ctx.Err() == nil
		for _, i := range batch {
			if alone {
				err = write(i)
			}
			if err != nil {
				failed(i, err)
			}
		}
	}
}

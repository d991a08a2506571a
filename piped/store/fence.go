package store

import (
	"context"

	"github.com/c785c783/piped/piped/deploy"
)

// fence is a condition of a write transaction: it is only committed while this agent has the
// right to write. The lock on the row makes the next owner wait until the transaction has ended.
type fence struct {
	from string // FROM and WHERE of a query that finds one row as long as the right exists
	args []any
	err  error // of a transaction without the right
}

// fences returns the conditions of a transaction: that this agent is the owner of the database,
// and that the terms in the context are current.
func (s *Store) fences(ctx context.Context) (fences []fence) {
	if s.hold != nil && s.hold.token() != "" {
		fences = append(fences, fence{" FROM store_owner WHERE token = ?", []any{s.hold.token()}, outdated(s.dialect)})
	}
	for _, term := range deploy.TermsOf(ctx) {
		fences = append(fences, fence{
			" FROM partitions WHERE id = ? AND term = ?", []any{int64(term.Partition), term.Number},
			deploy.Errorf(deploy.Fenced, "term %d of partition %d is over: another replica works on it now", term.Number, term.Partition),
		})
	}
	return fences
}

// outdated returns the error of a transaction whose token is outdated.
func outdated(d dialect) error {
	return deploy.Errorf(deploy.Unavailable, "write to %s: another agent has taken it over, or this one has connected again since", d.name())
}

// prove checks a condition and returns its error if it does not hold.
func (f fence) prove(ctx context.Context, t *tx) error {
	_, holds, err := one(ctx, t, scanNumber, "SELECT 1"+f.from+t.store.dialect.forShare(), f.args...)
	if err == nil && !holds {
		err = f.err
	}
	t.store.countFenced(err)
	return err
}

// countFenced counts a refusal for a term that is over.
func (s *Store) countFenced(err error) {
	if deploy.IsKind(err, deploy.Fenced) {
		s.fenced.Add(1)
	}
}

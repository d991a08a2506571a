package store

import (
	"context"
	"slices"

	"github.com/c785c783/piped/piped/deploy"
)

// SetNotice stores an application's notice, "" for none, and reports whether it has changed.
// With a new notice other than "" it publishes e, if set, in the same transaction, unless an
// event with that key exists.
func (s *Store) SetNotice(ctx context.Context, appID, notice string, e *deploy.Event) (changed bool, err error) {
	notice = clean(notice)
	err = s.write(ctx, func(t *tx) error {
		changed = false
		old, err := t.lockApplication(ctx, appID)
		if err != nil || old.Notice == notice {
			return err
		}
		changed = true
		if notice != "" && e != nil {
			t.events = append(t.events, *e)
		}
		return t.updateApplication(ctx, appID, "notice = ?, notice_at = ?", notice, toMilli(t.store.now()))
	})
	return changed && err == nil, s.fail(err, "store the notice of application "+appID)
}

// drifted is the condition on applications that need self-healing or had it stopped; it has an
// index.
const drifted = "(sync_status = 'OUT_OF_SYNC' OR notice <> '')"

// DriftedApplications returns the applications that are OUT_OF_SYNC or have a notice, without
// deleted ones: all of them, or those with the given IDs.
func (s *Store) DriftedApplications(ctx context.Context, ids ...string) ([]deploy.Application, error) {
	const perQuery = 500
	if len(ids) == 0 {
		apps, err := all(ctx, s, scanApplication, selectApplication+" WHERE "+drifted+" AND deleted = FALSE ORDER BY id")
		return apps, s.fail(err, "list drifted applications")
	}
	var out []deploy.Application
	for chunk := range slices.Chunk(slices.Sorted(slices.Values(ids)), perQuery) {
		apps, err := all(ctx, s, scanApplication, selectApplication+" WHERE "+drifted+" AND deleted = FALSE AND id IN ("+
			placeholders(len(chunk))+") ORDER BY id", anys(chunk)...)
		if err != nil {
			return nil, s.fail(err, "list drifted applications")
		}
		out = append(out, apps...)
	}
	return out, nil
}

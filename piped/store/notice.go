package store

import (
	"context"
	"slices"

	"github.com/c785c783/piped/piped/deploy"
)

// SetNotice stores what an application says the agent has stopped doing for it,
// "" for nothing, and tells whether it said something else before. With a new
// notice that is not "", e (if there is one) is announced in the same
// transaction, unless an event of its key was announced before.
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

// drifted are the applications that self-healing has to do with: an index holds
// them.
const drifted = "(sync_status = 'OUT_OF_SYNC' OR notice <> '')"

// DriftedApplications returns the applications that are OUT_OF_SYNC or carry a
// notice, of all or (ids given) of these. Deleted ones are left out.
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

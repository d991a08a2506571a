package store

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/c785c783/piped/piped/deploy"
)

// loggedDeployments selects completed deployments that still have logs.
const loggedDeployments = "SELECT id FROM deployments WHERE completed_at > 0 AND completed_at < ? AND logs_removed = FALSE ORDER BY completed_at LIMIT ?"

// RemoveStageLogs deletes up to limit log blocks of deployments that ended before a time, in
// one transaction. It returns how many were deleted and whether there may be more. Each stage
// that ran gets a log of one line, instead.
func (s *Store) RemoveStageLogs(ctx context.Context, before time.Time, instead string, limit int) (removed int, more bool, err error) {
	ids, err := all(ctx, s, scanText, loggedDeployments, toMilli(before), batchSize)
	if err == nil && len(ids) > 0 {
		err = s.write(ctx, func(t *tx) (err error) {
			removed, err = t.removeLogs(ctx, ids, instead, limit)
			return err
		})
	}
	if err != nil {
		return 0, false, s.fail(err, "remove old stage logs")
	}
	return removed, removed == limit || len(ids) == batchSize, nil
}

func (t *tx) removeLogs(ctx context.Context, ids []string, instead string, limit int) (removed int, err error) {
	for _, id := range ids {
		n, err := t.exec(ctx, `DELETE FROM stage_logs WHERE (deployment_id, stage_id, position) IN (
			SELECT deployment_id, stage_id, position FROM stage_logs WHERE deployment_id = ? ORDER BY stage_id, position LIMIT ?)`, id, limit-removed)
		removed += int(n)
		if err != nil || removed == limit { // this deployment may have more blocks
			return removed, err
		}
		if more, _, err := one(ctx, t, scanNumber, "SELECT COUNT(*) FROM (SELECT 1 FROM stage_logs WHERE deployment_id = ? LIMIT 1) found", id); err != nil || more > 0 {
			return removed, err // another agent deletes them concurrently
		}
		if _, err := t.exec(ctx, `INSERT INTO stage_logs (deployment_id, stage_id, position, severity, log, at)
			SELECT deployment_id, id, 0, ?, ?, ? FROM stages WHERE deployment_id = ? AND started_at > 0 ON CONFLICT DO NOTHING`,
			string(deploy.SeverityInfo), instead, toMilli(t.store.now()), id); err != nil {
			return removed, err
		}
		if _, err := t.exec(ctx, "UPDATE deployments SET logs_removed = TRUE WHERE id = ?", id); err != nil {
			return removed, err
		}
	}
	return removed, nil
}

// OldDeployments selects deployments to delete. It excludes at least one of each application.
type OldDeployments struct {
	Before time.Time // only deployments that ended before
	Keep   int       // number of last ended deployments of each application to exclude; at least 1
	Limit  int       // maximal number of one call; at least 1
	Cursor string    // returned by RemoveDeployments
}

// unneeded is the condition on a deployment @ that is no longer needed. It ended before a
// time; enough later deployments of its application have ended, or the application is deleted
// and its inventory is empty; and nothing that is read later refers to it. A success needs two
// later successes, because the last one may be rolled back to the one before. The reference to
// the last triggered deployment is JSON with the ID in quotes.
//
// The inventory refers to deployments whose objects still exist. Their rollouts let the agent
// distinguish its own changes from those of others.
const unneeded = `@.completed_at > 0 AND @.completed_at < ?
	AND ((SELECT n.completed_at FROM deployments n WHERE n.application_id = @.application_id AND n.completed_at > 0 AND n.completed_at > @.completed_at
			ORDER BY n.completed_at LIMIT 1 OFFSET ?) IS NOT NULL
		AND (@.status <> 'SUCCESS' OR (SELECT n.completed_at FROM deployments n WHERE n.application_id = @.application_id AND n.completed_at > 0
			AND n.completed_at > @.completed_at AND n.status = 'SUCCESS' ORDER BY n.completed_at LIMIT 1 OFFSET 1) IS NOT NULL)
		OR EXISTS (SELECT 1 FROM applications a WHERE a.id = @.application_id AND a.deleted = TRUE
			AND NOT EXISTS (SELECT 1 FROM inventory i WHERE i.application_id = a.id)))
	AND NOT EXISTS (SELECT 1 FROM applications a WHERE a.id = @.application_id
		AND (a.last_successful_id = @.id OR a.last_triggered LIKE '%"' || @.id || '"%'))
	AND NOT EXISTS (SELECT 1 FROM inventory i WHERE i.application_id = @.application_id AND i.deployment_id = @.id)
	AND NOT EXISTS (SELECT 1 FROM rollouts r WHERE r.deployment_id = @.id AND r.terminal = FALSE)
	AND NOT EXISTS (SELECT 1 FROM commands c WHERE c.deployment_id = @.id AND c.deployment_id <> '' AND (c.handled_at = 0 OR c.handled_at >= ?))
	AND @.id NOT IN (SELECT o.deployment_id FROM outbox o WHERE o.delivered_at = 0)
	AND @.id NOT IN (SELECT o.deployment_id FROM deliveries v JOIN outbox o ON o.seq = v.seq WHERE v.given_up_at = 0)`

// chainEnded is the condition on a deployment d that its chain, if any, can be deleted as a
// whole: none of its deployments is needed, and none remains to be created.
const chainEnded = `(d.chain_id = '' OR NOT EXISTS (SELECT 1 FROM deployments s WHERE s.chain_id = d.chain_id AND s.chain_id <> '' AND NOT (#))
	AND NOT EXISTS (SELECT 1 FROM commands c WHERE c.status = 'NOT_HANDLED_YET' AND c.body LIKE '%"' || d.chain_id || '"%'))`

// filter returns the conditions on a deployment d.
func (q OldDeployments) filter() (f filter) {
	args := []any{toMilli(q.Before), q.Keep - 1, toMilli(q.Before)}
	f.add(strings.ReplaceAll(unneeded, "@", "d"), args...)
	f.add(strings.ReplaceAll(chainEnded, "#", strings.ReplaceAll(unneeded, "@", "s")), args...)
	return f
}

const selectOldDeployment = "SELECT d.id, d.chain_id, d.completed_at FROM deployments d"

// oldDeployment is a deployment to delete.
type oldDeployment struct {
	id, chain   string
	completedAt int64
}

func scanOldDeployment(row scanner) (d oldDeployment, err error) {
	return d, row.Scan(&d.id, &d.chain, &d.completedAt)
}

// RemoveDeployments deletes, in one transaction, deployments that q selects and that are no
// longer needed, the first ended first. It also deletes their stages, logs, transitions,
// rollouts, analysis samples, applied sets and commands, and chains without a deployment. It
// returns how many were deleted and the cursor of the next call, "" if there are no more.
//
// It does not delete the last two successes of an application, the last triggered deployment,
// deployments with objects in the inventory, open rollouts, pending notifications or a command
// completed since q.Before, nor deployments of a chain before all of them can be deleted.
// q.Keep does not apply to a deleted application with an empty inventory.
func (s *Store) RemoveDeployments(ctx context.Context, q OldDeployments) (removed int, next string, err error) {
	if q.Keep < 1 || q.Limit < 1 {
		return 0, "", deploy.Errorf(deploy.Internal, "remove old deployments: at least 1 is kept and 1 removed, not %d and %d", q.Keep, q.Limit)
	}
	// Select outside of the transaction, because that reads all old and retained rows.
	old, err := s.oldDeployments(ctx, q)
	if err != nil || len(old) == 0 {
		return 0, "", s.fail(err, "find old deployments")
	}
	err = s.write(ctx, func(t *tx) (err error) {
		removed, err = t.removeDeployments(ctx, q, old)
		return err
	})
	if err != nil {
		return 0, "", s.fail(err, "remove old deployments")
	}
	if len(old) == q.Limit {
		last := old[len(old)-1]
		next = cursorAt(fromMilli(last.completedAt), last.id)
	}
	return removed, next, nil
}

func (s *Store) oldDeployments(ctx context.Context, q OldDeployments) ([]oldDeployment, error) {
	f := q.filter()
	if q.Cursor != "" {
		p, err := parseCursor(q.Cursor)
		if err != nil {
			return nil, err
		}
		f.add("d.completed_at >= ? AND (d.completed_at > ? OR d.id > ?)", p.UpdatedAt, p.UpdatedAt, p.ID)
	}
	query := f.limit(selectOldDeployment+f.where()+" ORDER BY d.completed_at, d.id", q.Limit)
	return all(ctx, s, scanOldDeployment, query, f.args...)
}

// removeDeployments deletes those of the found deployments that are still not needed.
func (t *tx) removeDeployments(ctx context.Context, q OldDeployments, found []oldDeployment) (removed int, err error) {
	ids := make([]string, len(found))
	for i, d := range found {
		ids[i] = d.id
	}
	f := q.filter()
	in(&f, "d.id", ids)
	old, err := all(ctx, t, scanOldDeployment, selectOldDeployment+f.where(), f.args...)
	if err != nil || len(old) == 0 {
		return 0, err
	}
	ids = nil
	var chains []string
	for _, d := range old {
		ids = append(ids, d.id)
		if d.chain != "" && !slices.Contains(chains, d.chain) {
			chains = append(chains, d.chain)
		}
	}
	if err := t.deleteIn(ctx, "deployments", "id", ids); err != nil {
		return 0, err
	}
	if err := t.deleteIn(ctx, "commands", "handled_at > 0 AND deployment_id <> '' AND deployment_id", ids); err != nil {
		return 0, err
	}
	return len(old), t.removeChains(ctx, chains)
}

// removeChains deletes those of the chains that have no deployments, with the commands that
// requested their deployments.
func (t *tx) removeChains(ctx context.Context, ids []string) error {
	if len(ids) == 0 {
		return nil
	}
	ended, err := all(ctx, t, scanChain, "SELECT id, body, created_at FROM chains WHERE id IN ("+placeholders(len(ids))+`)
		AND NOT EXISTS (SELECT 1 FROM deployments d WHERE d.chain_id = chains.id AND d.chain_id <> '')`, anys(ids)...)
	if err != nil {
		return err
	}
	var chains, commands []string
	for _, row := range ended {
		chains = append(chains, row.chain.ID)
		for _, n := range slices.Concat(row.blocks...) {
			commands = append(commands, n.CommandID)
		}
	}
	if err := t.deleteIn(ctx, "chains", "id", chains); err != nil {
		return err
	}
	return t.deleteIn(ctx, "commands", "id", commands)
}

// deleteIn deletes the rows of a table whose column has one of these values.
func (t *tx) deleteIn(ctx context.Context, table, column string, values []string) error {
	const perStatement = 500
	for chunk := range slices.Chunk(values, perStatement) {
		if _, err := t.exec(ctx, "DELETE FROM "+table+" WHERE "+column+" IN ("+placeholders(len(chunk))+")", anys(chunk)...); err != nil {
			return err
		}
	}
	return nil
}

// oldCommands deletes commands that were completed before a time, except those of chains.
const oldCommands = `DELETE FROM commands WHERE id IN (
	SELECT id FROM commands WHERE handled_at > 0 AND handled_at < ? AND type <> ? ORDER BY handled_at LIMIT ?)`

// RemoveCommands deletes up to limit commands that were completed before a time, in one
// transaction, and returns how many were deleted.
func (s *Store) RemoveCommands(ctx context.Context, before time.Time, limit int) (removed int, err error) {
	err = s.write(ctx, func(t *tx) error {
		n, err := t.exec(ctx, oldCommands, toMilli(before), string(deploy.CommandChainSync), limit)
		removed = int(n)
		return err
	})
	if err != nil {
		return 0, s.fail(err, "remove old commands")
	}
	return removed, nil
}

// oldForeignRollouts deletes rollouts and scalings that no deployment began, that ended before a
// time, and whose workload is neither known to exist nor of an application.
const oldForeignRollouts = `DELETE FROM rollouts WHERE id IN (
	SELECT r.id FROM rollouts r WHERE r.deployment_id IS NULL AND r.terminal = TRUE AND r.completed_at > 0 AND r.completed_at < ?
	AND NOT EXISTS (SELECT 1 FROM workload_revisions w WHERE w.cluster = r.cluster AND w.workload = r.workload)
	AND NOT EXISTS (SELECT 1 FROM applications a WHERE a.id = r.application_id AND a.deleted = FALSE)
	ORDER BY r.completed_at LIMIT ?)`

// RemoveForeignRollouts deletes up to limit rollouts and scalings of deleted workloads that ended
// before a time, in one transaction, and returns how many were deleted. It deletes none that a
// deployment began, and none of an application. Those of workloads that exist are limited by
// their number: see SaveRollout.
func (s *Store) RemoveForeignRollouts(ctx context.Context, before time.Time, limit int) (removed int, err error) {
	err = s.write(ctx, func(t *tx) error {
		n, err := t.exec(ctx, oldForeignRollouts, toMilli(before), limit)
		removed = int(n)
		return err
	})
	if err != nil {
		return 0, s.fail(err, "remove old rollouts of deleted workloads")
	}
	return removed, nil
}

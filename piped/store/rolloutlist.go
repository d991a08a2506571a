package store

import (
	"cmp"
	"context"
	"strings"
	"time"

	"github.com/c785c783/piped/piped/deploy"
)

// RolloutList selects rollouts to list; zero fields do not restrict.
type RolloutList struct {
	ApplicationIDs []string
	Labels         map[string]string // of the application's current labels; all must match
	Scope          *deploy.Scope     // must contain the application; nil: no restriction
	DeploymentIDs  []string
	Namespaces     []string // of the workload, valid names; one must match
	Workloads      []string // names of the workload, valid ones; one must match
	Kind           deploy.RolloutKind
	Phases         []deploy.RolloutPhase
	From, To       time.Time // started at From or later, and before To
	Limit          int       // 0: no limit
	Cursor         string
}

// selectListedRollout also selects values that older records do not contain.
const selectListedRollout = `SELECT id, kind, application_id, COALESCE(deployment_id, ''), stage_id, cluster, phase, body, version, started_at, created_at, updated_at, completed_at,
	COALESCE((SELECT d.application_name FROM deployments d WHERE d.id = rollouts.deployment_id),
		(SELECT a.name FROM applications a WHERE a.id = rollouts.application_id), ''),
	COALESCE((SELECT d.commit_hash FROM deployments d WHERE d.id = rollouts.deployment_id), '')
	FROM rollouts`

func scanListedRollout(row scanner) (r deploy.Rollout, err error) {
	var application, commit string
	r, err = scanRolloutAnd(row, &application, &commit)
	r.ApplicationName, r.Commit = cmp.Or(r.ApplicationName, application), cmp.Or(r.Commit, commit)
	return r, err
}

// filter returns the conditions. The indexes of applications and deployments are more
// selective than that of kinds.
func (q RolloutList) filter() (f filter) {
	kind := f.equal
	if len(q.ApplicationIDs) > 0 || len(q.DeploymentIDs) > 0 {
		kind = f.sift
	}
	in(&f, "application_id", q.ApplicationIDs)
	f.labels("application_labels", "application_id", "rollouts.application_id", q.Labels)
	in(&f, "deployment_id", q.DeploymentIDs)
	kind("kind", string(q.Kind))
	in(&f, "phase", q.Phases)
	f.workload("%/%/", q.Namespaces, "/%")
	f.workload("%/%/%/", q.Workloads, "")
	if !q.From.IsZero() {
		f.add("started_at >= ?", toMilli(q.From))
	}
	if !q.To.IsZero() {
		f.add("started_at < ?", toMilli(q.To))
	}
	return f
}

// workload adds the condition that a part of the key of a workload, between prefix and suffix, is
// one of some names. The pattern follows deploy.ObjectRef.Key: no part of a key contains a slash,
// and no valid name a wildcard. It uses no index, as rows are read in the order of the page and a
// page ends early.
func (f *filter) workload(prefix string, names []string, suffix string) {
	if len(names) == 0 {
		return
	}
	args := make([]any, len(names))
	for i, name := range names {
		args[i] = prefix + name + suffix
	}
	f.add("("+strings.TrimSuffix(strings.Repeat("workload LIKE ? OR ", len(names)), " OR ")+")", args...)
}

// ListRollouts returns rollouts, including external ones, and scalings, the last started
// first, then by ID. It also returns the cursor of the next page, "" if there is none. Invalid
// for a cursor that no list returned.
func (s *Store) ListRollouts(ctx context.Context, q RolloutList) ([]deploy.Rollout, string, error) {
	f := q.filter()
	if err := f.afterBy("started_at", q.Cursor); err != nil {
		return nil, "", err
	}
	few := len(q.ApplicationIDs) > 0 || len(q.DeploymentIDs) > 0
	if _, err := s.scoped(ctx, &f, q.Scope, scopedList{"rollouts", "application_id", "started_at"}, few, q.Limit, q.Cursor); err != nil {
		return nil, "", s.fail(err, "list rollouts")
	}
	query := f.limit(selectListedRollout+f.where()+" ORDER BY started_at DESC, id", extra(q.Limit))
	found, err := all(ctx, s, scanListedRollout, query, f.args...)
	if err != nil || q.Limit <= 0 || len(found) <= q.Limit {
		return found, "", s.fail(err, "list rollouts")
	}
	found = found[:q.Limit]
	last := found[q.Limit-1]
	return found, cursorAt(last.StartedAt, last.ID), nil
}

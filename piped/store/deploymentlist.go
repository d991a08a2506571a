package store

import (
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/c785c783/piped/piped/deploy"
)

// DeploymentQuery selects deployments; zero fields do not restrict.
type DeploymentQuery struct {
	Statuses        []deploy.Status
	Kinds           []string // of the application
	ApplicationIDs  []string
	ApplicationName string
	Commits         []string // full hashes of the deployed commit
	ChainIDs        []string
	Labels          map[string]string // all of them must match
	EndedFrom       time.Time         // ended at EndedFrom or later, and before EndedTo; zero: no such condition
	EndedTo         time.Time
	Scope           *deploy.Scope // must contain the application; nil: no restriction
	Limit           int           // 0: no limit
	Cursor          string
	ActiveStages    bool // load the stages only of deployments that have not ended
}

// ListDeployments returns deployments, the last updated first, then by ID, and the cursor of
// the next page, "" if there is none.
//
// On SQLite, which has no statistics of values, the conditions choose the query plan: a page
// must not read the rows that it leaves out, whether most deployments match or few.
func (s *Store) ListDeployments(ctx context.Context, q DeploymentQuery) ([]deploy.Deployment, string, error) {
	var f filter
	if err := f.after(q.Cursor); err != nil {
		return nil, "", err
	}
	in(&f, "application_id", q.ApplicationIDs)
	f.equal("application_name", q.ApplicationName)
	in(&f, "commit_hash", q.Commits)
	if len(q.ChainIDs) > 0 {
		f.add("chain_id <> ''")
		in(&f, "chain_id", q.ChainIDs)
	}
	f.ended(q.EndedFrom, q.EndedTo)
	if len(q.Kinds) > 0 {
		if found, err := s.anyOfKind(ctx, q.Kinds); err != nil || !found {
			return nil, "", s.fail(err, "list deployments")
		}
		f.add("(SELECT a.kind FROM applications a WHERE a.id = deployments.application_id) IN ("+placeholders(len(q.Kinds))+")", anys(q.Kinds)...)
	}
	// At most those of an application, a commit or a chain.
	few := len(q.ApplicationIDs) > 0 || q.ApplicationName != "" || len(q.Commits) > 0 || len(q.ChainIDs) > 0
	rare, err := s.scoped(ctx, &f, q.Scope, scopedList{"deployments", "application_id", "updated_at"}, few, q.Limit, q.Cursor)
	if err != nil {
		return nil, "", s.fail(err, "list deployments")
	}
	few = few || rare || q.Limit == 0
	if rare, ok, err := s.rareLabel(ctx, q.Labels, few); err != nil {
		return nil, "", s.fail(err, "list deployments")
	} else if ok {
		f.add("id IN (SELECT deployment_id FROM deployment_labels WHERE name = ? AND value = ?)", rare, q.Labels[rare])
		few = true
	}
	f.labels("deployment_labels", "deployment_id", "deployments.id", q.Labels)
	if few {
		in(&f, "status", q.Statuses)
	} else {
		f = f.newestOf(q.Statuses, q.Limit)
	}
	query := f.limit(selectDeployment+f.where()+byUpdate, q.Limit)
	read := deployments
	if q.ActiveStages {
		read = deploymentsBrief
	}
	ds, err := s.readDeployments(ctx, read, query, f.args...)
	if err != nil || len(ds) == 0 {
		return nil, "", s.fail(err, "list deployments")
	}
	last := ds[len(ds)-1]
	return ds, cursorAt(last.UpdatedAt, last.ID), nil
}

// ended adds the condition that a deployment ended in a range of time; a zero bound adds none.
// It has been updated since it ended, which bounds a scan in the order of updates.
func (f *filter) ended(from, to time.Time) {
	if from.IsZero() && to.IsZero() {
		return
	}
	f.add("completed_at > 0 AND completed_at >= ?", toMilli(from))
	if !from.IsZero() {
		f.add("updated_at >= ?", toMilli(from))
	}
	if !to.IsZero() {
		f.add("completed_at < ?", toMilli(to))
	}
}

// byUpdate is the order of listed deployments.
const byUpdate = " ORDER BY updated_at DESC, id"

// newestOf returns a filter for the newest deployments of each status that satisfy f. An index
// yields the deployments of one status in their order, but not those of several.
func (f filter) newestOf(statuses []deploy.Status, limit int) filter {
	if len(statuses) == 0 {
		return f
	}
	var newest filter
	parts := make([]string, len(statuses))
	for i, status := range statuses {
		one := filter{conds: slices.Clone(f.conds), args: slices.Clone(f.args)}
		one.add("status = ?", string(status))
		parts[i] = one.limit("SELECT id FROM (SELECT id FROM deployments"+one.where()+byUpdate, limit) + ") newest"
		newest.args = append(newest.args, one.args...)
	}
	newest.conds = []string{"id IN (" + strings.Join(parts, " UNION ALL ") + ")"}
	return newest
}

// anyOfKind reports whether any application has one of these kinds.
func (s *Store) anyOfKind(ctx context.Context, kinds []string) (bool, error) {
	_, ok, err := one(ctx, s, scanText, "SELECT kind FROM applications WHERE kind IN ("+placeholders(len(kinds))+") LIMIT 1", anys(kinds)...)
	return ok, err
}

// maxRare is the maximal number of deployments with a rare label. Reading all of them costs
// less than a scan of all deployments in order.
const maxRare = 1000

// rareLabel returns the name of a label with a value that few deployments have; ok is false if
// there is none. It does not search if few is set: other conditions are selective already.
func (s *Store) rareLabel(ctx context.Context, labels map[string]string, few bool) (name string, ok bool, err error) {
	if few {
		return "", false, nil
	}
	for _, name := range slices.Sorted(maps.Keys(labels)) {
		n, _, err := one(ctx, s, scanNumber, "SELECT COUNT(*) FROM (SELECT 1 FROM deployment_labels WHERE name = ? AND value = ? LIMIT ?) found",
			name, labels[name], maxRare+1)
		if err != nil || n <= maxRare {
			return name, err == nil, err
		}
	}
	return "", false, nil
}

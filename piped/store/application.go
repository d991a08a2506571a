package store

import (
	"context"
	"maps"
	"slices"
	"strings"

	"github.com/c785c783/piped/piped/deploy"
)

// applicationSpec is the JSON column of the values that come from Git or the
// registration.
type applicationSpec struct {
	Git         deploy.GitPath    `json:"git"`
	Provider    string            `json:"provider,omitempty"`
	Description string            `json:"description,omitempty"`
	Labels      map[string]string `json:"labels,omitempty"`
	Former      []deploy.GitPath  `json:"former,omitempty"` // only directory and file
}

const selectApplication = `SELECT id, name, kind, spec, disabled, deleted, deleted_at, sync_state, evaluated_commit,
	last_triggered, last_successful, notice, notice_at, registration, hold, created_at, updated_at,
	COALESCE((SELECT d.id FROM deployments d WHERE d.application_id = applications.id AND d.status IN ('PLANNED', 'RUNNING', 'ROLLING_BACK')), ''),
	COALESCE((SELECT d.created_at FROM deployments d WHERE d.application_id = applications.id AND d.status IN ('PLANNED', 'RUNNING', 'ROLLING_BACK')), 0)
	FROM applications`

func scanApplication(row scanner) (a deploy.Application, err error) {
	var spec, sync, triggered, successful, registration, hold string
	var deletedAt, noticeAt, createdAt, updatedAt, activeSince int64
	if err := row.Scan(&a.ID, &a.Name, &a.Kind, &spec, &a.Disabled, &a.Deleted, &deletedAt, &sync, &a.EvaluatedCommit,
		&triggered, &successful, &a.Notice, &noticeAt, &registration, &hold, &createdAt, &updatedAt, &a.ActiveID, &activeSince); err != nil {
		return a, err
	}
	var sp applicationSpec
	for _, f := range []struct {
		text string
		into any
	}{{spec, &sp}, {sync, &a.Sync}, {triggered, &a.LastTriggered}, {successful, &a.LastSuccessful}, {registration, &a.Registration}, {hold, &a.Hold}} {
		if err := decode(f.text, f.into); err != nil {
			return a, err
		}
	}
	a.Git, a.Provider, a.Description, a.Labels, a.Former = sp.Git, sp.Provider, sp.Description, sp.Labels, sp.Former
	a.DeletedAt, a.NoticeAt = fromMilli(deletedAt), fromMilli(noticeAt)
	a.CreatedAt, a.UpdatedAt = fromMilli(createdAt), fromMilli(updatedAt)
	a.Deploying, a.ActiveSince = a.ActiveID != "", fromMilli(activeSince)
	return a, nil
}

// PutApplication stores the values that Git or the registration defines for an application:
// name, kind, Git path, provider, description and labels. It does not change the agent's own
// state of a known application (disabled, deleted, registration, sync state, notice, evaluated
// commit, last deployments). A new application is enabled and has the sync state (UNKNOWN if
// there is none) and evaluated commit of a. changed reports whether anything was written.
func (s *Store) PutApplication(ctx context.Context, a deploy.Application) (changed bool, err error) {
	if err := checkIdentity(a); err != nil {
		return false, err
	}
	old, known, err := one(ctx, s, scanApplication, selectApplication+" WHERE id = ?", a.ID)
	if err != nil {
		return false, s.fail(err, "read application "+a.ID)
	}
	if known && old.SameSpec(a) {
		return false, nil
	}
	err = s.write(ctx, func(t *tx) error {
		changed, err = t.putApplication(ctx, a)
		return err
	})
	return changed && err == nil, s.fail(err, "put application "+a.ID)
}

// checkIdentity returns an error of kind Invalid for an application without an ID or a name.
func checkIdentity(a deploy.Application) error {
	if a.ID == "" || a.Name == "" {
		return deploy.Errorf(deploy.Invalid, "an application needs an ID and a name, got %q and %q", a.ID, a.Name)
	}
	return nil
}

func (t *tx) putApplication(ctx context.Context, a deploy.Application) (changed bool, err error) {
	inserted, err := t.insertApplication(ctx, a)
	if err != nil || inserted {
		return inserted, err
	}
	return t.updateSpec(ctx, a)
}

// insertApplication stores a new application; inserted is false if it exists already.
func (t *tx) insertApplication(ctx context.Context, a deploy.Application) (inserted bool, err error) {
	if a.Sync.Status == "" {
		a.Sync.Status = deploy.SyncUnknown
	}
	a.Sync.At = milli(a.Sync.At)
	spec, err := encode(applicationSpec{a.Git, a.Provider, a.Description, a.Labels, nil})
	if err != nil {
		return false, err
	}
	sync, err := encode(a.Sync)
	if err != nil {
		return false, err
	}
	now := toMilli(t.store.now())
	n, err := t.exec(ctx, `INSERT INTO applications (id, name, kind, repo_id, spec, sync_status, sync_state, evaluated_commit, created_at, updated_at)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (id) DO NOTHING`,
		a.ID, a.Name, a.Kind, a.Git.RepoID, spec, string(a.Sync.Status), sync, a.EvaluatedCommit, now, now)
	if err != nil || n == 0 {
		return false, err
	}
	t.changed(deploy.TopicApplication, a.ID, a.ID)
	return true, t.insertLabels(ctx, "application_labels", "application_id", a.ID, a.Labels)
}

// updateSpec stores the values from Git or the registration of an existing application.
func (t *tx) updateSpec(ctx context.Context, a deploy.Application) (changed bool, err error) {
	old, err := t.lockApplication(ctx, a.ID)
	if err != nil || old.SameSpec(a) {
		return false, err
	}
	spec, err := encode(applicationSpec{a.Git, a.Provider, a.Description, a.Labels, old.Former})
	if err != nil {
		return false, err
	}
	if _, err := t.exec(ctx, "UPDATE applications SET name = ?, kind = ?, repo_id = ?, spec = ?, updated_at = ? WHERE id = ?",
		a.Name, a.Kind, a.Git.RepoID, spec, toMilli(t.store.now()), a.ID); err != nil {
		return false, err
	}
	t.changed(deploy.TopicApplication, a.ID, a.ID)
	if maps.Equal(old.Labels, a.Labels) {
		return true, nil
	}
	if _, err := t.exec(ctx, "DELETE FROM application_labels WHERE application_id = ?", a.ID); err != nil {
		return false, err
	}
	return true, t.insertLabels(ctx, "application_labels", "application_id", a.ID, a.Labels)
}

// insertLabels stores labels in a table whose column owner holds id.
func (t *tx) insertLabels(ctx context.Context, table, owner, id string, labels map[string]string) error {
	rows := make([][]any, 0, len(labels))
	for _, name := range slices.Sorted(maps.Keys(labels)) {
		rows = append(rows, []any{id, name, labels[name]})
	}
	return t.insert(ctx, table, owner+", name, value", "", rows)
}

// lockApplication reads an application and locks it until the transaction ends.
func (t *tx) lockApplication(ctx context.Context, id string) (deploy.Application, error) {
	a, ok, err := one(ctx, t, scanApplication, selectApplication+" WHERE id = ?"+t.store.dialect.forUpdate(), id)
	if err == nil && !ok {
		err = noApplication(id)
	}
	return a, err
}

func noApplication(id string) error {
	return deploy.Errorf(deploy.NotFound, "there is no application %s", id)
}

// Application returns an application, deleted or not. Deploying reports whether it has an
// active deployment, ActiveID. NotFound if there is no such application.
func (s *Store) Application(ctx context.Context, id string) (deploy.Application, error) {
	a, ok, err := one(ctx, s, scanApplication, selectApplication+" WHERE id = ?", id)
	if err == nil && !ok {
		err = noApplication(id)
	}
	return a, s.fail(err, "read application "+id)
}

const selectSlimApplication = "SELECT id, name, kind, spec, disabled, deleted FROM applications"

func scanSlimApplication(row scanner) (a deploy.Application, err error) {
	var spec string
	if err := row.Scan(&a.ID, &a.Name, &a.Kind, &spec, &a.Disabled, &a.Deleted); err != nil {
		return a, err
	}
	var sp applicationSpec
	err = decode(spec, &sp)
	a.Git, a.Provider, a.Description, a.Labels, a.Former = sp.Git, sp.Provider, sp.Description, sp.Labels, sp.Former
	return a, err
}

// AllApplications returns all applications, deleted ones included, by ID. They have no state:
// only what Git or the registration defines, and whether they are disabled or deleted.
func (s *Store) AllApplications(ctx context.Context) ([]deploy.Application, error) {
	apps, err := all(ctx, s, scanSlimApplication, selectSlimApplication+" ORDER BY id")
	return apps, s.fail(err, "read all applications")
}

// ApplicationsByID returns those of the applications that exist, as AllApplications does. It
// returns none for an empty list.
func (s *Store) ApplicationsByID(ctx context.Context, ids []string) ([]deploy.Application, error) {
	const perQuery = 500
	var out []deploy.Application
	for chunk := range slices.Chunk(slices.Compact(slices.Sorted(slices.Values(ids))), perQuery) {
		apps, err := all(ctx, s, scanSlimApplication, selectSlimApplication+" WHERE id IN ("+placeholders(len(chunk))+") ORDER BY id", anys(chunk)...)
		if err != nil {
			return nil, s.fail(err, "read applications")
		}
		out = append(out, apps...)
	}
	return out, nil
}

// ApplicationQuery selects applications. Zero fields do not restrict, except Disabled: without
// IncludeAll, false selects only enabled applications.
type ApplicationQuery struct {
	Name           string
	Kind           string
	RepoID         string
	Labels         map[string]string // all of them must match
	Scope          *deploy.Scope     // must contain the application; nil: no restriction
	Disabled       bool
	IncludeAll     bool // enabled and disabled ones
	IncludeDeleted bool
	Limit          int // 0: no limit
	Cursor         string
}

// ListApplications returns applications, the last updated first, then by ID. It also returns
// the cursor of the next page, "" if there is none.
func (s *Store) ListApplications(ctx context.Context, q ApplicationQuery) ([]deploy.Application, string, error) {
	var f filter
	f.equal("name", q.Name)
	f.equal("kind", q.Kind)
	f.equal("repo_id", q.RepoID)
	if !q.IncludeAll {
		f.add("disabled = ?", q.Disabled)
	}
	if !q.IncludeDeleted {
		f.add("deleted = FALSE")
	}
	f.labels("application_labels", "application_id", "applications.id", q.Labels)
	if err := f.after(q.Cursor); err != nil {
		return nil, "", err
	}
	if _, err := s.scoped(ctx, &f, q.Scope, scopedList{"applications", "id", "updated_at"}, q.Name != "", q.Limit, q.Cursor); err != nil {
		return nil, "", s.fail(err, "list applications")
	}
	query := f.limit(selectApplication+f.where()+" ORDER BY updated_at DESC, id", q.Limit)
	apps, err := all(ctx, s, scanApplication, query, f.args...)
	if err != nil || len(apps) == 0 {
		return nil, "", s.fail(err, "list applications")
	}
	last := apps[len(apps)-1]
	return apps, cursorAt(last.UpdatedAt, last.ID), nil
}

// SetSyncState stores an application's sync state if it differs from the stored one, and
// publishes events in the same transaction. changed reports whether it did.
func (s *Store) SetSyncState(ctx context.Context, id string, state deploy.SyncState, events ...deploy.Event) (changed bool, err error) {
	state.At = milli(state.At)
	text, err := encode(state)
	if err != nil {
		return false, s.fail(err, "store the sync state of application "+id)
	}
	if old, err := s.Application(ctx, id); err != nil || old.Sync.SameAs(state) {
		return false, err
	}
	err = s.write(ctx, func(t *tx) error {
		changed = false
		old, err := t.lockApplication(ctx, id)
		if err != nil || old.Sync.SameAs(state) {
			return err
		}
		changed = true
		t.events = append(t.events, events...)
		return t.updateApplication(ctx, id, "sync_status = ?, sync_state = ?", string(state.Status), text)
	})
	return changed && err == nil, s.fail(err, "store the sync state of application "+id)
}

// SetEvaluatedCommit stores the last commit that the trigger evaluated for these applications,
// in one transaction. bases holds, by application ID, the evaluated commit on which the
// decision was based. An application whose evaluated commit has changed since, because it was
// disabled or added again, is ignored and evaluated again. Unknown, disabled and deleted
// applications are ignored, too.
func (s *Store) SetEvaluatedCommit(ctx context.Context, commit string, bases map[string]string) error {
	const perStatement = 250
	if len(bases) == 0 {
		return nil
	}
	err := s.write(ctx, func(t *tx) error {
		for chunk := range slices.Chunk(slices.Sorted(maps.Keys(bases)), perStatement) { // one locking order avoids deadlocks
			args := []any{commit}
			for _, id := range chunk {
				args = append(args, id, bases[id])
			}
			if _, err := t.exec(ctx, "UPDATE applications SET evaluated_commit = ? WHERE disabled = FALSE AND deleted = FALSE AND (id, evaluated_commit) IN (VALUES "+
				strings.TrimSuffix(strings.Repeat("(?, ?), ", len(chunk)), ", ")+")", args...); err != nil {
				return err
			}
		}
		t.changed(deploy.TopicEvaluated, commit, "")
		return nil
	})
	return s.fail(err, "store the evaluated commit "+deploy.ShortHash(commit))
}

// updateApplication sets columns of one application and publishes the change.
func (t *tx) updateApplication(ctx context.Context, id, assignments string, args ...any) error {
	args = append(args, toMilli(t.store.now()), id)
	n, err := t.exec(ctx, "UPDATE applications SET "+assignments+", updated_at = ? WHERE id = ?", args...)
	if err == nil && n == 0 {
		err = noApplication(id)
	}
	t.changed(deploy.TopicApplication, id, id)
	return err
}

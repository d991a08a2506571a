package store

import (
	"context"
	"slices"
	"time"
	"unicode/utf8"

	"github.com/c785c783/piped/piped/deploy"
)

// origin is the JSON column of a deployment's constant values.
type origin struct {
	Git        deploy.GitPath    `json:"git"`
	Kind       string            `json:"kind,omitempty"`
	Provider   string            `json:"provider,omitempty"`
	Labels     map[string]string `json:"labels,omitempty"`
	Trigger    deploy.Trigger    `json:"trigger"`
	ChainBlock int               `json:"chainBlock,omitempty"`
}

// state is the JSON column of a deployment's variable values.
type state struct {
	Reason              string                   `json:"reason,omitempty"`
	Strategy            deploy.Strategy          `json:"strategy,omitempty"`
	Summary             string                   `json:"summary,omitempty"`
	Versions            []deploy.ArtifactVersion `json:"versions,omitempty"`
	Metadata            map[string]string        `json:"metadata,omitempty"`
	RunningCommit       string                   `json:"runningCommit,omitempty"`
	RunningDir          string                   `json:"runningDir,omitempty"`
	RunningConfigFile   string                   `json:"runningConfigFile,omitempty"`
	RunningDeploymentID string                   `json:"runningDeploymentID,omitempty"`
	Timeout             time.Duration            `json:"timeout,omitempty"`
	RollbackTimeout     time.Duration            `json:"rollbackTimeout,omitempty"`
	NoAutoRollback      bool                     `json:"noAutoRollback,omitempty"`
	Deadline            int64                    `json:"deadline,omitempty"`
	Outcome             deploy.Status            `json:"outcome,omitempty"`
	OutcomeReason       string                   `json:"outcomeReason,omitempty"`
	SupersededBy        string                   `json:"supersededBy,omitempty"`
}

const selectDeployment = `SELECT id, application_id, application_name, chain_id, origin, status, state, revision,
	created_at, updated_at, completed_at FROM deployments`

func scanDeployment(row scanner) (d deploy.Deployment, err error) {
	var originText, stateText string
	var createdAt, updatedAt, completedAt int64
	if err := row.Scan(&d.ID, &d.ApplicationID, &d.ApplicationName, &d.ChainID, &originText, &d.Status, &stateText, &d.Revision,
		&createdAt, &updatedAt, &completedAt); err != nil {
		return d, err
	}
	var o origin
	if err := decode(originText, &o); err != nil {
		return d, err
	}
	var st state
	if err := decode(stateText, &st); err != nil {
		return d, err
	}
	d.Git, d.Kind, d.Provider, d.Labels, d.Trigger, d.ChainBlock = o.Git, o.Kind, o.Provider, o.Labels, o.Trigger, o.ChainBlock
	d.StatusReason, d.Strategy, d.Summary, d.Versions, d.Metadata = st.Reason, st.Strategy, st.Summary, st.Versions, st.Metadata
	d.RunningCommit, d.RunningDir, d.RunningConfigFile, d.RunningDeploymentID = st.RunningCommit, st.RunningDir, st.RunningConfigFile, st.RunningDeploymentID
	d.Timeout, d.RollbackTimeout, d.Deadline = st.Timeout, st.RollbackTimeout, fromMilli(st.Deadline)
	d.NoAutoRollback, d.Outcome, d.OutcomeReason, d.SupersededBy = st.NoAutoRollback, st.Outcome, st.OutcomeReason, st.SupersededBy
	d.CreatedAt, d.UpdatedAt, d.CompletedAt = fromMilli(createdAt), fromMilli(updatedAt), fromMilli(completedAt)
	return d, nil
}

// stateTextOf encodes the column state of d.
func stateTextOf(d *deploy.Deployment) (string, error) {
	return encode(state{
		Reason: d.StatusReason, Strategy: d.Strategy, Summary: d.Summary, Versions: d.Versions, Metadata: d.Metadata,
		RunningCommit: d.RunningCommit, RunningDir: d.RunningDir, RunningConfigFile: d.RunningConfigFile, RunningDeploymentID: d.RunningDeploymentID,
		Timeout: d.Timeout, RollbackTimeout: d.RollbackTimeout, Deadline: toMilli(d.Deadline),
		NoAutoRollback: d.NoAutoRollback, Outcome: d.Outcome, OutcomeReason: d.OutcomeReason, SupersededBy: d.SupersededBy,
	})
}

// normalize truncates d's times as the database returns them.
func normalize(d *deploy.Deployment) {
	for _, t := range []*time.Time{&d.Trigger.At, &d.Trigger.Commit.At, &d.Deadline, &d.CreatedAt, &d.UpdatedAt, &d.CompletedAt} {
		*t = milli(*t)
	}
	for i := range d.Stages {
		st := &d.Stages[i]
		st.Index = i
		for _, t := range []*time.Time{&st.Deadline, &st.StartedAt, &st.CompletedAt, &st.CreatedAt, &st.UpdatedAt} {
			*t = milli(*t)
		}
	}
}

// deployments runs a query that starts with selectDeployment, and loads the stages.
func deployments(ctx context.Context, q querier, query string, args ...any) ([]deploy.Deployment, error) {
	ds, err := all(ctx, q, scanDeployment, query, args...)
	if err != nil {
		return nil, err
	}
	every := make([]*deploy.Deployment, len(ds))
	for i := range ds {
		every[i] = &ds[i]
	}
	return ds, loadStages(ctx, q, every)
}

// deploymentsBrief is deployments without the stages of those that have ended.
func deploymentsBrief(ctx context.Context, q querier, query string, args ...any) ([]deploy.Deployment, error) {
	ds, err := all(ctx, q, scanDeployment, query, args...)
	if err != nil {
		return nil, err
	}
	var active []*deploy.Deployment
	for i := range ds {
		if !ds[i].Status.Completed() {
			active = append(active, &ds[i])
		}
	}
	return ds, loadStages(ctx, q, active)
}

// deployments is deployments in a read transaction, so that the stages have the statuses of
// the same moment.
func (s *Store) deployments(ctx context.Context, query string, args ...any) ([]deploy.Deployment, error) {
	return s.readDeployments(ctx, deployments, query, args...)
}

func (s *Store) readDeployments(ctx context.Context, read func(context.Context, querier, string, ...any) ([]deploy.Deployment, error), query string, args ...any) ([]deploy.Deployment, error) {
	var ds []deploy.Deployment
	err := s.readTogether(ctx, func(q querier) (err error) {
		ds, err = read(ctx, q, query, args...)
		return err
	})
	return ds, err
}

func deployment(ctx context.Context, q querier, id string) (deploy.Deployment, error) {
	ds, err := deployments(ctx, q, selectDeployment+" WHERE id = ?", id)
	if err != nil {
		return deploy.Deployment{}, err
	}
	if len(ds) == 0 {
		return deploy.Deployment{}, deploy.Errorf(deploy.NotFound, "there is no deployment %s", id)
	}
	return ds[0], nil
}

// Deployment returns a deployment with its stages. NotFound if there is none.
func (s *Store) Deployment(ctx context.Context, id string) (deploy.Deployment, error) {
	var d deploy.Deployment
	err := s.readTogether(ctx, func(q querier) (err error) {
		d, err = deployment(ctx, q, id)
		return err
	})
	return d, s.fail(err, "read deployment "+id)
}

// DeploymentsByID returns those of the deployments that exist, in no particular order.
func (s *Store) DeploymentsByID(ctx context.Context, ids []string) ([]deploy.Deployment, error) {
	const perQuery = 500
	var out []deploy.Deployment
	for chunk := range slices.Chunk(ids, perQuery) {
		ds, err := s.deployments(ctx, selectDeployment+" WHERE id IN ("+placeholders(len(chunk))+")", anys(chunk)...)
		if err != nil {
			return nil, s.fail(err, "read deployments")
		}
		out = append(out, ds...)
	}
	return out, nil
}

// DeploymentsByPrefix returns up to limit deployments whose ID begins with prefix
// (case-sensitive), the last triggered first.
func (s *Store) DeploymentsByPrefix(ctx context.Context, prefix string, limit int) ([]deploy.Deployment, error) {
	var f filter
	f.add("substr(id, 1, ?) = ?", utf8.RuneCountInString(prefix), prefix)
	ds, err := s.deployments(ctx, f.limit(selectDeployment+f.where()+" ORDER BY triggered_at DESC, id", limit), f.args...)
	return ds, s.fail(err, "find deployments by the beginning of their ID")
}

// DeploymentsIn returns the deployments in any of these statuses, the first triggered
// first.
func (s *Store) DeploymentsIn(ctx context.Context, statuses ...deploy.Status) ([]deploy.Deployment, error) {
	var f filter
	in(&f, "status", statuses)
	ds, err := s.deployments(ctx, selectDeployment+f.where()+" ORDER BY triggered_at, id", f.args...)
	return ds, s.fail(err, "list deployments by status")
}

const atStage = ` WHERE status = ? AND EXISTS (
	SELECT 1 FROM stages WHERE stages.deployment_id = deployments.id AND stages.status = ? AND stages.name = ?) ORDER BY triggered_at, id`

// DeploymentsAtStage returns the running deployments in which a stage of this name runs, the first
// triggered first.
func (s *Store) DeploymentsAtStage(ctx context.Context, name string) ([]deploy.Deployment, error) {
	ds, err := s.deployments(ctx, selectDeployment+atStage, string(deploy.Running), string(deploy.StageRunning), name)
	return ds, s.fail(err, "list deployments at stage "+name)
}

// CountTriggered counts the deployments of an application with a kind of trigger that were
// triggered at since or later: for one commit, or with commit "" for any.
func (s *Store) CountTriggered(ctx context.Context, appID string, kind deploy.TriggerKind, commit string, since time.Time) (int, error) {
	var f filter
	f.add("application_id = ?", appID)
	f.add("updated_at >= ?", toMilli(since)) // not before the trigger; the index contains it
	f.add("triggered_at >= ?", toMilli(since))
	f.add("trigger_kind = ?", string(kind))
	f.equal("commit_hash", commit)
	n, _, err := one(ctx, s, scanNumber, "SELECT COUNT(*) FROM deployments"+f.where(), f.args...)
	return int(n), s.fail(err, "count the deployments of application "+appID)
}

// LastTriggered returns the last time at which a trigger of a kind created a deployment of an
// application; zero if there is none.
func (s *Store) LastTriggered(ctx context.Context, appID string, kind deploy.TriggerKind) (time.Time, error) {
	n, _, err := one(ctx, s, scanNumber, "SELECT COALESCE(MAX(triggered_at), 0) FROM deployments WHERE application_id = ? AND trigger_kind = ?",
		appID, string(kind))
	return fromMilli(n), s.fail(err, "find the last deployment of application "+appID)
}

const selectTransition = "SELECT deployment_id, stage_id, from_status, to_status, reason, at FROM transitions"

// Transitions returns a deployment's transition log in chronological order.
func (s *Store) Transitions(ctx context.Context, deploymentID string) ([]deploy.Transition, error) {
	ts, err := all(ctx, s, scanTransition, selectTransition+" WHERE deployment_id = ? ORDER BY revision, position", deploymentID)
	return ts, s.fail(err, "read the transitions of deployment "+deploymentID)
}

func scanTransition(row scanner) (t deploy.Transition, err error) {
	var at int64
	err = row.Scan(&t.DeploymentID, &t.StageID, &t.From, &t.To, &t.Reason, &at)
	t.At = fromMilli(at)
	return t, err
}

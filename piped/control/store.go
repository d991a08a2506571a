package control

import (
	"context"

	"github.com/c785c783/piped/piped/access"
	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/store"
)

// Store is the part of *store.Store that the API uses. Unknown IDs are errors of kind
// NotFound, invalid cursors of kind Invalid.
type Store interface {
	access.Store
	keys
	users
	auditRecords
	registrations
	agentRecord
	registeredEvents
	removals
	planPreviews
	pullPreviews
	adoptions
	driftReports
	catalogStore
	history
	deadLetters

	// Application returns an application, also a deleted one; ApplicationsByID those that
	// exist.
	Application(ctx context.Context, id string) (deploy.Application, error)
	ApplicationsByID(ctx context.Context, ids []string) ([]deploy.Application, error)
	// ListApplications and ListDeployments return rows, the last updated first, then by
	// ID, and the cursor of the next page, "" at the end.
	ListApplications(ctx context.Context, q store.ApplicationQuery) ([]deploy.Application, string, error)
	ListDeployments(ctx context.Context, q store.DeploymentQuery) ([]deploy.Deployment, string, error)
	// DeploymentsIn returns the deployments in any of these statuses, the first
	// triggered first; DeploymentsAtStage the running ones in which a stage of this name runs;
	// DeploymentsByID those that exist.
	DeploymentsIn(ctx context.Context, statuses ...deploy.Status) ([]deploy.Deployment, error)
	DeploymentsAtStage(ctx context.Context, name string) ([]deploy.Deployment, error)
	DeploymentsByID(ctx context.Context, ids []string) ([]deploy.Deployment, error)
	// DeploymentsByPrefix returns deployments by ID prefix, the last triggered first.
	DeploymentsByPrefix(ctx context.Context, prefix string, limit int) ([]deploy.Deployment, error)
	// ListRollouts returns rollouts, the last started first, then by ID, and the cursor
	// of the next page, "" at the end.
	ListRollouts(ctx context.Context, q store.RolloutList) ([]deploy.Rollout, string, error)
	// Deployment returns a deployment with its stages; Transitions its transition log;
	// StageLogs its logs by stage ID; StageLogAfter the next blocks of a log after an
	// index, -1 for the start; StageLogBefore the newest before an index;
	// LastLogIndex the index of its last block, -1 if empty.
	Deployment(ctx context.Context, id string) (deploy.Deployment, error)
	Transitions(ctx context.Context, deploymentID string) ([]deploy.Transition, error)
	StageLogs(ctx context.Context, deploymentID string) (map[string][]deploy.LogBlock, error)
	StageLogAfter(ctx context.Context, deploymentID, stageID string, index int64, limit int) ([]deploy.LogBlock, error)
	StageLogBefore(ctx context.Context, deploymentID, stageID string, index int64, limit int) ([]deploy.LogBlock, error)
	LastLogIndex(ctx context.Context, deploymentID, stageID string) (int64, error)
	// Places returns the paths of a repository's applications.
	Places(ctx context.Context, repoID string) (deploy.Places, error)
	// Watch returns a feed of the changes committed from now on.
	Watch(topics ...deploy.Topic) *store.Watch
	// Chain returns a deployment chain with the states of its nodes. Candidates returns the
	// configurations in Git that are not applications, by repository and path.
	Chain(ctx context.Context, id string) (deploy.Chain, error)
	Candidates(ctx context.Context) ([]deploy.Candidate, error)
	// Command returns a command; CreateCommand stores a new open one and announces it.
	Command(ctx context.Context, id string) (deploy.Command, error)
	CreateCommand(ctx context.Context, c deploy.Command) (deploy.Command, error)
}

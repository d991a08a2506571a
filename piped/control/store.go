package control

import (
	"context"

	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/store"
)

// Store is what the API reads and writes; *store.Store is one. Unknown IDs are
// errors of kind NotFound, cursors that no list gave of kind Invalid.
type Store interface {
	keyStore
	registrations
	agentRecord
	registeredEvents
	removals
	planPreviews
	adoptions
	driftReports

	// Application returns an application, deleted or not.
	Application(ctx context.Context, id string) (deploy.Application, error)
	// ListApplications and ListDeployments return rows last updated first, then
	// by ID, and the cursor behind the last of them: "" when there is none.
	ListApplications(ctx context.Context, q store.ApplicationQuery) ([]deploy.Application, string, error)
	ListDeployments(ctx context.Context, q store.DeploymentQuery) ([]deploy.Deployment, string, error)
	// DeploymentsIn returns the deployments in any of these statuses, the one that
	// was triggered first first, DeploymentsByID those of the IDs that exist.
	DeploymentsIn(ctx context.Context, statuses ...deploy.Status) ([]deploy.Deployment, error)
	DeploymentsByID(ctx context.Context, ids []string) ([]deploy.Deployment, error)
	// DeploymentsByPrefix returns deployments whose ID begins with prefix, the last
	// that was triggered first.
	DeploymentsByPrefix(ctx context.Context, prefix string, limit int) ([]deploy.Deployment, error)
	// ListRollouts returns rollouts, the last that started first, then by ID, and
	// the cursor of the next page: "" when there is none.
	ListRollouts(ctx context.Context, q store.RolloutList) ([]deploy.Rollout, string, error)
	// Deployment returns a deployment with its stages, Transitions its
	// transition log, StageLogs its logs by stage ID, StageLogAfter the next blocks
	// of one of them behind an index, -1 for the beginning, LastLogIndex the index of
	// its last block, -1 while there is none.
	Deployment(ctx context.Context, id string) (deploy.Deployment, error)
	Transitions(ctx context.Context, deploymentID string) ([]deploy.Transition, error)
	StageLogs(ctx context.Context, deploymentID string) (map[string][]deploy.LogBlock, error)
	StageLogAfter(ctx context.Context, deploymentID, stageID string, index int64, limit int) ([]deploy.LogBlock, error)
	LastLogIndex(ctx context.Context, deploymentID, stageID string) (int64, error)
	// Places returns which application is where in a repository.
	Places(ctx context.Context, repoID string) (deploy.Places, error)
	// Watch tells of what is committed after it returned.
	Watch(topics ...deploy.Topic) *store.Watch
	// Chain returns a deployment chain with the states of its nodes, Candidates
	// what stands in Git and is no application, by repository and path.
	Chain(ctx context.Context, id string) (deploy.Chain, error)
	Candidates(ctx context.Context) ([]deploy.Candidate, error)
	// Command returns a command; CreateCommand stores a new one, open, and
	// announces it.
	Command(ctx context.Context, id string) (deploy.Command, error)
	CreateCommand(ctx context.Context, c deploy.Command) (deploy.Command, error)
}

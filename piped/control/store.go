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

	// Application returns an application, deleted or not.
	Application(ctx context.Context, id string) (deploy.Application, error)
	// ListApplications and ListDeployments return rows last updated first, then
	// by ID, and the cursor behind the last of them: "" when there is none.
	ListApplications(ctx context.Context, q store.ApplicationQuery) ([]deploy.Application, string, error)
	ListDeployments(ctx context.Context, q store.DeploymentQuery) ([]deploy.Deployment, string, error)
	// Deployment returns a deployment with its stages, Transitions its
	// transition log, StageLogs its logs by stage ID.
	Deployment(ctx context.Context, id string) (deploy.Deployment, error)
	Transitions(ctx context.Context, deploymentID string) ([]deploy.Transition, error)
	StageLogs(ctx context.Context, deploymentID string) (map[string][]deploy.LogBlock, error)
	// Chain returns a deployment chain with the states of its nodes, Candidates
	// what stands in Git and is no application, by repository and path.
	Chain(ctx context.Context, id string) (deploy.Chain, error)
	Candidates(ctx context.Context) ([]deploy.Candidate, error)
	// Command returns a command; CreateCommand stores a new one, open, and
	// announces it.
	Command(ctx context.Context, id string) (deploy.Command, error)
	CreateCommand(ctx context.Context, c deploy.Command) (deploy.Command, error)
}

// keyStore is where API keys are looked up, disabled ones included. An unknown
// ID is an error of kind NotFound.
type keyStore interface {
	APIKey(ctx context.Context, id string) (deploy.APIKey, error)
}

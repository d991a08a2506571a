package control

import (
	"context"
	"time"

	"github.com/c785c783/piped/piped/deploy"
)

// Store is what the API reads and writes. Unknown IDs are errors of kind
// NotFound.
type Store interface {
	keyStore

	Application(ctx context.Context, id string) (deploy.Application, error)
	Applications(ctx context.Context, q ApplicationQuery) ([]deploy.Application, error)
	Deployment(ctx context.Context, id string) (deploy.Deployment, error)
	Deployments(ctx context.Context, q DeploymentQuery) ([]deploy.Deployment, error)
	Transitions(ctx context.Context, deploymentID string) ([]deploy.Transition, error)
	Command(ctx context.Context, id string) (deploy.Command, error)
	AddCommand(ctx context.Context, c deploy.Command) error
	// StageLogs returns the newest blocks of a stage, oldest first.
	StageLogs(ctx context.Context, deploymentID, stageID string, newest int) ([]deploy.LogBlock, error)
}

// Position is a place in a list ordered by UpdatedAt descending, ID ascending.
type Position struct {
	UpdatedAt time.Time
	ID        string
}

// ApplicationQuery selects applications that are not deleted.
type ApplicationQuery struct {
	Name     string
	Kind     string
	Disabled bool
	Labels   map[string]string
	After    Position // zero for the first page
	Limit    int
}

// DeploymentQuery selects deployments.
type DeploymentQuery struct {
	Statuses        []deploy.Status
	ApplicationIDs  []string
	ApplicationName string
	Labels          map[string]string
	After           Position
	Limit           int
}

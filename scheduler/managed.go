package scheduler

import (
	"context"
	"time"

	"github.com/c785c783/piped/piped/deploy"
)

// managedInterval is the interval of checks whether another agent manages a cluster.
const managedInterval = time.Second

// awaitManaged waits until this agent manages the cluster of the deployment, and then
// returns nil. If ctx ends first it returns the result of the stage. Every stage waits,
// because some have effects outside of the cluster, such as scripts.
func (s *Scheduler) awaitManaged(ctx context.Context, run deploy.StageRun) *deploy.StageResult {
	if s.Managed == nil {
		return nil
	}
	said := ""
	for {
		err := s.Managed(run.Deployment.Provider)
		if err == nil {
			if said != "" {
				run.Log.Infof("This agent manages the cluster now; the stage goes on")
			}
			return nil
		}
		if err.Error() != said {
			said = err.Error()
			run.Log.Infof("Held: %v", err)
		}
		select {
		case <-time.After(managedInterval):
		case <-ctx.Done():
			return &deploy.StageResult{Status: deploy.Stopped(ctx).Status(), Reason: "held: " + said, NoRollback: run.First()}
		}
	}
}
